"""What is moved aside lies where it is found again, whole, until its time is over."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.errors import Capacity, Fenced, Retryable
from statecore.statedir.quarantine import KEPT_MS, delete_expired, quarantine_store, quarantine_task, quarantined
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.work_directory import STALE
from tests.harness.raising import raises


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[StateDirectory]:
    directory = StateDirectory(tmp_path, "app")
    with directory.lock():
        yield directory


def put(directory: StateDirectory, task: str, store: str) -> Path:
    path = directory.task_path(task) / store
    path.mkdir(parents=True)
    (path / "CURRENT").write_text("rows")
    return path


@pytest.mark.parametrize("task", ["0_1", "1_0"])
@pytest.mark.parametrize("store", ["rocksdb/plain", "clicks"])
def test_a_quarantined_store_keeps_its_path_in_the_task(directory: StateDirectory, task: str, store: str) -> None:
    other = put(directory, task, "rocksdb/other")
    moved = [quarantine_store(directory, task, put(directory, task, store), STALE, 7) for _ in range(2)]
    assert [one.at_ms for one in moved] == [7, 8]
    assert quarantined(directory, STALE) == moved
    assert {one.task for one in moved} == {task}
    assert all((one.path / store / "CURRENT").read_text() == "rows" for one in moved)
    assert other.is_dir()
    assert not (directory.task_path(task) / store).exists()


def test_only_what_has_lain_there_long_enough_is_deleted(directory: StateDirectory) -> None:
    put(directory, "0_1", "rocksdb/plain")
    old = quarantine_task(directory, "0_1", STALE, 1000)
    young = quarantine_store(directory, "0_1", put(directory, "0_1", "clicks"), STALE, 2000)
    delete_expired(directory, STALE, 1000 + KEPT_MS)
    assert quarantined(directory, STALE) == [old, young]
    delete_expired(directory, STALE, 1001 + KEPT_MS)
    assert quarantined(directory, STALE) == [young]


NOW = 1_790_000_000_000
DAY = 86_400_000


@pytest.mark.parametrize(
    ("stamp", "written"),
    [(60_000, 60_000), (NOW - 40 * DAY, NOW - 30 * DAY), (NOW - 8 * DAY, NOW - 7 * DAY)],
    ids=["all in 1970", "a month behind", "a day behind"],
)
def test_what_a_clock_stamped_that_was_behind_is_kept_for_its_whole_time(
    directory: StateDirectory, stamp: int, written: int
) -> None:
    file = put(directory, "0_1", "rocksdb/plain") / "CURRENT"
    os.utime(file, ns=(written * 1_000_000,) * 2)
    quarantine_task(directory, "0_1", STALE, stamp)
    for now, expected in ((NOW, NOW), (NOW + KEPT_MS, NOW), (NOW + KEPT_MS + 1, None)):
        delete_expired(directory, STALE, now)
        assert [one.at_ms for one in quarantined(directory, STALE)] == ([] if expected is None else [expected])


@pytest.mark.parametrize("written", [NOW - 8 * DAY + 1000, NOW + DAY], ids=["while it was moved", "in the future"])
def test_times_of_files_that_are_no_proof_of_a_wrong_clock_keep_nothing(
    directory: StateDirectory, written: int
) -> None:
    file = put(directory, "0_1", "rocksdb/plain") / "CURRENT"
    os.utime(file, ns=(written * 1_000_000,) * 2)
    quarantine_task(directory, "0_1", STALE, NOW - 8 * DAY)
    delete_expired(directory, STALE, NOW)
    assert not quarantined(directory, STALE)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EACCES])
def test_what_cannot_be_deleted_is_no_reason_to_stop(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, "refused")

    put(directory, "0_1", "rocksdb/plain")
    old = quarantine_task(directory, "0_1", STALE, 1000)
    monkeypatch.setattr(os, "rmdir", fail)
    delete_expired(directory, STALE, 1001 + KEPT_MS)
    assert quarantined(directory, STALE) == [old]


def test_a_store_stays_where_it_is_when_it_cannot_be_moved(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = put(directory, "0_1", "rocksdb/plain")

    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(Path, "rename", full)
    with raises(Capacity, "no-space", task="0_1"):
        quarantine_store(directory, "0_1", store, STALE, 7)
    assert (store / "CURRENT").exists()


def test_a_task_stays_where_it_is_when_its_move_cannot_be_made_durable(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the caller would report it as refused or kept, and a cleaner would delete it before the move is durable."""
    store = put(directory, "0_1", "rocksdb/plain")
    fsync = os.fsync

    def fail(descriptor: int) -> None:
        if not store.exists():
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    with raises(Retryable, "disk-failed", task="0_1"):
        quarantine_task(directory, "0_1", STALE, 7)
    assert (store / "CURRENT").exists()
    assert not quarantined(directory, STALE)


def test_nothing_is_moved_without_the_lock(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path, "app")
    store = put(directory, "0_1", "rocksdb/plain")
    with pytest.raises(Fenced):
        quarantine_store(directory, "0_1", store, STALE, 7)
    assert store.is_dir()
