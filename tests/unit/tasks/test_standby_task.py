"""A standby task that follows its changelogs in rounds, and stores that cannot be continued."""

from __future__ import annotations

import errno
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from statecore.changelog.model import OffsetRange
from statecore.errors import Capacity, Fenced, Retryable, StatecoreError
from statecore.faults import NO_FAULTS, FaultInjected, InjectedFault
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.quarantine import quarantined
from statecore.statedir.work_directory import STALE
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.tasks.changelog_ends import ChangelogEnd
from statecore.tasks.standby_task import StandbyTask
from tests.harness.forked import Forks
from tests.unit.tasks.standby_world import (
    CHANGELOG,
    STORE,
    TASK,
    World,
    changelog_of,
    code_of,
    rows_of,
    spec_of,
    stop_after,
    store_of,
    with_gaps,
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "state")
    with world.directory.lock():
        yield world


def test_an_initial_copy_stopped_on_a_log_with_gaps_resumes(world: World) -> None:
    for number in range(30):
        world.log.put(f"k{number % 7}", f"v{number}")
    world.compact(12, 13, 14, 21)
    task = world.task(piece_offsets=10)
    task.open()
    done = world.follow(task, stop_after(1))
    assert done.followed[CHANGELOG].end == 10
    task.close()
    world.now += 3600
    again = world.task(piece_offsets=10)
    again.open()
    done = world.follow(again)
    assert (done.stale, done.failed) == ({}, {})
    assert (done.followed[CHANGELOG].start, done.followed[CHANGELOG].end) == (10, 30)
    assert rows_of(again)[b"k1"] == b"v29"
    again.close()


def test_an_initial_copy_whose_log_lost_records_is_rebuilt(world: World) -> None:
    for number in range(20):
        world.log.put(f"k{number}", "v")

    def retention(span: OffsetRange) -> None:
        if span.start == 10:
            world.log.start = 15

    world.reader.before = retention
    task = world.task(piece_offsets=10)
    task.open()
    assert "began at 15" in world.follow(task).stale[STORE]
    task.close()


def test_a_log_that_begins_late_is_followed_from_there(world: World) -> None:
    for number in range(20):
        world.log.put(f"k{number}", "v")
    world.log.start = 12
    task = world.task(piece_offsets=5)
    task.open()
    done = world.follow(task)
    assert (done.stale, done.failed, world.reader.spans) == ({}, {}, [(12, 17), (17, 20)])
    assert len(rows_of(task)) == 8
    world.log.start = 20
    assert not world.follow(task).stale
    task.close()


def test_what_a_store_had_is_kept_aside_when_its_log_has_lost_records(world: World) -> None:
    for number in range(5):
        world.log.put(f"old{number}", "v")
    task = world.task()
    task.open()
    world.follow(task)
    for number in range(10):
        world.log.put(f"new{number}", "v")
    world.log.start = 10
    done = world.follow(task)
    assert "begins at 10" in done.stale[STORE]
    task.rebuild(STORE)
    assert not world.follow(task).stale
    assert set(rows_of(task)) == {b"new%d" % number for number in range(5, 10)}
    (aside,) = quarantined(world.directory, STALE)
    assert (aside.task, aside.at_ms) == (TASK, 1_000_000_000)
    with RocksDBStore(aside.path / "rocksdb" / STORE, StoreKind.KEY_VALUE, read_only=True) as kept:
        assert [key for keys, _ in kept.scan_lists() for key in keys] == [b"old%d" % number for number in range(5)]
        assert kept.committed_offset(CHANGELOG) == 4
    task.close()
    world.now += 6 * 86_400
    again = world.task()
    again.open()
    assert quarantined(world.directory, STALE), "a week is not over"
    again.close()
    world.now += 2 * 86_400
    again.open()
    assert not quarantined(world.directory, STALE)
    again.close()


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, Capacity), (errno.EIO, Retryable)])
def test_a_system_error_names_the_store_and_the_next_round_resumes(
    world: World, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StatecoreError]
) -> None:
    for at in range(5):
        world.log.put(f"k{at}", "v")
    task = world.task()
    task.open()

    def refused(path: Path, *_: object, **__: object) -> None:
        raise OSError(number, "The system refused.", str(path))

    with monkeypatch.context() as broken:
        broken.setattr(RocksDBStore, "ingest", refused)
        failed = world.follow(task).failed[STORE]
    assert type(failed) is kind
    assert STORE in failed.what
    assert TASK in failed.what
    assert task.offsets() == {CHANGELOG: OFFSET_UNKNOWN}
    assert not world.follow(task).failed
    assert len(rows_of(task)) == 5
    task.close()


def test_a_directory_that_cannot_be_made_for_a_read_is_one_of_our_errors(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.log.put("k", "v")
    task = world.task()
    task.open()

    def refused(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with monkeypatch.context() as broken:
        broken.setattr(Path, "mkdir", refused)
        failed = world.follow(task).failed[STORE]
    assert "Permission denied" in failed.what
    assert not world.follow(task).failed
    task.close()


def test_a_closed_task_is_reopened_and_resumes(world: World) -> None:
    world.log.put("a", "1")
    task = world.task()
    assert not task.is_open
    task.open()
    world.follow(task)
    task.close()
    assert not task.is_open
    world.log.put("b", "2")
    task.open()
    assert task.is_open
    done = world.follow(task)
    assert (done.followed[CHANGELOG].start, done.followed[CHANGELOG].end) == (1, 2)
    assert rows_of(task) == {b"a": b"1", b"b": b"2"}
    task.close()


def test_a_topic_that_was_created_again_leaves_the_rows_to_a_person(world: World) -> None:
    world.log.put("a", "1")
    task: StandbyTask = world.task()
    task.open()
    world.follow(task)
    world.log.topic_id = "2" * 32
    assert "created again" in world.follow(task).failed[STORE].what
    assert rows_of(task) == {b"a": b"1"}
    task.close()


def with_another_leader(world: World, epoch: int, ended_at: int | None) -> dict[TopicPartition, ChangelogEnd]:
    """The ends as a leader of this epoch tells them, and where the epoch that was asked for has ended."""
    (told,) = world.log.ends(int(world.now * 1000)).values()
    return {CHANGELOG: replace(told, log=replace(told.log, leader_epoch=epoch), epoch_end=ended_at)}


@pytest.mark.parametrize("point", ["standby.before-reset", "standby.after-reset"])
def test_a_rebuild_does_not_continue_rows_of_a_diverged_log(tmp_path: Path, point: str) -> None:
    world = World(tmp_path / "state", faults=InjectedFault(point))
    for number in range(20):
        world.log.put(f"old{number}", "1")
    with world.directory.lock():
        task = world.task()
        task.open()
        task.follow(with_another_leader(world, 1, None))
        for offset in range(10, 20):
            del world.log.records[offset]
        world.log.end = 10
        for number in range(30):
            world.log.put(f"new{number}", "2")
        assert "truncated" in task.follow(with_another_leader(world, 2, 10)).stale[STORE]
        with pytest.raises(FaultInjected):
            task.rebuild(STORE)
        task.close()
        world.faults = NO_FAULTS
        task = world.task()
        task.open()
        done = task.follow(with_another_leader(world, 2, 10 if task.epochs() == {CHANGELOG: 1} else None))
        assert bool(done.stale) is (point == "standby.before-reset")
        if done.stale:
            task.rebuild(STORE)
            task.follow(with_another_leader(world, 2, None))
        expected = {b"old%d" % n: b"1" for n in range(10)} | {b"new%d" % n: b"2" for n in range(30)}
        assert rows_of(task) == expected
        task.close()


def test_rows_of_another_changelog_are_an_error(world: World) -> None:
    world.log.put("a", "1")
    database = world.directory.task_path(TASK) / "rocksdb" / STORE
    database.parent.mkdir(parents=True)
    other = CHANGELOG._replace(partition=1)
    with RocksDBStore(database, StoreKind.KEY_VALUE, create=True) as store:
        store.put(b"precious", b"row")
        store.commit({other: 500})
    task = world.task()
    task.open()
    done = world.follow(task)
    assert not done.stale
    assert str(other) in done.failed[STORE].what
    assert rows_of(task) == {b"precious": b"row"}
    task.close()


@pytest.mark.parametrize("kind", [StoreKind.KEY_VALUE, StoreKind.WINDOW])
def test_a_directory_that_took_the_place_of_the_one_that_is_open_is_not_written_to(
    tmp_path: Path, kind: StoreKind
) -> None:
    world = World(tmp_path / "state", spec_of(store_of(STORE, kind)))
    with world.directory.lock():
        task = world.task()
        task.open()
        world.directory.path.rename(tmp_path / "taken away")
        shutil.copytree(tmp_path / "taken away", world.directory.path, ignore=shutil.ignore_patterns(".lock"))
        before = fingerprint(world.directory.path)
        for step in (
            lambda: world.follow(task),
            lambda: task.rebuild(STORE),
            lambda: task.stores.apply(STORE, [], 50, stream_time=3_000_000),
            lambda: task.stores.checkpoint(),
            task.close,
        ):
            with pytest.raises(Fenced, match="lock"):
                step()
        assert fingerprint(world.directory.path) == before
        assert not task.is_open


def test_nothing_is_written_by_path_when_the_lock_is_lost_in_the_middle_of_a_read(tmp_path: Path) -> None:
    world = World(tmp_path / "state")
    for number in range(30):
        world.log.put(f"k{number}", "1")
    with world.directory.lock():
        task = world.task(piece_offsets=10)
        task.open()
        world.follow(task, stop_after(1))

        def taken(span: OffsetRange) -> None:
            if span.start == 10:
                world.directory.path.rename(tmp_path / "taken away")
                shutil.copytree(
                    tmp_path / "taken away", world.directory.path, ignore=shutil.ignore_patterns(".lock", "LOCK")
                )
                before.append(there())

        def there() -> tuple[str, bytes]:
            """All but what a run leaves that was begun before: the next standby deletes that."""
            return fingerprint(world.directory.task_path(TASK)), (task.stores.work_path / "logs.json").read_bytes()

        before: list[tuple[str, bytes]] = []
        world.reader.before = taken
        with pytest.raises(Fenced, match="lock"):
            world.follow(task)
        for step in (
            lambda: task.stores.reopen(STORE),
            lambda: task.read_committed_offsets(),
            task.recycle,
            task.close,
        ):
            with pytest.raises(Fenced, match="lock"):
                step()
        assert [there()] == before


def test_a_store_that_failed_comes_last_in_the_next_round(tmp_path: Path) -> None:
    """What it waits for may take all the time that the task has."""
    world = World(tmp_path / "state", spec_of(store_of(STORE), store_of("other")))
    with world.directory.lock():
        task = world.task()
        task.open()
        nearest = task._shortest_tail_first
        (plain,) = world.log.ends(0).values()
        ends = {changelog_of(STORE): replace(plain, end=1), changelog_of("other"): replace(plain, end=5)}
        assert [one.name for one, _ in nearest(ends)] == [STORE, "other"]
        world.reader.before = lambda span: fail_for(STORE, span)
        assert set(task.follow(ends).failed) == {STORE}
        assert [one.name for one, _ in nearest(ends)] == ["other", STORE]
        task.close()


def test_a_store_that_failed_is_no_less_failed_when_a_round_had_no_time_for_it(tmp_path: Path) -> None:
    world = World(tmp_path / "state", spec_of(store_of(STORE), store_of("other")))
    with world.directory.lock():
        task = world.task()
        task.open()
        (plain,) = world.log.ends(0).values()
        ends = {changelog_of(STORE): replace(plain, end=1), changelog_of("other"): replace(plain, end=5)}
        world.reader.before = lambda span: fail_for(STORE, span)
        failed = task.follow(ends)
        assert (set(failed.failed), failed.skipped) == ({STORE}, frozenset())
        answers = iter([False])
        short = task.follow(ends, lambda: next(answers, True))
        assert (dict(short.failed), short.skipped) == ({}, {STORE})
        assert [one.name for one, _ in task._shortest_tail_first(ends)] == ["other", STORE]
        task.close()


def fail_for(store: str, span: OffsetRange) -> None:
    if span.topic == changelog_of(store).topic:
        raise Retryable("No broker answered.", code="test-error", action="Wait.")


def test_rows_with_a_damaged_record_are_quarantined_and_rebuilt(world: World) -> None:
    world.log.put("a", "1")
    task = world.task()
    task.open()
    world.follow(task)
    task.close()
    record = task.stores.work_path / "logs.json"
    record.write_bytes(b"\0" * record.stat().st_size)
    world.log = replace(world.log, topic_id="2" * 32)
    world.reader.log = world.log
    world.log.put("b", "2")  # another topic, that has grown past what the store has
    for _ in range(2):
        task = world.task()
        task.open()
        done = world.follow(task)
        assert (done.followed, list(done.stale)) == ({}, [STORE])
        assert code_of(done.stale[STORE]) == "changelog-record-damaged"
        task.close()
    task = world.task()
    task.open()
    task.rebuild(STORE)
    assert not world.follow(task).stale
    assert len(quarantined(world.directory, STALE)) == 1
    task.close()
    task = world.task()
    task.open()
    assert not world.follow(task).stale
    task.close()


def test_a_record_that_the_system_does_not_let_be_read_stops_the_task_and_stays(world: World) -> None:
    world.log.put("a", "1")
    task = world.task()
    task.open()
    world.follow(task)
    task.close()
    record = task.stores.work_path / "logs.json"
    record.rename(record.with_suffix(".kept"))
    record.mkdir()
    again = world.task()
    with pytest.raises(StatecoreError, match="cannot be read"):
        again.open()
    assert not again.is_open


@pytest.mark.parametrize("piece", [1, 2, 3])
@pytest.mark.parametrize("point", ["standby.before-ingest", "standby.after-ingest", "standby.before-expiry"])
def test_an_initial_copy_killed_at_any_piece_resumes_with_the_same_rows(
    forks: Forks, tmp_path: Path, point: str, piece: int
) -> None:
    killed = forks.run("tests.unit.tasks.standby_world", str(tmp_path / "state"), point, str(piece))
    assert killed.returncode == -signal.SIGKILL, killed.errors
    world = World(tmp_path / "state")
    with_gaps(world)
    world.now += 3600
    with world.directory.lock():
        task = world.task(piece_offsets=10)
        task.open()
        committed = piece if point == "standby.before-expiry" else piece - 1
        assert task.stores.store(STORE).position == committed * 10
        done = world.follow(task)
        if (point, piece) == ("standby.after-ingest", 1):
            assert "before it had committed" in done.stale[STORE]
            task.rebuild(STORE)
            done = world.follow(task)
        assert (done.stale, done.failed) == ({}, {})
        expected = {b"k%d" % (number % 7): b"v%d" % number for number in range(30) if number != 27}
        del expected[b"k6"]
        assert rows_of(task) == expected
        assert not quarantined(world.directory, STALE)
        task.close()
