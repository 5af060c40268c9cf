"""Which asset events a job's task has to send: each placement of a store, and each snapshot, exactly once.

Airflow writes the events of a task in the same transaction as its success, so the task that did the work is the only
place to send them from: what a later task sends is lost when the earlier one alone is cleared. A try may place the
stores and die before it succeeds; the next one finds them placed and cannot know from that whether they were announced.
So it asks Airflow: the report names the placement, every event carries that name, and what has no event yet gets one.
A published snapshot is announced the same way, by its id.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from statecore.airflow.assets import SNAPSHOTS, STORES, event_extra, snapshot_asset, snapshot_extra, store_asset

if TYPE_CHECKING:
    from airflow.sdk import AssetAlias, Context


def announce(context: Context, report: Mapping[str, Any], parts: Mapping[str, Mapping[str, Any]]) -> Collection[str]:
    """Add the events of the stores of a report to those that the task sends when it succeeds.

    Args:
        context: the task's context; its task has ``STORES`` among its inlets and outlets.
        report: the job's report.
        parts: the report by store.

    Returns:
        The stores whose event was added: all of them, unless an earlier try has announced this very placement.
    """
    placed = bool(report.get("placed", True))
    known = set() if placed else _announced(context, STORES, "placement", placement_of(report))
    added = []
    for store, part in parts.items():
        asset = store_asset(str(report["application_id"]), store)
        if asset.uri not in known:
            extra = {**event_extra(dict(part)), "placement": placement_of(report)}
            context["outlet_events"][STORES].add(asset, extra=extra)
            added.append(store)
    return added


def announce_snapshot(context: Context, report: Mapping[str, Any]) -> bool:
    """Add the event of the snapshot of a report to those that the task sends when it succeeds.

    Args:
        context: the task's context; its task has ``SNAPSHOTS`` among its inlets and outlets.
        report: the job's report, which names a published snapshot.

    Returns:
        Whether it was added: it is, unless an earlier try has announced this very snapshot.
    """
    published, asset = report["published"], snapshot_asset(str(report["application_id"]))
    # A job that found its stores in place published before them, and its report is that of the try that did.
    if published.get("earlier") or (report.get("state_dir") and not report.get("placed", True)):
        known = _announced(context, SNAPSHOTS, "snapshot", str(published["snapshot"]))
    else:
        known = set()
    if asset.uri in known:
        return False
    context["outlet_events"][SNAPSHOTS].add(asset, extra=snapshot_extra(report))
    return True


def placement_of(report: Mapping[str, Any]) -> str:
    """What tells one placement from another: the report's own word, of an older job the plan."""
    return str(report.get("placement") or report.get("plan_id"))


def _announced(context: Context, alias: AssetAlias, key: str, name: str) -> set[str]:
    """URIs of the assets that have an event that says this name under this key.

    An event is no older than its run, and few stores are restored while a run lasts, so few events are looked at.
    """
    since = context["dag_run"].run_after
    events = context["inlet_events"][alias].after(since.isoformat())
    return {event.asset.uri for event in events if (event.extra or {}).get(key) == name}
