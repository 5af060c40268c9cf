"""Global stores over scripted logs: restored, followed, and built anew where Kafka Streams would end in ERROR."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable

import pytest
from kafka.protocol.metadata import MetadataRequest

from statecore.changelog.cluster import Cluster
from statecore.errors import Capacity, Fenced, Invalid, NotFound, Retryable
from statecore.faults import GLOBAL_POINTS, FaultInjected, InjectedFault
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.global_stores.manager import GlobalStores
from statecore.global_stores.settings import GlobalSettings, GlobalTable
from statecore.global_stores.state import GlobalState, RecoveryReason
from statecore.metrics import Instrument, NullMetrics, Tags
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.case_selection import one_of, three_of
from tests.harness.directory import copy_of_open
from tests.unit.changelog.build import Record, batch
from tests.unit.changelog.scripted import CLOSE, Part
from tests.unit.global_stores.global_world import (
    STORE,
    TOPIC,
    World,
    fewer_partitions,
    log,
    poll_until,
    poll_until_running,
    recreated,
    rows,
)

BOTH = {b"a": b"1", b"b": b"2", b"c": b"3"}


def test_a_store_that_is_not_there_is_built_of_all_partitions_and_has_their_next_offsets(world: World) -> None:
    with world.stores() as stores:
        assert stores.state is GlobalState.RESTORING
        poll_until_running(stores)
        assert rows(stores) == BOTH
        assert stores.stores[STORE].lag == 0
        assert stores.stores[STORE].recoveries == []
    assert stores.state is GlobalState.CLOSED
    assert world.on_disk() == (BOTH, {0: 2, 1: 1})
    assert world.left() == set()


def test_a_store_is_restored_in_bounded_rounds_and_nothing_half_built_is_shown(world: World) -> None:
    world.recreate(log({b"%d" % at: b"x" for at in range(7)}))
    with world.stores(round_offsets=3) as stores:
        stores.poll()
        assert stores.state is GlobalState.RESTORING
        for stale in (False, True):
            with pytest.raises(Retryable, match="being restored"):
                rows(stores, stale=stale)
        assert not world.live.exists()
        poll_until_running(stores)
        assert len(rows(stores)) == 7


def test_a_store_follows_its_topic_and_applies_deletes(world: World) -> None:
    with world.stores() as stores:
        poll_until_running(stores)
        world.topic.parts[1] = log({b"c": b"3", b"d": b"4"})
        assert stores.poll() == 1
        assert rows(stores) == {**BOTH, b"d": b"4"}
        world.topic.parts[0] = Part([*log({b"a": b"1", b"b": b"2"}).batches, *log({b"a": None}, 2).batches])
        assert stores.poll() == 1
        assert rows(stores) == {b"b": b"2", b"c": b"3", b"d": b"4"}
        assert stores.poll() == 0
    assert world.on_disk()[1] == {0: 3, 1: 2}


def test_a_directory_of_kafka_streams_is_opened_in_place_and_only_the_tail_is_read(world: World) -> None:
    world.write({b"a": b"1", b"old": b"x"}, {0: 1, 1: 1})
    with world.stores() as stores:
        assert rows(stores, stale=True) == {b"a": b"1", b"old": b"x"}
        poll_until_running(stores)
        assert rows(stores) == {b"a": b"1", b"old": b"x", b"b": b"2"}
        assert stores.stores[STORE].recoveries == []


def test_a_partition_that_came_later_is_read_from_its_start(world: World) -> None:
    with world.stores() as stores:
        poll_until_running(stores)
        world.topic.parts[2] = log({b"new": b"4"})
        stores.poll()
        assert rows(stores) == {**BOTH, b"new": b"4"}
        assert stores.state is GlobalState.RUNNING
    assert world.on_disk()[1] == {0: 2, 1: 1, 2: 1}


def below_start(world: World) -> None:
    world.topic.parts[0] = log({b"z": b"9"}, 10)


def beyond_end(world: World) -> None:
    world.topic.parts[0] = log({b"z": b"9"})


def diverged(world: World) -> None:
    world.topic.parts[0] = log({b"a": b"1", b"z": b"9", b"y": b"9"}, epoch=9, epoch_starts={9: 1})


INVALID = pytest.mark.parametrize(
    ("happens", "reason", "expected"),
    [
        (below_start, RecoveryReason.BELOW_LOG_START, {b"z": b"9", b"c": b"3"}),
        (beyond_end, RecoveryReason.BEYOND_LOG_END, {b"z": b"9", b"c": b"3"}),
        (recreated, RecoveryReason.TOPIC_RECREATED, {b"x": b"7", b"z": b"9", b"c": b"8"}),
        (fewer_partitions, RecoveryReason.PARTITION_GONE, {b"a": b"1", b"b": b"2"}),
    ],
)


@INVALID
def test_an_invalid_offset_while_it_runs_is_recovered_from_without_anybody(world, happens, reason, expected) -> None:
    with world.stores(round_offsets=1) as stores:
        poll_until_running(stores)
        happens(world)
        kept = stores.query_view(STORE)
        stores.poll()
        assert [one.reason for one in stores.stores[STORE].recoveries] == [reason]
        if stores.state is GlobalState.RESTORING:
            assert rows(stores, stale=True) == BOTH
            with pytest.raises(Retryable, match="stale=True"):
                rows(stores)
        poll_until_running(stores)
        assert rows(stores) == expected
        assert dict(kept.all()) == BOTH  # a view of before stays what it was
        kept.close()
        stores.poll()
        stores.poll()
        assert world.left() == set()
    assert world.on_disk()[0] == expected


@INVALID
def test_an_invalid_offset_while_it_was_down_is_recovered_from(world, happens, reason, expected) -> None:
    with world.stores() as stores:
        poll_until_running(stores)
    happens(world)
    with world.stores() as stores:
        poll_until_running(stores)
        assert [one.reason for one in stores.stores[STORE].recoveries] == [reason]
        assert rows(stores) == expected
    assert world.left() == set()


def test_a_recreated_topic_is_detected_long_after_the_start(world: World) -> None:
    with world.stores() as stores:
        poll_until_running(stores)
    recreated(world)
    with world.stores(metadata_interval=3600.0) as stores:
        poll_until_running(stores)
        assert [one.reason for one in stores.stores[STORE].recoveries] == [RecoveryReason.TOPIC_RECREATED]
        assert rows(stores) == {b"x": b"7", b"z": b"9", b"c": b"8"}


def test_a_divergence_after_an_election_is_detected_within_the_log(world: World) -> None:
    with world.stores() as stores:
        poll_until_running(stores)
        diverged(world)
        stores.poll()
        poll_until_running(stores)
        assert [one.reason for one in stores.stores[STORE].recoveries] == [RecoveryReason.LOG_DIVERGED]
        assert rows(stores) == {b"a": b"1", b"z": b"9", b"y": b"9", b"c": b"3"}


@pytest.mark.parametrize("offsets", [{0: -4, 1: 1}, {}])
def test_unknown_offsets_with_which_kafka_streams_never_starts_are_recovered_from(world: World, offsets) -> None:
    world.write({b"ghost": b"x"}, offsets)
    with world.stores() as stores:
        with pytest.raises(Retryable):
            rows(stores, stale=True)  # nobody knows what these rows are
        poll_until_running(stores)
        assert rows(stores) == BOTH
        assert [one.reason for one in stores.stores[STORE].recoveries] == [RecoveryReason.OFFSET_UNKNOWN]
    assert world.left() == set()


def not_closed(world: World) -> None:
    """A copy of a database that is open, as a killed Kafka Streams leaves it: nothing says that the rows are whole."""
    world.write({b"ghost": b"x"}, {0: 1, 1: 1})
    (world.live / "statecore-witness").unlink()
    with RocksDBStore(world.live, StoreKind.KEY_VALUE) as store:
        store.flush()
        copy_of_open(world.live, world.state_dir / "copy")
    shutil.rmtree(world.live)
    (world.state_dir / "copy" / "statecore-witness").unlink(missing_ok=True)
    (world.state_dir / "copy").rename(world.live)


def test_a_store_not_closed_under_exactly_once_is_rebuilt(world: World) -> None:
    not_closed(world)
    with world.stores(exactly_once=True) as stores:
        poll_until_running(stores)
        assert rows(stores) == BOTH
        assert [one.reason for one in stores.stores[STORE].recoveries] == [RecoveryReason.STORE_UNUSABLE]
    assert world.left() == set()


def test_a_damaged_store_is_rebuilt(world: World) -> None:
    world.write({b"ghost": b"x"}, {0: 1, 1: 1})
    (manifest,) = world.live.glob("MANIFEST-*")
    manifest.write_bytes(b"nonsense")
    with world.stores() as stores:
        poll_until_running(stores)
        assert rows(stores) == BOTH


def test_an_unreadable_topic_record_rebuilds_the_stores(world: World) -> None:
    with world.stores() as stores:
        poll_until_running(stores)
    (world.application / ".statecore" / "global-topics.json").write_bytes(b"{torn")
    with world.stores() as stores:
        poll_until_running(stores)
        assert [one.reason for one in stores.stores[STORE].recoveries] == [RecoveryReason.TOPIC_UNKNOWN]
        assert rows(stores) == BOTH
    with world.stores() as stores:
        poll_until_running(stores)
        assert stores.stores[STORE].recoveries == []


def test_brokers_that_are_away_change_no_state_and_are_asked_with_growing_pauses(world: World) -> None:
    with world.stores(timeout=0.3) as stores:
        poll_until_running(stores)
        world.brokers.always(MetadataRequest, CLOSE)
        world.time.now += 10
        stores.poll()
        assert stores.state is GlobalState.RUNNING
        assert isinstance(stores.stores[STORE].error, Retryable)
        assert rows(stores) == BOTH
        asked = len(world.brokers.seen(MetadataRequest))
        world.time.now += 0.9
        stores.poll()
        assert len(world.brokers.seen(MetadataRequest)) == asked  # the pause is not over
        world.brokers.honest(MetadataRequest)
        world.topic.parts[1] = log({b"c": b"3", b"d": b"4"})
        world.time.now += 0.2
        stores.poll()
        assert rows(stores) == {**BOTH, b"d": b"4"}
        assert stores.stores[STORE].error is None


def test_brokers_that_are_away_at_the_start_are_waited_for(world: World) -> None:
    world.brokers.always(MetadataRequest, CLOSE)
    with world.stores(timeout=0.3) as stores:
        assert stores.state is GlobalState.RESTORING
        world.brokers.honest(MetadataRequest)
        world.time.now += 2
        poll_until_running(stores)


def test_a_topic_that_is_gone_for_a_while_is_recovered_from_and_for_longer_is_an_error(world: World) -> None:
    with world.stores(topic_gone_timeout=60.0) as stores:
        poll_until_running(stores)
        topic = world.brokers.topics.pop(TOPIC)
        for _ in range(3):
            world.time.now += 15
            stores.poll()
        assert stores.state is GlobalState.RUNNING
        world.brokers.topics[TOPIC] = topic
        world.time.now += 15
        stores.poll()
        assert stores.stores[STORE].error is None
        del world.brokers.topics[TOPIC]
        stores.poll()
        world.time.now += 61
        stores.poll()
        assert stores.state is GlobalState.ERROR
        with pytest.raises(NotFound, match="has been absent"):
            rows(stores)
        assert rows(stores, stale=True) == BOTH
    assert world.on_disk()[0] == BOTH


def test_a_topic_that_is_not_compacted_is_refused_at_start_and_nothing_is_changed(world: World) -> None:
    world.topic.configs = {"cleanup.policy": "delete", "retention.ms": "1000", "retention.bytes": "-1"}
    world.write({b"mine": b"x"}, {0: 5, 1: 1})
    with pytest.raises(Invalid, match="not compacted") as refused, world.stores():
        pass
    assert "accept_uncompacted" in refused.value.action
    assert world.on_disk() == ({b"mine": b"x"}, {0: 5, 1: 1})
    with world.stores(accept_uncompacted=True) as stores:
        poll_until_running(stores)
        assert rows(stores) == BOTH


def test_offsets_in_a_file_of_an_older_release_need_a_migration(world: World) -> None:
    world.write({b"mine": b"x"}, {0: 1})
    (world.application / "global" / ".checkpoint").write_text(f"0\n1\n{TOPIC} 0 1\n")
    with pytest.raises(Invalid, match=r"\.checkpoint") as refused, world.stores():
        pass
    assert "statecore migrate" in refused.value.action


def test_without_the_lock_nothing_is_opened(world: World) -> None:
    directory = StateDirectory(world.state_dir, "app")
    with pytest.raises(Fenced):
        GlobalStores(directory, [GlobalTable(STORE, StoreKind.KEY_VALUE, TOPIC)], None).open()  # type: ignore[arg-type]


def test_a_damaged_log_is_waited_for_and_the_rows_stay(world: World) -> None:
    with world.stores() as stores:
        poll_until_running(stores)
        at = log({b"c": b"3", b"d": b"4"})
        world.topic.parts[1] = Part([at.batches[0], at.batches[1][:-1] + bytes([at.batches[1][-1] ^ 1])])
        for _ in range(3):
            world.time.now += 60
            stores.poll()
        assert stores.state is GlobalState.RUNNING  # a broker's damaged log may be mended
        assert stores.stores[STORE].error is not None
        assert len(rows(stores)) == 3


def test_a_record_that_the_kind_cannot_have_is_an_error_that_names_it(world: World) -> None:
    with world.stores(table=GlobalTable(STORE, StoreKind.TIMESTAMPED_KEY_VALUE, TOPIC)) as stores:
        poll_until_running(stores)
        world.topic.parts[1] = Part([*log({b"c": b"3"}).batches, batch([Record(1, -5, b"d", b"4")])])
        stores.poll()
        stores.poll()
        assert stores.state is GlobalState.ERROR
        with pytest.raises(Invalid, match=f"{TOPIC}, partition 1: .* offset 1"):
            rows(stores)
        assert len(rows(stores, stale=True)) == 3


def test_a_store_of_a_kind_that_no_global_table_has_is_refused() -> None:
    with pytest.raises(Invalid, match="a globalTable cannot be"):
        GlobalTable(STORE, StoreKind.WINDOW, TOPIC)


@pytest.mark.parametrize("point", three_of(GLOBAL_POINTS))
@pytest.mark.parametrize(("nth", "exactly_once"), one_of([(1, True), (2, False)]))
def test_a_recovery_that_failed_at_any_point_is_repeated_correctly(
    world: World, point: str, nth: int, exactly_once: bool
) -> None:
    expected = {b"x": b"7", b"z": b"9", b"c": b"8"}
    with world.stores() as stores:
        poll_until_running(stores)
    recreated(world)
    fault = InjectedFault(point, nth=nth)
    try:
        with world.stores(faults=fault, round_offsets=1, exactly_once=exactly_once) as stores:
            poll_until_running(stores)
    except FaultInjected:
        assert fault.reached == nth
    seen = [BOTH, expected]
    if world.live.exists():
        assert world.on_disk()[0] in seen  # never a part
    with world.stores(round_offsets=1, exactly_once=exactly_once) as stores:
        try:
            assert rows(stores, stale=True) in seen
        except Retryable:
            assert world.live.exists() is False
        poll_until_running(stores)
        assert rows(stores) == expected
    assert world.on_disk() == (expected, {0: 2, 1: 1})
    assert world.left() == set()


def test_the_thread_follows_and_readers_see_whole_states_alone(world: World) -> None:
    """Each round of the writer has the same value in all keys."""
    world.recreate(log({b"%d" % at: b"0" for at in range(20)}))
    with world.stores(poll_interval=0.001) as stores:
        torn, stop, seen = [], threading.Event(), set()

        def read() -> None:
            while not stop.is_set():
                try:
                    found = rows(stores, stale=True)
                except Retryable:
                    continue
                seen.add(frozenset(found.values()))
                if len(found) != 20 or len(set(found.values())) != 1:
                    torn.append(found)

        reader = threading.Thread(target=read)
        stores.start()
        assert stores.wait(timeout=1200)
        reader.start()
        for value in (b"1", b"2", b"3"):
            world.recreate(log({b"%d" % at: value for at in range(20)}))
            deadline = threading.Event()
            for _ in range(2000):
                if stores.state is GlobalState.RUNNING and set(rows_or(stores).values()) == {value}:
                    break
                deadline.wait(0.005)
            assert set(rows_or(stores).values()) == {value}
        for _ in range(6000):  # the reader is another thread, and may not have come to it yet
            if frozenset({b"3"}) in seen:
                break
            deadline.wait(0.01)
        stop.set()
        reader.join()
    assert torn == []
    assert frozenset({b"3"}) in seen
    assert world.left() == set()


def rows_or(stores: GlobalStores) -> dict[bytes, bytes]:
    try:
        return rows(stores)
    except Retryable:
        return {}


def test_settings_come_from_kafka_streams_properties() -> None:
    made = GlobalSettings.from_properties(
        {"processing.guarantee": "exactly_once_v2", "poll.ms": "250", "retry.backoff.ms": 50}, accept_uncompacted=True
    )
    assert (made.exactly_once, made.poll_interval, made.retry_backoff) == (True, 0.25, 0.05)
    assert made.accept_uncompacted
    for wrong in ({"processing.guarantee": "exactly_twice"}, {"poll.ms": "soon"}):
        with pytest.raises(Invalid):
            GlobalSettings.from_properties(wrong)


def test_the_offsets_of_a_view_are_the_next_ones(world: World) -> None:
    with world.stores() as stores:
        poll_until_running(stores)
        with stores.query_view(STORE) as view:
            assert view.committed_offset(TopicPartition(TOPIC, 0)) == 2
            assert not view.stale
        with pytest.raises(NotFound, match="no global store"):
            stores.query_view("other")


def test_without_room_a_store_is_an_error_and_the_rows_of_before_can_be_read(world: World) -> None:
    class Full(InjectedFault):
        def reach(self, point: str) -> None:
            if point == self.point:
                raise Capacity("No room.", code="test-error", action="Make room.")

    with world.stores() as stores:
        poll_until_running(stores)
    recreated(world)
    with world.stores(faults=Full("global.after-ingest")) as stores:
        poll_until(stores, lambda: stores.state is GlobalState.ERROR)
        with pytest.raises(Capacity, match="No room"):
            rows(stores)
        assert rows(stores, stale=True) == BOTH
    assert not world.live.exists()
    with world.stores() as stores:
        assert rows(stores, stale=True) == BOTH  # set aside, and still whole
        poll_until_running(stores)
        assert len(rows(stores)) == 3
    assert world.left() == set()


def test_one_store_is_rebuilt_while_another_is_followed_and_answers(world: World) -> None:
    world.brokers.add("prices", [log({b"p": b"1"})])
    directory = StateDirectory(world.state_dir, "app")
    tables = [GlobalTable(STORE, StoreKind.KEY_VALUE, TOPIC), GlobalTable("prices", StoreKind.KEY_VALUE, "prices")]
    settings = GlobalSettings(round_offsets=1, metadata_interval=0)
    told: list[tuple[str, GlobalState]] = []
    with (
        directory.lock(),
        Cluster(world.brokers.address, timeout=5.0) as cluster,
        GlobalStores(
            directory, tables, cluster, settings, listener=lambda store, state, _: told.append((store, state))
        ) as stores,
    ):
        poll_until_running(stores)
        recreated(world)
        stores.poll()
        assert stores.state is GlobalState.RESTORING
        assert stores.stores["prices"].state is GlobalState.RUNNING
        world.brokers.topics["prices"].parts[0] = log({b"p": b"1", b"q": b"2"})
        stores.poll()
        with stores.query_view("prices") as view:
            assert dict(view.all()) == {b"p": b"1", b"q": b"2"}
        poll_until_running(stores)
    of_prices = [state for store, state in told if store == "prices"]
    assert of_prices == [GlobalState.RESTORING, GlobalState.RUNNING, GlobalState.CLOSED]


def test_state_lag_records_and_recoveries_are_metrics(world: World) -> None:
    metrics = Recorded()
    directory = StateDirectory(world.state_dir, "app")
    tables = [GlobalTable(STORE, StoreKind.KEY_VALUE, TOPIC)]
    with (
        directory.lock(),
        Cluster(world.brokers.address, timeout=5.0) as cluster,
        GlobalStores(directory, tables, cluster, GlobalSettings(metadata_interval=0), metrics=metrics) as stores,
    ):
        assert metrics.gauges["global-state"]() == GlobalState.RESTORING.number
        poll_until_running(stores)
        assert metrics.gauges["global-state"]() == GlobalState.RUNNING.number
        assert metrics.gauges["records-lag"]() == 0
        assert metrics.counters["restore-total"] == 3
        assert "global-recovery-total" not in metrics.counters
        recreated(world)
        stores.poll()
        poll_until_running(stores)
        assert metrics.counters["global-recovery-total"] == 1
    assert metrics.gauges == {}


class Recorded(NullMetrics):
    """What was told."""

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}
        self.gauges: dict[str, Callable[[], float]] = {}

    def add(self, instrument: Instrument, amount: int, tags: Tags) -> None:
        assert tags["task-id"] == "global"
        self.counters[instrument.name] = self.counters.get(instrument.name, 0) + amount

    def observe(self, instrument: Instrument, read: Callable[[], float | None], tags: Tags) -> Callable[[], None]:
        assert tags["rocksdb-state-id"] == STORE
        self.gauges[instrument.name] = read
        return lambda: self.gauges.pop(instrument.name, None) and None
