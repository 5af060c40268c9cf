"""Scans of one column family that cannot end early unnoticed.

rocksdict's ``items()`` stops at a corrupt block as if the rows ended there. An iterator says so when it is asked for
its status, which every scan here does at its end; there is no other way to scan in this package.

Bounds are kept here, too: in rocksdict 0.3.29 ``ReadOptions.set_iterate_lower_bound`` sets the upper bound, and an
iterator reads its bounds from the ``ReadOptions`` when that is gone. And a snapshot's iterators do not show the
snapshot but the newest rows: what shows a moment is an iterator that was made in it, so that is what cursors share.

A scan holds an iterator, an iterator holds the database's lock: whoever closes a database closes its scans first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from statecore.errors import Invalid
from statecore.stores.merge import Entry
from statecore.stores.rocksdb_errors import translate

_FIRST_CHUNK_ROWS = 16
_CHUNK_ROWS = 1024
_CHUNK_BYTES = 1 << 20
_LIST_ROWS = 1 << 15
_LIST_BYTES = 16 << 20
_READAHEAD_BYTES = 4 << 20


class FamilyIterator:
    """rocksdict's iterator of a column family as it is now, for any number of cursors that take turns.

    Args:
        path: the database, for messages.
        family: rocksdict's handle of the family.
    """

    def __init__(self, path: Path, family: Any) -> None:
        self.path = path
        self.native: Any = family.iter()
        """The iterator; ``None`` when it was closed."""
        self.user: object = None
        """The token of the cursor that moved it last (the cursor itself would keep both alive in a circle)."""

    def check(self) -> None:
        """Raise ``Corrupted`` when it stopped for another reason than the last row."""
        _check(self.path, self.native)

    def close(self) -> None:
        """Let go of it; nobody may read on."""
        self.native = self.user = None


class RocksDBCursor:
    """Rows of a column family with ``lower <= key < upper``, as they were when the iterator was made.

    Chunks grow: a short scan reads little beyond what it needs, a long one spends little on each row.

    Args:
        iterator: the iterator; it moves with every chunk and is put back where this cursor left it.
        lower: smallest key wanted, or ``None``.
        upper: the key to stop before, or ``None``.
        reverse: from the greatest key down.
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
        """The next rows; empty after the last.

        Raises:
            Corrupted: a block cannot be read.
        """
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
        elif not self._reverse:
            iterator.seek(self._start or b"")
        elif self._start is None:
            iterator.seek_to_last()
        else:
            iterator.seek_for_prev(self._start)
            if iterator.valid() and iterator.key() == self._start:
                iterator.prev()


class ListScan:
    """All rows of a column family in key order, as lists of keys and values, with checksums verified.

    Args:
        path: the database, for messages.
        family: rocksdict's handle of the family.
        keeps: what must not go before the iterator: it holds the database open.

    Raises, while it is iterated:
        Corrupted: a block cannot be read.
        Invalid: it was closed before its end.
    """

    def __init__(self, path: Path, family: Any, *, keeps: object = None) -> None:
        from rocksdict import ReadOptions

        options = ReadOptions()
        options.set_readahead_size(_READAHEAD_BYTES)
        options.set_verify_checksums(True)
        self._path = path
        self._ended = False
        self.iterator: Any = family.iter(options)
        """rocksdict's iterator; ``None`` at the end and when closed."""
        self.iterator.seek_to_first()
        self._keeps = keeps

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[list[bytes], list[bytes]]:
        if self._ended:
            raise StopIteration
        iterator = self.iterator
        if iterator is None:
            raise Invalid(
                f"The store at {self._path} was closed during a scan.",
                action="Keep it open until the scan has ended.",
                store_path=str(self._path),
            )
        valid, read_key, read_value, advance = iterator.valid, iterator.key, iterator.value, iterator.next
        keys: list[bytes] = []
        values: list[bytes] = []
        size = 0
        more = valid()
        while more and len(keys) < _LIST_ROWS and size < _LIST_BYTES:
            keys.append(read_key())
            value = read_value()
            values.append(value)
            size += len(value)
            advance()
            more = valid()
        if not keys:
            _check(self._path, iterator)
            self._ended = True
            self.close()
            raise StopIteration
        return keys, values

    def close(self) -> None:
        """Let go of the iterator."""
        self.iterator = None


def _check(path: Path, iterator: Any) -> None:
    try:
        iterator.status()
    except Exception as error:
        raise translate(path, "Scanning", error) from error
