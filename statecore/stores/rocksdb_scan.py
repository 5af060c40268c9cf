"""Scans of one column family that cannot end early unnoticed.

rocksdict's ``items()`` stops at a corrupt block as if the rows ended there. An iterator says so when it is asked for
its status, which every scan here does at its end; there is no other way to scan in this package.

``ReadOptions.set_iterate_lower_bound`` of rocksdict 0.3.29 sets the upper bound; the lower one is kept here.

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


class RocksDBCursor:
    """Rows of a column family with ``lower <= key < upper``, as they were when the cursor was made.

    Chunks grow: a short scan reads little beyond what it needs, a long one spends little on each row.

    Args:
        path: the database, for messages.
        source: rocksdict's handle of the family, or a snapshot of it.
        lower: smallest key wanted, or ``None``.
        upper: the key to stop before, or ``None``.
        reverse: from the greatest key down.
    """

    def __init__(
        self, path: Path, source: Any, lower: bytes | None, upper: bytes | None, *, reverse: bool = False
    ) -> None:
        from rocksdict import ReadOptions

        self._path = path
        self._rows = _FIRST_CHUNK_ROWS
        self._reverse = reverse
        self._least = lower if reverse else None
        self.iterator: Any = None
        """rocksdict's iterator; ``None`` at the end and when closed."""
        if upper is not None and (lower or b"") >= upper:
            return
        options = ReadOptions()
        if upper is not None:
            options.set_iterate_upper_bound(upper)
        self.iterator = source.iter(options)
        if reverse:
            self.iterator.seek_to_last()
        else:
            self.iterator.seek(lower or b"")

    def chunk(self) -> list[Entry]:
        """The next rows; empty after the last.

        Raises:
            Corrupted: a block cannot be read.
        """
        iterator = self.iterator
        if iterator is None:
            return []
        valid, read_key, read_value = iterator.valid, iterator.key, iterator.value
        advance = iterator.prev if self._reverse else iterator.next
        rows: list[Entry] = []
        limit, size, least = self._rows, 0, self._least
        self._rows = min(4 * limit, _CHUNK_ROWS)
        while valid():
            if len(rows) == limit or size > _CHUNK_BYTES:
                return rows
            key, value = read_key(), read_value()
            if least is not None and key < least:
                break
            rows.append((key, value))
            size += len(value)
            advance()
        _check(self._path, iterator)
        self.close()
        return rows

    def close(self) -> None:
        """Let go of the iterator."""
        self.iterator = None


class ListScan:
    """All rows of a column family in key order, as lists of keys and values, with checksums verified.

    Raises, while it is iterated:
        Corrupted: a block cannot be read.
        Invalid: it was closed before its end.
    """

    def __init__(self, path: Path, family: Any) -> None:
        from rocksdict import ReadOptions

        options = ReadOptions()
        options.set_readahead_size(_READAHEAD_BYTES)
        options.set_verify_checksums(True)
        self._path = path
        self._ended = False
        self.iterator: Any = family.iter(options)
        """rocksdict's iterator; ``None`` at the end and when closed."""
        self.iterator.seek_to_first()

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
