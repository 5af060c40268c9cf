"""Versioned stores of real Kafka Streams, rebuilt from their changelogs and compared row by row, byte by byte."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from rocksdict import Options, Rdict

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import IsolationLevel, OffsetRange
from statecore.changelog.ranges import split_range
from statecore.changelog.reader import ChangelogReader, ReaderOptions
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.segments import Segmentation, default_segment_interval
from statecore.images.versions.build import VersionRunBuilder, build_version_runs
from tests.harness import directory, topics
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.queries import StoreQuery
from tests.harness.streams import StreamsApplication, StreamsJvm
from tests.harness.topics import Record
from tests.unit.images.versions.oracle import VersionedStore

pytestmark = pytest.mark.integration

KIND = StoreKind.VERSIONED_KEY_VALUE
PARTITIONS = 2
MINUTE = 60_000
SPAN = 60 * MINUTE
# A whole hour, which all segment intervals here divide: which records share a segment does not depend on the day.
START = (int(time.time() * 1000) // SPAN - 2) * SPAN
KEYS = (b"a", b"ab", b"", b"\x00", b"\xff\xff", b"k" * 40, b"long" * 80, b"rare", b"gone")

Rows = list[tuple[bytes, bytes]]


class Versioned(NamedTuple):
    """One store: its history retention and, where it is not the default, its segment interval; ms both."""

    retention: int
    interval: int | None = None

    @property
    def segment_interval(self) -> int:
        return self.interval or default_segment_interval(KIND, self.retention)


STORES = {
    "table": Versioned(10 * MINUTE),
    "short": Versioned(MINUTE),
    "minutes": Versioned(4 * MINUTE),
    "hours": Versioned(90 * MINUTE),
    "none": Versioned(0),
    "fine": Versioned(10 * MINUTE, 1000),
    "coarse": Versioned(5 * MINUTE, 30 * MINUTE),
}


def records(partition: int, count: int = 1500) -> Iterator[Record]:
    """An hour of updates: out of order, late, at the same time, deletes, keys that come alive again; without a key."""
    chance = random.Random(partition)
    clock = 0.0
    for number in range(count):
        clock += chance.random() * 2 * SPAN / count
        late = chance.choice([0, 0, 0, 5_000, MINUTE, 12 * MINUTE])
        moment = max(0, int(clock) - int(chance.random() * late))
        moment -= moment % chance.choice([1, 1000, MINUTE])
        # One key only rarely and in the first half: what is left of it is old.
        weights = [4] * (len(KEYS) - 2) + [0.2 if number < count / 2 else 0, 0]
        key = None if chance.random() < 0.02 else chance.choices(KEYS, weights)[0]
        value = None if chance.random() < 0.3 else b"" if chance.random() < 0.05 else b"version %d" % number
        if key == b"rare":
            value = b"stays"
        # Records without a key run ahead of the others: a store never sees them, nor their time.
        yield Record(key, value, partition, START + moment + (10 * MINUTE if key is None else 0))
    yield Record(b"gone", None, partition, START + int(clock))


def topology(of_table: str, of_stream: str) -> Callable[[StreamsJvm], Any]:
    """One store that is a table of a topic, and the others, tables of a stream of another."""

    def build(jvm: StreamsJvm) -> Any:
        streams = jvm.jvm.org.apache.kafka.streams
        serdes = jvm.jvm.org.apache.kafka.common.serialization.Serdes
        builder = streams.StreamsBuilder()
        consumed = getattr(streams.kstream.Consumed, "with")(serdes.ByteArray(), serdes.ByteArray())
        stream = builder.stream(of_stream, consumed)
        for name, store in STORES.items():
            times = [jvm.jvm.java.time.Duration.ofMillis(one) for one in store if one is not None]
            supplier = streams.state.Stores.persistentVersionedKeyValueStore(name, *times)
            materialized = getattr(streams.kstream.Materialized, "as")(supplier)
            if name == "table":
                builder.table(of_table, consumed, materialized)
            else:
                stream.toTable(materialized.withKeySerde(serdes.ByteArray()).withValueSerde(serdes.ByteArray()))
        return builder.build()

    return build


class Live(NamedTuple):
    """What Kafka Streams left on disk, what it answered, and what it restored itself, by store and partition."""

    application_id: str
    rows: dict[tuple[str, int], Rows]
    answers: dict[tuple[str, int], list[Any]]
    restored: dict[tuple[str, int], Rows]


@pytest.fixture(scope="module", params=one_of(["exactly_once_v2", "at_least_once"]))
def live(
    broker: Broker, streams_jvm: StreamsJvm, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Live:
    servers, application_id = broker.bootstrap_servers, f"versioned-{request.param}-{random.getrandbits(32):08x}"
    inputs = [f"{application_id}-{name}" for name in ("table", "stream")]
    for topic in inputs:
        topics.create(servers, topic, PARTITIONS)
        topics.produce(servers, topic, [one for partition in range(PARTITIONS) for one in records(partition)])
    query = StoreQuery(timestamped=True, shape="versioned", keys=KEYS)
    state_dir = tmp_path_factory.mktemp("state")

    def application() -> StreamsApplication:
        return StreamsApplication(
            streams_jvm,
            application_id,
            servers,
            state_dir,
            topology(*inputs),
            guarantee=request.param,
            stores=dict.fromkeys(STORES, query),
        )

    with application() as running:
        topics.wait_until_consumed(servers, application_id, inputs)
        answers = {(store, p): running.query_rows(store, p) for store in STORES for p in range(PARTITIONS)}
    rows = stored(state_dir / application_id)
    shutil.rmtree(state_dir / application_id)
    with application() as running:
        assert sum(running.restored_records().values()) > 0
    return Live(application_id, rows, answers, stored(state_dir / application_id))


def stored(path: Path) -> dict[tuple[str, int], Rows]:
    """The rows of each store and partition of an application's directory."""
    found = directory.read_application(path)
    return {(store, int(task.split("_")[1])): families["default"] for (task, store), families in found.items()}


def rebuilt(path: Path, broker: Broker, topic: str, partition: int, store: Versioned, budget: int) -> Rows:
    """The rows of one partition, from its changelog in several ranges."""
    end = topics.end_offset(broker.bootstrap_servers, topic, partition)
    of_ranges = []
    with Cluster(broker.bootstrap_servers, timeout=300) as cluster:
        for number, part in enumerate(split_range(OffsetRange(topic, partition, 0, end), 3)):
            (path / f"range-{number}").mkdir(parents=True)
            builder = VersionRunBuilder(path / f"range-{number}", memory_budget=budget)
            reader = ChangelogReader(cluster, ReaderOptions(fetch_bytes=10_000))
            for batch in reader.read(part, IsolationLevel.READ_COMMITTED):
                builder.add(batch)
            of_ranges.append((builder.finish(), builder.statistics.stream_time))
    (path / "rows").mkdir()
    segmentation = Segmentation(store.retention, store.segment_interval)
    runs = build_version_runs(path / "rows", [(time, runs) for runs, time in of_ranges], segmentation, budget)
    database = Rdict(str(path / "database"), Options(raw_mode=True))
    try:
        database.ingest_external_file([str(run.path) for run in runs])
        return list(database.items())
    finally:
        database.close()


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("budget", one_of([1, 1 << 24]))
def test_rows_rebuilt_from_the_changelog_are_those_kafka_streams_wrote(
    live: Live, broker: Broker, tmp_path: Path, store: str, budget: int
) -> None:
    for partition in range(PARTITIONS):
        topic = f"{live.application_id}-{store}-changelog"
        rows = rebuilt(tmp_path / str(partition), broker, topic, partition, STORES[store], budget)
        assert rows == live.rows[store, partition]
        assert rows[-1][0] > b"\xff" * 8  # latest values come last; a store has some


@pytest.mark.parametrize("store", STORES)
def test_decoded_rows_are_the_versions_kafka_streams_answers(live: Live, store: str) -> None:
    for partition in range(PARTITIONS):
        found = []
        for row in decoded(live.rows[store, partition]):
            times = [row["valid_from"]] + ([] if row["valid_to"] is None else [row["valid_to"]])
            label = row["key"] + b"@" + b"".join(one.to_bytes(8, "big") for one in times)
            if row["value"] is not None:
                found.append((label, row["value"], row["valid_from"]))
                if row["valid_to"] is None:
                    found.append((row["key"], row["value"], row["valid_from"]))
        assert sorted(found) == live.answers[store, partition]


@pytest.mark.parametrize("store", STORES)
def test_the_port_of_put_that_unit_tests_rely_on_does_what_kafka_streams_does(live: Live, store: str) -> None:
    for partition in range(PARTITIONS):
        port = VersionedStore(STORES[store].retention, STORES[store].segment_interval)
        for one in records(partition):
            if one.key is not None and one.timestamp is not None:
                port.put(one.key, one.value, one.timestamp)
        assert sorted(port.rows().items()) == live.rows[store, partition]
        assert port.expired > 0 or store == "hours"


def test_kafka_streams_own_restore_brings_deleted_values_back_and_differs_in_nothing_else(live: Live) -> None:
    brought_back = 0
    for store, partition in live.rows:
        stream_time = max(one.timestamp or 0 for one in records(partition) if one.key is not None)
        since = stream_time - STORES[store].retention
        as_live, restored = (
            {
                (row["key"], row["valid_from"], row["valid_to"], row["value"])
                for row in decoded(rows[store, partition])
                if row["value"] is not None and not ended(row, since)
            }
            for rows in (live.rows, live.restored)
        )
        assert as_live <= restored
        for key, valid_from, valid_to, _ in restored - as_live:
            # Its restore has forgotten a delete that came before the history retention.
            assert valid_from < since < valid_to
            assert any(
                one.key == key and one.value is None and valid_from < (one.timestamp or 0) <= since
                for one in records(partition)
            )
            brought_back += 1
    assert brought_back > 0


def ended(row: dict[str, Any], time: int) -> bool:
    """Whether a version is no longer valid at a time or later."""
    return row["valid_to"] is not None and row["valid_to"] <= time


def test_the_records_try_what_they_are_meant_to_try(live: Live) -> None:
    assert {(store, p) for store in STORES for p in range(PARTITIONS)} == set(live.rows)
    table = decoded(live.rows["table", 0])
    assert any(row["value"] is None and row["valid_to"] == row["valid_from"] for row in table), "no lone tombstone"
    assert any(row["value"] is None and row["valid_to"] > row["valid_from"] for row in table), "no tombstone in a row"
    assert len(decoded(live.rows["coarse", 0])) > 5 * len(live.rows["coarse", 0]), "rows of few versions only"
    # Only the latest value is left of a key whose history has expired.
    assert [row["valid_to"] for row in table if row["key"] == b"rare"] == [None]
    assert len([row for row in decoded(live.rows["hours", 0]) if row["key"] == b"rare"]) > 1


def decoded(rows: Rows) -> list[dict[str, Any]]:
    keys, values = zip(*rows, strict=True)
    found: list[dict[str, Any]] = (
        row_format(KIND).decode(pa.array(keys, pa.binary()), pa.array(values, pa.binary())).to_pylist()
    )
    return found
