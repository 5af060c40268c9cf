"""What a user decides about a store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from statecore.choices import chosen
from statecore.errors import Invalid

UNCOMMITTED_MAX_BYTES = 64 << 20
"""Default of ``statestore.uncommitted.max.bytes``, that of KIP-892."""

NO_LIMIT = -1

RocksDBConfigSetter = Callable[[str, Any], None]
"""Called with a store's name and its RocksDB options; see :mod:`statecore.stores.rocksdb.config_setter`."""


class Durability(StrEnum):
    """What a commit has survived when it returns; after a crash data and offsets agree either way."""

    SYNC = "sync"
    """The loss of power: the log is forced to the disk."""

    PROCESS = "process"
    """The death of the process, SIGKILL too: the log is with the kernel. After a loss of power the store stands at an
    earlier commit, whole."""


@dataclass(frozen=True)
class MemorySettings:
    """Memory of RocksDB that stores of one process share: those whose ``MemorySettings`` are equal share one cache.

    So all stores with default settings share one cache and one limit, as many as there are. It is what
    ``BoundedMemoryRocksDBConfig`` of Kafka Streams' documentation (memory management) does with static fields. An open
    store takes some hundred KiB on top, which is nobody's to share.

    Attributes:
        total_bytes: size of the block cache, in bytes: blocks of rows, indexes, filters, and the write buffers, which
            are counted in. It is filled as rows are read. What an iterator or a read holds at the moment stays even
            beyond it.
        write_buffer_bytes: memory of committed rows that are not in a file yet, in bytes, of all these stores together.
            When it runs short, a commit first flushes the store that has most of them, be it another one.
        shared: false gives each opening of a store a cache and a limit of its own. A cache knows a block by what its
            file says it is, and so takes a copy's for the original's: only a reader with its own cache sees for certain
            what is on the disk now.
    """

    total_bytes: int = 512 << 20
    write_buffer_bytes: int = 256 << 20
    shared: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.write_buffer_bytes <= self.total_bytes:
            raise Invalid(
                f"Write buffers of {self.write_buffer_bytes} bytes do not fit into {self.total_bytes} bytes.",
                code="setting-invalid",
                action="Give a positive number of bytes, and a total that is at least as large.",
                setting="write_buffer_bytes",
            )


@dataclass(frozen=True)
class StoreSettings:
    """Settings of one store.

    Attributes:
        durability: what a commit has survived when it returns.
        uncommitted_max_bytes: memory of staged writes, in bytes, from which on the store asks for a commit
            (``statestore.uncommitted.max.bytes``); -1 for no limit.
        automatic_compaction: let RocksDB merge files in the background, as Kafka Streams does. Without it every flush
            leaves a file more, reads slow down and files run out, until :meth:`RocksDBStore.compact` is called: only
            for a database whose files must stay as they are, modes too: they may be linked elsewhere (``KEEP_FILES``).
        memory: block cache and write buffers, shared with all stores of the process whose ``memory`` is equal.
        witnessed: write down beside the database who wrote to it last (:mod:`statecore.stores.rocksdb.manifest_guard`),
            so that who opens it after a kill knows what it is. False only for a database in the making, which nobody
            opens when its maker was killed.
        rocksdb_config_setter: changes the RocksDB options of a store after statecore's own were set and before it is
            opened (Kafka Streams' ``rocksdb.config.setter``); see :mod:`statecore.stores.rocksdb.config_setter`.
    """

    durability: Durability = Durability.SYNC
    uncommitted_max_bytes: int = UNCOMMITTED_MAX_BYTES
    automatic_compaction: bool = True
    memory: MemorySettings = MemorySettings()
    witnessed: bool = True
    rocksdb_config_setter: RocksDBConfigSetter | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "durability", chosen(Durability, self.durability, "durability"))
        if self.uncommitted_max_bytes < NO_LIMIT:
            raise Invalid(
                f"statestore.uncommitted.max.bytes cannot be {self.uncommitted_max_bytes}.",
                code="setting-invalid",
                action="Give a number of bytes, or -1 for no limit.",
                setting="statestore.uncommitted.max.bytes",
            )


KEEP_FILES = StoreSettings(automatic_compaction=False, memory=MemorySettings(32 << 20, 16 << 20, shared=False))
"""For code that opens a database to build, check or advance it, and not to work with it: no file is rewritten unless
asked, every block comes from the disk, and memory is small, because it comes on top of a job's own budget."""
