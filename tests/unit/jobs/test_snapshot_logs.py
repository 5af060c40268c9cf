"""Offsets of a snapshot beside the logs that the brokers have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import LogOffsets, OffsetRange, TopicDescription
from statecore.errors import Fenced, Invalid, Retryable
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.snapshot_report import Outcome
from tests.harness.raising import raises
from tests.unit.jobs.snapshots import World

TOPIC_ID = "0" * 31 + "7"
NOW = 1_800_000_000.0


class Brokers:
    """A cluster that says what it is told."""

    logs: Mapping[str, LogOffsets] = {}
    partitions = 1
    topic_id = TOPIC_ID
    failure: Exception | None = None
    now_ms: int | None = int(NOW * 1000)

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Brokers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def time_ms(self) -> int | None:
        return self.now_ms

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        if self.failure is not None:
            raise self.failure
        return {name: TopicDescription(name, self.topic_id, self.partitions, {}) for name in names}

    def log_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogOffsets]:
        return {partition: self.logs[str(partition)] for partition in partitions}


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> type[Brokers]:
    class Mine(Brokers):
        pass

    monkeypatch.setattr("statecore.jobs.snapshot_logs.Cluster", Mine)
    return Mine


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.write({b"k": b"v"}, 7)
    return world


def log(start: int, end: int) -> Mapping[str, LogOffsets]:
    return {"app-counts-changelog-0": LogOffsets(start, end, end, 5)}


@pytest.mark.parametrize(
    ("start", "end", "code"),
    [(0, 7, "offset-beyond-log-end"), (0, 0, "offset-beyond-log-end"), (9, 12, "offset-below-log-start")],
)
def test_an_offset_outside_its_log_is_refused(
    world: World, brokers: type[Brokers], start: int, end: int, code: str
) -> None:
    brokers.logs = log(start, end)
    with raises(Invalid, "snapshot-refused") as caught:
        world.snapshot(offline=False)
    (problem,) = caught.value.context["problems"]
    assert (problem["code"], problem["task"], problem["store"]) == (code, "0_0", "counts")
    assert world.shelf.read_head() is None


@pytest.mark.parametrize(("start", "end", "tail"), [(0, 8, 0), (8, 8, 0), (8, 10, 2), (3, 20, 12)])
def test_an_offset_within_its_log_is_published_with_what_the_brokers_say(
    world: World, brokers: type[Brokers], start: int, end: int, tail: int
) -> None:
    brokers.logs = log(start, end)
    report = world.snapshot(offline=False)
    assert [store.tail for store in report.stores] == [tail]
    stored = world.stored()["0_0", "counts"]
    (one,) = stored.changelogs
    assert (one.topic_id, one.log_start, one.log_end, one.leader_epoch) == (TOPIC_ID, start, end, 5)
    assert (stored.cut_ms is None) == (tail > 0), (
        "only where nothing lay behind it, the deletes that follow are younger"
    )


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
@pytest.mark.parametrize("markers", [True, False])
def test_where_only_markers_of_transactions_lie_behind_an_offset_its_age_is_known(
    world: World, brokers: type[Brokers], monkeypatch: pytest.MonkeyPatch, guarantee: str, markers: bool
) -> None:
    asked: list[OffsetRange] = []

    def looked(_: Cluster, pieces: Collection[OffsetRange]) -> set[OffsetRange]:
        asked.extend(pieces)
        return set(pieces) if markers else set()

    monkeypatch.setattr("statecore.jobs.snapshot_logs.of_markers", looked)
    world.spec["processing_guarantee"] = guarantee
    brokers.logs = log(0, 10)
    (store,) = world.snapshot(offline=False).stores
    assert store.tail == 2
    assert (world.stored()["0_0", "counts"].cut_ms is not None) == (markers and guarantee == "exactly_once_v2")
    assert asked == ([OffsetRange("app-counts-changelog", 0, 8, 10)] if guarantee == "exactly_once_v2" else [])


def test_a_store_that_has_come_to_the_end_is_not_looked_behind(
    world: World, brokers: type[Brokers], monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked(_: Cluster, pieces: Collection[OffsetRange]) -> set[OffsetRange]:
        assert not pieces
        return set()

    monkeypatch.setattr("statecore.jobs.snapshot_logs.of_markers", looked)
    world.spec["processing_guarantee"] = "exactly_once_v2"
    brokers.logs = log(0, 8)
    world.snapshot(offline=False)
    assert world.stored()["0_0", "counts"].cut_ms is not None


def test_a_store_without_an_offset_fits_every_log(world: World, brokers: type[Brokers]) -> None:
    world.write({}, -4)
    brokers.logs = log(9, 12)
    assert [store.tail for store in world.snapshot(offline=False).stores] == [3]


def test_a_snapshot_of_all_partitions_of_the_topics_is_whole_and_drops_tasks_that_are_no_more(
    world: World, brokers: type[Brokers]
) -> None:
    brokers.logs = {f"app-counts-changelog-{number}": LogOffsets(0, 8, 8) for number in (0, 1)}
    world.write({b"k": b"v"}, 7, path=world.database(task="0_1"), changelog=world.changelog(partition=1))
    brokers.partitions = 2
    world.snapshot(offline=False)
    (world.path / "0_1").rename(world.state_dir / "elsewhere")
    report = world.snapshot(offline=False)
    assert report.outcome is Outcome.UNCHANGED, "of two tasks one: the other is another instance's"
    brokers.partitions = 1
    assert world.snapshot(offline=False).outcome is Outcome.PUBLISHED
    assert {task for task, _ in world.stored()} == {"0_0"}


def test_the_same_files_are_published_again_for_a_topic_id_and_for_a_much_later_moment(
    world: World, brokers: type[Brokers], monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.logs = log(0, 8)
    assert world.snapshot().outcome is Outcome.PUBLISHED
    assert world.snapshot(offline=False).outcome is Outcome.PUBLISHED, "the brokers know which topic it is"
    assert world.snapshot(offline=False).outcome is Outcome.UNCHANGED
    assert world.snapshot().outcome is Outcome.UNCHANGED
    monkeypatch.setattr("statecore.jobs.snapshot_parts._WORTH_MS", -1)
    assert world.snapshot(offline=False).outcome is Outcome.PUBLISHED


def test_a_topic_that_was_made_anew_may_go_back_and_the_same_one_may_not(world: World, brokers: type[Brokers]) -> None:
    brokers.logs = log(0, 8)
    world.snapshot(offline=False)
    world.write({b"k": b"w"}, 5)
    with raises(Fenced, "publication-conflict"):
        world.snapshot(offline=False)
    with raises(Fenced, "snapshot-newer", task="0_0", store="counts", offset=8, end=6):
        world.snapshot()
    brokers.topic_id = "0" * 31 + "8"
    assert world.snapshot(offline=False).outcome is Outcome.PUBLISHED


def test_brokers_that_are_not_there_are_said_with_the_way_around(world: World, brokers: type[Brokers]) -> None:
    brokers.failure = Retryable("No broker answered.", code="broker-unreachable", action="Start one.")
    with raises(Retryable, "broker-unreachable") as caught:
        world.snapshot(offline=False)
    assert caught.value.action.startswith("Start one. ")
    assert "--offline" in caught.value.action


def test_nobody_is_asked_offline(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("somebody was asked")

    monkeypatch.setattr("statecore.jobs.snapshot_logs.Cluster", refuse)
    assert world.snapshot().outcome is Outcome.PUBLISHED


@pytest.mark.parametrize(
    ("end", "markers", "taken"), [(8, False, True), (9, True, True), (9, False, False), (20, False, False)]
)
def test_a_versioned_transactional_store_is_taken_where_no_record_lies_behind_its_offset(
    tmp_path: Path, brokers: type[Brokers], monkeypatch: pytest.MonkeyPatch, end: int, markers: bool, taken: bool
) -> None:
    monkeypatch.setattr("statecore.jobs.snapshot_logs.of_markers", lambda _, pieces: set(pieces) if markers else set())
    world = World(tmp_path, counts={"kind": "versioned-key-value", "retention": "10m"})
    world.spec |= {"processing_guarantee": "exactly_once_v2", "transactional_state_stores": True}
    world.write({b"\xff" * 8 + b"k": bytes(8) + b"v"}, 7, kind="versioned-key-value")
    brokers.logs = log(0, end)
    if taken:
        assert world.snapshot(offline=False).outcome is Outcome.PUBLISHED
    else:
        with raises(Invalid, "snapshot-refused") as caught:
            world.snapshot(offline=False)
        assert [problem["code"] for problem in caught.value.context["problems"]] == ["versioned-store-ahead"]
        assert world.shelf.read_head() is None


def test_another_transactional_store_is_taken_whatever_lies_behind_its_offset(
    world: World, brokers: type[Brokers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statecore.jobs.snapshot_logs.of_markers", lambda *_: set())
    world.spec |= {"processing_guarantee": "exactly_once_v2", "transactional_state_stores": True}
    brokers.logs = log(0, 20)
    assert world.snapshot(offline=False).outcome is Outcome.PUBLISHED
