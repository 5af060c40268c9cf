"""``View``: the last commit of a store and staged rows over it (:mod:`statecore.stores.write_buffer_store`)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final, Protocol

from statecore.errors import Invalid
from statecore.formats.position import Position
from statecore.formats.topic_partition import TopicPartition, as_topic_partition
from statecore.stores.merge import Cursor, Entry, merged
from statecore.stores.query import QueryView
from statecore.stores.rows import Row, check_key
from statecore.stores.sorted_rows import RowsSnapshot


class Unstaged:
    """Type of the sentinel for a key without a staged row."""


UNSTAGED: Final = Unstaged()


class CommittedView(Protocol):
    """Committed rows, offsets and position of one commit."""

    def get(self, key: bytes) -> bytes | None:
        """The committed row of a key."""

    def cursor(self, lower: bytes | None, upper: bytes | None, *, reverse: bool) -> Cursor:
        """A cursor over the committed rows with ``lower <= key < upper``."""

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The committed offset of a partition."""

    def position(self) -> Position:
        """A copy of the committed position."""

    def close(self) -> None:
        """Release everything, including cursors."""


class View(QueryView):
    """A view of an instant and, under READ_UNCOMMITTED, the staged rows over it."""

    def __init__(self, name: str, lock: threading.RLock, instant: CommittedView, staged: RowsSnapshot | None) -> None:
        self._name = name
        self._lock = lock
        self.instant: CommittedView | None = instant  # The committed rows; None after the view was closed
        self._staged = staged

    def _open(self) -> CommittedView:
        if self.instant is None:
            raise Invalid(
                f"A view of the store at {self._name} was closed, or the store was closed during a scan.",
                code="store-closed",
                action="Keep both open until the last row is read.",
                store_path=self._name,
            )
        return self.instant

    def get(self, key: bytes) -> bytes | None:
        """The row of a key as of the view, or ``None``."""
        check_key(key)
        with self._lock:
            instant = self._open()
            if self._staged is not None:
                value = self._staged.get(key, UNSTAGED)
                if not isinstance(value, Unstaged):
                    return value
            return instant.get(key)

    def scan(self, lower: bytes | None, upper: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        """Rows as of the view; see :meth:`ReadableRows.scan`."""
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
            if self.instant is None:
                self._open()
            return cursor.chunk()

    @property
    def position(self) -> Position:
        """The position of the view's commit; a copy."""
        with self._lock:
            return self._open().position()

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The offset of the view's commit, or ``None``."""
        partition = as_topic_partition(partition)
        with self._lock:
            return self._open().committed_offset(partition)

    def close(self) -> None:
        """Release the instant and the cursors."""
        with self._lock:
            if self.instant is not None:
                self.instant.close()
                self.instant = None
                self._staged = None

    def disown(self) -> None:
        """Close in a forked child."""
        self._lock, self.instant, self._staged = threading.RLock(), None, None


class _Shared:
    """A cursor of a view, read under the store's lock; it keeps the view alive."""

    def __init__(self, view: View, cursor: Cursor) -> None:
        self._view = view
        self._cursor = cursor

    def chunk(self) -> list[Entry]:
        return self._view.chunk(self._cursor)
