"""Offsets of a backup, compared with the logs of the brokers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.protocol.consumer.fetch import FetchRequest

from statecore.errors import Fenced, Invalid, Retryable
from statecore.jobs.backup.report import BackupOutcome
from tests.harness.raising import raises
from tests.unit.changelog.build import Record, batch, marker
from tests.unit.changelog.scripted import Part, ScriptedBrokers
from tests.unit.jobs.backup.snapshots import World

CHANGELOG = "app-counts-changelog"
TOPIC_ID = uuid.UUID(int=7)
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once_v2", "at_least_once"


@pytest.fixture
def brokers() -> Iterator[ScriptedBrokers]:
    with ScriptedBrokers() as made:
        yield made


@pytest.fixture
def world(tmp_path: Path, brokers: ScriptedBrokers) -> World:
    world = World(tmp_path)
    world.spec["bootstrap_servers"] = brokers.address
    world.write({b"k": b"v"}, 7)
    return world


def log(brokers: ScriptedBrokers, start: int, end: int, *, partitions: int = 1, number: int = 7) -> None:
    """The changelog, of which nobody reads more than where it begins and ends."""
    parts = [Part(log_start=start, log_end=end, epoch=5) for _ in range(partitions)]
    brokers.add(CHANGELOG, parts, topic_id=uuid.UUID(int=number))


def log_of(brokers: ScriptedBrokers, end: int, *, markers: bool) -> None:
    """The changelog with eight records of a transaction, and markers or more records behind them."""

    def records(first: int, last: int) -> bytes:
        return batch([Record(n, 1, b"k", b"v") for n in range(first, last)], producer=7, transactional=True)

    behind = [marker(n, 7, commit=True) for n in range(8, end)] if markers else [records(8, end)] if end > 8 else []
    brokers.add(CHANGELOG, [Part([records(0, 8), *behind])], topic_id=TOPIC_ID)


@pytest.mark.parametrize(
    ("start", "end", "code"),
    [(0, 7, "offset-beyond-log-end"), (0, 0, "offset-beyond-log-end"), (9, 12, "offset-below-log-start")],
)
def test_an_offset_outside_its_log_is_refused(
    world: World, brokers: ScriptedBrokers, start: int, end: int, code: str
) -> None:
    log(brokers, start, end)
    with raises(Invalid, "backup-refused") as caught:
        world.snapshot(offline=False)
    (problem,) = caught.value.context["problems"]
    assert (problem["code"], problem["task"], problem["store"]) == (code, "0_0", "counts")
    assert world.app_repository.read_head() is None


@pytest.mark.parametrize(("start", "end", "tail"), [(0, 8, 0), (8, 8, 0), (8, 10, 2), (3, 20, 12)])
def test_an_offset_within_its_log_is_published_with_the_ends_of_the_brokers(
    world: World, brokers: ScriptedBrokers, start: int, end: int, tail: int
) -> None:
    log(brokers, start, end)
    report = world.snapshot(offline=False)
    assert [store.tail for store in report.stores] == [tail]
    stored = world.stored()["0_0", "counts"]
    (one,) = stored.changelogs
    assert (one.topic_id, one.log_start, one.log_end, one.leader_epoch) == (TOPIC_ID.hex, start, end, 5)
    assert (stored.read_at_ms is None) == (tail > 0), (
        "only where nothing lay behind it, the deletes that follow are younger"
    )


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
@pytest.mark.parametrize("markers", [True, False])
def test_the_age_is_known_if_only_transaction_markers_follow_an_offset(
    world: World, brokers: ScriptedBrokers, guarantee: str, markers: bool
) -> None:
    world.spec["processing_guarantee"] = guarantee
    log_of(brokers, 10, markers=markers)
    (store,) = world.snapshot(offline=False).stores
    assert store.tail == 2
    assert (world.stored()["0_0", "counts"].read_at_ms is not None) == (markers and guarantee == EXACTLY_ONCE)
    assert len(brokers.asked(FetchRequest)) == (1 if guarantee == EXACTLY_ONCE else 0)


def test_no_record_is_read_after_a_store_at_the_log_end(world: World, brokers: ScriptedBrokers) -> None:
    world.spec["processing_guarantee"] = EXACTLY_ONCE
    log(brokers, 0, 8)
    world.snapshot(offline=False)
    assert brokers.asked(FetchRequest) == []
    assert world.stored()["0_0", "counts"].read_at_ms is not None


def test_a_store_with_the_unknown_offset_fits_every_log(world: World, brokers: ScriptedBrokers) -> None:
    world.write({}, -4)
    log(brokers, 9, 12)
    assert [store.tail for store in world.snapshot(offline=False).stores] == [3]


def test_a_snapshot_of_all_partitions_is_whole_and_drops_removed_tasks(world: World, brokers: ScriptedBrokers) -> None:
    log(brokers, 0, 8, partitions=2)
    world.write({b"k": b"v"}, 7, path=world.database(task="0_1"), changelog=world.changelog(partition=1))
    world.snapshot(offline=False)
    (world.path / "0_1").rename(world.state_dir / "elsewhere")
    report = world.snapshot(offline=False)
    assert report.outcome is BackupOutcome.UNCHANGED, "of two tasks one: the other is another instance's"
    log(brokers, 0, 8)
    assert world.snapshot(offline=False).outcome is BackupOutcome.PUBLISHED
    assert {task for task, _ in world.stored()} == {"0_0"}


def test_the_same_files_are_published_again_with_a_topic_id_or_a_much_later_time(
    world: World, brokers: ScriptedBrokers
) -> None:
    log(brokers, 0, 8)
    assert world.snapshot().outcome is BackupOutcome.PUBLISHED
    assert world.snapshot(offline=False).outcome is BackupOutcome.PUBLISHED, "the brokers know which topic it is"
    assert world.snapshot(offline=False).outcome is BackupOutcome.UNCHANGED
    assert world.snapshot().outcome is BackupOutcome.UNCHANGED
    brokers.time_ms += 3_600_000
    assert world.snapshot(offline=False).outcome is BackupOutcome.UNCHANGED
    brokers.time_ms += 1
    assert world.snapshot(offline=False).outcome is BackupOutcome.PUBLISHED


def test_only_a_recreated_topic_may_have_a_smaller_end(world: World, brokers: ScriptedBrokers) -> None:
    log(brokers, 0, 8)
    world.snapshot(offline=False)
    world.write({b"k": b"w"}, 5)
    with raises(Fenced, "publication-conflict"):
        world.snapshot(offline=False)
    with raises(Fenced, "snapshot-newer", task="0_0", store="counts", offset=8, end=6):
        world.snapshot()
    log(brokers, 0, 8, number=8)
    assert world.snapshot(offline=False).outcome is BackupOutcome.PUBLISHED


def test_unreachable_brokers_are_reported_with_the_offline_option(world: World, brokers: ScriptedBrokers) -> None:
    brokers.stop(0)
    with raises(Retryable, "broker-unreachable") as caught:
        world.snapshot(offline=False, timeout=0.2)
    assert "--offline" in caught.value.action


def test_offline_asks_no_broker(world: World, brokers: ScriptedBrokers) -> None:
    assert world.snapshot().outcome is BackupOutcome.PUBLISHED
    assert brokers.seen(object) == []


@pytest.mark.parametrize(
    ("end", "markers", "taken"), [(8, False, True), (9, True, True), (9, False, False), (20, False, False)]
)
def test_a_versioned_transactional_store_without_a_tail_is_published(
    tmp_path: Path, brokers: ScriptedBrokers, end: int, markers: bool, taken: bool
) -> None:
    world = World(tmp_path, counts={"kind": "versioned-key-value", "retention": "10m"})
    world.spec |= {"processing_guarantee": EXACTLY_ONCE, "transactional_state_stores": True}
    world.spec["bootstrap_servers"] = brokers.address
    world.write({b"\xff" * 8 + b"k": bytes(8) + b"v"}, 7, kind="versioned-key-value")
    log_of(brokers, end, markers=markers)
    if taken:
        assert world.snapshot(offline=False).outcome is BackupOutcome.PUBLISHED
    else:
        with raises(Invalid, "backup-refused") as caught:
            world.snapshot(offline=False)
        assert [problem["code"] for problem in caught.value.context["problems"]] == ["versioned-store-ahead"]
        assert world.app_repository.read_head() is None


def test_another_transactional_store_is_published_with_any_tail(world: World, brokers: ScriptedBrokers) -> None:
    world.spec |= {"processing_guarantee": EXACTLY_ONCE, "transactional_state_stores": True}
    log_of(brokers, 20, markers=False)
    assert world.snapshot(offline=False).outcome is BackupOutcome.PUBLISHED
