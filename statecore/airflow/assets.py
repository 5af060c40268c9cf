"""The stores as Airflow assets: one name and URI for each, however a DAG comes by it.

``statecore://<application id>/<store>``. Airflow takes any scheme for which no provider registers a handler as it
is (it only refuses ``airflow:``). Which stores there are is known at run time only, so the DAGs declare the alias
``STORES`` as outlet and attach the assets to it while they run. A DAG that wants to follow one store says
``schedule=[store_asset("orders", "orders-by-id")]``, one that wants all says ``schedule=[STORES]``.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias

GROUP = "statecore"
"""The group in which Airflow shows the assets."""

SCHEME = "statecore://"

STORES = AssetAlias("statecore-stores", group=GROUP)
"""Stands for every store that a run of a DAG brings up to date."""


def store_uri(application_id: str, store: str) -> str:
    """The URI of a store's asset."""
    return f"{SCHEME}{quote(application_id, safe='')}/{quote(store, safe='')}"


def store_asset(application_id: str, store: str) -> Asset:
    """The asset of a store. Name and URI are made here alone: two names for one URI make Airflow drop one of them."""
    return Asset(name=f"{application_id}/{store}", uri=store_uri(application_id, store), group=GROUP)


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
