"""
### Rebuild the state directories of Kafka Streams applications

Reads the changelog topics with Spark, builds the RocksDB stores and moves them into `state.dir`, so that the
application opens them with nothing left to restore.

**Stop the application first.** The job takes the lock that the application itself takes and is refused while it runs.

| task | what it does |
| --- | --- |
| `read_specs` | reads and checks the specs; one request for each application |
| `restore` | one Spark job for each application; its progress is on the task's *Storage* tab |
| `list_stores` | which stores the jobs reported |
| `publish_store` | one for each store: its rows, offsets and digest, and the event of its asset |
| `all_restored` | fails the run when any of it failed |

**A retry and a cleared task go on with the plan of the first try** (the same offsets, the same digest); a new run
makes a new plan. A wrong spec, an unknown topic or a running application fails at once, with what to do about it in
the log; a broker that is away is tried again.

A state directory that holds the stores already is refused unless `replace` is set; what is replaced is moved aside
first. Secrets are no parameters: a spec says `${KAFKA_PASSWORD}`, and the site names the connection it comes from
(`STATECORE_KAFKA_CONN`).
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, TriggerRule, get_current_context, task

from statecore.airflow.assets import STORES
from statecore.airflow.failures import refused, retry_policy
from statecore.airflow.operators import StatecoreSparkOperator
from statecore.airflow.settings import Settings
from statecore.spec.size import PATTERN as MEMORY_PATTERN
from statecore.spec.spark_settings import CONF_PATTERN

SETTINGS = Settings.from_environment()
# Beside this file's folder: with versioned Dag bundles that is the job of the same commit.
JOBS = Path(os.environ.get("STATECORE_SPARK_JOBS") or Path(__file__).resolve().parents[1] / "spark_jobs")


def required(default: Any, **schema: Any) -> Param:
    """A parameter that a run has to name, unless the site has set a default."""
    return Param(default, **schema) if default else Param(**schema)


PARAMS = {
    "applications": required(
        list(SETTINGS.specs),
        type="array",
        items={"type": "string", "minLength": 1},
        minItems=1,
        title="Applications",
        description="One a line: the absolute path of a spec (stores.yaml) as the worker sees it, or a spec as JSON.",
        section="What to restore",
    ),
    "stores": Param(
        [],
        type=["null", "array"],
        items={"type": "string", "minLength": 1},
        title="Stores",
        description="One a line. Empty: every store of the specs.",
        section="What to restore",
    ),
    "partitions": Param(
        [],
        type=["null", "array"],
        items={"type": "integer", "minimum": 0},
        title="Partitions",
        description="A JSON list such as [0, 3]. Empty: every partition.",
        section="What to restore",
    ),
    "state_dir": required(
        SETTINGS.state_dir,
        type="string",
        minLength=1,
        title="State directory",
        description="state.dir of the applications, on the machine where the Spark driver runs.",
        section="Where to",
    ),
    "replace": Param(
        False,
        type="boolean",
        title="Replace what is there",
        description="Without it, a state directory that holds the stores already is refused.",
        section="Where to",
    ),
    "versioned": Param(
        "history",
        type="string",
        enum=["history", "latest"],
        title="Versioned stores",
        description="history: queries of the past answer, because Kafka Streams restores these stores itself. latest: "
        "nothing is restored, and queries of the past find only what is written from then on.",
        section="Where to",
    ),
    "memory_budget": Param(
        None,
        type=["null", "string"],
        pattern=MEMORY_PATTERN,
        title="Memory of a Spark task",
        description="Such as 512m or 2g. A larger offset range is built in several runs. Empty: the job's default.",
        section="Limits",
    ),
    "transaction_wait": Param(
        None,
        type=["null", "number"],
        minimum=0,
        title="Wait for open transactions",
        description="Seconds. Under exactly-once, how long to wait for a transaction that hangs at a changelog's end.",
        section="Limits",
    ),
    "spark_conf": Param(
        None,
        type=["null", "array"],
        items={"type": "string", "pattern": CONF_PATTERN},
        title="Spark properties",
        description="One a line, such as spark.cores.max=8; they win over the spec's and the site's. No secrets.",
        section="Spark",
    ),
    "executor_python": Param(
        None,
        type=["null", "string"],
        title="Python of the executors",
        description="On a cluster: the path, on the executors' hosts, of an interpreter with this release of "
        "statecore. Empty: that of a packed environment, else the path of the driver's own.",
        section="Spark",
    ),
    "executor_memory": Param(
        None,
        type=["null", "string"],
        pattern=MEMORY_PATTERN,
        title="Memory of an executor",
        description="Such as 2g, of the executor's JVM; the records lie beside it, in its Python workers.",
        section="Spark",
    ),
    "executor_cores": Param(
        None,
        type=["null", "integer"],
        minimum=1,
        title="Cores of an executor",
        description="As many tasks run in it at once.",
        section="Spark",
    ),
    "executor_archives": Param(
        None,
        type=["null", "array"],
        items={"type": "string", "minLength": 1},
        title="Packed environments",
        description="One a line, <path>#<name>: unpacked on every executor, whose Python is then ./<name>/bin/python.",
        section="Spark",
    ),
}

with DAG(
    dag_id="restore_stores",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    params=PARAMS,
    render_template_as_native_obj=False,
    doc_md=__doc__,
    tags=["statecore", "kafka-streams", "restore"],
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
):

    @task
    def read_specs(params: dict[str, Any]) -> list[dict[str, Any]]:
        """Check the parameters and the specs; one request for each application."""
        from statecore.airflow.requests import restore_requests
        from statecore.errors import StatecoreError

        try:
            return restore_requests(params)
        except StatecoreError as error:
            raise refused(error) from error

    restore = StatecoreSparkOperator.partial(
        task_id="restore",
        application=str(JOBS / "restore.py"),
        conn_id=SETTINGS.spark_conn_id,
        env_vars=SETTINGS.secret_env_vars(),
        map_index_template="{{ task.application_id }}",
        retry_policy=retry_policy(),
    ).expand_kwargs(read_specs())

    @task(trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS)
    def list_stores(summaries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Name the stores that were restored, also when another application's job failed."""
        from statecore.airflow.publishing import stores_of

        return stores_of(summaries)

    @task(outlets=[STORES], map_index_template="{{ store_name }}")
    def publish_store(store: dict[str, Any], *, ti: Any = None, outlet_events: Any = None) -> dict[str, Any]:
        """Show a store's part of the report and announce its new state."""
        from statecore.airflow.publishing import publish

        get_current_context()["store_name"] = store["store"]  # type: ignore[typeddict-unknown-key]
        return publish(store, task_id="restore", ti=ti, outlet_events=outlet_events)

    @task
    def all_restored() -> None:
        """Fail with the run when a job or a store failed: the stores that succeeded were published all the same."""

    published = publish_store.expand(store=list_stores(restore.output))
    [restore, published] >> all_restored()
