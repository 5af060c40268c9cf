"""Block cache and write buffer limit shared by the stores of a process.

Stores with equal :class:`MemorySettings` share them. They live as long as the process, because another store may be
opened later. (RocksDB counts references, so nothing is freed while a database is open.)

rocksdict 0.3.29 makes LRU caches without a strict limit, and its ``WriteBufferManager`` can charge write buffers to a
cache. (Kafka Streams: ``new LRUCache(total, -1, false, ratio)``, ``new WriteBufferManager(bytes, cache)``.) Such a
manager only flushes the database that is written to: idle stores would keep their memtables, and busy ones would flush
at every commit. So a commit that finds too much memory in use flushes the store with the largest memtables.
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any, Protocol

from statecore.errors import StatecoreError
from statecore.stores.settings import MemorySettings

_FLUSHED_FROM = 0.75  # Fraction of the limit; from 7/8 on RocksDB flushes the store that writes
_log = logging.getLogger(__name__)


class Member(Protocol):
    """A store that shares memory; called from any thread."""

    def memtable_bytes(self) -> int:
        """Bytes that a flush would free; 0 if the store is busy or closed."""

    def flush_memtables(self) -> None:
        """Flush memtables to files, unless the store is busy or closed."""


class SharedMemory:
    """A block cache, a write buffer limit, and the stores that share them."""

    def __init__(self, settings: MemorySettings) -> None:
        from rocksdict import Cache, WriteBufferManager

        self.cache: Any = Cache(settings.total_bytes)  # rocksdict.Cache
        # No write stalls: rocksdict holds the GIL while it writes, and a stall would stop every thread.
        # rocksdict.WriteBufferManager, charged to the cache
        self.write_buffers: Any = WriteBufferManager.new_write_buffer_manager_with_cache(
            settings.write_buffer_bytes, False, self.cache
        )
        self._flushed_from = int(settings.write_buffer_bytes * _FLUSHED_FROM)
        self._members: weakref.WeakSet[Any] = weakref.WeakSet()
        self._changing = threading.Lock()

    def join(self, store: Member) -> None:
        """Add a store; call it when the store is opened."""
        with self._changing:
            self._members.add(store)

    def make_room(self, store: Member) -> None:
        """Flush at most one store if too much memory is in use; call it before each commit."""
        if self.write_buffers.get_usage() <= self._flushed_from:
            return
        with self._changing:
            members = list(self._members)
        bytes_of = {member: member.memtable_bytes() for member in members}
        largest = max(bytes_of, key=bytes_of.__getitem__, default=store)
        # Less than half of an even share: the store with the memory is busy, or is freeing it after a flush.
        if bytes_of.get(largest, 0) * 2 * len(members) < self._flushed_from:
            return  # The next commit asks again.
        try:
            largest.flush_memtables()
        except StatecoreError as error:
            if largest is store:
                raise
            _log.warning("A store could not be flushed to free shared memory: %s", error)


_lock = threading.Lock()
_shared: dict[MemorySettings, SharedMemory] = {}


def memory_of(settings: MemorySettings) -> SharedMemory:
    """The cache and limit of all stores of this process with these settings; new ones if they are not shared."""
    if not settings.shared:
        return SharedMemory(settings)
    with _lock:
        if settings not in _shared:
            _shared[settings] = SharedMemory(settings)
        return _shared[settings]
