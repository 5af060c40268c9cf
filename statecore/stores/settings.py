"""Settings of stores: durability, memory, RocksDB options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from statecore.choices import enum_value
from statecore.errors import Invalid

UNCOMMITTED_MAX_BYTES = 64 << 20  # Default of statestore.uncommitted.max.bytes, that of KIP-892
NO_LIMIT = -1

RocksDBConfigSetter = Callable[[str, Any], None]
"""Called with a store's name and its RocksDB options; see :mod:`statecore.stores.rocksdb.config_setter`."""


class Durability(StrEnum):
    """What a returned commit survives; after a crash data and offsets agree either way."""

    SYNC = "sync"
    """Power loss: the log is synced."""

    PROCESS = "process"
    """The death of the process, also by SIGKILL: the log is with the kernel. After a power loss the store is consistent
    at an earlier commit.
    """


@dataclass(frozen=True)
class MemorySettings:
    """RocksDB memory shared by the stores of a process: stores with equal ``MemorySettings`` share one cache.

    So all stores with default settings share one cache and one limit, as ``BoundedMemoryRocksDBConfig`` in Kafka
    Streams' documentation (memory management) does with static fields. An open store takes some hundred KiB on top,
    which is not shared.

    Attributes:
        total_bytes: size of the block cache: blocks of rows, indexes, filters, and the write buffers, which count
            towards it. It fills as rows are read. Blocks pinned by iterators or reads may exceed it.
        write_buffer_bytes: memory of committed rows that are not in a file yet, of all these stores together. When it
            runs short, a commit first flushes the store with the most, even another one.
        shared: false gives each opening of a store its own cache and limit. A cache identifies blocks by ids in their
            files, and so takes a copied file's blocks for the original's: only a reader with its own cache is sure to
            see what is on disk now.
    """

    total_bytes: int = 512 << 20
    write_buffer_bytes: int = 256 << 20
    shared: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.write_buffer_bytes <= self.total_bytes:
            raise Invalid(
                f"Write buffers of {self.write_buffer_bytes:,} bytes do not fit into {self.total_bytes:,} bytes.",
                code="setting-invalid",
                action="Give a positive number of bytes, and a total that is at least as large.",
                setting="write_buffer_bytes",
            )


@dataclass(frozen=True)
class StoreSettings:
    """Settings of one store.

    Attributes:
        durability: what a returned commit survives.
        uncommitted_max_bytes: memory of staged writes, in bytes, from which on the store requests a commit
            (``statestore.uncommitted.max.bytes``); -1 for no limit.
        automatic_compaction: let RocksDB compact in the background, as Kafka Streams does. Without it every flush adds
            a file, reads slow down and descriptors run out, until :meth:`RocksDBStore.compact` is called: only for a
            database whose files and modes must not change, because they may be linked elsewhere (``KEEP_FILES``).
        memory: block cache and write buffers, shared with all stores of the process whose ``memory`` is equal.
        guards_manifest: record beside the database that this library wrote to it last
            (:mod:`statecore.stores.rocksdb.manifest_guard`), for the next opening after a kill. False only for a
            database under construction, which is discarded after a kill.
        rocksdb_config_setter: changes the RocksDB options of a store after statecore's own were set and before it is
            opened (Kafka Streams' ``rocksdb.config.setter``); see :mod:`statecore.stores.rocksdb.config_setter`.
    """

    durability: Durability = Durability.SYNC
    uncommitted_max_bytes: int = UNCOMMITTED_MAX_BYTES
    automatic_compaction: bool = True
    memory: MemorySettings = MemorySettings()
    guards_manifest: bool = True
    rocksdb_config_setter: RocksDBConfigSetter | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "durability", enum_value(Durability, self.durability, "durability"))
        if self.uncommitted_max_bytes < NO_LIMIT:
            raise Invalid(
                f"statestore.uncommitted.max.bytes cannot be {self.uncommitted_max_bytes}.",
                code="setting-invalid",
                action="Give a number of bytes, or -1 for no limit.",
                setting="statestore.uncommitted.max.bytes",
            )


KEEP_FILES = StoreSettings(automatic_compaction=False, memory=MemorySettings(32 << 20, 16 << 20, shared=False))
"""For code that builds, checks or advances a database rather than serving from it: no file is rewritten unless asked,
every block is read from disk, and memory is small, because it adds to a job's own budget.
"""
