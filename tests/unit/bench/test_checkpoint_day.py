"""What the simulated day counts in a state directory."""

from __future__ import annotations

from pathlib import Path

from bench.checkpoint_day import data_files
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb.store import RocksDBStore


def test_data_files_are_those_of_rows(tmp_path: Path) -> None:
    changelog = TopicPartition("changelog", 0)
    with RocksDBStore(tmp_path / "app" / "0_0" / "rocksdb" / "store", StoreKind.KEY_VALUE, create=True) as store:
        store.put(b"key", b"value" * 1000)
        store.commit({changelog: 1})
        store.flush()
    found = data_files(tmp_path)
    assert len(found) == 1
    ((name, size),) = found.items()
    assert (tmp_path / name).stat().st_size == size
    assert len(list(tmp_path.rglob("*.sst"))) > 1
