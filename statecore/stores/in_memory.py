"""``InMemoryStore``: rows in memory only, for state that may be rebuilt from its changelog, and for tests.

Its offsets live and end with its rows, so it manages them itself: after a restart it has neither. (Kafka Streams'
in-memory stores return ``managesOffsets() == false`` to the same effect: no offset outlives the rows.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statecore.formats.position import Position, copy_position
from statecore.formats.topic_partition import TopicPartition, as_topic_partition
from statecore.stores.merge import Entry
from statecore.stores.settings import StoreSettings
from statecore.stores.sorted_rows import RowsCursor, RowsSnapshot, SortedRows
from statecore.stores.write_buffer_store import Pending, WriteBufferStore


class InMemoryStore(WriteBufferStore):
    """Rows and offsets in memory; closing drops them."""

    def __init__(self, name: str = "in-memory", settings: StoreSettings | None = None) -> None:
        super().__init__(name, settings or StoreSettings())
        self._open = False
        self._rows = SortedRows()
        self._deleted: set[bytes] = set()
        self._offsets: Mapping[TopicPartition, int] = {}
        self._decided: object = None  # the last commit that was begun, and so will be completed

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def persistent(self) -> bool:
        """False."""
        return False

    @property
    def manages_offsets(self) -> bool:
        """True, as long as there are rows."""
        return True

    def open(self) -> None:
        """Start empty."""
        if not self._open:
            self._forget({})
            self._open = True

    def close(self) -> None:
        """Drop rows and offsets."""
        with self._lock:
            self._end_reads()
            self._open = False
            self._rows, self._deleted, self._offsets = SortedRows(), set(), {}

    def approximate_num_entries(self) -> int:
        """Exact number of committed rows."""
        self._check_open()
        return len(self._rows) - len(self._deleted)

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The offset last committed since the store was opened, or ``None``."""
        partition = as_topic_partition(partition)
        self._before_read()
        return self._offsets.get(partition)

    def flush(self) -> None:
        """Do nothing: there are no files."""
        self._check_writable()

    def _read(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def _instant(self) -> MemoryInstant:
        return MemoryInstant(self._rows.snapshot(), self._offsets, self._committed_position)

    def _prepare(self, pending: Pending) -> Any:
        known = {} if pending.forget else {**self._offsets, **pending.offsets}
        offsets = {partition: offset for partition, offset in known.items() if offset is not None}
        return pending.staged, offsets, object()

    def _publish(self, prepared: Any) -> None:
        staged, offsets, token = prepared
        self._decided = token
        self._offsets = offsets
        for key, value in staged.items():
            if value is not None:
                self._deleted.discard(key)
            elif key in self._rows:
                self._deleted.add(key)
            else:
                continue
            self._rows.put(key, value)
        if self._rows.purge(self._deleted):
            self._deleted.clear()

    def _published(self, prepared: Any) -> bool:
        if self._decided is not prepared[-1]:
            return False
        self._publish(prepared)
        return True


class MemoryInstant:
    """One commit of rows in memory; see :class:`statecore.stores.views.CommittedView`."""

    def __init__(self, rows: RowsSnapshot, offsets: Mapping[TopicPartition, int], position: Position) -> None:
        self._rows: RowsSnapshot | None = rows
        self._offsets = offsets
        self._position = position

    def get(self, key: bytes) -> bytes | None:
        """The row of a key, or ``None``."""
        return None if self._rows is None else self._rows.get(key)

    def cursor(self, lower: bytes | None, upper: bytes | None, *, reverse: bool) -> _Present:
        """A cursor over the rows with ``lower <= key < upper``."""
        assert self._rows is not None
        return _Present(self._rows.cursor(lower, upper, reverse=reverse))

    def committed_offset(self, partition: TopicPartition) -> int | None:
        return self._offsets.get(partition)

    def position(self) -> Position:
        """The committed position."""
        return copy_position(self._position)

    def close(self) -> None:
        """Release the rows."""
        self._rows = None


class _Present:
    """A cursor without the entries of deleted rows."""

    def __init__(self, cursor: RowsCursor) -> None:
        self._cursor = cursor

    def chunk(self) -> list[Entry]:
        while entries := self._cursor.chunk():
            if present := [entry for entry in entries if entry[1] is not None]:
                return present
        return []
