"""A store caught up from its changelog on a real broker: both readers, the same store."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import OffsetRange
from statecore.errors import Invalid, NotFound, Retryable
from statecore.formats.kinds import StoreKind
from statecore.formats.rows.values import encode_value
from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel
from statecore.stores.base import StateStore
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import StoreSettings
from statecore.tasks.change_logging import ChangeLoggingStore
from statecore.tasks.restoration import columnar_records, consumer_records
from statecore.tasks.restoration.restore import OnStale, Restored, RestoreReader, RestoreSettings, restore
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.raising import raises
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "docs" / "library.md"
KINDS = (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.HEADERS_KEY_VALUE)
DELETABLE = {**topics.UNCLEANED, "cleanup.policy": "compact,delete"}
"""Records of a topic that is compacted only cannot be deleted by offset."""
HEADERS: tuple[tuple[str, bytes | None], ...] = (("a", b"1"), ("b", None), ("a", b""), ("ü", b"\xff" * 70))


@pytest.fixture(params=[RestoreReader.COLUMNAR, RestoreReader.CONSUMER])
def reader(request: pytest.FixtureRequest) -> RestoreReader:
    made: RestoreReader = request.param
    return made


@pytest.fixture
def changelog(broker: Broker, topic_name: str) -> TopicPartition:
    topics.create(broker.bootstrap_servers, topic_name, 1, DELETABLE)
    return TopicPartition(topic_name, 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with RocksDBStore(tmp_path / "db", StoreKind.KEY_VALUE, create=True) as made:
        yield made


def records(count: int, *, first: int = 0, keys: int = 1000) -> list[Record]:
    return [Record(b"k%d" % (n % keys), b"v%d" % n, 0, 1_700_000_000_000 + n) for n in range(first, first + count)]


def last_writes(*written: list[Record]) -> dict[bytes, bytes]:
    rows = {record.key: record.value for some in written for record in some}
    return {key: value for key, value in rows.items() if key is not None and value is not None}


def test_rows_are_those_of_committed_records_for_every_kind_and_both_readers(
    broker: Broker, cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Overwritten keys, deletes, null keys, headers, aborted transactions, gaps of compaction, markers at the end."""
    servers = broker.bootstrap_servers
    topics.create(servers, topic_name, 1, topics.COMPACTED)
    changelog = TopicPartition(topic_name, 0)
    written = [Record(b"k%d" % (n % 7), b"v%d" % n, 0, 1_000 + n, HEADERS if n % 3 == 0 else ()) for n in range(40)]
    topics.produce(servers, topic_name, written)
    topics.produce_aborted(servers, topic_name, [Record(b"k1", b"never", 0, 5_000)] * 3)
    topics.compact(servers, topic_name, 0, broker.data_directory, Record(b"filler", b"f"))
    deletes = [Record(b"k2", None, 0, 6_000), Record(b"k3", b"", 0, 6_001, HEADERS)]
    topics.produce_committed(servers, topic_name, deletes)
    topics.produce_aborted(servers, topic_name, [Record(b"k5", b"never", 0, 7_000), Record(b"k6", None, 0, 7_000)])
    end = topics.end_offset(servers, topic_name, 0)
    for kind in KINDS:
        restored: dict[RestoreReader, tuple[Restored, dict[bytes, bytes]]] = {}
        for reader in (RestoreReader.COLUMNAR, RestoreReader.CONSUMER):
            path = tmp_path / f"{kind}-{reader}"
            with RocksDBStore(path, kind, create=True) as store:
                done = restore(store, changelog, cluster, RestoreSettings(reader=reader))
                restored[reader] = (done, dict(store.all()))
                assert store.committed_offset(changelog) == end - 1 == done.end - 1
                assert restore(store, changelog, servers, RestoreSettings(reader=reader)).records == 0
        assert restored[RestoreReader.COLUMNAR] == restored[RestoreReader.CONSUMER]
        rows = restored[RestoreReader.CONSUMER][1]
        assert sorted(rows) == [b"filler", b"k0", b"k1", b"k3", b"k4", b"k5", b"k6"]
        assert rows[b"k1"].endswith(b"v36")
        stamp = (6_001).to_bytes(8, "big")
        assert rows[b"k3"].endswith(b"" if kind is StoreKind.KEY_VALUE else stamp)
        assert rows[b"k4"] == {
            StoreKind.KEY_VALUE: b"v39",
            StoreKind.TIMESTAMPED_KEY_VALUE: (1_039).to_bytes(8, "big") + b"v39",
        }.get(kind, rows[b"k4"])
        if kind is StoreKind.HEADERS_KEY_VALUE:
            assert rows[b"k3"][2:4] == b"\x08\x02"  # four headers, a key of one byte
            assert rows[b"k0"][:1] == b"\0"


def test_null_keys_are_passed_over(
    broker: Broker, cluster: Cluster, topic_name: str, reader: RestoreReader, store: StateStore
) -> None:
    topics.create(broker.bootstrap_servers, topic_name)
    topics.produce(broker.bootstrap_servers, topic_name, [Record(None, b"1"), Record(b"a", b"2"), Record(None, None)])
    done = restore(store, TopicPartition(topic_name, 0), cluster, RestoreSettings(reader=reader))
    assert (done.records, done.start, done.end, dict(store.all())) == (1, 0, 3, {b"a": b"2"})


def test_it_reads_from_the_offset_of_the_store_to_the_last_committed_record(
    broker: Broker, cluster: Cluster, changelog: TopicPartition, reader: RestoreReader, store: StateStore
) -> None:
    servers, settings = broker.bootstrap_servers, RestoreSettings(reader=reader, transaction_wait=0.3)
    assert restore(store, changelog, cluster, settings).end == 0
    assert store.committed_offset(changelog) is None
    topics.produce(servers, changelog.topic, records(1500), compression_type="gzip")
    assert restore(store, changelog, cluster, settings).records == 1500
    topics.produce_committed(servers, changelog.topic, records(5, first=1500))
    done = restore(store, changelog, cluster, settings)
    assert (done.records, done.start, done.end) == (5, 1500, 1506)
    assert dict(store.all()) == last_writes(records(1505))
    with topics.transaction(servers, changelog.topic, [Record(b"k1", b"open")]):
        with raises(Retryable, "log-transaction-open"):
            restore(store, changelog, cluster, settings)
        uncommitted = RestoreSettings(reader=reader, isolation=IsolationLevel.READ_UNCOMMITTED)
        assert store.get(b"k1") == b"v1001"
        assert restore(store, changelog, cluster, uncommitted).records == 1
        assert store.get(b"k1") == b"open"


def test_memory_is_bounded_by_commits_and_what_was_committed_stays(
    broker: Broker, cluster: Cluster, changelog: TopicPartition, reader: RestoreReader, tmp_path: Path
) -> None:
    written = [Record(b"%05d" % n, bytes(1000), 0) for n in range(20_000)]
    topics.produce(broker.bootstrap_servers, changelog.topic, written)
    committed: list[int] = []

    class Counting(RocksDBStore):
        def commit(self, offsets: dict[TopicPartition, int | None]) -> None:  # type: ignore[override]
            assert self.uncommitted_bytes < 14_000_000
            committed.append(offsets[changelog] or 0)
            if len(committed) == 2 and offsets[changelog] != 19_999:
                raise KeyboardInterrupt
            super().commit(offsets)

    bounded = StoreSettings(uncommitted_max_bytes=1_000_000)
    with Counting(tmp_path / "db", StoreKind.KEY_VALUE, create=True, settings=bounded) as store:
        with pytest.raises(KeyboardInterrupt):
            restore(store, changelog, cluster, RestoreSettings(reader=reader))
        assert store.committed_offset(changelog) == committed[0]
        assert len(list(store.all())) == committed[0] + 1
        done = restore(store, changelog, cluster, RestoreSettings(reader=reader))
        assert (done.start, done.records) == (committed[0] + 1, 20_000 - committed[0] - 1)
        assert len(list(store.all())) == 20_000


def test_a_store_that_cannot_be_caught_up_is_refused_or_wiped(
    broker: Broker, cluster: Cluster, changelog: TopicPartition, reader: RestoreReader, store: StateStore
) -> None:
    servers = broker.bootstrap_servers
    settings, wiping = RestoreSettings(reader=reader), RestoreSettings(reader=reader, on_stale=OnStale.WIPE)
    topics.produce(servers, changelog.topic, records(100, keys=50))
    first = restore(store, changelog, cluster, settings)

    def refused(reason: str) -> None:
        rows, offset = dict(store.all()), store.committed_offset(changelog)
        with raises(Invalid, "store-stale", reason=reason):
            restore(store, changelog, cluster, settings)
        assert (dict(store.all()), store.committed_offset(changelog), store.uncommitted_bytes) == (rows, offset, 0)

    # The log's start has passed the offset.
    topics.produce(servers, changelog.topic, records(10, first=100, keys=1000))
    topics.delete_records(servers, changelog.topic, 0, 100)
    assert restore(store, changelog, cluster, settings).records == 10
    store.commit({changelog: 98})
    refused("records-deleted")
    done = restore(store, changelog, cluster, wiping)
    assert done.wiped is not None
    assert (done.start, done.records, dict(store.all())) == (100, 10, last_writes(records(10, first=100)))

    # Rows of which nobody knows where they stand.
    store.commit({changelog: None})
    refused("offset-missing")
    store.commit({changelog: -4})
    refused("offset-missing")
    assert restore(store, changelog, cluster, wiping).records == 10

    # All that there was is deleted.
    topics.delete_records(servers, changelog.topic, 0, 110)
    done = restore(store, changelog, cluster, settings)
    assert (done.records, done.start, done.end) == (0, 110, 110)

    # The topic was created again: empty, and, where the caller knows its id, whatever it has grown to.
    topics.delete(servers, changelog.topic)
    topics.create(servers, changelog.topic, 1, DELETABLE)
    refused("log-ends-before-store")
    topics.produce(servers, changelog.topic, records(200, keys=20))
    with raises(Invalid, "topic-recreated", expected=first.topic_id):
        restore(store, changelog, cluster, settings, topic_id=first.topic_id)
    assert store.committed_offset(changelog) == 109
    store.commit({changelog: 400})
    done = restore(store, changelog, cluster, wiping)
    assert (done.records, dict(store.all())) == (200, last_writes(records(200, keys=20)))
    assert done.topic_id != first.topic_id


@pytest.mark.parametrize(
    "record", [Record(b"short", b"1", 0, 1_000), Record(bytes(9) + b"k", b"\2" + bytes(4), 0, 1_000)]
)
def test_a_changelog_of_another_kind_is_refused_by_its_first_record(
    broker: Broker, cluster: Cluster, changelog: TopicPartition, reader: RestoreReader, tmp_path: Path, record: Record
) -> None:
    whole = Record(bytes(9) + b"k", b"\1" + bytes(4), 0, 1_000)
    topics.produce(broker.bootstrap_servers, changelog.topic, [whole, record])
    with RocksDBStore(tmp_path / "list", StoreKind.LIST, create=True) as store:
        with raises(Invalid, "record-kind-mismatch", offset=1):
            restore(store, changelog, cluster, RestoreSettings(reader=reader))
        assert (store.uncommitted_bytes, store.committed_offset(changelog)) == (0, None)
        topics.delete_records(broker.bootstrap_servers, changelog.topic, 0, 2)
        topics.produce(broker.bootstrap_servers, changelog.topic, [whole])
        restore(store, changelog, cluster, RestoreSettings(reader=reader))
        assert dict(store.all()) == {whole.key: whole.value}


@pytest.mark.parametrize("transactional", [False, True])
def test_what_a_store_has_sent_is_what_another_is_restored_from(
    broker: Broker, cluster: Cluster, changelog: TopicPartition, tmp_path: Path, transactional: bool
) -> None:
    """Timestamps and headers of rows are the records' own; a store that was not committed is behind, never ahead."""
    kind, servers = StoreKind.HEADERS_KEY_VALUE, broker.bootstrap_servers
    settings = {"transactional_id": changelog.topic} if transactional else {}
    producer = KafkaProducer(bootstrap_servers=servers, **settings)
    inside = RocksDBStore(tmp_path / "first", kind, create_if_missing=True)
    logged = ChangeLoggingStore(inside, producer, changelog, transactional=transactional)
    if transactional:
        producer.init_transactions()
    with logged:
        for number in range(30):
            if transactional and number % 10 == 0:
                producer.begin_transaction()
            headers = [("n", b"%d" % number), ("n", b"")] if number % 2 else []
            logged.put(b"k%d" % (number % 7), encode_value(kind, b"v%d" % number, 1_000 + number, headers))
            if number == 28:
                logged.delete(b"k2")
            if number % 10 != 9:
                continue
            if transactional and number == 19:
                producer.abort_transaction()
                logged.abort()
                continue
            if transactional:
                producer.commit_transaction()
            if number < 29:
                logged.commit()
        committed = logged.committed_offset(changelog)
        assert committed == (9 if transactional else 19)
        producer.flush()
        rows = dict(logged.all())
    producer.close()
    topics.wait_until_stable(servers, [changelog.topic])  # the brokers answer a commit before its markers are written
    assert sorted(rows) == [b"k%d" % number for number in range(7) if number != 2]
    written = topics.read(servers, changelog.topic, 0)
    assert {(one.timestamp, one.value) for one in written if one.value} >= {(1_029, b"v29"), (1_027, b"v27")}
    with inside:
        assert inside.committed_offset(changelog) == committed
        assert restore(inside, changelog, cluster).start == committed + 1
        assert dict(inside.all()) == rows
    for reader in (RestoreReader.COLUMNAR, RestoreReader.CONSUMER):
        with RocksDBStore(tmp_path / reader, kind, create=True) as store:
            restore(store, changelog, cluster, RestoreSettings(reader=reader))
            assert dict(store.all()) == rows


def test_the_ten_lines_of_the_documentation(broker: Broker, changelog: TopicPartition, tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(from kafka import .*?)```", LIBRARY.read_text(), re.DOTALL)
    given = {"servers": broker.bootstrap_servers, "path": tmp_path / "db", "changelog": changelog}
    for number in range(2):
        exec(code, {**given, "processed": [(b"a", b"%d" % number), (b"b", b"2")]})
    with RocksDBStore(tmp_path / "db", StoreKind.KEY_VALUE, read_only=True) as store:
        assert dict(store.all()) == {b"a": b"1", b"b": b"2"}
        assert store.committed_offset(changelog) == topics.end_offset(broker.bootstrap_servers, *changelog) - 2


def test_without_the_extra_the_consumer_reads(
    broker: Broker, changelog: TopicPartition, tmp_path: Path, reader: RestoreReader
) -> None:
    """As in an environment where neither Arrow nor NumPy nor Numba is installed."""
    topics.produce(broker.bootstrap_servers, changelog.topic, records(100), compression_type="gzip")
    code = f"""
import sys
from pathlib import Path
for name in ("pyarrow", "numpy", "numba", "llvmlite", "cramjam"):
    sys.modules[name] = None
from statecore import RestoreReader, RestoreSettings, RocksDBStore, StoreKind, TopicPartition, restore
changelog = TopicPartition({changelog.topic!r}, 0)
chosen = RestoreReader.AUTO if {reader is RestoreReader.CONSUMER} else RestoreReader.COLUMNAR
with RocksDBStore(Path({str(tmp_path / "db")!r}), StoreKind.TIMESTAMPED_KEY_VALUE, create=True) as store:
    print(restore(store, changelog, {broker.bootstrap_servers!r}, RestoreSettings(reader=chosen)).records)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    if reader is RestoreReader.CONSUMER:
        assert (done.returncode, done.stdout) == (0, "100\n"), done.stderr
    else:
        assert "pip install '.[pipeline]'" in done.stderr


def test_records_that_are_deleted_while_they_are_about_to_be_read_are_missed_by_no_reader(
    broker: Broker, cluster: Cluster, changelog: TopicPartition
) -> None:
    """What was read before them may be stale, so it is not for this restore to go on."""
    topics.produce(broker.bootstrap_servers, changelog.topic, records(100))
    topics.delete_records(broker.bootstrap_servers, changelog.topic, 0, 50)
    for read_rows in (columnar_records.read_rows, consumer_records.read_rows):
        rows = read_rows(
            cluster,
            OffsetRange(*changelog, 20, 100),
            StoreKind.KEY_VALUE,
            IsolationLevel.READ_COMMITTED,
            topic_id=None,
            stall_timeout=10,
        )
        with pytest.raises(Retryable, match="begins at 50 now"):
            next(rows)


def test_the_consumer_says_when_nothing_comes_and_what_it_cannot_decompress(
    broker: Broker, cluster: Cluster, changelog: TopicPartition, monkeypatch: pytest.MonkeyPatch, store: StateStore
) -> None:
    topics.produce(broker.bootstrap_servers, changelog.topic, records(10))
    stalled = consumer_records.read_rows(
        cluster,
        OffsetRange(*changelog, 0, 11),
        StoreKind.KEY_VALUE,
        IsolationLevel.READ_COMMITTED,
        topic_id=None,
        stall_timeout=1,
    )
    with raises(Retryable, "fetch-stalled"):
        list(stalled)
    topics.produce(broker.bootstrap_servers, changelog.topic, records(500), compression_type="lz4")
    monkeypatch.setattr("kafka.codec.has_lz4", lambda: False)
    with raises(Invalid, "codec-missing"):
        restore(store, changelog, cluster, RestoreSettings(reader=RestoreReader.CONSUMER))
    assert store.uncommitted_bytes == 0


def test_topics_and_partitions_that_do_not_exist(
    broker: Broker, cluster: Cluster, changelog: TopicPartition, store: StateStore
) -> None:
    with pytest.raises(NotFound, match="no-such-topic"):
        restore(store, TopicPartition("no-such-topic", 0), cluster)
    with pytest.raises(NotFound, match="no partition 1"):
        restore(store, TopicPartition(changelog.topic, 1), cluster)
