from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import Capacity, Corrupted, Invalid
from statecore.formats.checkpoint import decode_checkpoint
from statecore.formats.topic_partition import TopicPartition
from statecore.metrics import CHECKPOINT_AGE, CHECKPOINT_LATENCY, CHECKPOINTS, Instrument, Metrics, Tags
from statecore.tasks.checkpoint_policy import (
    DEFAULT_INTERVAL_MS,
    CheckpointPolicy,
    CheckpointSettings,
    TaskCheckpointer,
)
from statecore.tasks.task_offsets import TaskOffsets, TaskStore
from tests.harness.filesystems import refusing
from tests.harness.manual_clock import ManualClock
from tests.harness.raising import raises
from tests.unit.stores.recorded_store import RecordedStore

CHANGELOG = TopicPartition("app-s-changelog", 0)


class Told(Metrics):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.events: list[tuple[Instrument, float, Tags]] = []
        self.gauges: dict[Instrument, Callable[[], float]] = {}

    def add(self, instrument: Instrument, amount: int, tags: Tags) -> None:
        self.events.append((instrument, amount, tags))

    def record(self, instrument: Instrument, value: float, tags: Tags) -> None:
        self.events.append((instrument, value, tags))

    def observe(self, instrument: Instrument, read: Callable[[], float | None], tags: Tags) -> Callable[[], None]:
        self.gauges[instrument] = read
        return lambda: self.gauges.pop(instrument) and None


class Task:
    """One store, a clock, and a loop that commits."""

    def __init__(self, directory: Path, interval_ms: int, *, exactly_once: bool = False, is_global: bool = False):
        self.clock, self.told = ManualClock(1000.0), Told()
        self.file = directory / ".checkpoint"
        self.store = RecordedStore(directory / "rows", manages_offsets=True)
        offsets = TaskOffsets(
            directory, [TaskStore("s", self.store, (CHANGELOG,))], exactly_once=exactly_once, is_global=is_global
        )
        self.checkpointer = TaskCheckpointer(
            offsets, CheckpointSettings(interval_ms), clock=self.clock, metrics=self.told, task="0_1"
        )
        self.checkpointer.open()
        self.offset = 0

    def commit(self, seconds_later: float) -> bool:
        self.clock.now += seconds_later
        self.offset += 1
        return self.checkpointer.commit({"s": {CHANGELOG: self.offset}})

    @property
    def on_disk(self) -> int | None:
        return decode_checkpoint(self.file.read_bytes(), "").get(CHANGELOG) if self.file.exists() else None


def test_the_default_is_that_of_the_kip() -> None:
    assert CheckpointSettings().interval_ms == DEFAULT_INTERVAL_MS == 300_000
    assert CheckpointSettings.from_properties({"commit.interval.ms": "100"}) == CheckpointSettings()


@pytest.mark.parametrize(("value", "interval"), [("0", 0), ("60000", 60_000), (5, 5)])
def test_the_property_is_read(value: str | int, interval: int) -> None:
    assert CheckpointSettings.from_properties({"statestore.checkpoint.interval.ms": value}).interval_ms == interval


@pytest.mark.parametrize("value", ["-1", "", "5 min", "1.5", -1, 1.5, True, float("inf")])
def test_a_value_that_is_no_interval_is_refused(value: str | int) -> None:
    with raises(Invalid, "setting-invalid", setting="statestore.checkpoint.interval.ms"):
        CheckpointSettings.from_properties({"statestore.checkpoint.interval.ms": value})


@pytest.mark.parametrize("is_global", [False, True])
@pytest.mark.parametrize("exactly_once", [False, True])
def test_nothing_is_written_before_the_interval_has_elapsed(
    tmp_path: Path, exactly_once: bool, is_global: bool
) -> None:
    task = Task(tmp_path, 300_000, exactly_once=exactly_once, is_global=is_global)
    assert [task.commit(30) for _ in range(21)] == [turn in (10, 20) for turn in range(1, 22)]
    assert task.on_disk == 20
    assert task.store.happened.count("flush") == 2


def test_the_effective_interval_is_a_multiple_of_the_commit_interval(tmp_path: Path) -> None:
    task = Task(tmp_path, 100_000)
    assert [task.commit(30) for _ in range(8)] == [False, False, False, True] * 2


def test_an_interval_of_nothing_is_a_checkpoint_at_every_commit(tmp_path: Path) -> None:
    task = Task(tmp_path, 0)
    for turn in range(1, 4):
        assert task.commit(0)
        assert task.on_disk == turn


def test_no_time_passes_without_a_commit(tmp_path: Path) -> None:
    task = Task(tmp_path, 1000)
    task.clock.now += 3600
    assert task.on_disk is None
    assert task.checkpointer.age == 3600
    assert task.commit(0)
    assert task.checkpointer.age == 0


def test_an_offset_that_was_set_back_does_not_wait(tmp_path: Path) -> None:
    task = Task(tmp_path, 300_000)
    for _ in range(10):
        task.commit(30)
    task.store.forget_offsets()
    assert task.checkpointer.committed()
    assert task.on_disk == -4


def test_a_checkpoint_that_failed_is_tried_again_at_the_next_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task(tmp_path, 60_000)

    with monkeypatch.context() as patched:
        refusing(patched, "replace", errno.ENOSPC, lambda path: path.name == ".checkpoint")
        with pytest.raises(Capacity):
            task.commit(60)
    assert task.store.committed_offset(CHANGELOG) == 1, "the commit stands"
    assert task.commit(1)
    assert task.on_disk == 2


def test_a_flush_that_failed_writes_no_offset(tmp_path: Path) -> None:
    task = Task(tmp_path, 0)
    task.store.failing = "flush"
    with pytest.raises(Corrupted):
        task.commit(0)
    assert task.on_disk is None


def test_checkpoints_and_their_age_are_measured(tmp_path: Path) -> None:
    task = Task(tmp_path, 60_000)
    for _ in range(3):
        task.commit(30)
    assert task.told.gauges[CHECKPOINT_AGE]() == 30
    assert task.told.events == [(CHECKPOINT_LATENCY, 0, {"task-id": "0_1"}), (CHECKPOINTS, 1, {"task-id": "0_1"})]
    task.checkpointer.close()
    assert task.told.gauges == {}
    assert not task.store.is_open


def test_a_close_leaves_the_last_offset(tmp_path: Path) -> None:
    task = Task(tmp_path, 300_000)
    task.commit(1)
    task.commit(1)
    task.checkpointer.close()
    assert task.on_disk == 2


@given(interval=st.integers(0, 1000), steps=st.lists(st.integers(0, 400), max_size=60))
def test_checkpoints_are_as_far_apart_as_the_interval_and_not_later_than_the_next_commit(
    interval: int, steps: list[int]
) -> None:
    clock = ManualClock(1000.0)
    policy = CheckpointPolicy(CheckpointSettings(interval * 1000), clock)
    written = [clock.now]
    for step in steps:
        clock.now += step
        if policy.due:
            assert clock.now - written[-1] >= interval
            policy.restart()
            written.append(clock.now)
        else:
            assert clock.now - written[-1] < interval
