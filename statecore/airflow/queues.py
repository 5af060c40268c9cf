"""Sends the tasks of a state directory to the queue of its machine's worker, if a run names that queue.

Airflow chooses queues when it creates task instances, before their arguments are known, so an operator cannot do it. A
site that uses it adds one line to ``airflow_local_settings.py`` of its schedulers::

    from statecore.airflow.queues import task_instance_mutation_hook

Tasks of other Dags, and directories without a queue, are not changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statecore.airflow.form import DIRECTORIES

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance

DAG_IDS = frozenset({"migrate_checkpoints", "recover_global_stores", "restore_stores"})


def task_instance_mutation_hook(task_instance: TaskInstance, dag_run: DagRun | None) -> None:
    """Set the queue of a mapped task to that of its state directory; see ``airflow.policies``."""
    if task_instance.dag_id not in DAG_IDS or task_instance.map_index < 0 or dag_run is None:
        return
    conf: Any = dag_run.conf or {}
    directories = conf.get(DIRECTORIES) or []
    # The parameters are not validated yet: the first task of the run does that.
    if isinstance(directories, list) and task_instance.map_index < len(directories):
        named = directories[task_instance.map_index]
        queue = named.get("queue") if isinstance(named, dict) else None
        if isinstance(queue, str) and queue:
            task_instance.queue = queue
