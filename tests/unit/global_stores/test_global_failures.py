"""Global stores on disks that fail, over logs that change while they are read, with listeners that do as they like."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from statecore.changelog.cluster import Cluster
from statecore.errors import Corrupted, Invalid, Retryable
from statecore.faults import FaultPoints
from statecore.formats.kinds import StoreKind
from statecore.global_stores import paths as global_places
from statecore.global_stores.manager import GlobalStores
from statecore.global_stores.settings import GlobalSettings, GlobalTable
from statecore.global_stores.state import GlobalState, RecoveryReason
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.creation import interrupt_creation
from tests.unit.global_stores.global_world import STORE, TOPIC, World, log, poll_until, recreated, rows

BEFORE = {b"a": b"1", b"b": b"2", b"c": b"3"}
AFTER = {b"x": b"7", b"z": b"9", b"c": b"8"}


def running(world: World, stores: GlobalStores) -> None:
    """Polls until all run, over every pause."""

    def reached() -> bool:
        world.time.now += 60
        return stores.state is GlobalState.RUNNING

    poll_until(stores, reached)


class At(FaultPoints):
    """Does something at a point, the first so many times."""

    def __init__(self, point: str, does: Callable[[], None], times: int = 1) -> None:
        self.point, self.does, self.left = point, does, times

    def reach(self, point: str) -> None:
        if point == self.point and self.left:
            self.left -= 1
            self.does()


class FailingDisk:
    """Renames, or the making durable of them, that fail with EIO, a number of times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, what: str, into: str, times: int) -> None:
        self.left = times
        rename, sync = Path.rename, global_places.sync_file

        def failing(source: Path, target: Path) -> Path:
            self.fail(what == "rename" and into in (target.parent.name, source.parent.name))
            return rename(source, target)

        def unsure(path: Path) -> None:
            self.fail(what == "sync" and path.name == into)
            sync(path)

        monkeypatch.setattr(Path, "rename", failing)
        monkeypatch.setattr(global_places, "sync_file", unsure)

    def fail(self, meant: bool) -> None:
        if meant and self.left:
            self.left -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("what", ["rename", "sync"])
@pytest.mark.parametrize("into", ["global-old", "global-new"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_disk_that_fails_while_a_store_is_moved_is_tried_again_and_the_store_never_runs_without_a_database(
    world: World, monkeypatch: pytest.MonkeyPatch, what: str, into: str, times: int
) -> None:
    with world.stores(round_offsets=1) as stores:
        running(world, stores)
        recreated(world)
        disk = FailingDisk(monkeypatch, what, into, times)
        one, errors = stores.stores[STORE], 0
        stores.poll()
        rounds_after = 0
        for _ in range(50):
            world.time.now += 60
            stores.poll()
            if one.error is not None:
                assert isinstance(one.error, Retryable)
                assert one.state is GlobalState.RESTORING
                assert rows(stores, stale=True) in (BEFORE, AFTER)
                errors += 1
            if one.state is GlobalState.RUNNING:
                assert rows(stores) == AFTER, "it runs on a database"
                rounds_after += 1
                if rounds_after == 5:
                    break
        assert one.state is GlobalState.RUNNING
        assert disk.left < times
        assert errors == times - disk.left - 1 or errors == times - disk.left  # one may have come with the first poll
        assert len(one.recoveries) == 1, "to try again is no other recovery"
    assert world.on_disk() == (AFTER, {0: 2, 1: 1})
    assert world.left() == set()


def test_what_comes_while_a_built_store_cannot_be_put_in_its_place_is_not_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.stores() as stores:
        disk = FailingDisk(monkeypatch, "rename", "global-new", 3)
        stores.poll()
        assert stores.state is GlobalState.RESTORING
        assert isinstance(stores.stores[STORE].error, Retryable)
        world.topic.parts[1] = log({b"c": b"3", b"d": b"4"})
        running(world, stores)
        world.time.now += 60
        stores.poll()
        assert rows(stores) == {**BEFORE, b"d": b"4"}
        assert disk.left == 0
    assert world.on_disk() == ({**BEFORE, b"d": b"4"}, {0: 2, 1: 2})


def test_a_store_that_cannot_be_opened_in_its_place_is_built_again(world: World) -> None:
    def damage() -> None:
        (manifest,) = world.live.glob("MANIFEST-*")
        manifest.write_bytes(b"nonsense")

    with world.stores(faults=At("global.after-place", damage, times=2)) as stores:
        running(world, stores)
        assert rows(stores) == BEFORE
        assert [one.reason for one in stores.stores[STORE].recoveries] == [RecoveryReason.STORE_UNUSABLE] * 2
    assert world.left() == set()


def test_a_store_that_kafka_streams_was_killed_at_while_it_created_it_is_built(world: World) -> None:
    world.write(AFTER, {0: 2, 1: 1})
    shutil.move(world.live, world.live.parent / "another")
    interrupt_creation(world.live)
    with world.stores() as stores:
        running(world, stores)
        assert rows(stores) == BEFORE
    assert world.on_disk() == (BEFORE, {0: 2, 1: 1})


def test_a_disk_that_damages_every_store_that_is_built_is_not_written_to_for_ever(world: World) -> None:
    def damage() -> None:
        (manifest,) = world.live.glob("MANIFEST-*")
        manifest.write_bytes(b"nonsense")

    faults = At("global.after-place", damage, times=1000)
    with world.stores(faults=faults, recovery_attempts=3) as stores:
        for _ in range(20):
            world.time.now += 60
            stores.poll()
        assert stores.state is GlobalState.ERROR
        assert faults.left == 997
        with pytest.raises(Corrupted, match="3 times in a row"):
            rows(stores)


def test_a_replaced_database_is_not_checked_with_the_topic_of_the_old_one(world: World) -> None:
    with world.stores() as stores:
        running(world, stores)
    recreated(world)
    shutil.rmtree(world.live)
    world.write({b"x": b"7", b"mine": b"!"}, {0: 1, 1: 1})  # as Kafka Streams makes it of the new topic
    with world.stores() as stores:
        running(world, stores)
        assert stores.stores[STORE].recoveries == []
        assert rows(stores) == {b"x": b"7", b"z": b"9", b"mine": b"!"}
    world.recreate(log({b"x": b"7", b"z": b"0"}), log({b"c": b"0"}))
    with world.stores() as stores:  # and from then on it is known of which topic it is
        running(world, stores)
        assert [one.reason for one in stores.stores[STORE].recoveries] == [RecoveryReason.TOPIC_RECREATED]


def test_a_database_opened_by_others_is_still_checked_with_its_topic(world: World) -> None:
    with world.stores() as stores:
        running(world, stores)
    with RocksDBStore(world.live, StoreKind.KEY_VALUE) as store:
        store.flush()
    recreated(world)
    with world.stores() as stores:
        running(world, stores)
        assert [one.reason for one in stores.stores[STORE].recoveries] == [RecoveryReason.TOPIC_RECREATED]
        assert rows(stores) == AFTER


def test_a_topic_that_is_truncated_again_and_again_while_it_is_read_is_recovered_from(world: World) -> None:
    shapes = iter([{b"m": b"1"}, {}, {}])

    def truncate() -> None:
        world.topic.parts[0] = log(next(shapes))

    with world.stores() as stores:
        running(world, stores)
    world.topic.parts[0] = log({b"a": b"1", b"b": b"2", b"e": b"5"})
    with world.stores(faults=At("global.before-read", truncate, times=3)) as stores:
        running(world, stores)
        assert rows(stores) == {b"c": b"3"}
        assert {one.reason for one in stores.stores[STORE].recoveries} == {RecoveryReason.BEYOND_LOG_END}
        assert stores.stores[STORE].error is None


def test_a_topic_that_is_truncated_at_every_read_is_an_error_in_the_end_after_growing_pauses(world: World) -> None:
    reads: list[float] = []

    def truncate() -> None:
        reads.append(world.time.now)
        world.topic.parts[0] = log({})

    faults = At("global.before-read", truncate, times=1000)
    with world.stores(faults=faults, recovery_attempts=4, retry_backoff=1.0) as stores:
        for _ in range(200):
            world.time.now += 0.125
            world.topic.parts[0] = log({b"a": b"1", b"b": b"2"})
            stores.poll()
        assert stores.state is GlobalState.ERROR
        with pytest.raises(Invalid, match="4 times in a row"):
            rows(stores)
    assert [later - earlier for earlier, later in pairwise(reads)] == [0.125, 1.0, 2.0]
    assert not world.live.exists()


def test_a_topic_that_loses_records_at_every_read_is_an_error_in_the_end_after_growing_pauses(world: World) -> None:
    reads: list[float] = []

    def trim() -> None:
        reads.append(world.time.now)
        world.topic.parts[0] = log({b"a": b"1", b"b": b"2"}, start=10 * len(reads))

    faults = At("global.before-read", trim, times=1000)
    with world.stores(faults=faults, recovery_attempts=4, retry_backoff=1.0) as stores:
        for _ in range(200):
            world.time.now += 0.125
            stores.poll()
        assert stores.state is GlobalState.ERROR
        with pytest.raises(Retryable, match="4 times in a row"):
            rows(stores)
    assert [later - earlier for earlier, later in pairwise(reads)] == [1.0, 2.0, 4.0]


@contextmanager
def listening(world: World, listener: Callable[..., None]) -> Iterator[GlobalStores]:
    """Stores that nobody has opened, with a listener."""
    directory = StateDirectory(world.state_dir, "app")
    tables = [GlobalTable(STORE, StoreKind.KEY_VALUE, TOPIC)]
    settings = GlobalSettings(metadata_interval=0.0, poll_interval=0.01)
    with directory.lock(), Cluster(world.brokers.address, timeout=5.0) as cluster:
        made = GlobalStores(directory, tables, cluster, settings, listener=listener)
        try:
            yield made
        finally:
            in_time(made.close)


def in_time(does: Callable[[], object]) -> None:
    """Does something on a thread of its own, which must come to an end."""
    thread = threading.Thread(target=does, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "it hangs"


@pytest.mark.parametrize("threaded", [False, True])
def test_a_listener_may_close_the_stores(world: World, threaded: bool) -> None:
    told: list[GlobalState] = []
    ended = threading.Event()

    def listener(_: str, state: GlobalState, __: GlobalState) -> None:
        told.append(state)
        if state is GlobalState.RUNNING:
            stores.close()
        if state is GlobalState.CLOSED:
            ended.set()

    def polls() -> None:
        stores.open()
        while not ended.is_set():
            stores.poll()

    with listening(world, listener) as stores:
        in_time(lambda: (stores.start(), ended.wait(50)) if threaded else polls())
        assert stores.state is GlobalState.CLOSED
        assert told == [GlobalState.RESTORING, GlobalState.RUNNING, GlobalState.CLOSED]
    assert world.on_disk()[0] == BEFORE


def test_what_a_listener_raises_stops_nothing_and_it_may_wait_for_a_query_of_another_thread(world: World) -> None:
    found: list[object] = []

    def listener(_: str, state: GlobalState, __: GlobalState) -> None:
        if state is GlobalState.RUNNING:
            in_time(lambda: found.append(rows(stores)))
        raise RuntimeError("the listener's own")

    with listening(world, listener) as stores:
        stores.start()
        assert stores.wait(timeout=1200)
        recreated(world)
        pause = threading.Event()
        for _ in range(6000):
            if found and found[-1] == AFTER:
                break
            pause.wait(0.01)
    assert found == [BEFORE, AFTER]


def test_a_defect_of_one_store_does_not_end_the_others(world: World) -> None:
    world.brokers.add("prices", [log({b"p": b"1"})])
    directory = StateDirectory(world.state_dir, "app")
    tables = [GlobalTable(STORE, StoreKind.KEY_VALUE, TOPIC), GlobalTable("prices", StoreKind.KEY_VALUE, "prices")]

    def defect() -> None:
        raise ZeroDivisionError("a defect")

    with (
        directory.lock(),
        Cluster(world.brokers.address, timeout=5.0) as cluster,
        GlobalStores(directory, tables, cluster, faults=At("global.after-read", defect)) as stores,
    ):
        poll_until(stores, lambda: stores.stores["prices"].state is GlobalState.RUNNING)
        assert stores.stores[STORE].state is GlobalState.ERROR
        assert "ZeroDivisionError: a defect" in str(stores.stores[STORE].error)
        with stores.query_view("prices") as view:
            assert dict(view.all()) == {b"p": b"1"}


def test_what_was_set_aside_and_cannot_be_moved_away_is_no_reason_to_stop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with world.stores() as stores:
        running(world, stores)
        recreated(world)
        with monkeypatch.context() as patched:
            patched.setattr(global_places.GlobalPaths, "all_set_aside", fail)
            stores.poll()
            running(world, stores)
            stores.poll()
            assert stores.state is GlobalState.RUNNING
            assert rows(stores) == AFTER
            assert len(stores.stores[STORE].recoveries) == 1
    assert world.left() != set()
    with world.stores() as stores:
        running(world, stores)
    assert world.left() == set()
    assert world.kept() == [BEFORE]
