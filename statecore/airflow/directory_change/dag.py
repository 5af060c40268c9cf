"""The tasks of a Dag that plans changes of state directories, asks a person for approval, and applies approved plans.

::

    read_directories ─▶ plan ─▶ approve ─▶ <step>.apply ─▶ <step>.verify ─▶ outcome
                        └────────────────────────────────────────────────────┘

``plan``, ``<step>.apply`` and ``<step>.verify`` are mapped over the directories.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow.sdk import task, task_group

from statecore.airflow.directory_change.approval import ANSWER_KEY, MigrationApproval
from statecore.airflow.directory_change.migrate_operator import StatecoreMigrateOperator
from statecore.airflow.directory_change.xcom_values import REFUSED_KEY, DirectoryOutcome, Entry
from statecore.airflow.failures import refused


def approved_steps(
    step: str,
    done: str,
    read: Callable[[dict[str, Any]], list[Entry]],
    operator: type[StatecoreMigrateOperator],
    approval: type[MigrationApproval],
    settings: Mapping[str, Any],
) -> None:
    """Add the tasks to the Dag that is being defined.

    Args:
        step: name of the task group that applies and verifies.
        done: past participle for a directory that was changed, such as ``migrated``.
        read: returns one entry for each state directory from a run's parameters; raises ``StatecoreError``.
        operator: operator of ``plan``, ``apply`` and ``verify``.
        approval: operator of ``approve``.
        settings: arguments of all tasks of ``operator``.
    """

    @task
    def read_directories(params: dict[str, Any]) -> list[Entry]:
        """Check the parameters; one entry for each state directory."""
        import logging

        from statecore.errors import StatecoreError

        try:
            return read(params)
        except StatecoreError as error:
            raise refused(error, logging.getLogger(__name__)) from error

    @task_group(group_id=step)
    def applied(
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
            **{"engine": engine, "conf": conf, "request": request},
        }
        apply = operator(task_id="apply", step="apply", plan_id=plan_id, why=why, **of_directory, **settings)
        verify = operator(task_id="verify", step="verify", **of_directory, **settings)
        apply >> verify

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
        refused = returned("plan", key=REFUSED_KEY)
        found = outcomes(plans, answer, returned(f"{step}.apply"), returned(f"{step}.verify"), refused, done)
        conclude(found, logging.getLogger(__name__))
        return found

    directories = read_directories()
    plan = operator.partial(task_id="plan", step="plan", **settings).expand_kwargs(directories)
    approve = approval(
        task_id="approve", directories=directories, plan_task_id="plan", trigger_rule="all_done_min_one_success"
    )
    each = applied.expand_kwargs(approve.output)
    plan >> approve
    [plan, each] >> outcome(directories)
