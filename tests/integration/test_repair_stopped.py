"""A repair that is killed at any of its points, that has no room, or that may not write."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from statecore.errors import Capacity, Invalid, StatecoreError
from statecore.faults import CHANGE_POINTS, PLACEMENT_POINTS, REPAIR_POINTS, RESTORE_POINTS, VARIABLE
from statecore.jobs.engine.in_process import InProcessEngine, InProcessWorkers
from statecore.jobs.engine.protocol import Engine
from statecore.jobs.repair.report import RepairOutcome, RepairReport
from statecore.spec.model import ApplicationSpec
from statecore.statedir.file_trees import fingerprint
from tests.harness import damage_functions, mounts
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.raising import raises
from tests.harness.repairing import repair
from tests.harness.streams import StreamsJvm
from tests.harness.tables import Answers, World

pytestmark = pytest.mark.integration

POINTS = (
    *CHANGE_POINTS,
    *REPAIR_POINTS,
    *(f"placement.{name}" for name in ("after-assembly", "before-journal", "after-journal", "before-swap")),
    *(f"placement.{name}" for name in ("after-swap", "after-verify", "after-keeping")),
    "restore.after-images",
    # The second placement is that of the restore.
    *(f"placement.{name}:kill:2" for name in ("after-assembly", "after-journal", "after-swap", "after-keeping")),
    "restore.after-placement",
)
"""Where the repair dies. Behind its last swap nothing is left to be repaired."""

CLEANED = "placement.after-swap:kill:2"
OPENED = ("placement.after-journal", "repair.after-repair", CLEANED)
"""Behind these, Kafka Streams opens what the second run left; and behind one, a week later nothing is kept."""

NOTHING_LEFT = {
    *("restore.after-placement", "repair.after-rebuild"),
    *(f"placement.{name}:kill:2" for name in ("after-journal", "after-swap", "after-keeping")),
}
assert {point.partition(":")[0] for point in POINTS} <= {
    *CHANGE_POINTS,
    *REPAIR_POINTS,
    *RESTORE_POINTS,
    *PLACEMENT_POINTS,
}


@dataclass(frozen=True)
class Damaged:
    """A closed application: a contradicting ``.checkpoint`` in one task, a store without an SST file in the other."""

    world: World
    right: Answers
    spec: Path
    behind = 2
    """Records that a store lacks by its own offset, which the contradicting file would hide."""

    def copy(self, path: Path) -> Path:
        """Another ``state.dir`` with it."""
        shutil.copytree(self.world.state_dir, path)
        return path

    def repair(self, state_dir: Path, engine: Engine | None = None, **asked: bool) -> RepairReport:
        return repair(self.world.application_id, state_dir, self.spec, engine, **asked)


class _CountedEngine(InProcessEngine):
    """Counts the jobs for which workers were started."""

    started = 0

    @contextmanager
    def start(self, job: str, spec: ApplicationSpec) -> Iterator[InProcessWorkers]:
        _CountedEngine.started += 1
        with super().start(job, spec) as workers:
            yield workers


@pytest.fixture(scope="module")
def damaged(broker: Broker, streams_jvm: StreamsJvm, tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    base = tmp_path_factory.mktemp("repair-stopped")
    (base / "state").mkdir()
    world = World(broker, streams_jvm, f"repair-stopped-{os.getpid()}", base / "state", "exactly_once_v2")
    world.feed(keys=20)
    right = world.live()
    application = world.state_dir / world.application_id
    plain = damage_functions.database_of(application, "plain")
    damage_functions.write_checkpoint(application / "0_0" / ".checkpoint", damage_functions.offsets_of(plain))
    damage_functions.change_offsets(plain, lambda offset: offset - 2)
    damage_functions.tables_of(damage_functions.database_of(application, "stamped", "0_1"))[-1].unlink()
    spec = base / "stores.yaml"
    spec.write_text(yaml.safe_dump(world.request().spec))
    return Damaged(world, right, spec)


def _killed(damaged: Damaged, state_dir: Path, point: str) -> int:
    """``statecore repair --apply`` in a process that dies at a point; its exit code."""
    words = ("repair", "--apply", "--state-dir", state_dir, "--spec", damaged.spec)
    process = subprocess.run(
        [sys.executable, "-m", "statecore.cli.main", *map(str, words)],
        env={**os.environ, VARIABLE: point},
        capture_output=True,
        timeout=1200,
        check=False,
    )
    return process.returncode


@pytest.mark.parametrize(
    "point", [*OPENED, *(pytest.param(point, marks=pytest.mark.full) for point in POINTS if point not in OPENED)]
)
def test_a_repair_that_was_killed_and_is_run_again_is_complete(damaged: Damaged, tmp_path: Path, point: str) -> None:
    place = damaged.copy(tmp_path / "state")
    before = _tasks(place, damaged)
    assert _killed(damaged, place, point) == -signal.SIGKILL
    report = damaged.repair(place)
    wanted = RepairOutcome.UNCHANGED if point in NOTHING_LEFT else RepairOutcome.REPAIRED
    assert (report.outcome, report.remaining) == (wanted, ()), (report.repaired, report.rebuilt)
    application = place / damaged.world.application_id
    assert not (application / "0_0" / ".checkpoint").exists()
    assert list((application / ".statecore").glob("placement-*")) == []
    kept = list((application / ".statecore" / "replaced").glob("*/*"))
    assert {path.name: fingerprint(path) for path in kept} == before, "what was replaced, as it was"
    assert len(kept) == 2, "once"
    said = " ".join([report.kept, *(one.kept for one in report.rebuilt), *report.notes])
    assert all(str(path.parent) in said for path in kept)
    if point == CLEANED:
        _a_week_later(application)
        assert damaged.repair(place).outcome is RepairOutcome.UNCHANGED
        assert not [*(application / ".statecore" / "replaced").iterdir()]
    if point in OPENED:
        assert damaged.world.at(place).reopen() == (damaged.right, damaged.behind)


def test_all_rebuilds_of_a_repair_share_workers_that_are_started_once(damaged: Damaged, tmp_path: Path) -> None:
    place = damaged.copy(tmp_path / "state")
    store = damage_functions.database_of(place / damaged.world.application_id, "plain", "0_0")
    for table in damage_functions.tables_of(store):
        table.unlink()
    report = damaged.repair(place, _CountedEngine())
    assert (len(report.rebuilt), report.remaining, _CountedEngine.started) == (2, (), 1)


def _a_week_later(application: Path) -> None:
    then = time.time() - 8 * 86_400
    for path in (application / ".statecore" / "replaced").rglob("*"):
        os.utime(path, (then, then))


def _tasks(state_dir: Path, damaged: Damaged) -> Mapping[str, str]:
    return {task: fingerprint(state_dir / damaged.world.application_id / task) for task in ("0_0", "0_1")}


def _full(disk: mounts.Disk) -> Callable[[], None]:
    filler = disk.fill()
    return filler.unlink


def _read_only(disk: mounts.Disk) -> Callable[[], None]:
    disk.remount("ro")
    return lambda: disk.remount("rw")


@pytest.mark.parametrize(
    ("hinder", "kind", "code"),
    one_of([(_full, Capacity, "no-space"), (_read_only, Invalid, "read-only-file-system")]),
)
def test_without_room_or_the_right_to_write_nothing_is_changed(
    damaged: Damaged,
    tmp_path: Path,
    hinder: Callable[[mounts.Disk], Callable[[], None]],
    kind: type[StatecoreError],
    code: str,
) -> None:
    with mounts.disk(tmp_path / "disk", "64m") as disk:
        place = damaged.copy(disk.path / "state")
        before = _tasks(place, damaged)
        relieve = hinder(disk)
        assert damaged.repair(place, apply=False).outcome is RepairOutcome.PLANNED, "to look needs neither"
        with raises(kind, code):
            damaged.repair(place)
        assert _tasks(place, damaged) == before
        relieve()
        assert damaged.repair(place).remaining == ()
        assert damaged.world.at(place).reopen() == (damaged.right, damaged.behind)
