"""The room that a promotion takes, and what it says of its progress."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from statecore.errors import Capacity
from statecore.filesystem import tree_bytes
from statecore.progress import NullProgress
from statecore.standby.promote.report import PromoteVerdict
from statecore.standby.promote.run import run_promote
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.mounts import disk
from tests.unit.standby.promote.promoting import APPLICATION, KINDS, World, verdicts

ROWS = 4 << 20


def big(world: World, task: str = "0_0") -> Path:
    """A store of the copy with so many bytes that nothing compresses."""
    path = world.store(world.warm, "totals", 9, task=task)
    with RocksDBStore(path, KINDS["totals"]) as store:
        for number in range(64):
            store.put(b"%02d" % number, os.urandom(ROWS // 64))
        store.commit({world.changelog("totals", task): 19})
    return path


def test_files_that_get_a_second_name_take_no_room(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", "12m") as small:
        world = World(small.path)
        big(world)
        assert tree_bytes(world.warm.task_path("0_0")) > ROWS
        small.fill(leave=ROWS // 2)
        assert verdicts(world.promote()) == {"0_0": PromoteVerdict.PROMOTED}
        assert world.row("totals") == "warm at 9"


def test_files_that_have_to_be_copied_are_refused_where_there_is_no_room(tmp_path: Path) -> None:
    world = World(tmp_path)
    big(world)
    with disk(tmp_path / "disk", "3m") as small:
        world.live = StateDirectory(small.path, APPLICATION)
        with pytest.raises(Capacity):
            world.promote()
        assert not world.live.task_path("0_0").exists()
        assert not list(world.live.path.glob(".statecore/staging-*"))


class Told(NullProgress):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.steps: dict[str, tuple[int | None, str, list[int]]] = {}
        self._amounts: list[int] = []

    def phase(self, name: str, total: int | None = None, unit: str = "") -> None:
        self._amounts = []
        self.steps[name] = total, unit, self._amounts

    def advance(self, amount: int = 1) -> None:
        self._amounts.append(amount)


def test_progress_of_copying_counts_the_bytes_of_each_file(tmp_path: Path) -> None:
    world, told = World(tmp_path), Told()
    stores = [big(world, task) for task in ("0_0", "0_1")]
    size, files = sum(map(tree_bytes, stores)), sum(len([*store.iterdir()]) for store in stores)
    run_promote(world.request(), told)
    total, unit, amounts = told.steps["copy"]
    assert (total, unit, sum(amounts), len(amounts)) == (size, "bytes", size, files)
