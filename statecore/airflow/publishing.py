"""What follows a job: each store's part of the report is shown, returned, and announced as an event of its asset."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from statecore.airflow import reports
from statecore.airflow.assets import STORES, event_extra, store_asset
from statecore.airflow.operators import PART_KEY

log = logging.getLogger(__name__)


def stores_of(summaries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Which stores the mapped jobs reported: one entry for each, with the map index of its job.

    Args:
        summaries: the results of the jobs that succeeded. Airflow leaves out the others, so the position of a result
            is not its map index; the result names it.
    """
    return [
        {"application_id": summary["application_id"], "store": store, "map_index": summary["map_index"]}
        for summary in summaries
        for store in summary["stores"]
    ]


def publish(store: Mapping[str, Any], *, task_id: str, ti: Any, outlet_events: Any) -> dict[str, Any]:
    """Fetch a store's part of the report, log it as a table, announce the store's new state, return the part.

    Args:
        store: an entry of ``stores_of``.
        task_id: the task that ran the job.
        ti: the running task instance.
        outlet_events: the context's ``outlet_events``; the task must have ``STORES`` as outlet.
    """
    part: dict[str, Any] = ti.xcom_pull(
        task_ids=task_id, key=PART_KEY.format(store=store["store"]), map_indexes=store["map_index"]
    )
    log.info("%s of %s\n%s", store["store"], store["application_id"], reports.table(part))
    outlet_events[STORES].add(store_asset(store["application_id"], store["store"]), extra=event_extra(part))
    return part
