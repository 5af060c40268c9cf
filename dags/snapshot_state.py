"""
### Publish snapshots of the state of Kafka Streams applications

Reads the changelog topics with Spark and publishes what they come to as one snapshot of each application into the
repository, from which any instance can start.

**The application goes on running**: its state directory is not touched, and need not be seen from here.

| task | what it does |
| --- | --- |
| `read_specs` | reads and checks the specs; one request for each application |
| `publish` | one Spark job for each application; shows and returns what it published, sends the asset event |

The tab *Progress* of the run shows how far every job is, the tab *Storage* of a task how far its own.

**A retry and a cleared task go on with the plan of the first try** (the same offsets): what a try has published is
found by the next one and not published again, and each snapshot is announced once. A new run reads up to the present
and publishes anew; files that the last snapshot has already are not kept twice. A snapshot is published whole or not at
all. A wrong spec, an unknown topic or a job that publishes the same tasks at the same time fails at once, with what to
do about it in the log; a broker or an object store that is away is tried again.

It has no schedule unless the site sets `STATECORE_SNAPSHOT_SCHEDULE`, with `STATECORE_SPECS` and
`STATECORE_REPOSITORY` beside it; the first run then comes at once. With `plan_only` the plan is shown, and nothing is
published. Secrets are no parameters: those of Kafka come from the connection `kafka_<application id>` or the site's,
those of the object store from where the job runs or from the connection of `STATECORE_AWS_CONN`. *Operating it in
Airflow* (`docs/airflow.md`) has every setting.
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
from statecore.airflow.settings import Settings
from statecore.jobs.restore.request import RestoreRequest

SETTINGS = Settings.from_environment()
SETTINGS.check_schedule()
# Beside this file's folder: with versioned Dag bundles that is the job of the same commit.
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
    # Some presets never begin without one; nothing is caught up.
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

        from statecore.airflow.reading import read_specs
        from statecore.airflow.requests import snapshot_requests

        return read_specs(snapshot_requests, context, logging.getLogger(__name__))

    StatecoreSparkOperator.partial(
        task_id="publish",
        application=str(JOBS / "restore.py"),
        conn_id=SETTINGS.spark_conn_id,
        inlets=[SNAPSHOTS],
        outlets=[SNAPSHOTS],
        map_index_template="{{ task.application_id }}",
        retry_policy=retry_policy(),
    ).expand_kwargs(read_specs())
