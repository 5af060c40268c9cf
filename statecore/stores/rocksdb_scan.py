"""Scans of one column family that cannot end early unnoticed.

rocksdict's ``items()`` stops at a corrupt block as if the rows ended there. An iterator says so when it is asked, which
is what every scan here does at its end.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from statecore.stores.rocksdb_errors import translate

_CHUNK_ROWS = 1 << 15
_CHUNK_BYTES = 16 << 20
_READAHEAD_BYTES = 4 << 20


def scan(path: Path, family: Any, first: bytes | None) -> Generator[tuple[bytes, bytes], None, None]:
    """Rows of a column family from ``first`` on, in key order.

    Args:
        path: the database, for messages.
        family: rocksdict's handle of the family.
        first: smallest key wanted, or ``None``.

    Raises:
        Corrupted: a block cannot be read.
    """
    iterator = family.iter()
    if first is None:
        iterator.seek_to_first()
    else:
        iterator.seek(first)
    while iterator.valid():
        yield iterator.key(), iterator.value()
        iterator.next()
    _check(path, iterator)


def overlaid(
    rows: Generator[tuple[bytes, bytes], None, None], changes: Sequence[tuple[bytes, bytes | None]]
) -> Generator[tuple[bytes, bytes], None, None]:
    """Rows with changes laid over them, both in key order; a change to ``None`` takes the row away."""
    at = 0
    try:
        for key, value in rows:
            while at < len(changes) and changes[at][0] < key:
                yield from _present(changes[at])
                at += 1
            if at < len(changes) and changes[at][0] == key:
                continue  # the change is yielded in its place, before the next greater key
            yield key, value
        for change in changes[at:]:
            yield from _present(change)
    finally:
        rows.close()


def _present(change: tuple[bytes, bytes | None]) -> Iterator[tuple[bytes, bytes]]:
    key, value = change
    if value is not None:
        yield key, value


def scan_lists(path: Path, family: Any) -> Generator[tuple[list[bytes], list[bytes]], None, None]:
    """All rows of a column family in key order, as lists of keys and values, with checksums verified.

    Raises:
        Corrupted: a block cannot be read.
    """
    from rocksdict import ReadOptions

    options = ReadOptions()
    options.set_readahead_size(_READAHEAD_BYTES)
    options.set_verify_checksums(True)
    iterator = family.iter(options)
    iterator.seek_to_first()
    valid, read_key, read_value, advance = iterator.valid, iterator.key, iterator.value, iterator.next
    more = valid()
    while more:
        keys: list[bytes] = []
        values: list[bytes] = []
        size = 0
        while more and len(keys) < _CHUNK_ROWS and size < _CHUNK_BYTES:
            keys.append(read_key())
            value = read_value()
            values.append(value)
            size += len(value)
            advance()
            more = valid()
        yield keys, values
    _check(path, iterator)


def _check(path: Path, iterator: Any) -> None:
    try:
        iterator.status()
    except Exception as error:
        raise translate(path, "Scanning", error) from error
