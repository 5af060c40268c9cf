"""Sends the tasks of a directory to the worker of the machine that has it, where a run names that worker's queue.

Airflow decides on queues when it makes tasks, before their arguments are known, so an operator cannot. A site that
wants it puts one line into ``airflow_local_settings.py`` of its schedulers::

    from statecore.airflow.queues import task_instance_mutation_hook

Tasks of other Dags, and directories without a queue, are left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statecore.airflow.directory_change.migration_runs import DIRECTORIES

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance

DAG_IDS = frozenset({"migrate_checkpoints", "recover_global_stores"})


def task_instance_mutation_hook(task_instance: TaskInstance, dag_run: DagRun | None) -> None:
    """Give a mapped task of a Dag over state directories the queue of its directory; see ``airflow.policies``."""
    if task_instance.dag_id not in DAG_IDS or task_instance.map_index < 0 or dag_run is None:
        return
    conf: Any = dag_run.conf or {}
    directories = conf.get(DIRECTORIES) or []
    # Nobody has looked at the parameters yet: the first task of the run does.
    if isinstance(directories, list) and task_instance.map_index < len(directories):
        named = directories[task_instance.map_index]
        queue = named.get("queue") if isinstance(named, dict) else None
        if isinstance(queue, str) and queue:
            task_instance.queue = queue
