"""Real Kafka Streams opens a grace-period buffer that was put in place, at-least-once and exactly-once.

The buffer of a stream-table join (``Joined.withGracePeriod``) is the one built-in store whose offset Kafka Streams does
not read from the database but from ``.checkpoint_<store>``. The images here are made by hand from the changelog, row
for row as the store itself writes them, so that only their placement is on trial. What the join emits for records that
were in the placed buffer says that Kafka Streams finds and reads them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statecore.doctor.diagnosis import diagnose_directory
from statecore.doctor.topic_inspection import Brokers
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ProcessingGuarantee
from statecore.spec.reader import load_spec
from statecore.statedir.placement import apply_placement
from statecore.statedir.placement_plan import plan_placement
from statecore.statedir.placement_stores import SiblingStore, StoreImage
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.directory import read_database
from tests.harness.repairing import repair
from tests.harness.streams import StreamsApplication, StreamsJvm
from tests.harness.topics import Record

pytestmark = [pytest.mark.integration]

PARTITIONS = 2
MINUTE = GRACE = 60_000
HISTORY = 600_000
KEYS = 10
NOW = int(time.time() * 1000) - HISTORY
TABLE, BUFFER = "versions", "late-Buffer"
TASKS = {f"0_{partition}": partition for partition in range(PARTITIONS)}


def join(left: str, table: str, output: str) -> Callable[[StreamsJvm], Any]:
    """Each record of the stream with the table's value at its time, after the grace period."""

    def build(jvm: StreamsJvm) -> Any:
        streams, f = jvm.jvm.org.apache.kafka.streams, jvm.functions
        serdes = jvm.jvm.org.apache.kafka.common.serialization.Serdes
        ms = jvm.jvm.java.time.Duration.ofMillis
        builder = streams.StreamsBuilder()
        consumed = getattr(streams.kstream.Consumed, "with")(serdes.ByteArray(), serdes.String())
        store = getattr(streams.kstream.Materialized, "as")(
            streams.state.Stores.persistentVersionedKeyValueStore(TABLE, ms(HISTORY))
        )
        store = store.withKeySerde(serdes.ByteArray()).withValueSerde(serdes.String()).withCachingDisabled()
        versions = builder.stream(table, consumed).toTable(store)
        text = f.join("+", 2)
        joiner = f.instance("org.apache.kafka.streams.kstream.ValueJoiner", f.cast(text, *["java.lang.Object"] * 3))
        joined = getattr(streams.kstream.Joined, "with")(serdes.ByteArray(), serdes.String(), serdes.String())
        late = joined.withName("late").withGracePeriod(ms(GRACE))
        result = builder.stream(left, consumed).join(versions, joiner, late)
        result.to(output, getattr(streams.kstream.Produced, "with")(serdes.ByteArray(), serdes.String()))
        return builder.build()

    return build


class World:
    """An application whose buffer holds records, or never had any, closed; and ways to rebuild a part of it."""

    def __init__(
        self,
        broker: Broker,
        jvm: StreamsJvm,
        application_id: str,
        state_dir: Path,
        guarantee: str,
        *,
        buffers: bool = True,
        now: int = NOW,
    ) -> None:
        self.servers, self.jvm, self.guarantee = broker.bootstrap_servers, jvm, ProcessingGuarantee(guarantee)
        self.application_id, self.state_dir = application_id, state_dir
        self.left, self.table, self.output = (f"{application_id}-{name}" for name in ("left", "table", "output"))
        for topic in (self.left, self.table, self.output):
            topics.create(self.servers, topic, PARTITIONS)
        self.directory = StateDirectory(state_dir, application_id)
        self.produce(self.table, [(now - HISTORY // 2, b"table")])
        with self.application():
            self.wait()
            if buffers:
                # The first leave the buffer again as stream time goes on: their tombstones are in the changelog.
                stay = [(now + 2 * GRACE, b"stays"), (now + 2 * GRACE + 5, b"stays too")]
                self.produce(self.left, [(now, b"gone"), *stay])
                self.wait()

    def application(self) -> StreamsApplication:
        return StreamsApplication(
            self.jvm,
            self.application_id,
            self.servers,
            self.state_dir,
            join(self.left, self.table, self.output),
            guarantee=str(self.guarantee),
        )

    def write_spec(self, path: Path) -> Path:
        path.write_text(
            f"application_id: {self.application_id}\nbootstrap_servers: {self.servers}\n"
            f"processing_guarantee: {self.guarantee}\nsubtopologies:\n"
            f'  "0": {{stores: {{{TABLE}: {{kind: versioned-key-value, retention: {HISTORY // MINUTE}m}}, '
            f"{BUFFER}: {{kind: grace-buffer}}}}}}\n"
        )
        return path

    def produce(self, topic: str, moments: list[tuple[int, bytes]]) -> None:
        records = [Record(b"key-%d" % key, value, key % PARTITIONS, at) for at, value in moments for key in range(KEYS)]
        topics.produce(self.servers, topic, records)

    def wait(self) -> None:
        topics.wait_until_consumed(self.servers, self.application_id, [self.table, self.left])

    def changelog(self, store: str, partition: int) -> TopicPartition:
        return TopicPartition(f"{self.application_id}-{store}-changelog", partition)

    def emitted(self) -> dict[bytes, int]:
        """What the join has emitted: value → how often."""
        found: dict[bytes, int] = {}
        for partition in range(PARTITIONS):
            for record in topics.read(self.servers, self.output, partition):
                assert record.value is not None
                found[record.value] = found.get(record.value, 0) + 1
        return found

    def buffered(self, task: str) -> list[tuple[bytes, bytes]]:
        """The rows in the live buffer."""
        return read_database(self.directory.task_path(task) / BUFFER / f"{BUFFER}.0")["default"]

    def rows_of_changelog(self, partition: int) -> dict[bytes, bytes]:
        """The rows that the store itself writes: the changelog's key, its value without the last eight bytes."""
        rows: dict[bytes, bytes] = {}
        for record in topics.read(self.servers, self.changelog(BUFFER, partition).topic, partition):
            assert record.key is not None
            if record.value is None:
                rows.pop(record.key, None)
            else:
                rows[record.key] = record.value[:-8]
        return rows

    def buffer_image(self, task: str, path: Path) -> StoreImage:
        partition = TASKS[task]
        changelog = self.changelog(BUFFER, partition)
        end = topics.end_offset(self.servers, changelog.topic, partition)
        offset = end - 1 if end else OFFSET_UNKNOWN
        with RocksDBStore(path / f"{BUFFER}.0", StoreKind.GRACE_BUFFER, create=True) as store:
            for key, value in self.rows_of_changelog(partition).items():
                store.put(key, value)
            store.commit({changelog: offset})
        return StoreImage(task, BUFFER, StoreKind.GRACE_BUFFER, changelog, path, {changelog: offset})

    def table_image(self, task: str, path: Path) -> StoreImage:
        """The table's own database, as the application closed it."""
        changelog = self.changelog(TABLE, TASKS[task])
        shutil.copytree(self.directory.store_path(task, TABLE, StoreKind.VERSIONED_KEY_VALUE), path)
        with RocksDBStore(path, StoreKind.VERSIONED_KEY_VALUE, read_only=True) as store:
            offset = store.committed_offset(changelog)
        assert offset is not None
        return StoreImage(task, TABLE, StoreKind.VERSIONED_KEY_VALUE, changelog, path, {changelog: offset})

    def place(self, images: list[StoreImage]) -> None:
        siblings = [
            SiblingStore(task, store, kind, self.changelog(store, partition))
            for task, partition in TASKS.items()
            for store, kind in ((TABLE, StoreKind.VERSIONED_KEY_VALUE), (BUFFER, StoreKind.GRACE_BUFFER))
            if (task, store) not in {(image.task, image.store) for image in images}
        ]
        with self.directory.lock():
            plan = plan_placement(
                self.directory, images, siblings=siblings, guarantee=self.guarantee, replace=True, request_id="one"
            )
            apply_placement(plan)


@pytest.fixture(params=[pytest.param("at_least_once", marks=pytest.mark.full), "exactly_once_v2"])
def world(broker, streams_jvm, application_id, state_dir, request) -> World:
    return World(broker, streams_jvm, application_id, state_dir, request.param)


def checkpoint_offset(world: World, task: str) -> int:
    """What Kafka Streams, or the placement, wrote into the buffer's file."""
    version, count, line = (world.directory.task_path(task) / f".checkpoint_{BUFFER}").read_text().splitlines()
    topic, partition, offset = line.split()
    assert (version, count, topic, int(partition)) == ("0", "1", *world.changelog(BUFFER, TASKS[task]))
    return int(offset)


@pytest.mark.parametrize("beside", [pytest.param("kept table", marks=pytest.mark.full), "placed table"])
def test_a_placed_buffer_restores_nothing_and_its_records_are_joined_in_their_time(world, tmp_path, beside):
    before = {task: world.buffered(task) for task in TASKS}
    assert world.emitted() == {b"gone+table": KEYS}
    assert all(len(rows) == 2 * KEYS // PARTITIONS for rows in before.values())
    images = [world.buffer_image(task, tmp_path / "images" / task / BUFFER) for task in TASKS]
    if beside == "placed table":
        images += [world.table_image(task, tmp_path / "images" / task / TABLE) for task in TASKS]
        shutil.rmtree(world.directory.path)
    world.place(images)
    assert {task: world.buffered(task) for task in TASKS} == before  # what the store had written itself, row for row

    with world.application() as application:
        restored = application.restored_records()
    assert set(restored.values()) <= {0}, restored
    assert {task: world.buffered(task) for task in TASKS} == before
    ends = {task: topics.end_offset(world.servers, *world.changelog(BUFFER, TASKS[task])) for task in TASKS}
    assert {task: checkpoint_offset(world, task) for task in TASKS} == {task: end - 1 for task, end in ends.items()}

    with world.application() as application:
        assert set(application.restored_records().values()) <= {0}
        world.produce(world.left, [(NOW + 5 * GRACE, b"new")])
        world.wait()
    assert world.emitted() == {b"gone+table": KEYS, b"stays+table": KEYS, b"stays too+table": KEYS}
    assert [len(world.buffered(task)) for task in TASKS] == [KEYS // PARTITIONS] * PARTITIONS


@pytest.mark.full
def test_a_buffer_that_is_missing_costs_its_own_restore_and_not_the_task(world, tmp_path):
    images = [world.table_image(task, tmp_path / "images" / task / TABLE) for task in TASKS]
    shutil.rmtree(world.directory.path)
    world.place(images)
    created = world.guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
    for task in TASKS:
        assert (world.directory.task_path(task) / f".checkpoint_{BUFFER}").exists() is created
        if created:
            assert checkpoint_offset(world, task) == -4
    with world.application() as application:
        restored = application.restored_records()
    for partition in range(PARTITIONS):
        assert restored.get((TABLE, partition), 0) == 0
        # Of the changelog every record, tombstones too.
        assert restored[BUFFER, partition] == 4 * KEYS // PARTITIONS
    with world.application() as application:
        assert set(application.restored_records().values()) <= {0}


@pytest.mark.full
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_buffer_that_never_had_a_record_has_no_segment_and_works_with_an_empty_one(
    broker, streams_jvm, application_id, state_dir, guarantee, tmp_path
):
    world = World(broker, streams_jvm, application_id, state_dir, guarantee, buffers=False)
    stores = [world.directory.task_path(task) / BUFFER for task in TASKS]
    assert not [path for store in stores for path in store.glob("*")]

    world.place([world.buffer_image(task, tmp_path / "images" / task / BUFFER) for task in TASKS])
    with world.application() as application:
        assert set(application.restored_records().values()) <= {0}
        assert all(world.buffered(task) == [] for task in TASKS)
        world.produce(world.left, [(NOW, b"first"), (NOW + 2 * GRACE, b"second")])
        world.wait()
    assert world.emitted() == {b"first+table": KEYS}
    assert [len(world.buffered(task)) for task in TASKS] == [KEYS // PARTITIONS] * PARTITIONS


def moment_restored_as(later_ones: str) -> int:
    """A time of late whose records, once Kafka Streams has restored them, let later ones wait for the grace period.

    It takes the eight bytes that end with the key for a record's time: of "key-0" and a time those are the time's lower
    three bytes and the key. Where that number is negative it changes nothing; otherwise it is a stream time that lies
    far ahead, and every later record has come too late to wait. Which it is changes every 2 h 20 min.
    """
    negative = 1 << 23
    now = NOW
    while any(bool(now + later & negative) is not (later_ones == "wait") for later in (0, 3 * GRACE)):
        now -= GRACE
    return now


@pytest.mark.parametrize("later_ones", ["wait", pytest.param("do not wait", marks=pytest.mark.full)])
def test_kafka_streams_never_emits_what_it_has_restored_and_after_a_repair_it_does(
    broker, streams_jvm, application_id, state_dir, tmp_path, later_ones
):
    now = moment_restored_as(later_ones)
    world = World(broker, streams_jvm, application_id, state_dir, "at_least_once", now=now)
    right = {task: world.buffered(task) for task in TASKS}
    spec = world.write_spec(tmp_path / "stores.yaml")
    shutil.rmtree(world.directory.path)
    with world.application() as application:
        assert application.restored_records()[BUFFER, 0] == 4 * KEYS // PARTITIONS
        world.produce(world.table, [(now + 3 * GRACE // 2, b"newer table")])
        world.produce(world.left, [(now + 5 * GRACE, b"later")])
        world.wait()
        world.produce(world.left, [(now + 7 * GRACE, b"much later")])
        world.wait()
    emitted = {b"gone+table": KEYS, b"later+newer table": KEYS}
    if later_ones == "do not wait":
        emitted[b"much later+newer table"] = KEYS
    assert world.emitted() == emitted  # of "stays" and "stays too", whose time was before that, nothing

    found = {(one.task, one.code) for one in diagnose_directory(world.directory, spec=load_spec(spec)).findings}
    assert found == {(task, "grace-buffer-miskeyed") for task in TASKS}
    assert repair(application_id, state_dir, spec).remaining == ()
    for task in TASKS:
        kept = set(world.buffered(task)) - set(right[task])
        assert len(kept) == (KEYS // PARTITIONS if later_ones == "wait" else 0)  # "much later"
        assert set(right[task]) <= set(world.buffered(task))

    with world.application() as application:
        assert set(application.restored_records().values()) <= {0}
        world.produce(world.left, [(now + 7 * GRACE + 1, b"last")])
        world.wait()
    assert world.emitted() == {**emitted, b"stays+newer table": KEYS, b"stays too+newer table": KEYS}
    assert diagnose_directory(world.directory, spec=load_spec(spec)).findings == ()


@pytest.mark.full
@pytest.mark.parametrize("is_repaired", [True, False], ids=["repaired", "as it is"])
def test_a_buffer_whose_task_the_next_start_wipes_is_lost_unless_it_is_repaired_before(
    broker, streams_jvm, application_id, state_dir, tmp_path, is_repaired
):
    world = World(broker, streams_jvm, application_id, state_dir, "exactly_once_v2")
    spec = world.write_spec(tmp_path / "stores.yaml")
    for task in TASKS:
        shutil.rmtree(world.directory.task_path(task) / "rocksdb" / TABLE)
    found = {(one.task, one.code) for one in diagnose_directory(world.directory, spec=load_spec(spec)).findings}
    assert found == {(task, code) for task in TASKS for code in ("store-absent", "grace-buffer-miskeyed")}
    if is_repaired:
        assert repair(application_id, state_dir, spec).remaining == ()
        assert diagnose_directory(world.directory, spec=load_spec(spec)).findings == ()
    with world.application() as application:
        restored = application.restored_records()
        assert restored.get((BUFFER, 0), 0) == (0 if is_repaired else 4 * KEYS // PARTITIONS)
        world.produce(world.left, [(NOW + 5 * GRACE, b"later")])
        world.wait()
    emitted = world.emitted()
    assert (emitted.get(b"stays+table"), emitted.get(b"stays too+table")) == (
        (KEYS, KEYS) if is_repaired else (None,) * 2
    )


@pytest.mark.parametrize("is_repaired", [True, pytest.param(False, marks=pytest.mark.full)], ids=["repaired", "as is"])
def test_records_behind_the_offset_of_an_older_copy_are_lost_unless_it_is_repaired_before(world, tmp_path, is_repaired):
    """Its file agrees with it, so only the brokers tell; the marker behind a closed store is no record."""
    spec = world.write_spec(tmp_path / "stores.yaml")
    shutil.copytree(world.directory.path, tmp_path / "older")
    with world.application():
        world.produce(world.left, [(NOW + 2 * GRACE + 9, b"in the tail")])
        world.wait()
    assert found_with_brokers(world, spec) == set()
    shutil.rmtree(world.directory.path)
    shutil.copytree(tmp_path / "older", world.directory.path)
    assert found_with_brokers(world, spec) == {(task, "grace-buffer-miskeyed") for task in TASKS}
    if is_repaired:
        assert repair(world.application_id, world.state_dir, spec).remaining == ()
        assert found_with_brokers(world, spec) == set()
    with world.application() as application:
        assert (application.restored_records().get((BUFFER, 0), 0) > 0) is not is_repaired
        world.produce(world.left, [(NOW + 5 * GRACE, b"later")])
        world.wait()
    assert world.emitted().get(b"in the tail+table") == (KEYS if is_repaired else None)


def found_with_brokers(world: World, spec: Path) -> set[tuple[str, str]]:
    declared = load_spec(spec)
    found = diagnose_directory(world.directory, spec=declared, topics=Brokers(world.servers, declared))
    return {(one.task, one.code) for one in found.findings}
