"""Real Kafka Streams 4.3.1 takes over offsets that were written beside the stores, and ours takes over its own."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Invalid
from statecore.formats.checkpoint import decode_checkpoint
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.legacy_checkpointing import LegacyCheckpointingStore
from statecore.stores.legacy_offsets import read_offsets
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.tasks.checkpoint_policy import CheckpointSettings, TaskCheckpointer
from statecore.tasks.task_offsets import NextReader, TaskOffsets, TaskStore
from tests.harness import topics
from tests.harness.applications import PLAIN_AND_STAMPED, two_stores
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.raising import raises
from tests.harness.streams import StreamsApplication, StreamsJvm
from tests.harness.topics import Record
from tests.integration import test_grace_buffer as grace

pytestmark = [pytest.mark.integration]

PARTITIONS = 2
NOW = int(time.time() * 1000)
KINDS = {"plain": StoreKind.KEY_VALUE, "stamped": StoreKind.TIMESTAMPED_KEY_VALUE}
GUARANTEES = pytest.mark.parametrize("guarantee", one_of(["exactly_once_v2", "at_least_once"]))


class World:
    """An application with two stores in two tasks, and its directory after a clean close."""

    def __init__(self, broker: Broker, jvm: StreamsJvm, application_id: str, state_dir: Path, guarantee: str) -> None:
        self.servers, self.jvm = broker.bootstrap_servers, jvm
        self.application_id, self.state_dir, self.guarantee = application_id, state_dir, guarantee
        self.input = f"{application_id}-input"
        topics.create(self.servers, self.input, PARTITIONS)

    @property
    def exactly_once(self) -> bool:
        return self.guarantee == "exactly_once_v2"

    def feed(self, keys: int = 100) -> None:
        records = [Record(b"key-%d" % key, b"value %d" % key, key % PARTITIONS, NOW) for key in range(keys)]
        topics.produce(self.servers, self.input, records)

    def run(self, **properties: str) -> tuple[dict[Any, str], int]:
        """Until all input is consumed; what the stores answer, and how many records had to be restored."""
        application = StreamsApplication(
            self.jvm,
            self.application_id,
            self.servers,
            self.state_dir,
            two_stores(self.input),
            guarantee=self.guarantee,
            stores=PLAIN_AND_STAMPED,
            properties=properties,
        )
        with application:
            topics.wait_until_consumed(self.servers, self.application_id, [self.input])
            answers = {(store, p): application.query_digest(store, p) for _, store, p in application.store_tasks()}
            restored = sum(application.restored_records().values())
        return answers, restored

    def task(self, partition: int) -> Path:
        return self.state_dir / self.application_id / f"0_{partition}"

    def changelog(self, store: str, partition: int) -> TopicPartition:
        return TopicPartition(f"{self.application_id}-{store}-changelog", partition)

    def stores(self, partition: int) -> list[TaskStore]:
        return [
            TaskStore(
                name,
                RocksDBStore(self.task(partition) / "rocksdb" / name, kind, exactly_once=self.exactly_once),
                (self.changelog(name, partition),),
            )
            for name, kind in KINDS.items()
        ]

    def offsets(self, partition: int, next_reader: NextReader) -> TaskOffsets:
        return TaskOffsets(
            self.task(partition), self.stores(partition), exactly_once=self.exactly_once, next_reader=next_reader
        )

    def on_every_task(self, act: Callable[[TaskOffsets], None], next_reader: NextReader) -> None:
        for partition in range(PARTITIONS):
            act(self.offsets(partition, next_reader))

    def drop_own_offsets(self) -> None:
        """Take the offsets out of the stores, as if an older version had written them."""
        for partition in range(PARTITIONS):
            for one in self.stores(partition):
                with one.store as store:
                    store.commit(dict.fromkeys(one.changelogs))
                    assert store.committed_offset(one.changelogs[0]) is None

    def own_offsets(self) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = {}
        for partition in range(PARTITIONS):
            for name, kind in KINDS.items():
                path = self.task(partition) / "rocksdb" / name
                with RocksDBStore(path, kind, read_only=True) as store:
                    changelog = self.changelog(name, partition)
                    found[changelog] = store.committed_offset(changelog)
        return found

    def files(self) -> set[str]:
        return {path.name for partition in range(PARTITIONS) for path in self.task(partition).glob(".checkpoint*")}


@pytest.fixture
def make_world(broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path) -> Callable[[str], World]:
    return lambda guarantee: World(broker, streams_jvm, application_id, state_dir, guarantee)


@GUARANTEES
def test_offsets_moved_out_of_the_stores_are_found_by_kafka_streams(
    make_world: Callable[[str], World], guarantee: str, tmp_path: Path
) -> None:
    world = make_world(guarantee)
    world.feed()
    before, _ = world.run()
    offsets = world.own_offsets()

    def open_and_close(task: TaskOffsets) -> None:
        task.open()
        task.close()

    world.on_every_task(open_and_close, NextReader.KAFKA_STREAMS_4_2)
    world.drop_own_offsets()
    shutil.copytree(world.state_dir, tmp_path / "copy")
    for partition in range(PARTITIONS):
        said = decode_checkpoint((world.task(partition) / ".checkpoint").read_bytes(), "")
        assert said == {at: offset for at, offset in offsets.items() if at.partition == partition}

    assert world.run() == (before, 0)
    assert not world.files(), "Kafka Streams took them over"

    shutil.rmtree(world.state_dir)  # and that it was the file: without it everything is restored
    shutil.copytree(tmp_path / "copy", world.state_dir)
    for partition in range(PARTITIONS):
        (world.task(partition) / ".checkpoint").unlink()
    answers, restored = world.run()
    assert answers == before
    assert restored == 2 * 100


@GUARANTEES
def test_checkpoint_offsets_of_an_older_kafka_streams_are_inherited(
    make_world: Callable[[str], World], guarantee: str
) -> None:
    world = make_world(guarantee)
    world.feed()
    before, _ = world.run(**{"upgrade.from": "4.2"})
    offsets = world.own_offsets()
    assert world.files() == {".checkpoint"}
    world.drop_own_offsets()

    def take_over(task: TaskOffsets) -> None:
        taken = task.open()
        assert taken.unknown == taken.without_rows == ()
        assert {at: offset for of in taken.offsets.values() for at, offset in of.items()} == {
            changelog: offsets[changelog] for one in task.stores for changelog in one.changelogs
        }
        task.close()

    world.on_every_task(take_over, NextReader.KAFKA_STREAMS_4_3)
    assert world.own_offsets() == offsets
    assert not world.files(), "a directory for Kafka Streams 4.3 carries none"
    assert world.run() == (before, 0)


@GUARANTEES
def test_a_checkpoint_of_a_running_task_is_behind_its_stores_and_wins_in_kafka_streams(
    make_world: Callable[[str], World], guarantee: str
) -> None:
    """The file is for us; in a directory for Kafka Streams 4.3 it must not stay, which is what the setting is for."""
    world = make_world(guarantee)
    world.feed()
    before, _ = world.run()

    def play(task: TaskOffsets) -> None:
        checkpointer = TaskCheckpointer(task, CheckpointSettings(0))
        checkpointer.open()
        for one in task.stores:
            (changelog,) = one.changelogs
            offset = one.store.committed_offset(changelog)
            assert offset is not None
            one.store.commit({changelog: offset - 10})  # as if ten records had not been applied yet
        assert checkpointer.committed()
        for one in task.stores:
            (changelog,) = one.changelogs
            offset = one.store.committed_offset(changelog)
            assert offset is not None
            assert read_offsets(task.directory / ".checkpoint")[changelog] == offset
            one.store.commit({changelog: offset + 10})
        checkpointer.close()

    world.on_every_task(play, NextReader.KAFKA_STREAMS_4_3)
    assert not world.files()
    assert world.run() == (before, 0)
    # The file of a moment ago, had it stayed, would have been believed instead of the stores.
    for partition in range(PARTITIONS):
        own = {at: offset for at, offset in world.own_offsets().items() if at.partition == partition}
        lines = [f"{topic} {p} {(offset or 0) - 10}\n" for (topic, p), offset in own.items()]
        (world.task(partition) / ".checkpoint").write_text(f"0\n{len(lines)}\n" + "".join(lines))
    answers, restored = world.run()
    assert answers == before
    assert 0 < restored <= 10 * len(KINDS) * PARTITIONS


@pytest.mark.full
def test_a_file_with_offsets_of_another_task_is_refused_and_the_application_still_starts(
    make_world: Callable[[str], World],
) -> None:
    world = make_world("exactly_once_v2")
    world.feed()
    before, _ = world.run(**{"upgrade.from": "4.2"})
    (world.task(0) / ".checkpoint").write_bytes((world.task(1) / ".checkpoint").read_bytes())
    with raises(Invalid, "offsets-of-unknown-partitions", foreign=[str(world.changelog(s, 1)) for s in sorted(KINDS)]):
        world.offsets(0, NextReader.KAFKA_STREAMS_4_3).open()
    (world.task(0) / ".checkpoint").unlink()
    assert world.run() == (before, 0)


@GUARANTEES
def test_a_store_without_offsets_of_its_own_is_opened_with_the_file_of_kafka_streams_and_handed_back(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, guarantee: str
) -> None:
    world = grace.World(broker, streams_jvm, application_id, state_dir, guarantee)
    exactly_once = guarantee == "exactly_once_v2"
    for task, partition in grace.TASKS.items():
        directory = world.directory.task_path(task)
        file = directory / f".checkpoint_{grace.BUFFER}"
        before = file.read_bytes()
        table, changelog = world.changelog(grace.TABLE, partition), world.changelog(grace.BUFFER, partition)
        buffer = LegacyCheckpointingStore(
            RocksDBStore(directory / grace.BUFFER / f"{grace.BUFFER}.0", StoreKind.GRACE_BUFFER),
            directory,
            grace.BUFFER,
            [changelog],
            exactly_once=exactly_once,
        )
        versions = RocksDBStore(directory / "rocksdb" / grace.TABLE, StoreKind.VERSIONED_KEY_VALUE)
        stores = [TaskStore(grace.TABLE, versions, (table,)), TaskStore(grace.BUFFER, buffer, (changelog,))]
        offsets = TaskOffsets(directory, stores, exactly_once=exactly_once, next_reader=NextReader.KAFKA_STREAMS_4_3)
        assert offsets.open().unknown == ()
        assert buffer.committed_offset(changelog) == decode_checkpoint(before, "")[changelog]
        assert file.exists() is not exactly_once
        offsets.checkpoint()
        assert file.exists() is not exactly_once
        offsets.close()
        assert file.read_bytes() == before
        assert not (directory / ".checkpoint").exists()
    with world.application() as application:
        assert set(application.restored_records().values()) <= {0}

    for task in grace.TASKS:  # and that it was the file
        (world.directory.task_path(task) / f".checkpoint_{grace.BUFFER}").unlink()
    with world.application() as application:
        assert sum(application.restored_records().values()) > 0


def table_for_all(table: str, stream: str) -> Callable[[StreamsJvm], Any]:
    """A global table, and a stream that does nothing, since an application needs one."""

    def build(jvm: StreamsJvm) -> Any:
        streams = jvm.jvm.org.apache.kafka.streams
        serdes = jvm.jvm.org.apache.kafka.common.serialization.Serdes
        builder = streams.StreamsBuilder()
        consumed = getattr(streams.kstream.Consumed, "with")(serdes.ByteArray(), serdes.ByteArray())
        store = getattr(streams.kstream.Materialized, "as")("everywhere")
        builder.globalTable(table, consumed, store.withKeySerde(serdes.ByteArray()).withValueSerde(serdes.ByteArray()))
        builder.stream(stream, consumed)
        return builder.build()

    return build


@GUARANTEES
def test_next_offsets_of_a_global_store_are_found_by_kafka_streams(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, guarantee: str
) -> None:
    servers = broker.bootstrap_servers
    table, stream = f"{application_id}-table", f"{application_id}-stream"
    for topic in (table, stream):
        topics.create(servers, topic, PARTITIONS)
    topics.produce(servers, table, [Record(b"key-%d" % n, b"value", n % PARTITIONS, NOW) for n in range(50)])
    directory = state_dir / application_id / "global"
    partitions = tuple(TopicPartition(table, partition) for partition in range(PARTITIONS))

    def restored() -> int:
        build = table_for_all(table, stream)
        with StreamsApplication(
            streams_jvm, application_id, servers, state_dir, build, guarantee=guarantee
        ) as application:
            return sum(application.restored_records().values())

    def store() -> RocksDBStore:
        return RocksDBStore(directory / "rocksdb" / "everywhere", StoreKind.TIMESTAMPED_KEY_VALUE)

    assert restored() == 50
    assert restored() == 0
    offsets = TaskOffsets(
        directory,
        [TaskStore("everywhere", store(), partitions)],
        exactly_once=guarantee == "exactly_once_v2",
        is_global=True,
        next_reader=NextReader.KAFKA_STREAMS_4_2,
    )
    offsets.open()
    offsets.close()
    assert (directory / ".checkpoint").read_text() == f"0\n2\n{table} 0 25\n{table} 1 25\n"
    with store() as opened:
        opened.commit(dict.fromkeys(partitions))
    assert restored() == 0
    with store() as opened:
        assert [opened.committed_offset(partition) for partition in partitions] == [25, 25]
        opened.commit(dict.fromkeys(partitions))
    assert restored() == 50, "it was the file"
