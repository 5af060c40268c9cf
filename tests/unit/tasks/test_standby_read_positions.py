"""Read positions of standby stores: how old a copy is, and which deletes it may have missed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from statecore.changelog.model import OffsetRange
from statecore.statedir.quarantine import quarantined
from statecore.statedir.work_directory import STALE
from statecore.tasks.standby_task import RoundResult, StandbyTask
from tests.unit.tasks.standby_world import CHANGELOG, DAY_MS, STORE, TASK, World, code_of, rows_of, stop_after


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "state")
    with world.directory.lock():
        yield world


def test_an_initial_copy_longer_than_delete_retention_is_rebuilt(world: World) -> None:
    world.log.put("gone", "here")
    for number in range(9):
        world.log.put(f"k{number}", "v")
    deleted = world.log.put("gone", None)
    for number in range(9):
        world.log.put(f"k{number}", "w")

    def compaction(span: OffsetRange) -> None:
        if span.start == 10 and deleted in world.log.records:
            world.now += 2 * 86_400
            world.compact(0, deleted)

    world.reader.before = compaction
    task = world.task(piece_offsets=10)
    task.open()
    done = world.follow(task)
    assert code_of(done.stale[STORE]) == "tail-read-too-late"
    task.rebuild(STORE)
    assert not quarantined(world.directory, STALE), "the log tells of every row of it"
    assert not world.follow(task).stale
    assert b"gone" not in rows_of(task)
    assert len(rows_of(task)) == 9
    task.close()


def test_each_piece_of_a_first_read_is_remembered_with_the_moment_before_it_began(world: World) -> None:
    for number in range(20):
        world.log.put(f"k{number}", "v")
    seen: list[tuple[int, int | None]] = []
    task = world.task(piece_offsets=10)
    task.open()
    file = world.directory.work_path / "standby" / TASK / "logs.json"

    def look(span: OffsetRange) -> None:
        (log,) = json.loads(file.read_text())["logs"]
        seen.append((log["end"], log["read_at_ms"]))
        world.now += 60

    world.reader.before = look
    world.follow(task)
    assert seen == [(0, 1_000_000_000), (10, 1_000_000_000)]
    (log,) = json.loads(file.read_text())["logs"]
    assert (log["end"], log["leader_epoch"]) == (20, 1)
    task.close()


def test_a_stopped_round_is_no_read_position_at_the_log_end(world: World) -> None:
    world.log.put("gone", "here")
    for number in range(9):
        world.log.put(f"k{number}", "v")
    task = world.task(piece_offsets=10)
    task.open()
    assert not world.follow(task).stale
    for number in range(10):
        world.log.put(f"k{number}", "w")
    deleted = world.log.put("gone", None)
    world.log.put("k0", "x")
    world.now += 0.9 * 86_400
    assert not world.follow(task, stop_after(1)).stale
    assert task.offsets() == {CHANGELOG: 19}
    world.now += 0.6 * 86_400  # the delete is older than delete.retention.ms, the stopped round is not
    world.compact(deleted)
    assert code_of(world.follow(task).stale[STORE]) == "tail-read-too-late"
    task.close()


def test_a_restored_copy_is_not_checked_with_the_record_of_another(world: World) -> None:
    """Else a delete that was compacted away while it lay aside would be missed."""
    world.log.configs = {"cleanup.policy": "compact", "delete.retention.ms": str(DAY_MS)}
    world.log.put("dead", "alive")
    for number in range(19):
        world.log.put(f"k{number}", "v")
    task = world.task()
    task.open()
    world.follow(task)
    task.close()
    place, aside = world.directory.task_path(TASK), world.directory.work_path / "unowned"
    place.rename(aside)
    delete = world.log.put("dead", None)
    world.log.put("k0", "w")
    world.now += 6 * DAY_MS / 1000
    world.compact(0, delete)
    begun = world.task(piece_offsets=5)
    begun.open()
    answers = iter([False, True])
    assert world.follow(begun, lambda: next(answers, True)).followed
    begun.close()
    shutil.rmtree(place)
    aside.rename(place)
    task = world.task()
    task.open()
    assert list(world.follow(task).stale) == ["plain"]
    task.rebuild("plain")
    world.follow(task)
    assert b"dead" not in rows_of(task)
    task.close()


def deleted_behind(world: World) -> StandbyTask:
    """A store at the end of its log, behind which a row was deleted, and compaction has taken the delete."""
    world.log.put("gone", "here")
    world.log.put("k", "v")
    task = world.task()
    task.open()
    assert not world.follow(task).stale
    world.log.put("gone", None)
    world.log.put("k", "w")
    world.compact(0, 2)
    return task


@pytest.mark.parametrize("now", [{"delete.retention.ms": str(9 * DAY_MS)}, {"cleanup.policy": "delete"}])
def test_a_copy_is_checked_with_the_settings_of_its_last_round(world: World, now: dict[str, str]) -> None:
    world.log.configs = {"cleanup.policy": "compact", "delete.retention.ms": "1000"}
    task = deleted_behind(world)
    world.log.configs = {**world.log.configs, **now}
    assert list(world.follow(task).stale) == [STORE]
    task.close()
    task = world.task()
    task.open()
    assert list(world.follow(task).stale) == [STORE], "as the next process knows it too"
    task.close()


def test_a_copy_is_not_older_than_deletes_are_kept_whatever_clock_this_machine_has(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = deleted_behind(world)
    monkeypatch.setattr("time.time", lambda: 1e12)
    assert not world.follow(task).stale
    task.close()


def test_without_a_cluster_time_only_the_age_of_this_process_is_known(world: World) -> None:
    """A first read of several pieces ends, and a copy is moved on by the process that has followed it."""
    uptime = 5_000_000
    world.tells_time = False

    def follow(task: StandbyTask) -> RoundResult:
        ends = {at: replace(end, read_at_ms=None, read_at_uptime_ms=uptime) for at, end in world.log.ends(0).items()}
        return task.follow(ends)

    for number in range(30):
        world.log.put(f"k{number % 7}", "v")
    world.compact(12, 13, 14, 21)
    task = world.task(piece_offsets=10, uptime=lambda: uptime)
    task.open()
    assert not follow(task).stale
    world.log.put("k1", "w")
    world.compact(world.log.put("k2", None), world.log.put("k2", "w"))
    uptime += DAY_MS // 2
    assert not follow(task).stale
    world.compact(world.log.put("k2", None))
    world.log.put("k1", "x")
    uptime += DAY_MS
    assert list(follow(task).stale) == [STORE], "too late"
    task.rebuild(STORE)
    assert not follow(task).stale
    task.close()
    world.compact(world.log.put("k2", None))
    world.log.put("k1", "y")
    task = world.task(uptime=lambda: uptime)
    task.open()
    assert list(follow(task).stale) == [STORE], "another process knows nothing of it"
    task.close()
