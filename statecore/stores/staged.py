"""Staging, views and commit: what is the same for every store that publishes its writes at once.

A store of this library keeps committed rows somewhere (RocksDB, memory, a file) and staged ones in
:class:`~statecore.stores.sorted_rows.SortedRows`. Every read by key order, every query view and every iterator is made
of two snapshots taken in one instant::

    staged rows   as they were     (none under READ_COMMITTED)
        over
    an Instant    committed rows, offsets and position of one commit

so that commits, aborts and writes do not move what is being read: ``commit`` begins new staged rows and leaves the old
ones to the snapshots that still read them.

One lock guards all of it, held for a put, a chunk of rows, and the publishing of a commit (not its preparation). A lock
for readers and one for writers would gain nothing here: rocksdict holds the interpreter's lock in all those calls.
"""

from __future__ import annotations

import threading
import weakref
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from statecore.errors import Invalid
from statecore.formats.offsets import check_offset
from statecore.formats.position import Position, check_position
from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel
from statecore.stores.base import StateStore, commit_requested
from statecore.stores.merge import Cursor, Entry, merged
from statecore.stores.query import QueryView
from statecore.stores.rows import Row, check_key
from statecore.stores.settings import StoreSettings
from statecore.stores.sorted_rows import RowsSnapshot, SortedRows


class _Unstaged:
    """The type of the mark of a key that nobody has staged."""


_UNSTAGED: Final = _Unstaged()


class Instant(Protocol):
    """Committed rows, offsets and position as one commit left them."""

    def get(self, key: bytes) -> bytes | None:
        """The committed row of a key."""

    def cursor(self, lower: bytes | None, upper: bytes | None, *, reverse: bool) -> Cursor:
        """A cursor over the committed rows with ``lower <= key < upper``."""

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The committed offset of a partition."""

    def position(self) -> Position:
        """The committed position, as a copy."""

    def close(self) -> None:
        """Let go of everything, cursors too."""


@dataclass(frozen=True)
class Pending:
    """What a commit is to publish.

    Attributes:
        staged: the rows.
        offsets: the offsets, as given to :meth:`StateStore.commit`; none: forget all of them, and the position.
        position: the position; empty without offsets.
    """

    staged: SortedRows
    offsets: Mapping[TopicPartition, int | None]
    position: Position


class StagedStore(StateStore):
    """A store that stages writes in memory; subclasses keep the committed rows.

    Args:
        name: what messages call it: its path, or its name.
        settings: durability and limit of staged bytes.
    """

    def __init__(self, name: str, settings: StoreSettings) -> None:
        self._name = name
        self._settings = settings
        self._lock = threading.RLock()
        self._staged = SortedRows()
        self._position: Position = {}
        self._committed_position: Position = {}
        self._views: weakref.WeakSet[_View] = weakref.WeakSet()

    @abstractmethod
    def _read(self, key: bytes) -> bytes | None:
        """The committed row of a key; the store is open."""

    def _read_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The committed rows of many keys; the store is open."""
        return [self._read(key) for key in keys]

    @abstractmethod
    def _instant(self) -> Instant:
        """The committed rows of this moment; the store is open and nobody commits meanwhile."""

    @abstractmethod
    def _prepare(self, pending: Pending) -> Any:
        """What :meth:`_publish` needs; readers go on meanwhile. Changes nothing that anybody can see."""

    @abstractmethod
    def _publish(self, prepared: Any) -> None:
        """Make the commit, all or nothing; nobody reads meanwhile."""

    def _check_open(self) -> None:
        if not self.is_open:
            raise Invalid(f"The store at {self._name} is not open.", action="Open it first.", store_path=self._name)

    def _check_writable(self) -> None:
        self._check_open()

    def get(self, key: bytes) -> bytes | None:
        """The row of a key, or ``None``; writes that are not committed yet are seen."""
        self._check_open()
        check_key(key)
        staged = self._staged.get(key, _UNSTAGED)
        return self._read(key) if isinstance(staged, _Unstaged) else staged

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The rows of many keys; writes that are not committed yet are seen."""
        self._check_open()
        for key in keys:
            check_key(key)
        if not len(self._staged):
            return self._read_many(keys)
        found: list[bytes | None] = []
        missing: list[int] = []
        for at, key in enumerate(keys):
            value = self._staged.get(key, _UNSTAGED)
            if isinstance(value, _Unstaged):
                missing.append(at)
                value = None
            found.append(value)
        for at, value in zip(missing, self._read_many([keys[at] for at in missing]), strict=True):
            found[at] = value
        return found

    def scan(self, lower: bytes | None, upper: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        """Staged and committed rows of this moment, merged; see :meth:`ReadableRows.scan`."""
        return self.query_view(IsolationLevel.READ_UNCOMMITTED).scan(lower, upper, reverse=reverse)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Stage the row of a key; ``None`` deletes it with the next commit."""
        self._check_writable()
        if type(key) is not bytes or (value is not None and type(value) is not bytes):
            raise Invalid(
                f"Keys and values of a store are bytes, not {type(key).__name__} and {type(value).__name__}.",
                action="Convert them with bytes(), or with the serializers of the store's format.",
                store_path=self._name,
            )
        with self._lock:
            self._staged.put(key, value)

    def commit(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Publish staged rows, offsets and position as one; see :meth:`StateStore.commit`."""
        self._check_writable()
        for partition, offset in offsets.items():
            check_offset(partition, offset)
        check_position(self._position)
        position = _copy(self._position) if offsets else {}
        prepared = self._prepare(Pending(self._staged, offsets, position))
        with self._lock:
            self._publish(prepared)
            self._staged = SortedRows()
            self._committed_position = position
            if not offsets:
                self._position.clear()

    def abort(self) -> None:
        """Drop staged rows and changes of the position."""
        self._check_open()
        with self._lock:
            self._staged = SortedRows()
        self._position.clear()
        self._position.update(_copy(self._committed_position))

    @property
    def uncommitted_bytes(self) -> int:
        """Memory of staged rows, about, in bytes."""
        return self._staged.memory_bytes

    @property
    def commit_requested(self) -> bool:
        """Whether staged rows have reached ``uncommitted_max_bytes``."""
        return commit_requested((self,), self._settings.uncommitted_max_bytes)

    @property
    def position(self) -> Position:
        """The committed position, plus what was changed in it since."""
        self._check_open()
        return self._position

    def query_view(self, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> QueryView:
        """The store at this instant; see :meth:`StateStore.query_view`."""
        with self._lock:
            self._check_open()
            staged = None
            if isolation is IsolationLevel.READ_UNCOMMITTED and len(self._staged):
                staged = self._staged.snapshot()
            view = _View(self._name, self._lock, self._instant(), staged)
            self._views.add(view)
            return view

    def _forget(self, position: Position) -> None:
        """Begin with nothing staged, at this committed position."""
        self._staged = SortedRows()
        self._committed_position = position
        self._position = _copy(position)

    def _end_reads(self) -> None:
        """End the transaction, and close every view with its iterators; the lock is held."""
        if self._transaction is not None:
            self._transaction.end()
        self._staged = SortedRows()
        for view in list(self._views):
            view.close()

    def _disown_reads(self) -> None:
        """In a forked child: close every view without touching it; a thread that is not here may hold the lock."""
        self._lock = threading.RLock()
        for view in self._views:
            view.disown()


class _View(QueryView):
    """A view made of an instant and, under READ_UNCOMMITTED, the staged rows over it."""

    def __init__(self, name: str, lock: threading.RLock, instant: Instant, staged: RowsSnapshot | None) -> None:
        self._name = name
        self._lock = lock
        self.instant: Instant | None = instant
        """The committed rows; ``None`` when the view was closed."""
        self._staged = staged

    def _open(self) -> Instant:
        if self.instant is None:
            raise Invalid(
                f"A view of the store at {self._name} was closed, or the store was closed during a scan.",
                action="Keep both open until the last row was read.",
                store_path=self._name,
            )
        return self.instant

    def get(self, key: bytes) -> bytes | None:
        """The row of a key at the view's instant, or ``None``."""
        check_key(key)
        with self._lock:
            instant = self._open()
            if self._staged is not None:
                value = self._staged.get(key, _UNSTAGED)
                if not isinstance(value, _Unstaged):
                    return value
            return instant.get(key)

    def scan(self, lower: bytes | None, upper: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        """Rows of the view's instant; see :meth:`ReadableRows.scan`."""
        for end in (lower, upper):
            if end is not None:
                check_key(end)
        with self._lock:
            stored = _Shared(self, self._open().cursor(lower, upper, reverse=reverse))
            staged = None if self._staged is None else self._staged.cursor(lower, upper, reverse=reverse)
        return merged(stored, None if staged is None else _Shared(self, staged), reverse=reverse)

    def chunk(self, cursor: Cursor) -> list[Entry]:
        """The next entries of a cursor of this view."""
        with self._lock:
            self._open()
            return cursor.chunk()

    @property
    def position(self) -> Position:
        """The position of the commit that the view shows; a copy."""
        with self._lock:
            return self._open().position()

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The offset of the commit that the view shows, or ``None``."""
        with self._lock:
            return self._open().committed_offset(partition)

    def close(self) -> None:
        """Let go of the instant and the cursors."""
        with self._lock:
            if self.instant is not None:
                self.instant.close()
                self.instant = None
                self._staged = None

    def disown(self) -> None:
        """Be closed, in a forked child."""
        self._lock, self.instant, self._staged = threading.RLock(), None, None


class _Shared:
    """A cursor of a view, read under the store's lock; it keeps the view alive."""

    def __init__(self, view: _View, cursor: Cursor) -> None:
        self._view = view
        self._cursor = cursor

    def chunk(self) -> list[Entry]:
        return self._view.chunk(self._cursor)


def _copy(position: Mapping[str, Mapping[int, int]]) -> Position:
    return {topic: dict(partitions) for topic, partitions in position.items()}
