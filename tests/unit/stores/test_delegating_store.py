"""A wrapper that overrides nothing behaves as the store it wraps."""

from __future__ import annotations

from pathlib import Path

from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.delegating_store import DelegatingStore
from statecore.stores.rocksdb.store import RocksDBStore

CHANGELOG = TopicPartition("app-s-changelog", 0)


def test_rows_and_offsets_are_committed_through_a_wrapper(tmp_path: Path) -> None:
    with DelegatingStore(RocksDBStore(tmp_path / "db", StoreKind.KEY_VALUE, create=True)) as store:
        store.put(b"key", b"value")
        assert store.uncommitted_bytes > 0
        store.commit({CHANGELOG: 7})
        assert (store.uncommitted_bytes, store.committed_offset(CHANGELOG)) == (0, 7)
    with RocksDBStore(tmp_path / "db", StoreKind.KEY_VALUE, read_only=True) as read:
        assert (list(read.all()), read.committed_offset(CHANGELOG)) == ([(b"key", b"value")], 7)
