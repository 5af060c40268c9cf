"""The stores and the snapshots as Airflow assets: one name and URI for each, however a DAG comes by it.

==========================================  ==========================================================================
``statecore://<application id>/<store>``    a store below a state directory; alias ``STORES``
``statecore://<application id>/``           the newest snapshot of the application in a repository; alias ``SNAPSHOTS``
==========================================  ==========================================================================

Airflow takes any scheme for which no provider registers a handler as it is (it only refuses ``airflow:``), but for a
slash that it puts behind a URI without a path. Which stores and applications there are is known at run time only, so
the DAGs declare the aliases as outlets and attach the assets to them while they run. A DAG that wants to follow one
store says ``schedule=[store_asset("orders", "orders-by-id")]``, one that wants all says ``schedule=[STORES]``; the
snapshots of one application are ``snapshot_asset("orders")``, those of all ``SNAPSHOTS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias

GROUP = "statecore"
"""The group in which Airflow shows the assets."""

SCHEME = "statecore://"

STORES = AssetAlias("statecore-stores", group=GROUP)
"""Stands for every store that a run of a DAG brings up to date."""

SNAPSHOTS = AssetAlias("statecore-snapshots", group=GROUP)
"""Stands for the snapshots of every application that a run of a DAG publishes."""


def store_uri(application_id: str, store: str) -> str:
    """The URI of a store's asset."""
    return f"{SCHEME}{quote(application_id, safe='')}/{quote(store, safe='')}"


def store_asset(application_id: str, store: str) -> Asset:
    """The asset of a store. Name and URI are made here alone: two names for one URI make Airflow drop one of them."""
    return Asset(name=f"{application_id}/{store}", uri=store_uri(application_id, store), group=GROUP)


def snapshot_asset(application_id: str) -> Asset:
    """The asset of an application's snapshots. Its name is its URI, which no store's and hardly any other asset's is.

    An application has one such asset for all repositories; the event says which one is meant.
    """
    uri = f"{SCHEME}{quote(application_id, safe='')}/"
    return Asset(name=uri, uri=uri, group=GROUP)


def snapshot_extra(report: Mapping[str, Any]) -> dict[str, Any]:
    """What an event says about a snapshot that a job has published: enough to start from it, or to fetch it."""
    published = report["published"]
    return {
        "application_id": report["application_id"],
        "repository": report.get("repository"),
        "snapshot": published["snapshot"],
        "identity": published.get("identity"),
        "made": published.get("made"),
        "tasks": published.get("tasks"),
        "bytes": published.get("file_bytes"),
        "new_bytes": published.get("new_bytes"),
        "plan_id": report.get("plan_id"),
    }


def event_extra(part: dict[str, Any]) -> dict[str, Any]:
    """What an event says about a store: enough for a consumer to decide, small enough for Airflow's database."""
    offsets = part["committed_offsets"]
    return {
        # A store is restored into more than one state directory, on more than one host: the asset is one for all.
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
        "left_to_restore": part.get("left_to_restore", False),
        # An asset event is shown whole in the UI; a store of a thousand partitions keeps its offsets in the report.
        "committed_offsets": offsets if len(offsets) <= 256 else None,
    }
