"""A processor's stores in the hands of real Kafka Streams 4.3.1, and back: its directory, and its changelogs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kafka import KafkaProducer

from statecore import ChangeLoggingStore, RocksDBStore, StoreKind, TopicPartition, encode_value, restore
from statecore.formats.rows.values import decode_value
from statecore.stores.rocksdb.manifest_guard import LOST_DIRECTORY, RECORD_FILE
from tests.harness import topics
from tests.harness.applications import PLAIN_AND_STAMPED, two_stores
from tests.harness.broker import Broker
from tests.harness.queries import Row
from tests.harness.streams import StreamsApplication, StreamsJvm
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

KINDS = {"plain": StoreKind.KEY_VALUE, "stamped": StoreKind.TIMESTAMPED_KEY_VALUE}
KEYS = 200
COMMITS = 12
NOW = int(time.time() * 1000)
Rows = dict[str, list[Row]]


class World:
    """One task of two stores: a processor of this library works in it, and an application under exactly-once."""

    def __init__(self, servers: str, application_id: str, state_dir: Path) -> None:
        self.servers, self.application_id, self.state_dir = servers, application_id, state_dir
        self.input = f"{application_id}-input"
        for topic in (self.input, *(self.changelog(name).topic for name in KINDS)):
            topics.create(servers, topic, 1, topics.UNCLEANED)

    def changelog(self, name: str) -> TopicPartition:
        return TopicPartition(f"{self.application_id}-{name}-changelog", 0)

    def path(self, name: str) -> Path:
        return self.state_dir / self.application_id / "0_0" / "rocksdb" / name

    def process(self, *, first: int) -> Rows:
        """Write, delete, commit and flush with the default settings; what the stores have then."""
        producer = KafkaProducer(bootstrap_servers=self.servers, transactional_id=self.application_id)
        producer.init_transactions()
        with ExitStack() as opened:
            opened.callback(producer.close)
            stores = {}
            for name, kind in KINDS.items():
                inside = RocksDBStore(self.path(name), kind, create_if_missing=True, exactly_once=True)
                store = ChangeLoggingStore(inside, producer, self.changelog(name), transactional=True)
                stores[name] = opened.enter_context(store)
                restore(store, self.changelog(name), self.servers)
            for commit in range(first, first + COMMITS):
                producer.begin_transaction()
                for name, store in stores.items():
                    store.record_timestamp = NOW + commit
                    for key in range(commit % 3, KEYS, 3):
                        store.put(b"key-%d" % key, encode_value(KINDS[name], b"value %d" % commit, NOW + commit))
                    store.delete(b"key-%d" % (7 * commit % KEYS))
                producer.commit_transaction()
                for store in stores.values():
                    store.commit()
                    store.flush()
            topics.wait_until_stable(self.servers, [self.changelog(name).topic for name in KINDS])
            for name in KINDS:
                self._wait_until_merged(name)
            return {name: rows(store.all(), KINDS[name]) for name, store in stores.items()}

    def _wait_until_merged(self, name: str) -> None:
        deadline = time.monotonic() + 180
        while len(list(self.path(name).glob("*.sst"))) >= COMMITS:
            assert time.monotonic() < deadline, "RocksDB merged nothing"
            time.sleep(0.05)

    def application(self, jvm: StreamsJvm, state_dir: Path | None = None) -> StreamsApplication:
        return StreamsApplication(
            jvm,
            self.application_id,
            self.servers,
            state_dir or self.state_dir,
            two_stores(self.input),
            stores=PLAIN_AND_STAMPED,
        )

    def feed(self, value: bytes) -> None:
        """Have the running application write to both stores."""
        topics.produce(self.servers, self.input, [Record(b"key-%d" % key, value, 0, NOW) for key in range(50)])
        topics.wait_until_consumed(self.servers, self.application_id, [self.input])

    def found(self, *, behind: bool = False) -> Rows:
        """What the library finds, when it opens the stores for writing and has caught up."""
        found = {}
        for name, kind in KINDS.items():
            with RocksDBStore(self.path(name), kind, exactly_once=True) as store:
                done = restore(store, self.changelog(name), self.servers)
                assert done.wiped is None
                assert bool(done.records) is behind
                found[name] = rows(store.all(), kind)
        return found


def rows(stored: Iterator[tuple[bytes, bytes]], kind: StoreKind) -> list[Row]:
    decoded = [(key, decode_value(kind, row)) for key, row in stored]
    return [(key, one.value, one.timestamp) for key, one in decoded]


def answers(application: StreamsApplication) -> Rows:
    return {name: application.query_rows(name, 0) for name in KINDS}


@pytest.fixture
def world(broker: Broker, application_id: str, state_dir: Path) -> World:
    return World(broker.bootstrap_servers, application_id, state_dir)


def test_kafka_streams_and_a_processor_resume_in_each_other_s_directory(
    world: World, streams_jvm: StreamsJvm, tmp_path: Path
) -> None:
    written = world.process(first=0)
    for name in KINDS:
        assert (world.path(name) / RECORD_FILE).is_file()
        lost = world.path(name) / LOST_DIRECTORY
        lost.mkdir()
        shutil.copy(next(world.path(name).glob("*.sst")), lost)
    with world.application(streams_jvm) as application:
        assert sum(application.restored_records().values()) == 0
        assert answers(application) == written
        world.feed(b"of Kafka Streams")
        written = answers(application)
    for name in KINDS:
        assert (world.path(name) / RECORD_FILE).is_file(), "stale now"
        assert list((world.path(name) / LOST_DIRECTORY).glob("*.sst"))
    assert world.found() == written

    written = world.process(first=COMMITS)
    with StreamsJvm(tmp_path / "killed.log") as killed:
        application = world.application(killed).start()
        assert sum(application.restored_records().values()) == 0
        assert answers(application) == written
        world.feed(b"of Kafka Streams, killed")
        written = answers(application)
        application.kill()
    # Kafka Streams writes without a log and had flushed nothing: on the disk is what the processor had closed.
    assert world.found(behind=True) == written


def test_kafka_streams_restores_from_a_processor_s_changelogs_what_its_stores_have(
    world: World, streams_jvm: StreamsJvm, tmp_path: Path
) -> None:
    written = world.process(first=0)
    with world.application(streams_jvm, tmp_path / "elsewhere") as application:
        records = sum(topics.end_offset(world.servers, *world.changelog(name)) for name in KINDS)
        assert 0 < sum(application.restored_records().values()) <= records
        assert answers(application) == written
