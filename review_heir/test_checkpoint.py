# ruff: noqa
"""docs/standby.md: an offset comes from `.checkpoint` where "the task is closed ... whoever closes a task cleanly
writes it last"."""

from __future__ import annotations

from pathlib import Path

from statecore.runtime.offset_sums import Source, read_task_sum
from tests.unit.runtime.standby_world import World


def test_a_task_that_a_standby_closed_is_known_by_its_checkpoint(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.log.put("k", "v")
    with world.directory.lock():
        task = world.task()
        task.open()
        world.follow(task)
        task.close()  # as KeptTasks and StartupTasks close
        (store,) = read_task_sum(world.directory, "0_0", world.spec).stores
    assert (world.directory.task_path("0_0") / ".checkpoint").exists()
    assert store.source is Source.FILE
