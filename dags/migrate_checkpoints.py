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
from functools import partial
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from statecore.airflow.directory_change.approval import MigrationApproval
from statecore.airflow.directory_change.dag import approved_steps
from statecore.airflow.directory_change.migrate_operator import StatecoreMigrateOperator
from statecore.airflow.directory_change.migration_runs import migrate_entries, migration_params
from statecore.airflow.failures import retry_policy
from statecore.airflow.form import spark_params
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
    read = partial(migrate_entries, state_dir=SETTINGS.state_dir)
    approved_steps("migrate", "migrated", read, StatecoreMigrateOperator, MigrationApproval, OPERATOR)
