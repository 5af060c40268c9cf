"""Stores and snapshots as Airflow assets, each with one name and one URI.

==========================================  ==========================================================================
``statecore://<application id>/<store>``    a store below a state directory; alias ``STORES``
``statecore://<application id>/``           the newest snapshot of the application in a repository; alias ``SNAPSHOTS``
==========================================  ==========================================================================

Airflow accepts any scheme without a registered handler (except ``airflow:``) and appends a slash to a URI without a
path. Stores and applications are known at run time only, so the Dags declare the aliases as outlets and attach assets
while they run. A Dag follows one store with ``schedule=[store_asset("orders", "orders-by-id")]``, all stores with
``schedule=[STORES]``, the snapshots of one application with ``snapshot_asset("orders")`` and of all with ``SNAPSHOTS``.

Each placement of a store and each published snapshot has one event, exactly once. Airflow commits the events of a task
in the same transaction as its success, so the task that did the work has to send them. A try may place the stores and
die before it succeeds, and the next try cannot tell from the placed stores whether their events were sent. Every event
therefore carries the placement's id (or the snapshot's), and a try sends those events that Airflow does not have yet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.listeners import hookimpl
from airflow.sdk import Asset, AssetAlias

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.serialization.definitions.assets import SerializedAsset

GROUP = "statecore"
"""The group in which Airflow shows the assets."""

SCHEME = "statecore://"

STORES = AssetAlias("statecore-stores", group=GROUP)
"""Stands for every store that a run of a Dag updates."""

SNAPSHOTS = AssetAlias("statecore-snapshots", group=GROUP)
"""Stands for the snapshots of every application that a run of a Dag publishes."""


def store_uri(application_id: str, store: str) -> str:
    """The URI of a store's asset."""
    return f"{SCHEME}{quote(application_id, safe='')}/{quote(store, safe='')}"


def store_asset(application_id: str, store: str) -> Asset:
    """The asset of a store; only made here, because Airflow drops one of two names for the same URI."""
    return Asset(name=f"{application_id}/{store}", uri=store_uri(application_id, store), group=GROUP)


def snapshot_asset(application_id: str) -> Asset:
    """The asset of an application's snapshots in all repositories; its URI is its name, which no store has."""
    uri = f"{SCHEME}{quote(application_id, safe='')}/"
    return Asset(name=uri, uri=uri, group=GROUP)


def snapshot_extra(report: Mapping[str, Any]) -> dict[str, Any]:
    """The extra of a snapshot's event: what a consumer needs to fetch the snapshot or start from it."""
    published = report["published"]
    return {
        "application_id": report["application_id"],
        "repository": report.get("repository"),
        "snapshot": published["snapshot"],
        "identity": published.get("identity"),
        "created_at": published.get("created_at"),
        "tasks": published.get("tasks"),
        "bytes": published.get("file_bytes"),
        "new_bytes": published.get("new_bytes"),
        "plan_id": report.get("plan_id"),
    }


def event_extra(part: dict[str, Any]) -> dict[str, Any]:
    """The extra of a store's event: enough for a consumer to decide, small enough for Airflow's database."""
    offsets = part["committed_offsets"]
    return {
        # There is one asset for a store in all state directories of all hosts.
        "application_id": part["application_id"],
        "host": part.get("host"),
        "state_dir": part["state_dir"],
        "restored": part.get("finished"),
        "rows": part["totals"]["rows"],
        "records": part["totals"]["records"],
        "digest": part["digest"],
        "plan_id": part["plan_id"],
        "partitions": len(offsets),
        "tail_left": part["tail_left"],
        "restored_by_kafka_streams": part.get("restored_by_kafka_streams", False),
        # The UI shows the whole event, so the offsets of stores with many partitions are in the report only.
        "committed_offsets": offsets if len(offsets) <= 256 else None,
    }


def add_store_events(
    context: Context, report: Mapping[str, Any], parts: Mapping[str, Mapping[str, Any]]
) -> Collection[str]:
    """Add the events of a report's stores that no earlier try has sent; returns these stores."""
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


def add_snapshot_event(context: Context, report: Mapping[str, Any]) -> bool:
    """Add the event of a report's snapshot to the outlet ``SNAPSHOTS``, unless sent; returns whether it was added."""
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
    """URIs of the assets that have an event since the run began with ``name`` under ``key``."""
    since = context["dag_run"].run_after
    events = context["inlet_events"][alias].after(since.isoformat())
    return {event.asset.uri for event in events if (event.extra or {}).get(key) == name}


@hookimpl
def on_asset_changed(asset: SerializedAsset) -> None:
    """Listener of the plugin: move an asset of statecore to its group; Airflow logs exceptions and continues.

    Airflow 3.3 creates an asset that a task adds to an alias at run time with the group ``asset``, whatever group the
    task gave (``TaskInstance.register_asset_changes_in_db``). The API server, which creates the asset, calls this after
    it has written the event.
    """
    if asset.group == GROUP or not asset.uri.startswith(SCHEME):
        return
    # Imported here, because task processes load listeners too and must not load Airflow's models.
    from airflow.models.asset import AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import update

    with create_session() as session:
        session.execute(
            update(AssetModel).where(AssetModel.name == asset.name, AssetModel.uri == asset.uri).values(group=GROUP)
        )
