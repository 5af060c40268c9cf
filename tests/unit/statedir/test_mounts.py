"""What the kernel does not let be renamed is refused while all is as it was."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from statecore.errors import Invalid
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.progress import NullProgress
from statecore.statedir.file_trees import file_sizes, fingerprint
from statecore.statedir.journal import read_journal, read_record
from statecore.statedir.mounts import mount_in
from statecore.statedir.placement import recover
from statecore.statedir.placement_plan import plan_placement
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.task_copies import TaskCopies
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness import mounts
from tests.harness.filesystems import refusing_exchange, without_exchange
from tests.harness.raising import raises
from tests.unit.statedir.support import ALOS, KIND, changelog, make_image, make_live, refusal

TASKS = ("0_0", "0_1", "1_0")


def with_tasks(state_dir: Path) -> StateDirectory:
    """Three tasks of one store each."""
    made = StateDirectory(state_dir, "app")
    for task in TASKS:
        with RocksDBStore(made.task_path(task) / "rocksdb" / "s", KIND, create=True) as store:
            store.put(b"key", b"old")
            store.commit({changelog("0_0", "s"): 5})
    return made


def exchanged(directory: StateDirectory, faults: FaultPoints = NO_FAULTS) -> None:
    """Put a file more into every task."""
    with directory.lock(), TaskCopies(directory, "request", faults, NullProgress(), keeps=False) as exchange:
        for task in TASKS:
            (exchange.copy(task) / "new").write_text("new")
        exchange.swap(TASKS)


def seen(directory: StateDirectory) -> dict[str, str]:
    return {task: fingerprint(directory.task_path(task)) for task in TASKS}


def new_ones(directory: StateDirectory) -> list[str]:
    return [task for task in TASKS if (directory.task_path(task) / "new").exists()]


def leftovers(directory: StateDirectory) -> set[str]:
    return {path.name for path in directory.work_path.glob("*")}


@pytest.mark.parametrize("place", ["0_1", "0_1/rocksdb", "0_1/rocksdb/s", ".statecore"])
def test_a_mount_of_the_same_file_system_within_the_application_is_refused_before_anything_is_copied(
    tmp_path: Path, place: str
) -> None:
    directory = with_tasks(tmp_path / "state")
    with directory.lock():
        pass
    before = seen(directory)
    with mounts.bound(directory.path / place), raises(Invalid, "mount-in-the-way") as caught:
        exchanged(directory)
    assert f"app/{place} is a separate mount" in str(caught.value)
    assert seen(directory) == before
    assert leftovers(directory) == set()
    exchanged(directory)
    assert new_ones(directory) == [*TASKS]


def test_a_mount_at_the_application_directory_is_allowed(tmp_path: Path) -> None:
    directory = with_tasks(tmp_path / "state with a blank")
    with mounts.bound(directory.path):
        assert mount_in(directory.path) == directory.path
        assert mount_in(directory.task_path("0_0")) is None
        exchanged(directory)
    assert new_ones(directory) == [*TASKS]


def test_directories_of_a_lower_layer_are_refused_before_the_journal_is_written(tmp_path: Path) -> None:
    with mounts.overlay(tmp_path / "layers", lambda lower: with_tasks(lower / "state")) as merged:
        directory = StateDirectory(merged / "state", "app")
        before = {task: file_sizes(directory.task_path(task)) for task in TASKS}
        for _ in range(2):
            with raises(Invalid, "mount-in-the-way", path=str(directory.task_path("0_0"))):
                exchanged(directory)
            assert {task: file_sizes(directory.task_path(task)) for task in TASKS} == before
            assert leftovers(directory) == set()


def test_a_store_that_is_a_mount_is_refused_by_the_plan_of_a_restore(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path, "app")
    with directory.lock():
        make_live(directory, "0_0", "kept")
        image = make_image(directory, "0_0", "other")
        with mounts.bound(directory.task_path("0_0") / "rocksdb" / "kept"):
            assert refusal(directory, image) == [("0_0", "mount-in-the-way", "")]
        plan_placement(directory, [image], guarantee=ALOS)


class _Stopped(Exception):
    """The process was killed."""


class _At(FaultPoints):
    """Does something the first time that a point is reached."""

    def __init__(self, point: str, then: Callable[[], None]) -> None:
        self.point, self.then, self.done = point, then, False

    def reach(self, point: str) -> None:
        super().reach(point)
        if point == self.point and not self.done:
            self.done = True
            self.then()


@contextmanager
def refusing(monkeypatch: pytest.MonkeyPatch, directory: StateDirectory, number: int, *, swaps: bool) -> Iterator[None]:
    """The kernel renames the directories of all tasks but the second from now on."""
    stuck = directory.task_path("0_1")
    rename: Callable[[Path, Path], Path] = Path.rename

    def renaming(path: Path, target: Path) -> Path:
        if path == stuck and target.name != "probe":
            raise OSError(number, os.strerror(number), str(path), None, str(target))
        return rename(path, target)

    with monkeypatch.context() as patched:
        if swaps:
            refusing_exchange(patched, stuck, number)
        else:
            without_exchange(patched)
        patched.setattr(Path, "rename", renaming)
        yield


CODES = {
    errno.EXDEV: "mount-in-the-way",
    errno.EBUSY: "mount-in-the-way",
    errno.EACCES: "permission-denied",
    errno.EPERM: "permission-denied",
}


@pytest.mark.parametrize("swaps", [True, False], ids=["exchange", "renames"])
@pytest.mark.parametrize("number", CODES)
def test_where_a_swap_is_refused_in_the_middle_all_is_put_back_and_the_journal_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, swaps: bool
) -> None:
    directory = with_tasks(tmp_path)
    before = seen(directory)
    with (
        refusing(monkeypatch, directory, number, swaps=swaps),
        raises(Invalid, CODES[number], path=str(directory.task_path("0_1"))),
    ):
        exchanged(directory)
    assert seen(directory) == before
    assert leftovers(directory) == {"placed.json"}
    assert read_record(directory.work_path).tasks == ()  # type: ignore[union-attr]
    exchanged(directory)
    assert new_ones(directory) == [*TASKS]


def test_a_journal_that_such_a_swap_left_is_settled_by_the_next_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = with_tasks(tmp_path)
    before = seen(directory)

    def stop() -> None:
        raise _Stopped

    with pytest.raises(_Stopped):
        exchanged(directory, _At("placement.after-verify", stop))
    assert read_journal(directory.work_path) is not None
    assert new_ones(directory) == ["0_0"]
    with directory.lock(), refusing(monkeypatch, directory, errno.EXDEV, swaps=True):
        report = recover(directory)
    assert (report.placed, report.put_back) == ((), TASKS)
    assert seen(directory) == before
    assert leftovers(directory) == {"placed.json"}


def test_any_other_error_of_a_swap_leaves_the_journal_for_the_next_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = with_tasks(tmp_path)
    with refusing(monkeypatch, directory, errno.EIO, swaps=True), pytest.raises(OSError, match="Input/output"):
        exchanged(directory)
    with directory.lock():
        assert recover(directory).placed == TASKS


def test_what_the_application_has_used_since_is_not_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = with_tasks(tmp_path)

    def used() -> None:
        (directory.task_path("0_0") / "of-the-application").write_text("")

    with refusing(monkeypatch, directory, errno.EBUSY, swaps=True), pytest.raises(Invalid, match="0_1 cannot"):
        exchanged(directory, _At("placement.after-verify", used))
    assert new_ones(directory) == ["0_0"]
    assert (directory.task_path("0_0") / "of-the-application").exists()
