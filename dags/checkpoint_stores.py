"""
### Keep the snapshots of Kafka Streams applications up to date

Appends the new records of each application's changelogs to its newest snapshot. The cost depends on the number of new
records only.

**The application keeps running**: its state directory is not touched, and need not be accessible from the workers.

| task | what it does |
| --- | --- |
| `decide` | checks for each application whether its interval is over and whether there are new records |
| `checkpoint` | one for each application that is due: publishes the snapshot and sends the asset event |

Each application has its own interval: `statestore.checkpoint.interval.ms` in its `stores.yaml`, five minutes by
default. The Dag only has to run often enough: set `STATECORE_CHECKPOINT_TICK` (such as `1m`), with `STATECORE_SPECS`
and `STATECORE_REPOSITORY`; without it there is no schedule. If no application is due, `checkpoint` is skipped and the
run succeeds.

Short tails are read by a process on the worker; long tails, and changelogs that have to be read from the start, by
Spark. Both publish the same. The tab *Statecore progress* of the run shows the progress of every checkpoint.

**An application that cannot be checked** (its spec cannot be read, or its brokers do not answer) gets a task that fails
at once with the reason, at every tick until the cause is removed; until then the page *State stores* shows it as
failing. The other applications are not delayed.

**An application has at most one checkpoint that waits** for a slot of Airflow, or runs: the next ticks skip it.
Checkpoints come before the jobs of the other Dags, which can have a pool of their own (`STATECORE_JOBS_POOL`).

**A long checkpoint** (a changelog is read from the start) does not delay other applications: the next runs skip the
application until its checkpoint has ended.

**A retry and a cleared task resume the plan of the first try.** Two concurrent checkpoints of one application do no
harm: the second one detects what the first has published. With `force` every application gets a checkpoint, due or not.
*Operating it in Airflow* (`docs/airflow.md`) describes every setting.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, task

from statecore.airflow.assets import SNAPSHOTS
from statecore.airflow.checkpoint_operator import StatecoreCheckpointOperator
from statecore.airflow.failures import refused, retry_policy
from statecore.airflow.form import applications_param, params_of, spark_params
from statecore.airflow.settings import CHECKPOINT_PRIORITY, DECIDE_PRIORITY, Settings
from statecore.jobs.checkpoint.request import CheckpointRequest

SETTINGS = Settings.from_environment()
SETTINGS.check_tick()
TICK = SETTINGS.checkpoint_tick_ms
# A run lasts as long as its slowest application; the other applications continue in the runs of the next ticks.
RUNS = 16
# Next to this file's folder, so that a versioned Dag bundle uses the jobs of the same commit.
JOBS = Path(os.environ.get("STATECORE_SPARK_JOBS") or Path(__file__).resolve().parents[1] / "spark_jobs")

PARAMS = {
    "applications": applications_param(SETTINGS.specs),
    "force": Param(
        False,
        type="boolean",
        title="Include applications that are not due",
        description="Make a checkpoint of every application, due or not.",
    ),
    **params_of(
        CheckpointRequest,
        needed=("repository",),
        without=("stores", "partitions"),
        repository=SETTINGS.repository,
    ),
    **spark_params(),
}

with DAG(
    dag_id="checkpoint_stores",
    schedule=None if TICK is None else timedelta(milliseconds=TICK),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=RUNS,
    params=PARAMS,
    render_template_as_native_obj=False,
    doc_md=__doc__,
    tags=["statecore", "kafka-streams", "checkpoint"],
    default_args={
        "retries": 2,
        "retry_delay": timedelta(seconds=30),
        "priority_weight": CHECKPOINT_PRIORITY,
        "weight_rule": "absolute",
    },
):

    @task(priority_weight=DECIDE_PRIORITY)
    def decide(**context: Any) -> list[dict[str, Any]]:
        """Find the applications that are due; one request for each of them."""
        import logging

        from statecore.airflow.due_applications import due_requests
        from statecore.errors import StatecoreError

        log = logging.getLogger(__name__)
        try:
            return due_requests(context["params"], log, context["ti"])
        except StatecoreError as error:
            raise refused(error, log) from error

    StatecoreCheckpointOperator.partial(
        task_id="checkpoint",
        application=str(JOBS / "checkpoint.py"),
        conn_id=SETTINGS.spark_conn_id,
        inlets=[SNAPSHOTS],
        outlets=[SNAPSHOTS],
        map_index_template="{{ task.application_id }}",
        retry_policy=retry_policy(),
    ).expand_kwargs(decide())
