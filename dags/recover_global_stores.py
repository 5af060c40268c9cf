"""
### Recover the global stores of Kafka Streams applications

For applications that end in `ERROR`, or start again and again, because of their global stores: a topic was truncated or
made anew, an offset is unknown, a store was killed open under exactly-once. The stores that are not valid are rebuilt
from their topics; sound ones, and all tasks, are kept.

**Stop the applications first**, and keep them stopped until the run has ended: the lock that they take is taken, and
who holds it is named.

| task | what it does |
| --- | --- |
| `read_directories` | checks the parameters; one entry for each state directory |
| `plan` | one for each directory: what the next start would do with each global store, and what would be rebuilt |
| `approve` | shows all plans as one page and waits for a person: *Required Actions*. No answer in time is a no |
| `recover.apply` | one for each directory: does what was approved |
| `recover.verify` | one for each directory: looks again; nothing may be left to do |
| `outcome` | what became of each directory; it fails where one is not what it was to become |

**A directory that is refused fails by itself**, with the reasons in the log of its `plan`: the topic of a store is
gone, or is not compacted (`accept_uncompacted` accepts that). The others go on. Where nothing is to be done `approve`
is skipped, and says so. With the parameter `approve` at `none` nobody is asked, and a plan that may take rows away
is not applied.

**What is approved is the plan's id.** A directory or a topic that has changed since has another plan, and is refused.
What is replaced is kept for a week. Retries and cleared tasks go on from there.

The worker has to see the directories and reach the brokers. *Recover global stores* (`docs/recover-global.md`) says
what each finding means.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from airflow.sdk import DAG

from statecore.airflow.directory_change.dag import approved_steps
from statecore.airflow.directory_change.recover_operator import RecoveryApproval, StatecoreRecoverGlobalOperator
from statecore.airflow.directory_change.recovery_runs import recovery_entries, recovery_params
from statecore.airflow.failures import retry_policy
from statecore.airflow.settings import Settings

SETTINGS = Settings.from_environment()

OPERATOR: dict[str, Any] = {
    "conn_id": SETTINGS.spark_conn_id,
    "map_index_template": "{{ task.title }}",
    "retry_policy": retry_policy(),
}

with DAG(
    dag_id="recover_global_stores",
    schedule=None,
    catchup=False,
    params=recovery_params(SETTINGS.state_dir),
    render_template_as_native_obj=False,
    doc_md=__doc__,
    tags=["statecore", "kafka-streams", "recover"],
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
):
    read = partial(recovery_entries, state_dir=SETTINGS.state_dir)
    approved_steps("recover", "recovered", read, StatecoreRecoverGlobalOperator, RecoveryApproval, OPERATOR)
