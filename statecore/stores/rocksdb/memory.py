"""Block cache and limit of write buffers that the stores of a process share.

Equal :class:`MemorySettings` are the key: the first store that is opened makes cache and limit, the others get the same
ones, and they live as long as the process, because nobody can tell whether a store comes later. (RocksDB counts who
uses them, so nothing goes while a database is open.)

rocksdict 0.3.29 makes LRU caches without a strict limit, and its ``WriteBufferManager`` can charge write buffers to a
cache. (Kafka Streams' ``new LRUCache(total, -1, false, ratio)``, ``new WriteBufferManager(bytes, cache)``.) Such a
manager only ever flushes the database that is written to: stores that rest would keep what they have, and those at work
would flush at every commit. So a commit that finds too much flushes the store that has most, whichever it is.
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any, Protocol

from statecore.errors import StatecoreError
from statecore.stores.settings import MemorySettings

_FLUSHED_FROM = 0.75
"""Share of the limit; from 7/8 on RocksDB flushes whoever writes."""

_log = logging.getLogger(__name__)


class Member(Protocol):
    """A store, seen by those that share memory with it; called by any thread."""

    def memtable_bytes(self) -> int:
        """What a flush would free, in bytes; 0 when the store is busy or closed."""

    def flush_memtables(self) -> None:
        """Write what is in memory to files, unless the store is busy or closed."""


class SharedMemory:
    """A cache, a limit, and who shares them.

    Args:
        settings: how much.

    Attributes:
        cache: ``rocksdict.Cache``.
        write_buffers: ``rocksdict.WriteBufferManager``, charged to the cache.
    """

    def __init__(self, settings: MemorySettings) -> None:
        from rocksdict import Cache, WriteBufferManager

        self.cache: Any = Cache(settings.total_bytes)
        # It never stalls a write: rocksdict holds the GIL while it writes, and a stall would stop every thread.
        self.write_buffers: Any = WriteBufferManager.new_write_buffer_manager_with_cache(
            settings.write_buffer_bytes, False, self.cache
        )
        self._flushed_from = int(settings.write_buffer_bytes * _FLUSHED_FROM)
        self._members: weakref.WeakSet[Any] = weakref.WeakSet()
        self._changing = threading.Lock()

    def join(self, store: Member) -> None:
        """To be called when a store is opened."""
        with self._changing:
            self._members.add(store)

    def make_room(self, store: Member) -> None:
        """To be called before a commit of a store: one flush at most, and most times only a look at a number.

        Raises:
            StatecoreError: this very store could not be flushed. What another says is logged; its next commit fails.
        """
        if self.write_buffers.get_usage() <= self._flushed_from:
            return
        with self._changing:
            members = list(self._members)
        bytes_of = {member: member.memtable_bytes() for member in members}
        largest = max(bytes_of, key=bytes_of.__getitem__, default=store)
        # Less than half of an even share, and who has the memory is busy, or is just giving it back after a flush.
        if bytes_of.get(largest, 0) * 2 * len(members) < self._flushed_from:
            return  # The next commit asks again.
        try:
            largest.flush_memtables()
        except StatecoreError as error:
            if largest is store:
                raise
            _log.warning("A store that was to make room for others could not be flushed: %s", error)


_lock = threading.Lock()
_shared: dict[MemorySettings, SharedMemory] = {}


def memory_of(settings: MemorySettings) -> SharedMemory:
    """The cache and limit of all stores of this process that have these settings; fresh ones if they are not shared."""
    if not settings.shared:
        return SharedMemory(settings)
    with _lock:
        if settings not in _shared:
            _shared[settings] = SharedMemory(settings)
        return _shared[settings]
