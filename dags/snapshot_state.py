"""
### Publish snapshots of the state of Kafka Streams applications

Reads the changelog topics with Spark and publishes their state as one snapshot of each application in the repository.
Any instance can start from a snapshot.

**The application keeps running**: its state directory is not touched, and need not be accessible from the workers.

| task | what it does |
| --- | --- |
| `read_specs` | reads and checks the specs; one request for each application |
| `publish` | one Spark job for each application; logs and returns its report, sends the asset event |

The tab *Statecore progress* of the run shows the progress of every job, the tab *Storage* of a task that of its own.

**A retry and a cleared task resume the plan of the first try** (the same offsets): a snapshot that a try has published
is not published again, and each snapshot has one asset event. A new run reads up to the current ends of the changelogs
and publishes a new snapshot; files that the last snapshot has are not stored twice. A snapshot is published completely
or not at all. A wrong spec, an unknown topic or a concurrent job that publishes the same tasks fails at once, with what
to do in the log; if a broker or the object store is not available the task is retried.

There is no schedule unless the site sets `STATECORE_SNAPSHOT_SCHEDULE`, with `STATECORE_SPECS` and
`STATECORE_REPOSITORY`; the first run then starts at once. With `plan_only` the plan is logged, and nothing is
published. Secrets are not parameters: those of Kafka come from the connection `kafka_<application id>` or the site's,
those of the object store from the machine that runs the job or from the connection of `STATECORE_AWS_CONN`. *Operating
it in Airflow* (`docs/airflow.md`) describes every setting.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from statecore.airflow.assets import SNAPSHOTS
from statecore.airflow.failures import retry_policy
from statecore.airflow.form import applications_param, params_of, spark_params
from statecore.airflow.operators import StatecoreSparkOperator
from statecore.airflow.requests import NOT_OF_SNAPSHOTS
from statecore.airflow.settings import MAPPED_AT_ONCE, Settings
from statecore.jobs.restore.request import RestoreRequest

SETTINGS = Settings.from_environment()
SETTINGS.check_schedule()
# Next to this file's folder, so that a versioned Dag bundle uses the jobs of the same commit.
JOBS = Path(os.environ.get("STATECORE_SPARK_JOBS") or Path(__file__).resolve().parents[1] / "spark_jobs")

PARAMS = {
    "applications": applications_param(SETTINGS.specs),
    **params_of(
        RestoreRequest,
        needed=("repository",),
        without=NOT_OF_SNAPSHOTS,
        repository=SETTINGS.repository,
        start_from="none",
    ),
    **spark_params(),
}

with DAG(
    dag_id="snapshot_state",
    schedule=SETTINGS.snapshot_schedule,
    # Some presets need a start date.
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    params=PARAMS,
    render_template_as_native_obj=False,
    doc_md=__doc__,
    tags=["statecore", "kafka-streams", "snapshot"],
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
):

    @task
    def read_specs(**context: Any) -> list[dict[str, Any]]:
        """Check the parameters and the specs; one request for each application."""
        import logging

        from statecore.airflow.requests import snapshot_requests
        from statecore.airflow.spec_reading import read_specs

        return read_specs(snapshot_requests, context, logging.getLogger(__name__))

    StatecoreSparkOperator.partial(
        task_id="publish",
        application=str(JOBS / "restore.py"),
        conn_id=SETTINGS.spark_conn_id,
        inlets=[SNAPSHOTS],
        outlets=[SNAPSHOTS],
        map_index_template="{{ task.application_id }}",
        retry_policy=retry_policy(),
        pool=SETTINGS.jobs_pool,
        max_active_tis_per_dag=MAPPED_AT_ONCE,
    ).expand_kwargs(read_specs())
