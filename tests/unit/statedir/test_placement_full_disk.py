"""A disk that is full from some moment of a placement on: nothing is replaced before, everything after the journal."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from statecore.errors import Capacity
from statecore.faults import PLACEMENT_POINTS, FaultPoints
from statecore.spec.model import ProcessingGuarantee
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.placement import apply_placement, recover
from statecore.statedir.placement_plan import plan_placement
from statecore.statedir.state_directory import StateDirectory
from tests.harness import mounts
from tests.harness.case_selection import three_of
from tests.harness.filesystems import without_exchange
from tests.unit.statedir.support import make_image, make_live, offset_of, sibling

TASKS = ("0_0", "0_1")
JOURNAL = PLACEMENT_POINTS.index("placement.after-journal")


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mounts.Disk]:
    with mounts.disk(tmp_path_factory.mktemp("full") / "disk", "256m") as mounted:
        yield mounted


def place(directory: StateDirectory, faults: FaultPoints) -> None:
    images = [make_image(directory, task, "s") for task in TASKS]
    siblings = [sibling(task, name) for task in TASKS for name in ("kept", "created")]
    plan = plan_placement(
        directory, images, siblings=siblings, guarantee=ProcessingGuarantee.EXACTLY_ONCE_V2, replace=True
    )
    apply_placement(plan, faults)


@pytest.mark.parametrize("way", ["exchange", "renames"])
@pytest.mark.parametrize("point", three_of(PLACEMENT_POINTS))
def test_before_the_journal_nothing_is_replaced_and_after_it_no_room_is_needed(
    disk: mounts.Disk, monkeypatch: pytest.MonkeyPatch, point: str, way: str
) -> None:
    if way == "renames":
        without_exchange(monkeypatch)
    elif point == "placement.between-renames":
        return
    directory = StateDirectory(disk.path / f"{point}-{way}", "app")
    with directory.lock():
        for task in TASKS:
            make_live(directory, task, "s")
            make_live(directory, task, "kept", 21)
        before = [fingerprint(directory.task_path(task)) for task in TASKS]
        faults = mounts.FullFrom(disk, point)
        full = None
        try:
            place(directory, faults)
        except (OSError, Capacity) as error:
            full = error
        finally:
            assert faults.filler is not None
            faults.filler.unlink()
        if full is not None:
            assert isinstance(full, Capacity) or full.errno == errno.ENOSPC
            assert PLACEMENT_POINTS.index(point) < JOURNAL
            assert [fingerprint(directory.task_path(task)) for task in TASKS] == before
            assert {entry.name for entry in directory.work_path.iterdir()} <= {"staged"}
            recover(directory)
            place(directory, FaultPoints())
        assert [offset_of(directory, task, "s") for task in TASKS] == [9, 9]
        assert [offset_of(directory, task, "kept") for task in TASKS] == [21, 21]
        assert [offset_of(directory, task, "created") for task in TASKS] == [-4, -4]
