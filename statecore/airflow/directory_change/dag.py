"""The Dag that plans changes of state directories, asks a person for approval, and applies approved plans.

::

    read_directories ─▶ plan ─▶ approve ─▶ <change>.apply ─▶ <change>.verify ─▶ outcome
                        └────────────────────────────────────────────────────────┘

``plan``, ``<change>.apply`` and ``<change>.verify`` are mapped over the directories.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, task, task_group

from statecore.airflow.directory_change.approval import ANSWER_KEY, DirectoryChangeApproval
from statecore.airflow.directory_change.change import Change
from statecore.airflow.directory_change.operator import CHANGES, StatecoreDirectoryChangeOperator
from statecore.airflow.directory_change.xcom_values import REFUSED_KEY, DirectoryOutcome, Entry
from statecore.airflow.failures import refused, retry_policy
from statecore.airflow.settings import Settings


def directory_change_dag(change: str, doc_md: str | None, **operator: Any) -> DAG:
    """The Dag of a kind of change; ``operator`` are further arguments of its operator."""
    kind, site = CHANGES[change], Settings.from_environment()
    with DAG(
        dag_id=kind.dag_id,
        schedule=None,
        catchup=False,
        params=kind.params(site.state_dir),
        render_template_as_native_obj=False,
        doc_md=doc_md,
        tags=["statecore", "kafka-streams", kind.name],
        default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    ) as dag:
        _add_tasks(
            kind,
            site.state_dir,
            change=change,
            conn_id=site.spark_conn_id,
            map_index_template="{{ task.title }}",
            retry_policy=retry_policy(),
            pool=site.jobs_pool,
            **operator,
        )
    return dag


def _add_tasks(kind: Change, state_dir: str | None, **settings: Any) -> None:
    @task
    def read_directories(params: dict[str, Any]) -> list[Entry]:
        """Check the parameters; one entry for each state directory."""
        import logging

        from statecore.errors import StatecoreError

        try:
            return kind.entries(params, state_dir)
        except StatecoreError as error:
            raise refused(error, logging.getLogger(__name__)) from error

    @task_group(group_id=kind.name)
    def change_directory(
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
        """Apply the plan of one directory, then verify it."""
        of_directory: dict[str, Any] = {
            **{"title": title, "name": name, "application_id": application_id, "host": host},
            **{"engine": engine, "conf": conf, "request": request, **settings},
        }
        operator = StatecoreDirectoryChangeOperator
        apply = operator(task_id="apply", step="apply", plan_id=plan_id, why=why, **of_directory)
        apply >> operator(task_id="verify", step="verify", **of_directory)

    @task(trigger_rule="all_done")
    def outcome(directories: list[Entry] | None, ti: Any = None) -> list[DirectoryOutcome]:
        import logging

        from statecore.airflow.directory_change.approval import conclude, outcomes
        from statecore.airflow.failures import JobRefused

        if directories is None:
            raise JobRefused("Nothing was changed: read_directories failed, see its log.")

        def returned(task_id: str, **key: str) -> Any:
            return ti.xcom_pull(task_ids=task_id, map_indexes=range(len(directories)), **key)

        answer = ti.xcom_pull(task_ids="approve", key=ANSWER_KEY)
        plans = list(zip(directories, returned("plan"), strict=True))
        reasons = [returned(step, key=REFUSED_KEY) for step in ("plan", f"{kind.name}.apply", f"{kind.name}.verify")]
        reasons_by_directory = [next(filter(None, whys), None) for whys in zip(*reasons, strict=True)]
        approved = ti.xcom_pull(task_ids="approve")
        applied, verified = returned(f"{kind.name}.apply"), returned(f"{kind.name}.verify")
        found = outcomes(plans, answer, approved, applied, verified, reasons_by_directory, kind.done)
        conclude(found, logging.getLogger(__name__))
        return found

    directories = read_directories()
    plan = StatecoreDirectoryChangeOperator.partial(task_id="plan", step="plan", **settings).expand_kwargs(directories)
    approve = DirectoryChangeApproval(
        task_id="approve",
        change=kind.name,
        directories=directories,
        plan_task_id="plan",
        trigger_rule="all_done_min_one_success",
    )
    each = change_directory.expand_kwargs(approve.output)
    plan >> approve
    [plan, each] >> outcome(directories)
