"""The RocksDB that Kafka Streams 4.3.1 brings reads what is written here, and compacts it, without a complaint."""

from pathlib import Path
from typing import Any

import pytest

from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images.image import build_image
from statecore.images.model import BaseDatabases
from tests.harness.case_selection import one_of
from tests.harness.streams import StreamsJvm
from tests.unit.images.changelog import CuttingRunBuilder, Record, batches, expected_rows

pytestmark = pytest.mark.integration

KIND = StoreKind.TIMESTAMPED_KEY_VALUE
CHANGELOG = TopicPartition("app-store-changelog", 0)
LENGTHS = [*range(220), *range(230, 240), 252, 253, 300, 1019, 1020, 1021, 2000, 5000, 65_000, 1 << 20]
# Keys of every length that takes another way through the filter's hash, values from nothing to several blocks.
RECORDS: list[Record] = [
    (b"%04d" % (n * 37 % 240) + b"k" * LENGTHS[n * 37 % 240], None if n % 11 == 0 else b"%d" % n * (n % 90 * (n % 40)))
    for n in range(480)
]


class JavaStore:
    """The database opened by rocksdbjni with every column family on disk."""

    def __init__(self, jvm: StreamsJvm, path: Path) -> None:
        rocks = jvm.jvm.org.rocksdb
        rocks.RocksDB.loadLibrary()
        table = rocks.BlockBasedTableConfig().setFilterPolicy(rocks.BloomFilter(10.0, False))
        options = rocks.ColumnFamilyOptions().setTableFormatConfig(table)
        descriptors, self.handles = jvm.jvm.java.util.ArrayList(), jvm.jvm.java.util.ArrayList()
        names = [bytes(name) for name in rocks.RocksDB.listColumnFamilies(rocks.Options(), str(path))]
        for name in names:
            descriptors.add(rocks.ColumnFamilyDescriptor(name, options))
        self.db: Any = rocks.RocksDB.open(rocks.DBOptions(), str(path), descriptors, self.handles)
        self.family = {name.decode(): self.handles[at] for at, name in enumerate(names)}

    def rows(self, family: str) -> list[tuple[bytes, bytes]]:
        found = []
        iterator = self.db.newIterator(self.family[family])
        iterator.seekToFirst()
        while iterator.isValid():
            found.append((bytes(iterator.key()), bytes(iterator.value())))
            iterator.next()
        iterator.status()
        iterator.close()
        return found

    def get(self, family: str, key: bytes) -> bytes | None:
        value = self.db.get(self.family[family], key)
        return None if value is None else bytes(value)

    def close(self) -> None:
        for handle in self.handles:
            handle.close()
        self.db.close()


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with StreamsJvm(tmp_path_factory.mktemp("jvm") / "log") as running:
        yield running


@pytest.mark.parametrize("rows_in_a_run", one_of([160, 480]))
def test_kafka_streams_rocksdb_reads_an_image(jvm: StreamsJvm, tmp_path: Path, rows_in_a_run: int) -> None:
    builder = CuttingRunBuilder(KIND, tmp_path, memory_budget=1, base=BaseDatabases.NONE)
    for batch in batches(RECORDS, rows_in_a_run):
        builder.add(batch)
    runs = builder.finish()
    assert len(runs) == 480 // rows_in_a_run
    build_image(tmp_path / "image", KIND, runs, {CHANGELOG: 479})
    expected = sorted(expected_rows(KIND, RECORDS).items())
    store = JavaStore(jvm, tmp_path / "image")
    try:
        store.db.verifyChecksum()
        assert store.rows("keyValueWithTimestamp") == expected
        assert all(store.get("keyValueWithTimestamp", key) == value for key, value in expected)
        assert all(store.get("keyValueWithTimestamp", key + b"absent") is None for key, _ in expected[::10])
        assert store.get("offsets", b"app-store-changelog-0") == (479).to_bytes(8, "big")
        assert store.get("offsets", b"status") == bytes(8)
        store.db.compactRange(store.family["keyValueWithTimestamp"])
        assert store.rows("keyValueWithTimestamp") == expected
    finally:
        store.close()
