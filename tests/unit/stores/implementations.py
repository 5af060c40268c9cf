"""The stores of this library, for tests that every one of them must pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from statecore.formats.kinds import StoreKind
from statecore.stores.base import StateStore
from statecore.stores.in_memory import InMemoryStore
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import Durability, StoreSettings

Factory = Callable[[Path, StoreSettings], StateStore]


def rocksdb(directory: Path, settings: StoreSettings) -> StateStore:
    path = directory / "db"
    return RocksDBStore(path, StoreKind.TIMESTAMPED_KEY_VALUE, create=not path.exists(), settings=settings)


def in_memory(_: Path, settings: StoreSettings) -> StateStore:
    return InMemoryStore(settings=settings)


IMPLEMENTATIONS: dict[str, Factory] = {"rocksdb": rocksdb, "in-memory": in_memory}

QUICK = StoreSettings(durability=Durability.PROCESS)
