"""Global stores over a real broker: truncated, deleted and created again, while Kafka Streams would end in ERROR.

Readers ask from another thread all along, and at last Kafka Streams opens what was written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from statecore.changelog.cluster import Cluster
from statecore.errors import Invalid, Retryable
from statecore.formats.kinds import StoreKind
from statecore.global_stores.manager import GlobalStores
from statecore.global_stores.settings import GlobalSettings, GlobalTable
from statecore.global_stores.state import GlobalState, RecoveryReason
from statecore.statedir.state_directory import StateDirectory
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.feeds import EVENTS, PRICES, REFERENCE
from tests.harness.kinds import GLOBALS
from tests.harness.raising import raises
from tests.harness.rebuilding import PARTITIONS, KindsWorld, eventually, restored, table
from tests.harness.streams import StreamsJvm
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

KEYS = 40


def generation(number: int) -> list[Record]:
    """The same value for every key; keys tell the partition."""
    return [
        Record(b"%d-key-%d" % (partition, key), b"generation-%d" % number, partition, 1_700_000_000_000 + number)
        for partition in range(PARTITIONS)
        for key in range(KEYS)
    ]


class Readers:
    """A thread that queries stores all along, and remembers what no whole state has."""

    def __init__(self, stores: GlobalStores, names: list[str]) -> None:
        self._stores, self._names = stores, names
        self.torn: list[tuple[str, dict[bytes, set[bytes]]]] = []
        self.answers = dict.fromkeys(names, 0)
        self.stale = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def _read(self) -> None:
        while not self._stop.is_set():
            for name in self._names:
                try:
                    with self._stores.query_view(name, stale=True) as view:
                        rows = dict(view.all())
                        self.stale += view.stale
                except Retryable:
                    continue
                self.answers[name] += 1
                by_partition: dict[bytes, set[bytes]] = {}
                for key, value in rows.items():
                    by_partition.setdefault(key[:1], set()).add(value)
                whole = len(rows) % KEYS == 0 and all(len(values) == 1 for values in by_partition.values())
                if not whole:
                    self.torn.append((name, by_partition))
            self._stop.wait(0.002)

    def __enter__(self) -> Readers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


class Loop:
    """A loop that polls, and stands still while a test holds it."""

    def __init__(self, stores: GlobalStores) -> None:
        self._stores = stores
        self._gate = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.polls = 0

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            with self._gate:
                self._stores.poll()
                self.polls += 1

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._gate:
            yield

    def __enter__(self) -> Loop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def kept(
    state_dir: Path, application: str, tables: list[GlobalTable], servers: str, **settings: object
) -> Iterator[GlobalStores]:
    directory = StateDirectory(state_dir, application)
    with (
        directory.lock(),
        Cluster(servers, timeout=2.0) as cluster,
        GlobalStores(
            directory,
            tables,
            cluster,
            GlobalSettings(metadata_interval=0.1, stall_timeout=5.0, **settings),  # type: ignore[arg-type]
        ) as stores,
    ):
        yield stores


def until(reached: Callable[[], bool], timeout: float = 180.0) -> None:
    deadline = time.monotonic() + timeout
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def in_topic(servers: str, topic: str) -> list[tuple[bytes, bytes]]:
    """The rows that a topic says, without times."""
    records = [one for partition in range(PARTITIONS) for one in topics.read(servers, topic, partition)]
    return [(key, value) for key, value, _ in table(records, timestamped=False)]


def in_store(stores: GlobalStores, name: str) -> list[tuple[bytes, bytes]]:
    """The rows of a store that runs, without times; nothing while it does not."""
    try:
        with stores.query_view(name) as view:
            stamp = 8 if name == "global-table" else 0
            return [(key, value[stamp:]) for key, value in view.all()]
    except Retryable:
        return []


def test_truncated_deleted_and_created_again_and_opened_by_kafka_streams_at_last(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path
) -> None:
    world = KindsWorld(broker, streams_jvm, application_id, state_dir, "exactly_once_v2", GLOBALS)
    servers, prices, reference = world.servers, world.inputs[PRICES], world.inputs[REFERENCE]

    def create(topic: str) -> None:
        # Kafka lets nobody delete records of a topic that is compacted alone.
        both = {**topics.UNCLEANED, "cleanup.policy": "compact,delete", "retention.ms": "-1"}
        topics.create(servers, topic, PARTITIONS, both)

    for topic in (prices, reference):
        topics.delete(servers, topic)
        create(topic)
        topics.produce_committed(servers, topic, generation(1))
    topics.produce(servers, world.inputs[EVENTS], [Record(b"e", b"x", 0, world.base)])
    with world.application() as running:
        eventually(lambda: len(running.query_rows("global-plain", None)), PARTITIONS * KEYS)
        world.wait({EVENTS})
    tables = [
        GlobalTable("global-table", StoreKind.TIMESTAMPED_KEY_VALUE, reference),
        GlobalTable("global-plain", StoreKind.KEY_VALUE, prices),
    ]
    names = [one.name for one in tables]

    with kept(state_dir, application_id, tables, servers, exactly_once=True) as stores:
        with Loop(stores) as loop, Readers(stores, names) as readers:
            until(lambda: stores.state is GlobalState.RUNNING)
            assert all(store.recoveries == [] for store in stores.stores.values())  # as Kafka Streams left it
            topics.produce_committed(servers, prices, generation(2))
            until(lambda: in_store(stores, "global-plain") == in_topic(servers, prices))

            with loop.held():  # truncated: records that were not read yet are gone
                topics.produce_committed(servers, prices, generation(3))
                for partition in range(PARTITIONS):
                    end = topics.end_offset(servers, prices, partition)
                    topics.delete_records(servers, prices, partition, end)
                topics.produce_committed(servers, prices, [one for one in generation(4) if one.partition == 0])
            until(lambda: in_store(stores, "global-plain") == in_topic(servers, prices))
            plain, stamped = stores.stores["global-plain"], stores.stores["global-table"]
            assert [one.reason for one in plain.recoveries] == [RecoveryReason.BELOW_LOG_START]
            assert stamped.recoveries == []
            assert len(in_store(stores, "global-plain")) == KEYS

            topics.delete(servers, reference)  # while it runs
            polls = loop.polls
            until(lambda: loop.polls > polls + 20)
            assert stores.state is GlobalState.RUNNING
            assert len(in_store(stores, "global-table")) == PARTITIONS * KEYS
            create(reference)
            topics.produce_committed(servers, reference, generation(5))
            topics.produce_committed(servers, reference, generation(6))
            until(lambda: in_store(stores, "global-table") == in_topic(servers, reference))
            assert RecoveryReason.TOPIC_RECREATED in {one.reason for one in stamped.recoveries}
            assert len(plain.recoveries) == 1
        assert readers.torn == []
        assert all(count > 10 for count in readers.answers.values())

    topics.delete(servers, prices)  # while it is down
    create(prices)
    for number in (7, 8, 9):
        topics.produce_committed(servers, prices, generation(number))
    with kept(state_dir, application_id, tables, servers, exactly_once=True, poll_interval=0.01) as stores:
        with Readers(stores, names) as readers:
            stores.start()
            assert stores.wait(timeout=180)
            assert in_store(stores, "global-plain") == in_topic(servers, prices)
            assert [one.reason for one in stores.stores["global-plain"].recoveries] == [RecoveryReason.TOPIC_RECREATED]
            assert stores.stores["global-table"].recoveries == []
        assert readers.torn == []
    assert list((world.directory / ".statecore").glob("global-old/*")) == []

    with world.application() as running:
        assert restored(running) == {}
        for store, topic in (("global-plain", prices), ("global-table", reference)):
            assert [row[:2] for row in running.query_rows(store, None)] == in_topic(servers, topic)


@pytest.mark.full
def test_retention_that_runs_ahead_and_a_broker_that_goes_away_and_comes_back(state_dir: Path, tmp_path: Path) -> None:
    with Broker(tmp_path / "broker") as broker:
        servers = broker.bootstrap_servers
        deleting = {"cleanup.policy": "delete", "retention.ms": "1000", "segment.ms": "100"}
        topics.create(servers, "rates", 1, deleting)
        now = int(time.time() * 1000) + 4000
        later = now + 1_200_000  # another segment, which stays
        tables = [GlobalTable("rates-store", StoreKind.KEY_VALUE, "rates")]
        topics.produce(servers, "rates", [Record(b"a", b"1", 0, now)])
        with raises(Invalid, "topic-not-compacted"), kept(state_dir, "app", tables, servers):
            pass
        accepted = {"accept_uncompacted": True, "retry_backoff_max": 0.5}
        with kept(state_dir, "app", tables, servers, **accepted) as stores, Loop(stores) as loop:
            until(lambda: in_store(stores, "rates-store") == [(b"a", b"1")])
            with loop.held():  # what retention deletes was not read yet
                topics.produce(servers, "rates", [Record(b"gone-%d" % at, b"2", 0, now) for at in range(3)])
                topics.produce(servers, "rates", [Record(b"b", b"2", 0, later)])
                until(lambda: topics.start_offset(servers, "rates", 0) == 4)
            until(lambda: in_store(stores, "rates-store") == [(b"b", b"2")])
            assert [one.reason for one in stores.stores["rates-store"].recoveries] == [RecoveryReason.BELOW_LOG_START]

            broker.stop()
            until(lambda: stores.stores["rates-store"].error is not None)
            assert stores.state is GlobalState.RUNNING
            assert in_store(stores, "rates-store") == [(b"b", b"2")]
            broker.start()
            topics.produce(servers, "rates", [Record(b"c", b"3", 0, later)])
            until(lambda: in_store(stores, "rates-store") == [(b"b", b"2"), (b"c", b"3")])
            assert len(stores.stores["rates-store"].recoveries) == 1
