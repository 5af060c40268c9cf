"""Real Kafka Streams decides for which stores an exactly-once start wipes their task, and where it reads offsets.

One application has a task for each case. Its directory is changed after a clean close, and one start decides all cases:
a wiped task restores every store, also ``witness``, which no case changes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from statecore.doctor.diagnosis import diagnose_directory
from statecore.doctor.finding_catalog import Severity
from statecore.formats.checkpoint import store_checkpoint_file
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.reader import parse_spec
from statecore.standby.promote.store_check import why_wiped_there
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import store_places
from statecore.stores.legacy_offsets import read_offsets
from tests.harness.broker import Broker
from tests.harness.damage_functions import (
    change_offsets,
    manifest_of,
    offsets_of,
    put,
    segments_of,
    set_status,
    write_checkpoint,
)
from tests.harness.directory import files
from tests.harness.fed_application import eventually
from tests.harness.feeds import EVENTS, MINUTE, TABLE, Portion
from tests.harness.fleet import NEWEST
from tests.harness.kinds import KindCase, KindsApplication
from tests.harness.modes import EXACTLY_ONCE
from tests.harness.rebuilding import KindsWorld
from tests.harness.sources import RETENTION, Sources
from tests.harness.streams import StreamsFailed, StreamsJvm
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

RECORDS = 40
PLAIN, WITNESS, WINDOW, VERSIONS, BUFFER = "plain", "witness", "window", "versions", "late-Buffer"
LOGGED = frozenset((PLAIN, WITNESS, WINDOW, VERSIONS, BUFFER))
UNLOGGED = "unlogged"


def _stores(at: Sources) -> None:
    for name in (PLAIN, WITNESS):
        of = at.stores.persistentKeyValueStore(name)
        at.put_all(EVENTS, at.stores.keyValueStoreBuilder, of, at.puts.key_value(at.puts.plain()))
    windows = at.stores.persistentWindowStore(WINDOW, at.duration(RETENTION), at.duration(MINUTE), False)
    at.put_all(EVENTS, at.stores.windowStoreBuilder, windows, at.puts.window(at.puts.plain()))
    of = at.stores.persistentKeyValueStore(UNLOGGED)
    made = at.store_builder(at.stores.keyValueStoreBuilder, of).withLoggingDisabled()
    at.put_into(EVENTS, made, UNLOGGED, at.puts.key_value(at.puts.plain()))
    versions = at.stores.persistentVersionedKeyValueStore(VERSIONS, at.duration(RETENTION))
    table = at.stream(TABLE).toTable(at.materialized(versions))
    at.stream(EVENTS).join(table, at.joiner(), at.table_joined("late").withGracePeriod(at.duration(RETENTION)))


def _feed(base: int, partitions: int) -> list[Portion]:
    moments = [base + number * MINUTE // 4 for number in range(RECORDS)]
    return [
        (
            role,
            [
                Record(b"key-%d" % number, b"value", partition, moment)
                for partition in range(partitions)
                for number, moment in enumerate(moments)
            ],
        )
        for role in (TABLE, EVENTS)
    ]


APPLICATION = KindsApplication(
    "wiped",
    (
        KindCase("key-value", PLAIN, _stores),
        KindCase("key-value", WITNESS, _stores),
        KindCase("window", WINDOW, _stores, declared={"retention": "10m"}),
        KindCase("key-value", UNLOGGED, _stores, declared={"changelog": "none"}),
        KindCase("versioned-key-value", VERSIONS, _stores, declared={"retention": "10m"}),
        KindCase("grace-buffer", BUFFER, _stores),
    ),
    _feed,
    properties={"producer.transaction.timeout.ms": "600000"},  # a busy machine: many tasks share one transaction
)


@dataclass(frozen=True)
class Task:
    """A task of the closed application, and ways to change it."""

    application: Path
    partition: int

    @property
    def name(self) -> str:
        return f"0_{self.partition}"

    @property
    def path(self) -> Path:
        return self.application / self.name

    def changelog(self, store: str) -> TopicPartition:
        return TopicPartition(f"{self.application.name}-{store}-changelog", self.partition)

    def databases(self, store: str) -> list[Path]:
        segmented = (self.path / store).is_dir()
        return segments_of(self.application, store, self.name) if segmented else [self.path / "rocksdb" / store]

    def own_file(self, store: str) -> Path:
        return self.path / store_checkpoint_file(store)

    def offset(self, store: str) -> int:
        name = str(self.changelog(store))
        if store == BUFFER:
            return read_offsets(self.own_file(store))[self.changelog(store)]
        return offsets_of(self.databases(store)[-1])[name]

    def forget(self, store: str) -> int:
        """Takes the offset of a store away, and returns it."""
        offset = self.offset(store)
        for database in self.databases(store):
            change_offsets(database, lambda _: None)
        self.own_file(store).unlink(missing_ok=True)
        return offset

    def write(self, file: str, store: str, offset: int) -> None:
        """Writes the offset of one store into a file, and no other."""
        write_checkpoint(self.path / file, {str(self.changelog(store)): offset})


def _unchanged(task: Task) -> None:
    pass


def _in_task_file(store: str, *, lag: int | None = 0) -> Callable[[Task], None]:
    """Only ``.checkpoint`` has the offset of a store, so much lower; -4 without a lag."""

    def change(task: Task) -> None:
        offset = task.forget(store)
        task.write(CHECKPOINT_FILE, store, OFFSET_UNKNOWN if lag is None else offset - lag)

    return change


def _in_own_file(store: str, *, unknown: bool = False) -> Callable[[Task], None]:
    """Only ``.checkpoint_<store>`` has the offset of a store."""

    def change(task: Task) -> None:
        offset = task.forget(store)
        task.write(store_checkpoint_file(store), store, OFFSET_UNKNOWN if unknown else offset)

    return change


def _in_both_files(own_lag: int | None, task_lag: int | None) -> Callable[[Task], None]:
    """Both files have the offset of the buffer, so much lower; -4 without a lag."""

    def change(task: Task) -> None:
        last = task.offset(BUFFER)
        for file, lag in ((store_checkpoint_file(BUFFER), own_lag), (CHECKPOINT_FILE, task_lag)):
            task.write(file, BUFFER, OFFSET_UNKNOWN if lag is None else last - lag)

    return change


def _beside_offset_inside(lag: int | None) -> Callable[[Task], None]:
    """``.checkpoint`` has an offset of a store that has its own."""

    def change(task: Task) -> None:
        offset = OFFSET_UNKNOWN if lag is None else task.offset(PLAIN) - lag
        task.write(CHECKPOINT_FILE, PLAIN, offset)

    return change


def _buffer_inside(task: Task) -> None:
    """The offset of the buffer is in its database, where other kinds have it."""
    offset = task.forget(BUFFER)
    key = str(task.changelog(BUFFER)).encode()
    put(task.databases(BUFFER)[0], "offsets", key, offset.to_bytes(8, signed=True))


def _of_another_changelog(task: Task) -> None:
    offset = task.forget(PLAIN)
    key = str(task.changelog(WITNESS)).encode()
    put(task.databases(PLAIN)[0], "offsets", key, offset.to_bytes(8, signed=True))


def _of_another_partition(task: Task) -> None:
    offset = task.forget(PLAIN)
    topic, partition = task.changelog(PLAIN)
    key = f"{topic}-{partition + 1}".encode()
    put(task.databases(PLAIN)[0], "offsets", key, offset.to_bytes(8, signed=True))


def _only_one_segment(position: int) -> Callable[[Task], None]:
    """Only the segment of that place in the order of time has an offset."""

    def change(task: Task) -> None:
        every = task.databases(WINDOW)
        assert len(every) > 1
        for database in every:
            if database != every[position]:
                change_offsets(database, lambda _: None)

    return change


def _deleted(store: str, *, in_file: bool = False) -> Callable[[Task], None]:
    """A store without a database; perhaps ``.checkpoint`` has its offset."""

    def change(task: Task) -> None:
        last = task.offset(store)
        for database in task.databases(store):
            shutil.rmtree(database)
        if store == PLAIN:
            (task.path / "rocksdb" / store).mkdir()
        if in_file:
            task.write(CHECKPOINT_FILE, store, last)

    return change


def _with_own_file(change: Callable[[Task], None]) -> Callable[[Task], None]:
    """The same, and ``.checkpoint_<store>`` has the offset of the store."""

    def with_file(task: Task) -> None:
        last = task.offset(PLAIN)
        change(task)
        task.write(store_checkpoint_file(PLAIN), PLAIN, last)

    return with_file


def _open(store: str, position: int = 0) -> Callable[[Task], None]:
    return lambda task: set_status(task.databases(store)[position], 1)


def _unknown_inside(task: Task) -> None:
    change_offsets(task.databases(PLAIN)[0], lambda _: OFFSET_UNKNOWN)


@dataclass(frozen=True)
class Case:
    """One change of a task.

    Attributes:
        wiped: whether Kafka Streams wipes the task.
        restored: the stores that it restores; all of them if it wipes the task.
    """

    name: str
    change: Callable[[Task], object]
    wiped: bool
    restored: frozenset[str] = frozenset()


def _kept(name: str, change: Callable[[Task], object], *restored: str) -> Case:
    return Case(name, change, False, frozenset(restored))


def _wiped(name: str, change: Callable[[Task], object]) -> Case:
    return Case(name, change, True, LOGGED)


NO_ROWS, NO_BUFFER = "no database, offset in .checkpoint", "buffer: no database, offset in .checkpoint_<store>"
EMPTY = {NO_ROWS, NO_BUFFER}
"""Kafka Streams trusts the file, and answers without rows: no wipe, but nothing to keep either."""

CASES = (
    _kept("unchanged", _unchanged),
    _wiped("offset nowhere", lambda task: task.forget(PLAIN)),
    _kept("offset in .checkpoint", _in_task_file(PLAIN)),
    _kept("lower offset in .checkpoint", _in_task_file(PLAIN, lag=10), PLAIN),
    _wiped("-4 in .checkpoint", _in_task_file(PLAIN, lag=None)),
    _wiped("offset in .checkpoint_<store>", _in_own_file(PLAIN)),
    _kept("-4 inside", _unknown_inside, PLAIN),
    _kept("lower offset in .checkpoint beside one inside", _beside_offset_inside(10), PLAIN),
    _kept("-4 in .checkpoint beside one inside", _beside_offset_inside(None)),
    _wiped("offset of another changelog", _of_another_changelog),
    _wiped("offset of another partition", _of_another_partition),
    _wiped("open", _open(PLAIN)),
    _wiped("open and not logged", _open(UNLOGGED)),
    _kept("offset in the oldest segment only", _only_one_segment(0)),
    _kept("offset in the newest segment only", _only_one_segment(-1)),
    _wiped("segments without offset", lambda task: task.forget(WINDOW)),
    _kept("segments without offset, offset in .checkpoint", _in_task_file(WINDOW)),
    _wiped("no segment", _deleted(WINDOW)),
    _wiped("no segment, offset in .checkpoint", _deleted(WINDOW, in_file=True)),
    _wiped("no database", _deleted(PLAIN)),
    _kept(NO_ROWS, _deleted(PLAIN, in_file=True)),
    _wiped("no database, offset in .checkpoint_<store>", _with_own_file(_deleted(PLAIN))),
    _wiped("buffer: offset nowhere", lambda task: task.forget(BUFFER)),
    _wiped("buffer: offset inside", _buffer_inside),
    _kept(NO_BUFFER, _deleted(BUFFER)),
    _kept("buffer: -4 in .checkpoint_<store>", _in_own_file(BUFFER, unknown=True), BUFFER),
    _kept("buffer: offset in .checkpoint", _in_task_file(BUFFER)),
    _wiped("buffer: -4 in .checkpoint", _in_task_file(BUFFER, lag=None)),
    _kept("buffer: -4 in .checkpoint, offset in .checkpoint_<store>", _in_both_files(0, None)),
    _kept("buffer: lower offset in .checkpoint", _in_both_files(0, 10), BUFFER),
    _kept("buffer: lower offset in .checkpoint_<store>", _in_both_files(10, 0)),
)


@pytest.fixture(params=[NEWEST, "4.3"])
def jvm(request: pytest.FixtureRequest) -> StreamsJvm:
    """Kafka Streams of a release with offsets inside."""
    if request.param == NEWEST:
        return request.getfixturevalue("streams_jvm")  # type: ignore[no-any-return]
    return request.getfixturevalue("fleet").jvm(request.param)  # type: ignore[no-any-return]


@pytest.mark.full
def test_readers_agree_with_kafka_streams(
    broker: Broker, jvm: StreamsJvm, application_id: str, state_dir: Path
) -> None:
    world = _closed(broker, jvm, application_id, state_dir, len(CASES))
    tasks = [Task(world.directory, partition) for partition in range(len(CASES))]
    for case, task in zip(CASES, tasks, strict=True):
        case.change(task)
    promotion, doctor = _wiped_for_promotion(world), _wiped_for_doctor(world)
    with world.application() as running:
        found = running.restored_records()
    real = {
        case.name: (
            found.get((WITNESS, task.partition), 0) > 0,
            frozenset(store for store in LOGGED if found.get((store, task.partition), 0)),
        )
        for case, task in zip(CASES, tasks, strict=True)
    }
    assert real == {case.name: (case.wiped, case.restored) for case in CASES}
    wiped = {name for name, (is_wiped, _) in real.items() if is_wiped}
    assert doctor == wiped
    assert promotion == wiped | EMPTY


@pytest.mark.full
def test_a_database_that_does_not_open_prevents_the_start_and_nothing_is_wiped(
    broker: Broker, jvm: StreamsJvm, application_id: str, state_dir: Path
) -> None:
    world = _closed(broker, jvm, application_id, state_dir, 1)
    task = Task(world.directory, 0)
    manifest_of(task.databases(PLAIN)[0]).unlink()
    before = files(task.path)
    assert (_wiped_for_promotion(world), _wiped_for_doctor(world)) == ({CASES[0].name}, set())
    with pytest.raises(StreamsFailed):
        world.application().start()
    assert files(task.path).keys() >= {name for name in before if name.endswith(".sst")}


@pytest.mark.full
@pytest.mark.parametrize("poll_ms", ["100", "0"])
def test_an_open_first_segment_wipes_its_task_though_kafka_streams_may_end(
    broker: Broker, jvm: StreamsJvm, application_id: str, state_dir: Path, poll_ms: str
) -> None:
    """The rebalance after the wipe makes the task anew. If it takes longer than ``poll.ms``, the old task is started
    first; its store still has the segment, which is closed now, and Kafka Streams ends.
    """
    application = replace(APPLICATION, properties={**APPLICATION.properties, "poll.ms": poll_ms})
    world = _closed(broker, jvm, application_id, state_dir, 2, application)
    _open(WINDOW, 0)(Task(world.directory, 0))
    assert _wiped_for_promotion(world) == _wiped_for_doctor(world) == {CASES[0].name}
    running = world.application()
    try:
        running.start()
    except StreamsFailed:
        assert eventually(lambda: running.state, "ERROR") == "ERROR"
        assert not (world.directory / "0_0").exists()
    else:
        restored = running.restored_records()
        assert (restored[WITNESS, 0] > 0, restored.get((WITNESS, 1), 0)) == (True, 0)
        running.close()


@pytest.mark.full
def test_an_open_segment_after_a_closed_one_prevents_the_start_and_every_task_is_wiped(
    broker: Broker, jvm: StreamsJvm, application_id: str, state_dir: Path
) -> None:
    """Kafka Streams leaves the segments before it open, cannot open them again in that process, and ends."""
    world = _closed(broker, jvm, application_id, state_dir, 2)
    _open(WINDOW, -1)(Task(world.directory, 0))
    assert _wiped_for_promotion(world) == {CASES[0].name}
    assert _wiped_for_doctor(world) == {CASES[0].name, CASES[1].name}
    application = world.application()
    with pytest.raises(StreamsFailed):
        application.start()
    assert eventually(lambda: application.state, "ERROR") == "ERROR"  # in PENDING_ERROR it still deletes
    assert not [name for name in files(world.directory) if name.startswith("0_")]


def _closed(
    broker: Broker,
    jvm: StreamsJvm,
    application_id: str,
    state_dir: Path,
    partitions: int,
    application: KindsApplication = APPLICATION,
) -> KindsWorld:
    world = KindsWorld(broker, jvm, application_id, state_dir, EXACTLY_ONCE, application, partitions)
    with world.application():
        world.feed(APPLICATION.feed(world.base, partitions))
    return world


def _name_of(task: str) -> str:
    return CASES[int(task.partition("_")[2])].name


def _wiped_for_promotion(world: KindsWorld) -> set[str]:
    spec = parse_spec(world.spec())
    found = set()
    for place in store_places(StateDirectory(world.state_dir, world.application_id)):
        store = next(one for one in spec.stores_of(place.task) if one.name == place.store)
        changelog = TaskId.parse(place.task).partition_of(store.changelog) if store.is_logged else None
        if why_wiped_there(place, store.kind, changelog) is not None:
            found.add(_name_of(place.task))
    return found


def _wiped_for_doctor(world: KindsWorld) -> set[str]:
    """Tasks whose store without changelog is deleted with them."""
    directory = StateDirectory(world.state_dir, world.application_id)
    diagnosis = diagnose_directory(directory, spec=parse_spec(world.spec()))
    return {
        _name_of(one.task)
        for one in diagnosis.findings
        if one.code == "store-unlogged" and one.severity is Severity.LOSS
    }
