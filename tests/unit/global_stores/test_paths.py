"""What a global store had before it is built anew is kept for a week: its topic may have lost more than the store."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from statecore.errors import Invalid, Retryable
from statecore.formats.topic_partition import TopicPartition
from statecore.global_stores.manager import GlobalStores
from statecore.global_stores.state import GlobalState, RecoveryReason
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.filesystems import refusing
from tests.harness.raising import raises
from tests.unit.changelog.scripted import Part
from tests.unit.global_stores.global_world import (
    KIND,
    STORE,
    World,
    fewer_partitions,
    log,
    poll_until_running,
    rows,
)

BEFORE = {b"a": b"1", b"b": b"2", b"c": b"3"}
WEEK = 7 * 86_400


def reasons(stores: GlobalStores) -> list[RecoveryReason]:
    return [one.reason for one in stores.stores[STORE].recoveries]


def empty() -> Part:
    return Part([], log_start=0, log_end=0)


def recreated_and_empty(world: World) -> None:
    world.recreate(empty(), empty())


def below_start(world: World) -> None:
    world.topic.parts[0] = Part([], log_start=10, log_end=10)


def beyond_end(world: World) -> None:
    world.topic.parts[0] = empty()


def diverged(world: World) -> None:
    world.topic.parts[0] = log({b"z": b"1", b"y": b"9", b"x": b"9"}, epoch=9, epoch_starts={9: 0})


@pytest.mark.parametrize(
    ("happens", "reason", "left"),
    [
        (recreated_and_empty, RecoveryReason.TOPIC_RECREATED, {}),
        (below_start, RecoveryReason.BELOW_LOG_START, {b"c": b"3"}),
        (beyond_end, RecoveryReason.BEYOND_LOG_END, {b"c": b"3"}),
        (fewer_partitions, RecoveryReason.PARTITION_GONE, {b"a": b"1", b"b": b"2"}),
        (diverged, RecoveryReason.LOG_DIVERGED, {b"z": b"1", b"y": b"9", b"x": b"9", b"c": b"3"}),
    ],
)
def test_rows_that_the_topic_does_not_tell_of_any_more_are_kept(
    world: World, happens: Callable[[World], None], reason: RecoveryReason, left: dict[bytes, bytes]
) -> None:
    with world.stores() as stores:
        poll_until_running(stores)
        happens(world)
        stores.poll()
        poll_until_running(stores)
        assert reasons(stores) == [reason]
        assert rows(stores) == left
    assert world.kept() == [BEFORE]
    assert world.left() == set()


@pytest.mark.parametrize("offsets", [{0: -4, 1: 1}, {}])
def test_rows_with_an_unknown_offset_are_kept(world: World, offsets: dict[int, int]) -> None:
    world.write({b"ghost": b"x"}, offsets)
    with world.stores() as stores:
        poll_until_running(stores)
        assert reasons(stores) == [RecoveryReason.OFFSET_UNKNOWN]
    assert world.kept() == [{b"ghost": b"x"}]


def test_rows_of_unrecorded_topics_are_kept(world: World) -> None:
    with world.stores() as stores:
        poll_until_running(stores)
    (world.application / ".statecore" / "global-topics.json").write_bytes(b"{torn")
    recreated_and_empty(world)
    with world.stores() as stores:
        poll_until_running(stores)
        assert reasons(stores) == [RecoveryReason.TOPIC_UNKNOWN]
        assert rows(stores) == {}
    assert world.kept() == [BEFORE]


def test_the_files_of_a_damaged_store_are_kept(world: World) -> None:
    with world.stores() as stores:
        poll_until_running(stores)
    current = world.live / "CURRENT"
    said = current.read_bytes()
    current.unlink()
    with world.stores() as stores:
        poll_until_running(stores)
        assert reasons(stores) == [RecoveryReason.STORE_UNUSABLE]
    (kept,) = world.kept_paths()
    (kept / "CURRENT").write_bytes(said)  # as a person would save it
    assert world.kept() == [BEFORE]


def test_a_file_in_the_place_of_a_store_is_kept(world: World) -> None:
    world.live.parent.mkdir(parents=True)
    world.live.write_text("somebody's")
    with world.stores() as stores:
        poll_until_running(stores)
        assert rows(stores) == BEFORE
    (kept,) = world.kept_paths()
    assert kept.read_text() == "somebody's"


def test_a_store_of_another_topic_is_refused_and_stays_as_it_is(world: World) -> None:
    world.live.parent.mkdir(parents=True)
    with RocksDBStore(world.live, KIND, create=True) as store:
        store.put_all([(b"p", b"1")])
        store.commit({TopicPartition("prices", 0): 5})
    with raises(Invalid, "changelog-mismatch", topic="rates"), world.stores():
        pass
    assert world.on_disk()[0] == {b"p": b"1"}
    assert world.left() == set()
    assert world.kept_paths() == []


def test_a_backup_of_an_earlier_recovery_is_not_visible(world: World) -> None:
    with world.stores() as stores:
        poll_until_running(stores)
        recreated_and_empty(world)
        stores.poll()
        poll_until_running(stores)
    (world.live / "CURRENT").unlink()
    with world.stores() as stores, pytest.raises(Retryable):
        rows(stores, stale=True)
    assert world.kept() == [BEFORE]


def test_a_store_that_is_valid_at_the_start_leaves_what_was_set_aside_to_be_kept(world: World) -> None:
    with world.stores() as stores:
        poll_until_running(stores)
    aside = world.application / ".statecore" / "global-old" / f"{STORE}@0"
    aside.parent.mkdir()
    world.live.rename(aside)
    world.write({b"new": b"1"}, {0: 2, 1: 1})
    with world.stores():
        assert world.kept() == [BEFORE]
    assert world.left() == set()


def test_of_recoveries_in_a_row_the_oldest_the_newest_and_the_largest_between_are_kept(world: World) -> None:
    other = world.application / ".statecore" / "stale" / f"global@{int(world.now * 1000)}" / "rocksdb" / "other"
    other.mkdir(parents=True)
    with world.stores() as stores:
        poll_until_running(stores)
        for turn in range(5):
            world.recreate(log({b"turn": (b"%d" % turn).ljust(100_000 if turn == 1 else 1)}), empty())
            world.now += 60
            stores.poll()
            poll_until_running(stores)
            assert len(world.kept_paths()) <= 3
    assert world.kept() == [BEFORE, {b"turn": b"1".ljust(100_000)}, {b"turn": b"3"}]
    assert world.on_disk()[0] == {b"turn": b"4"}
    assert other.is_dir()


def test_what_is_kept_is_deleted_after_a_week_by_the_next_start(world: World) -> None:
    with world.stores() as stores:
        poll_until_running(stores)
        recreated_and_empty(world)
        stores.poll()
        poll_until_running(stores)
    world.now += WEEK - 60
    with world.stores():
        assert world.kept() == [BEFORE]
    world.now += 120
    with world.stores():
        assert world.kept_paths() == []
    assert list((world.application / ".statecore" / "stale").iterdir()) == []


@pytest.mark.full
def test_what_is_kept_is_deleted_after_a_week_while_it_runs(world: World) -> None:
    with world.stores() as stores:
        poll_until_running(stores)
        recreated_and_empty(world)
        stores.poll()
        poll_until_running(stores)
        for _ in range(7 * 24):
            world.now += 3600
            stores.poll()
        assert world.kept() == [BEFORE]
        world.now += 3600
        stores.poll()
        assert world.kept_paths() == []


def test_what_cannot_be_deleted_after_a_week_is_no_reason_to_stop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.stores() as stores:
        poll_until_running(stores)
        recreated_and_empty(world)
        stores.poll()
        poll_until_running(stores)
        world.now += WEEK + 3600
        refusing(monkeypatch, "unlink", errno.EIO, lambda path: not path.is_absolute())  # of a tree
        stores.poll()
        assert stores.state is GlobalState.RUNNING
        assert world.kept() == [BEFORE]
