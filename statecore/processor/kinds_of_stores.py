"""Which kind of rows a store has."""

from __future__ import annotations

from statecore.formats.kinds import StoreKind
from statecore.stores.base import StateStore
from statecore.stores.rocksdb import RocksDBStore
from statecore.stores.wrapped import WrappedStore


def kind_of(store: StateStore) -> StoreKind:
    """That of the RocksDB store inside any wrappers; other stores keep what they are given: ``key-value``."""
    while isinstance(store, WrappedStore):
        store = store.wrapped
    return store.kind if isinstance(store, RocksDBStore) else StoreKind.KEY_VALUE
