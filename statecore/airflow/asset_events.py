"""Asset events of a job's task: one for each placement of a store and one for each published snapshot, exactly once.

Airflow commits the events of a task in the same transaction as its success, so the task that did the work has to send
them. A try may place the stores and die before it succeeds, and the next try cannot tell from the placed stores whether
their events were sent. Every event therefore carries the placement's id (or the snapshot's), and a try sends those
events that Airflow does not have yet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from statecore.airflow.assets import SNAPSHOTS, STORES, event_extra, snapshot_asset, snapshot_extra, store_asset

if TYPE_CHECKING:
    from airflow.sdk import AssetAlias, Context


def announce(context: Context, report: Mapping[str, Any], parts: Mapping[str, Mapping[str, Any]]) -> Collection[str]:
    """Add the events of a report's stores to those that Airflow sends when the task succeeds.

    Returns:
        The stores whose events were added; none that an earlier try has sent for this placement.
    """
    placed = bool(report.get("placed", True))
    known = set() if placed else _sent(context, STORES, "placement", placement_of(report))
    added = []
    for store, part in parts.items():
        asset = store_asset(str(report["application_id"]), store)
        if asset.uri not in known:
            extra = {**event_extra(dict(part)), "placement": placement_of(report)}
            context["outlet_events"][STORES].add(asset, extra=extra)
            added.append(store)
    return added


def announce_snapshot(context: Context, report: Mapping[str, Any]) -> bool:
    """Add the event of a report's snapshot, unless an earlier try has sent it; returns whether it was added.

    The task has ``SNAPSHOTS`` among its inlets and outlets; the report names a published snapshot.
    """
    published, asset = report["published"], snapshot_asset(str(report["application_id"]))
    # If the stores were in place already, an earlier try placed and published them, and the report is of that try.
    if published.get("earlier") or (report.get("state_dir") and not report.get("placed", True)):
        known = _sent(context, SNAPSHOTS, "snapshot", str(published["snapshot"]))
    else:
        known = set()
    if asset.uri in known:
        return False
    context["outlet_events"][SNAPSHOTS].add(asset, extra=snapshot_extra(report))
    return True


def placement_of(report: Mapping[str, Any]) -> str:
    """The id of a report's placement; the plan id for reports of older jobs."""
    return str(report.get("placement") or report.get("plan_id"))


def _sent(context: Context, alias: AssetAlias, key: str, name: str) -> set[str]:
    """URIs of the assets that have an event since the run began with ``name`` under ``key``.

    Events of a run are never older than the run, so only those are read.
    """
    since = context["dag_run"].run_after
    events = context["inlet_events"][alias].after(since.isoformat())
    return {event.asset.uri for event in events if (event.extra or {}).get(key) == name}
