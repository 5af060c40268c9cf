"""
### Upgrade or downgrade the state directories of Kafka Streams applications

Makes state directories what another release of Kafka Streams opens, with nothing left to restore. From which release
they come is seen.

**Stop the applications first**, and keep them stopped until the run has ended: the lock that they take is taken, and
who holds it is named.

| task | what it does |
| --- | --- |
| `read_directories` | checks the parameters; one entry for each state directory |
| `plan` | one for each directory: what would be done to each store, or why it cannot be done; nothing is changed |
| `approve` | shows all plans as one page and waits for a person: *Required Actions*. No answer in time is a no |
| `migrate.apply` | one for each directory: does what was approved |
| `migrate.verify` | one for each directory: looks again; nothing may be left to do |
| `outcome` | what became of each directory; it fails where one is not what it was to become |

**A directory that is refused fails by itself**, with the reasons in the log of its `plan`; the others go on. Where
nothing is to be done `approve` is skipped, and says so. With the parameter `approve` at `none` nobody is asked.

**What is approved is the plan's id.** A directory that has changed since has another plan, and is refused. A directory
is migrated whole or not at all: copies are converted and looked at before any is put in place. Retries and cleared
tasks go on from there.

The worker has to see the directories; with the engine `spark` its executors as well. *Operating it in Airflow*
(`docs/airflow.md`) has every setting.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task, task_group

from statecore.airflow.approval import ANSWER_KEY, MigrationApproval
from statecore.airflow.failures import refused, retry_policy
from statecore.airflow.form import spark_params
from statecore.airflow.migrate_operator import StatecoreMigrateOperator
from statecore.airflow.migration_values import Became, Entry
from statecore.airflow.migrations import migration_params
from statecore.airflow.settings import Settings

SETTINGS = Settings.from_environment()
# Beside this file's folder: with versioned Dag bundles that is the job of the same commit.
JOBS = Path(os.environ.get("STATECORE_SPARK_JOBS") or Path(__file__).resolve().parents[1] / "spark_jobs")

OPERATOR: dict[str, Any] = {
    "application": str(JOBS / "migrate_checkpoints.py"),
    "conn_id": SETTINGS.spark_conn_id,
    "map_index_template": "{{ task.title }}",
    "retry_policy": retry_policy(),
}

with DAG(
    dag_id="migrate_checkpoints",
    schedule=None,
    catchup=False,
    params={**migration_params(SETTINGS.state_dir), **spark_params()},
    render_template_as_native_obj=False,
    doc_md=__doc__,
    tags=["statecore", "kafka-streams", "migrate"],
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
):

    @task
    def read_directories(params: dict[str, Any]) -> list[Entry]:
        """Check the parameters; one entry for each state directory."""
        import logging

        from statecore.airflow.migrations import migrate_entries
        from statecore.errors import StatecoreError

        try:
            return migrate_entries(params, SETTINGS.state_dir)
        except StatecoreError as error:
            raise refused(error, logging.getLogger(__name__)) from error

    @task_group
    def migrate(
        title: str,
        name: str,
        application_id: str,
        host: str | None,
        engine: str,
        conf: dict[str, str] | None,
        request: dict[str, Any],
        plan_id: str,
        why: str,
    ) -> None:
        """Apply the plan of one directory, then look at it again."""
        of_directory: dict[str, Any] = {
            **{"title": title, "name": name, "application_id": application_id, "host": host},
            **{"engine": engine, "conf": conf, "request": request},
        }
        apply = StatecoreMigrateOperator(
            task_id="apply", step="apply", plan_id=plan_id, why=why, **of_directory, **OPERATOR
        )
        verify = StatecoreMigrateOperator(task_id="verify", step="verify", **of_directory, **OPERATOR)
        apply >> verify

    @task(trigger_rule="all_done")
    def outcome(directories: list[Entry] | None, ti: Any = None) -> list[Became]:
        """What became of each directory."""
        import logging

        from statecore.airflow.approval import conclude, outcomes
        from statecore.airflow.failures import JobRefused

        if directories is None:
            raise JobRefused("Nothing was changed: read_directories failed, and its log says why.")

        def returned(task_id: str) -> Any:
            return ti.xcom_pull(task_ids=task_id, map_indexes=range(len(directories)))

        answer = ti.xcom_pull(task_ids="approve", key=ANSWER_KEY)
        plans = list(zip(directories, returned("plan"), strict=True))
        found = outcomes(plans, answer, returned("migrate.apply"), returned("migrate.verify"))
        conclude(found, logging.getLogger(__name__))
        return found

    directories = read_directories()
    plan = StatecoreMigrateOperator.partial(task_id="plan", step="plan", **OPERATOR).expand_kwargs(directories)
    approve = MigrationApproval(
        task_id="approve",
        directories=directories,
        plan_task_id="plan",
        trigger_rule="all_done_min_one_success",
    )
    migrated = migrate.expand_kwargs(approve.output)
    plan >> approve
    [plan, migrated] >> outcome(directories)
