"""Merges staged rows over stored ones, in key order either way, lazily and a chunk at a time.

A cursor returns lists of entries, an empty one at its end; a staged entry of ``None`` deletes the stored row. Chunks
keep the store's lock short and the Python per row small.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Protocol, cast

from statecore.stores.rows import Row

Entry = tuple[bytes, bytes | None]  # A key and its value, or None if deleted


class Cursor(Protocol):
    """Reads entries in key order, forward or in reverse."""

    def chunk(self) -> list[Entry]:
        """The next entries; empty after the last."""


def merged(stored: Cursor, staged: Cursor | None, *, reverse: bool) -> Iterator[Row]:
    """The rows of both cursors in their common order; for a key in both, the staged entry wins."""
    if staged is None:  # stored rows have no deletes; a loop in C takes half the time
        return cast(Iterator[Row], chain.from_iterable(iter(stored.chunk, [])))
    return _present(_overlaid(_entries(stored), _Lookahead(staged), reverse))


def _present(entries: Iterator[Entry]) -> Iterator[Row]:
    for key, value in entries:
        if value is not None:
            yield key, value


def _entries(cursor: Cursor) -> Iterator[Entry]:
    while entries := cursor.chunk():
        yield from entries


def _overlaid(stored: Iterator[Entry], staged: _Lookahead, reverse: bool) -> Iterator[Entry]:
    for key, value in stored:
        while staged.key is not None and (staged.key > key if reverse else staged.key < key):
            yield staged.take()
        if staged.key == key:
            yield staged.take()
        else:
            yield key, value
    while staged.key is not None:
        yield staged.take()


class _Lookahead:
    """The entries of a cursor, with a look-ahead at the next key; ``None`` after the last."""

    def __init__(self, cursor: Cursor) -> None:
        self._entries = _entries(cursor)
        self._next = next(self._entries, None)
        self.key = None if self._next is None else self._next[0]

    def take(self) -> Entry:
        taken = self._next
        assert taken is not None
        self._next = next(self._entries, None)
        self.key = None if self._next is None else self._next[0]
        return taken
