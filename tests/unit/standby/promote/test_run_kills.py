"""A promotion that dies by SIGKILL at any of its points, and those that meet others at work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from statecore.errors import Fenced
from statecore.faults import CHANGE_POINTS, PLACEMENT_POINTS, PROMOTION_POINTS, VARIABLE, FaultPoints
from statecore.formats.kinds import StoreKind
from statecore.standby.promote.report import PromoteVerdict
from statecore.standby.promote.run import run_promote
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.case_selection import one_of
from tests.unit.standby.promote.promoting import APPLICATION, World, verdicts

TASKS = ("0_0", "0_1")

NEVER_REACHED = {"placement.between-renames", "placement.done"}
"""Points of file systems that cannot exchange directories, and of a resumed placement."""

POINTS = [point for point in (*CHANGE_POINTS, *PROMOTION_POINTS, *PLACEMENT_POINTS) if point not in NEVER_REACHED] + [
    "promote.during-copy:kill:2",
    "placement.before-swap:kill:2",
    "placement.after-swap:kill:2",
]


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    for task in TASKS:
        world.store(world.live, "totals", 5, task=task)
        world.store(world.warm, "totals", 9, task=task)
    return world


def command(world: World) -> list[str]:
    where = ["--standby-dir", str(world.warm.state_dir), "--state-dir", str(world.live.state_dir)]
    return [sys.executable, "-m", "statecore.cli.main", "promote", "--spec", str(world.spec), *where, "--offline"]


@pytest.mark.parametrize("fault", one_of(POINTS))
def test_after_a_kill_another_copy_at_a_higher_offset_is_promoted(world: World, tmp_path: Path, fault: str) -> None:
    other = StateDirectory(tmp_path / "other", APPLICATION)
    for task in TASKS:
        world.store(other, "totals", 12, task=task)
    before = [fingerprint(directory.path / task) for directory in (world.warm, other) for task in TASKS]
    environment = {**os.environ, VARIABLE: fault}
    done = subprocess.run([*command(world), "--apply"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr

    report = world.promote(standby_dir=str(other.state_dir))

    assert verdicts(report) == dict.fromkeys(TASKS, PromoteVerdict.PROMOTED)
    assert [world.row("totals", task=task) for task in TASKS] == ["other at 12"] * 2
    assert before == [fingerprint(directory.path / task) for directory in (world.warm, other) for task in TASKS]
    left = {path.name for path in world.live.work_path.iterdir()}
    assert left <= {"plans", "replaced", "placed.json"}
    assert not list(world.live.work_path.glob("plans/*.attempt"))
    kept = [(path.parents[1].name, row(path)) for path in world.live.work_path.glob("replaced/*/*/rocksdb/totals")]
    assert {(task, "live at 5") for task in TASKS} <= {*kept}  # what was there before the first of both


def row(database: Path) -> str:
    with RocksDBStore(database, StoreKind.KEY_VALUE, read_only=True) as store:
        return (store.get(b"key") or b"").decode()


class Doing(FaultPoints):
    """Does something at a point."""

    def __init__(self, point: str, do: Callable[[], None]) -> None:
        self.point, self.do = point, do

    def reach(self, point: str) -> None:
        super().reach(point)
        if point == self.point:
            self.do()


@pytest.mark.parametrize("point", one_of(["change.after-lock", "promote.after-copy", "promote.after-placement"]))
@pytest.mark.parametrize("apply", one_of([False, True]))
def test_a_second_promotion_is_refused_while_one_is_at_work(world: World, point: str, apply: bool) -> None:
    """Also from another copy: the application's directory is locked as well."""
    other = World.__new__(World)
    other.__dict__.update(vars(world))
    other.warm = StateDirectory(world.warm.state_dir.with_name("other"), APPLICATION)
    other.store(other.warm, "totals", 12)
    codes: list[int] = []

    def again() -> None:
        for one in (world, other):
            words = [*command(one), *(["--apply"] if apply else [])]
            codes.append(subprocess.run(words, capture_output=True, check=False).returncode)

    run_promote(world.request(), faults=Doing(point, again))
    assert codes == [Fenced.exit_code] * 2
    assert [world.row("totals", task=task) for task in TASKS] == ["warm at 9"] * 2


@pytest.mark.parametrize("which", one_of(["warm", "live"]))
def test_neither_standby_nor_application_can_start_while_a_promotion_is_at_work(world: World, which: str) -> None:
    directory = getattr(world, which)
    locks = "import sys; from pathlib import Path; from statecore.statedir.state_directory import StateDirectory\n"
    locks += "from statecore.errors import Fenced\n"
    locks += f"try: StateDirectory(Path({str(directory.state_dir)!r}), {APPLICATION!r}).lock()\n"
    locks += "except Fenced: sys.exit(11)\n"
    codes: list[int] = []

    def start() -> None:
        codes.append(subprocess.run([sys.executable, "-c", locks], check=False).returncode)

    run_promote(world.request(), faults=Doing("promote.during-copy", start))
    assert codes == [Fenced.exit_code] * 2
