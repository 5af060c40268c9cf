"""
### Delete what no snapshot needs any more

Old snapshots leave the repository by its retention (`statecore repo forget`). This Dag deletes what only they needed,
and what jobs have uploaded and never published.

**It runs beside everything else**: jobs that publish, fetches, checkpoints, other runs. The first run that finds
garbage lists it, and a run at least `min_age` later deletes it. It needs the right to delete in the object store.

| task | what it does |
| --- | --- |
| `plan` | what each application's collection would delete now; nothing is changed |
| `check_plans` | fails if an application could not be planned; the others are collected all the same |
| `approve` | asks a person if that is more than *Ask above*: *Required Actions*. No answer deletes nothing |
| `prune` | one for each application: deletes what `plan` has shown, and lists what is garbage now |

What becomes old enough while `approve` waits for an answer is deleted by the next run.

There is no schedule unless the site sets `STATECORE_PRUNE_SCHEDULE` (once a day is enough), with
`STATECORE_REPOSITORY`.

**If a snapshot that counts cannot be read, nothing of its application is deleted**: `check_plans` fails, with what to
do, whatever is answered for the others; the table to be approved says so, too.
A retry, a cleared task and a killed one go on with what is left. *Operating it in Airflow* (`docs/airflow.md`)
describes every setting.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, task

from statecore.airflow.failures import refused, retry_policy
from statecore.airflow.prune import CollectionApproval, params
from statecore.airflow.settings import MAPPED_AT_ONCE, Settings

SETTINGS = Settings.from_environment()
SETTINGS.check_prune_schedule()

with DAG(
    dag_id="prune_snapshots",
    schedule=SETTINGS.prune_schedule,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    params=params(SETTINGS.repository),
    render_template_as_native_obj=False,
    doc_md=__doc__,
    tags=["statecore", "kafka-streams", "repository"],
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30), "retry_policy": retry_policy()},
):

    @task
    def plan(**context: Any) -> list[dict[str, Any]]:
        """What each application's collection would delete."""
        import logging

        from statecore.airflow.prune import planned_collections
        from statecore.errors import StatecoreError

        log = logging.getLogger(__name__)
        try:
            return [dict(one) for one in planned_collections(context["params"], log)]
        except StatecoreError as error:
            raise refused(error, log) from error

    @task
    def check_plans(planned: Any) -> None:
        """Fail if an application could not be planned."""
        import logging

        from statecore.airflow import prune as prune_tasks

        prune_tasks.check_plans(planned, logging.getLogger(__name__))

    @task(
        pool=SETTINGS.jobs_pool,
        max_active_tis_per_dag=MAPPED_AT_ONCE,
        map_index_template="{{ task.op_kwargs['application_id'] }}",
    )
    def prune(application_id: str, lists: list[str], **context: Any) -> dict[str, Any]:
        """Delete what an earlier run has listed and the plan has shown, and list what is garbage now."""
        import logging

        from statecore.airflow.prune import collect
        from statecore.errors import StatecoreError

        log = logging.getLogger(__name__)
        try:
            return collect(context["params"], application_id, lists, log)
        except StatecoreError as error:
            raise refused(error, log) from error

    planned = plan()
    check_plans(planned)
    approve = CollectionApproval(task_id="approve", planned=planned, response_timeout=timedelta(days=1))
    prune.expand_kwargs(approve.output)
