"""
### Verify the snapshots of Kafka Streams applications

Reads a repository and finds damage before a start needs the snapshot: missing and truncated files, wrong bytes,
documents that cannot be read. It changes nothing but the record of what was verified when.

**The applications keep running**: only the repository is read, no broker and no state directory.

| task | what it does |
| --- | --- |
| `list_applications` | checks the parameters; one entry for each application |
| `verify` | one for each application: verifies all its snapshots, each file once |

By default each run reads a seventh of all bytes, the part whose last verification is the oldest, and the documents and
sizes of all. So with a daily schedule a week reads everything: set `STATECORE_VERIFY_SCHEDULE` (such as `@daily`), with
`STATECORE_REPOSITORY`; without it there is no schedule.

**Damage fails the task of its application**, without a retry. The log says what is damaged, which is the newest
snapshot without damage, and what to do; the other applications are verified all the same. A repository that cannot be
reached is retried. *Operating it in Airflow* (`docs/airflow.md`) describes every setting.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Param, task

from statecore.airflow.failures import refused, retry_policy
from statecore.airflow.form import repository_params
from statecore.airflow.settings import MAPPED_AT_ONCE, Settings
from statecore.airflow.verify_operator import StatecoreVerifyOperator
from statecore.errors import StatecoreError
from statecore.repository.maintenance.verification_record import Level
from statecore.repository.maintenance.verify import SUBSET_PATTERN

SETTINGS = Settings.from_environment()
SETTINGS.check_verify_schedule()

PARAMS = {
    **repository_params(SETTINGS.repository),
    "level": Param(
        Level.BYTES.value,
        type="string",
        enum=[level.value for level in Level],
        title="Level",
        description="What is verified; each level includes those before it.",
    ),
    "subset": Param(
        "/7",
        type=["null", "string"],
        pattern=f"{SUBSET_PATTERN}|^$",
        title="Part of the bytes",
        description="With the level bytes: /7 reads a seventh of the blobs, that whose last verification is the "
        "oldest; 2/7 the second. Empty: everything.",
    ),
}

with DAG(
    dag_id="verify_snapshots",
    schedule=SETTINGS.verify_schedule,
    # Some presets need a start date.
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    params=PARAMS,
    render_template_as_native_obj=False,
    doc_md=__doc__,
    tags=["statecore", "kafka-streams", "snapshot"],
    default_args={
        "retries": 2,
        "retry_delay": timedelta(seconds=30),
        "retry_policy": retry_policy(),
        "pool": SETTINGS.jobs_pool,
    },
):

    @task
    def list_applications(**context: Any) -> list[dict[str, Any]]:
        """Check the parameters; one entry for each application."""
        import logging

        from statecore.airflow.verify_operator import verification_requests

        try:
            return verification_requests(context["params"], PARAMS)
        except StatecoreError as error:
            raise refused(error, logging.getLogger(__name__)) from error

    StatecoreVerifyOperator.partial(
        task_id="verify",
        max_active_tis_per_dag=MAPPED_AT_ONCE,
        map_index_template="{{ task.application_id }}",
    ).expand_kwargs(list_applications())
