from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from statecore.airflow.queues import task_instance_mutation_hook


def routed(conf: Any, map_index: int = 1, dag_id: str = "migrate_checkpoints") -> str:
    task: Any = SimpleNamespace(dag_id=dag_id, map_index=map_index, queue="default")
    run: Any = None if conf is None else SimpleNamespace(conf=conf)
    task_instance_mutation_hook(task, run)
    return str(task.queue)


def test_a_mapped_task_gets_the_queue_of_its_directory() -> None:
    for dag_id in ("migrate_checkpoints", "recover_global_stores", "restore_stores"):
        assert routed({"directories": [{"queue": "a"}, {"queue": "b"}]}, dag_id=dag_id) == "b"


@pytest.mark.parametrize(
    "conf",
    [None, {}, {"directories": None}, {"directories": "x"}, {"directories": [{"queue": "a"}]}, {"directories": [1, 2]},
     {"directories": [{}, {}]}, {"directories": [{}, {"queue": 7}]}],
)  # fmt: skip
def test_what_names_no_queue_is_left_alone(conf: Any) -> None:
    assert routed(conf) == "default"


def test_other_tasks_are_left_alone() -> None:
    conf = {"directories": [{"queue": "a"}, {"queue": "b"}]}
    assert routed(conf, map_index=-1) == "default"
    assert routed(conf, dag_id="snapshot_state") == "default"
