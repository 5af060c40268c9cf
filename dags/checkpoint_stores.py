"""
### Keep the snapshots of Kafka Streams applications fresh

Advances the newest snapshot of each application by what its changelogs have got since, at the cost of that.

**The application goes on running**: its state directory is not touched, and need not be seen from here.

| task | what it does |
| --- | --- |
| `decide` | looks at all applications: when was the last checkpoint, is anything new, whose interval is over |
| `checkpoint` | one for each application that is due; publishes what is new, sends the asset event |

The interval is each application's own: `statestore.checkpoint.interval.ms` in its `stores.yaml`, five minutes by
default. The Dag only has to look often enough: `STATECORE_CHECKPOINT_TICK` says how often (`1m`), with
`STATECORE_SPECS` and `STATECORE_REPOSITORY` beside it; without it nothing runs by itself. Where nothing is due
`checkpoint` is skipped and the run is green.

A little tail is read by the worker, in a process of its own; a long one, and a changelog that has to be read whole, by
Spark. What is published is the same. The tab *Progress* of the run shows how far every checkpoint is.

**An application that nobody can look at** (a spec that cannot be read, brokers that do not answer) gets a task all the
same, which fails at once with the reason, at every tick until that is mended; the page *State stores* shows it as
failing for as long. The others are not kept waiting.

**An application that takes long** (its changelog is read whole) keeps none waiting: the next runs go on with the
others, and leave it alone for as long as its checkpoint is under way.

**A retry and a cleared task go on with the plan of the first try.** Two checkpoints of one application at once do no
harm: what one has published the other finds. With `force` every application gets a checkpoint, due or not. *Operating
it in Airflow* (`docs/airflow.md`) has every setting.
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
from statecore.airflow.settings import Settings
from statecore.jobs.checkpoint.request import CheckpointRequest

SETTINGS = Settings.from_environment()
SETTINGS.check_tick()
TICK = SETTINGS.checkpoint_tick_ms
# A run lasts as long as its slowest application; the others go on in the runs of the next ticks.
RUNS = 16
# Beside this file's folder: with versioned Dag bundles that is the job of the same commit.
JOBS = Path(os.environ.get("STATECORE_SPARK_JOBS") or Path(__file__).resolve().parents[1] / "spark_jobs")

PARAMS = {
    "applications": applications_param(SETTINGS.specs),
    "force": Param(
        False,
        type="boolean",
        title="All of them, now",
        description="Make a checkpoint of every application named above, whether one is due or not.",
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
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
):

    @task
    def decide(params: dict[str, Any]) -> list[dict[str, Any]]:
        """Look which applications are due; one request for each of them."""
        import logging

        from statecore.airflow.due_applications import due_requests
        from statecore.errors import StatecoreError

        log = logging.getLogger(__name__)
        try:
            return due_requests(params, log)
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
