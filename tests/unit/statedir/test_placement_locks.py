"""Placement needs the lock of the application, and stores that no process has open."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from statecore.errors import Fenced
from statecore.faults import FaultPoints
from statecore.statedir.application_lock import LOCK_FILE
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.placement import apply_placement, recover
from statecore.statedir.placement_plan import plan_placement
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.raising import raises
from tests.unit.statedir.support import EOS, KIND, changelog, make_image, make_live, offset_of, place


def test_planning_and_placing_need_the_lock(tmp_path):
    directory = StateDirectory(tmp_path, "app")
    with pytest.raises(Fenced):
        plan_placement(directory, [], guarantee=EOS)
    with directory.lock():
        plan = plan_placement(directory, [make_image(directory, "0_0", "s")], guarantee=EOS)
    with pytest.raises(Fenced):
        apply_placement(plan)
    with pytest.raises(Fenced):
        recover(directory)


class LoseTheLock(FaultPoints):
    """Takes the application's lock away at one point, as who deletes the state directory or its lock file does."""

    def __init__(self, directory: StateDirectory, point: str) -> None:
        self.file, self.point = directory.path / LOCK_FILE, point

    def reach(self, point: str) -> None:
        super().reach(point)
        if point == self.point:
            self.file.unlink(missing_ok=True)
            self.file.touch()


@pytest.mark.parametrize("point", ["placement.before-swap", "placement.after-journal"])
@pytest.mark.parametrize("live", [True, False])
def test_a_lock_lost_before_the_swap_leaves_the_old_directory(directory, swapping, point, live):
    if live:
        make_live(directory, "0_0", "s")
    plan = plan_placement(directory, [make_image(directory, "0_0", "s")], guarantee=EOS, replace=True)
    before = fingerprint(directory.task_path("0_0")) if live else None
    with raises(Fenced, "lock-lost"):
        apply_placement(plan, LoseTheLock(directory, point))
    assert directory.task_path("0_0").exists() == live
    assert before is None or fingerprint(directory.task_path("0_0")) == before


def test_a_lock_lost_between_two_tasks_stops_before_the_second(directory, swapping):
    images = []
    for task in ("0_0", "0_1"):
        make_live(directory, task, "s")
        images.append(make_image(directory, task, "s"))
    plan = plan_placement(directory, images, guarantee=EOS, replace=True)
    with raises(Fenced, "lock-lost"):
        apply_placement(plan, LoseTheLock(directory, "placement.after-verify"))
    assert (offset_of(directory, "0_0", "s"), offset_of(directory, "0_1", "s")) == (9, 5)


def test_a_task_whose_store_a_processor_has_open_is_not_replaced(directory):
    """Such a processor does not hold the application's lock."""
    make_live(directory, "0_0", "s")
    images = make_image(directory, "0_0", "s"), make_image(directory, "0_1", "s")
    plan = plan_placement(directory, images, guarantee=EOS, replace=True)
    with RocksDBStore(directory.store_path("0_0", "s", KIND), KIND) as store:
        open_here = {"task_directory": str(directory.task_path("0_0")), "store": "s", "process": os.getpid()}
        with raises(Fenced, "store-open", **open_here):
            plan_placement(directory, images, guarantee=EOS, replace=True)
        with raises(Fenced, "store-open", **open_here):
            apply_placement(plan)
        store.put(b"more", b"rows")
        store.commit({changelog("0_0", "s"): 6})
    assert offset_of(directory, "0_0", "s") == 6
    assert not directory.task_path("0_1").exists()
    plan_placement(directory, images[1:], guarantee=EOS)  # another task is not concerned


def test_a_task_that_another_process_has_open_is_not_replaced(directory):
    live = make_live(directory, "0_0", "s")
    path = directory.store_path("0_0", "s", KIND)
    script = (
        "import sys; from statecore import RocksDBStore, StoreKind\n"
        "with RocksDBStore(sys.argv[1], StoreKind.KEY_VALUE): print('open', flush=True); sys.stdin.read()"
    )
    del live
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        with raises(Fenced, "store-open", store="s", process=process.pid):
            plan_placement(directory, [make_image(directory, "0_0", "s")], guarantee=EOS, replace=True)
        process.communicate()
    place(directory, make_image(directory, "0_0", "s"), replace=True)
    assert offset_of(directory, "0_0", "s") == 9
