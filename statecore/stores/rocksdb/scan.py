"""Scans of one column family that never mistake a damaged block for the last row.

rocksdict's ``items()`` stops at a corrupt block as if the rows ended there. Iterators report it in their status, which
every scan checks at its end; this package has no other scans. ``items()`` is faster per row, so it reads the bulk of a
long scan, and an iterator of the same time then checks that nothing is left.

Bounds are checked here too: in rocksdict 0.3.29 ``ReadOptions.set_iterate_lower_bound`` sets the upper bound, and an
iterator reads its bounds from ``ReadOptions`` that may already be freed. And a snapshot's iterators show the newest
rows, not the snapshot: only an iterator created at a point in time shows it, so cursors share that.

A scan holds an iterator, and an iterator holds the database's lock: close scans before the database.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sized
from itertools import chain, islice
from pathlib import Path
from typing import Any, Self, cast

from statecore.errors import Invalid
from statecore.stores.merge import Entry
from statecore.stores.rocksdb.errors import translate
from statecore.stores.rows import Row

_FIRST_CHUNK_ROWS = 16
_CHUNK_ROWS = 1024
_CHUNK_BYTES = 1 << 20
_LIST_ROWS = 1 << 15
_LIST_BYTES = 16 << 20
_READAHEAD_BYTES = 4 << 20


class FamilyIterator:
    """rocksdict's iterator of a column family at creation time, shared by cursors that take turns."""

    def __init__(self, path: Path, family: Any, native: Any = None) -> None:
        self.path = path
        self.native: Any = family.iter() if native is None else native  # The iterator; None when closed
        self.user: object = None
        """Token of the cursor that moved it last (the cursor itself would form a reference cycle)."""

    def check(self) -> None:
        """Raise ``Corrupted`` if it stopped before the last row."""
        _check(self.path, self.native)

    def close(self) -> None:
        """Release the iterator; cursors must not read on."""
        self.native = self.user = None


class RocksDBCursor:
    """Rows of a column family with ``lower <= key < upper``, as of the creation of the iterator.

    Chunks grow: a short scan reads little more than it needs, a long one has little overhead per row.
    """

    def __init__(
        self, iterator: FamilyIterator, lower: bytes | None, upper: bytes | None, *, reverse: bool = False
    ) -> None:
        self._iterator = iterator
        self._token = object()
        self._limit = _FIRST_CHUNK_ROWS
        self._reverse = reverse
        self._start = upper if reverse else lower
        self._end = lower if reverse else upper
        self._next: bytes | None = None
        self._ended = False

    def chunk(self) -> list[Entry]:
        """The next rows; empty after the last."""
        if self._ended:
            return []
        iterator = self._iterator.native
        if self._iterator.user is not self._token:
            self._place(iterator)
            self._iterator.user = self._token
        valid, read_key, read_value = iterator.valid, iterator.key, iterator.value
        advance = iterator.prev if self._reverse else iterator.next
        reverse, end = self._reverse, self._end
        rows: list[Entry] = []
        limit, size = self._limit, 0
        self._limit = min(4 * limit, _CHUNK_ROWS)
        while valid():
            key = read_key()
            if end is not None and (key < end if reverse else key >= end):
                break
            if len(rows) == limit or size > _CHUNK_BYTES:
                self._next = key
                return rows
            value = read_value()
            rows.append((key, value))
            size += len(value)
            advance()
        self._iterator.check()
        self._ended = True
        return rows

    def _place(self, iterator: Any) -> None:
        if self._next is not None:
            (iterator.seek_for_prev if self._reverse else iterator.seek)(self._next)
        else:
            _begin(iterator, self._start, self._reverse)


def _begin(iterator: Any, start: bytes | None, reverse: bool) -> None:
    """Seek to the first row: at ``start`` or later, or in reverse the one before it."""
    if not reverse:
        iterator.seek(start or b"")
    elif start is None:
        iterator.seek_to_last()
    else:
        iterator.seek_for_prev(start)
        if iterator.valid() and iterator.key() == start:
            iterator.prev()


def committed_rows(
    path: Path,
    family: Any,
    lower: bytes | None,
    upper: bytes | None,
    *,
    reverse: bool,
    lock: threading.RLock,
    opened: Sized,
    scans: weakref.WeakSet[Any],
    keep_alive: object = None,
) -> Iterator[Row]:
    """Rows with ``lower <= key < upper`` as of now, under the caller's lock. A short scan leaves nothing to close."""
    iterator = family.iter()
    if reverse or lower is None:
        _begin(iterator, upper if reverse else lower, reverse)
    else:
        iterator.seek(lower)
    end = lower if reverse else upper
    valid, read_key, read_value = iterator.valid, iterator.key, iterator.value
    advance = iterator.prev if reverse else iterator.next
    rows: list[Row] = []
    size = 0
    while valid():
        key = read_key()
        if end is not None and (key < end if reverse else key >= end):
            break
        if len(rows) == _FIRST_CHUNK_ROWS or size > _CHUNK_BYTES:
            scan = LongScan(path, family, iterator, key, end, reverse=reverse, lock=lock, keep_alive=keep_alive)
            scans.add(scan)
            return chain(rows, chain.from_iterable(iter(scan.chunk, [])))
        value = read_value()
        rows.append((key, value))
        size += len(value)
        advance()
    try:
        iterator.status()
    except Exception as error:
        raise translate(path, "Scanning", error) from error
    return _until_closed(path, rows, opened)


def _until_closed(path: Path, rows: list[Row], opened: Sized) -> Iterator[Row]:
    if not opened:
        raise _closed(path)
    yield from rows
    if not opened:
        raise _closed(path)


class LongScan:
    """The rows of a scan after the first few: ``items()`` reads them, and the iterator of the same time their end."""

    def __init__(
        self,
        path: Path,
        family: Any,
        iterator: Any,
        first: bytes,
        end: bytes | None,
        *,
        reverse: bool,
        lock: threading.RLock,
        keep_alive: object,
    ) -> None:
        items = family.items(reverse, first)
        self._path = path
        self._family = family
        self._next = first + b"\0" if reverse else first  # where the rest begins, or in reverse ends (exclusive)
        self._end = end
        self._reverse = reverse
        self._lock = lock
        self._rest: RocksDBCursor | None = None
        self._ended = False
        self.iterator: tuple[Any, Any] | None = (items, iterator)
        """rocksdict's iterators; ``None`` at the end and when closed."""
        self._keeps = keep_alive

    def chunk(self) -> list[Row]:
        """The next rows; empty after the last."""
        if self._ended:
            return []
        if self.iterator is None:  # in a forked child the lock may be held by a thread that does not exist
            raise _closed(self._path)
        with self._lock:
            if self.iterator is None:
                raise _closed(self._path)
            if self._rest is None:
                rows = self._items(self.iterator[0])
                if rows:
                    self._next = rows[-1][0] if self._reverse else rows[-1][0] + b"\0"
                    return rows
                self._rest = self._remaining(FamilyIterator(self._path, self._family, self.iterator[1]))
            rows = cast(list[Row], self._rest.chunk())
            if not rows:
                self._ended = True
                self.close()
            return rows

    def _remaining(self, iterator: FamilyIterator) -> RocksDBCursor:
        if self._reverse:
            return RocksDBCursor(iterator, self._end, self._next, reverse=True)
        return RocksDBCursor(iterator, self._next, self._end)

    def _items(self, items: Any) -> list[Row]:
        rows: list[Row] = []
        size = 0
        end, reverse = self._end, self._reverse
        for row in islice(items, _CHUNK_ROWS):
            if end is not None and (row[0] < end if reverse else row[0] >= end):
                break
            rows.append(row)
            size += len(row[1])
            if size > _CHUNK_BYTES:
                break
        return rows

    def close(self) -> None:
        """Release the iterators."""
        self.iterator = self._rest = self._family = None


def _closed(path: Path) -> Invalid:
    return Invalid(
        f"The store at {path} was closed during a scan.",
        code="store-closed",
        action="Keep it open until the scan has ended.",
        store_path=str(path),
    )


class ListScan:
    """All rows of a column family in key order, as lists of keys and values, with checksums verified.

    ``keeps`` is referenced so that it outlives the iterator: it holds the database open.

    Raises, while it is iterated:
        Corrupted: a block cannot be read.
        Invalid: it was closed before its end.
    """

    def __init__(self, path: Path, family: Any, *, keep_alive: object = None) -> None:
        from rocksdict import ReadOptions

        options = ReadOptions()
        options.set_readahead_size(_READAHEAD_BYTES)
        options.set_verify_checksums(True)
        self._path = path
        self._ended = False
        self.iterator: Any = family.iter(options)  # rocksdict's iterator; None at the end and when closed
        self.iterator.seek_to_first()
        self._keeps = keep_alive

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[list[bytes], list[bytes]]:
        if self._ended:
            raise StopIteration
        iterator = self.iterator
        if iterator is None:
            raise _closed(self._path)
        keys, values = take_rows(iterator, _LIST_ROWS, _LIST_BYTES)
        if not keys:
            _check(self._path, iterator)
            self._ended = True
            self.close()
            raise StopIteration
        return keys, values

    def close(self) -> None:
        """Release the iterator."""
        self.iterator = None


def take_rows(iterator: Any, most: int, most_bytes: int) -> tuple[list[bytes], list[bytes]]:
    """The next keys and values of an iterator, empty at its end or at a damaged block; the caller checks its status."""
    valid, read_key, read_value, advance = iterator.valid, iterator.key, iterator.value, iterator.next
    keys: list[bytes] = []
    values: list[bytes] = []
    size = 0
    more = valid()
    while more and len(keys) < most and size < most_bytes:
        keys.append(read_key())
        value = read_value()
        values.append(value)
        size += len(value)
        advance()
        more = valid()
    return keys, values


def _check(path: Path, iterator: Any) -> None:
    try:
        iterator.status()
    except Exception as error:
        raise translate(path, "Scanning", error) from error
