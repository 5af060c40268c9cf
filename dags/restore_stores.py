"""
### Rebuild the state directories of Kafka Streams applications

Reads the changelog topics with Spark, builds the RocksDB stores and moves them into `state.dir`, so that the
application opens them with nothing left to restore.

**Stop the application first.** The job takes the application's lock, and is refused while the application runs.

| task | what it does |
| --- | --- |
| `read_specs` | reads and checks the specs; one request for each application or state directory |
| `restore` | one Spark job for each application; logs and returns its report, sends the events of its stores' assets |

A run has to choose its applications, which then have one state directory (`state_dir`), or to name `directories`, each
with its own, its host and its queue. Runs of different directories run at the same time; two of one directory do not,
because the second one does not get its lock.

The tab *Statecore progress* of the run shows the progress of every job, the tab *Storage* of a task that of its own.

**A retry and a cleared task resume the plan of the first try** (the same offsets, the same digest); a new run makes a
new plan. Asset events are sent with the success of the task that did the work, once for each placement: clearing failed
tasks sends the missing events, clearing all tasks sends none again. A wrong spec, an unknown topic or a running
application fails at once, with what to do in the log; if a broker is not available the task is retried.

Stores that are in the state directory already are advanced to the end of their changelogs if their offsets match these,
and kept unchanged if they are at the end; if the offsets do not match the run is refused. With `replace` they are
rebuilt; the old ones are deleted once the new ones are in place and verified. With a `repository` the result is also
published as a snapshot, with an asset event; the Dag `snapshot_state` publishes snapshots without stopping the
application. With `plan_only` the plan is logged, nothing is changed and no event is sent. Secrets are not parameters: a
spec refers to `${KAFKA_PASSWORD}`, which comes from the connection `kafka_<application id>` or the site's. *Operating
it in Airflow* (`docs/airflow.md`) describes every setting.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from statecore.airflow.assets import SNAPSHOTS, STORES
from statecore.airflow.failures import retry_policy
from statecore.airflow.form import chosen_applications_params, params_of, spark_params
from statecore.airflow.operators import StatecoreSparkOperator
from statecore.airflow.settings import Settings
from statecore.jobs.restore.request import RestoreRequest

SETTINGS = Settings.from_environment()
# Next to this file's folder, so that a versioned Dag bundle uses the jobs of the same commit.
JOBS = Path(os.environ.get("STATECORE_SPARK_JOBS") or Path(__file__).resolve().parents[1] / "spark_jobs")

PARAMS = {
    **chosen_applications_params(SETTINGS.specs, RestoreRequest),
    **params_of(
        RestoreRequest,
        state_dir=SETTINGS.state_dir,
        staging_dir=SETTINGS.staging_dir,
        repository=SETTINGS.repository,
    ),
    **spark_params(),
}

with DAG(
    dag_id="restore_stores",
    schedule=None,
    catchup=False,
    params=PARAMS,
    render_template_as_native_obj=False,
    doc_md=__doc__,
    tags=["statecore", "kafka-streams", "restore"],
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
):

    @task
    def read_specs(**context: Any) -> list[dict[str, Any]]:
        """Check the parameters and the specs; one request for each application."""
        import logging

        from statecore.airflow.requests import restore_requests
        from statecore.airflow.spec_reading import read_specs

        return read_specs(restore_requests, context, logging.getLogger(__name__))

    StatecoreSparkOperator.partial(
        task_id="restore",
        application=str(JOBS / "restore.py"),
        conn_id=SETTINGS.spark_conn_id,
        inlets=[STORES, SNAPSHOTS],
        outlets=[STORES, SNAPSHOTS],
        map_index_template="{{ task.application_id }}",
        retry_policy=retry_policy(),
        pool=SETTINGS.jobs_pool,
    ).expand_kwargs(read_specs())
