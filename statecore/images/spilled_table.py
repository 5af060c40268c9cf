"""The distinct keys that a builder's memory has no room for: tables of one key range each, made from records on disk.

When the memory is full, the upper part of the keys goes to the disk, divided into ranges (:mod:`.spill`), and so do
all later records in them. The lower part stays in memory, with room to grow; when it has grown too large, its own upper
part goes likewise. Which keys are in memory says nothing about what is written: it only costs.

Each range on disk has a buffer of two blocks. They count as memory of the keys that stay, and leave them a quarter of
the budget at least, so that the budget is exceeded where much more than forty times as much lies on disk.

::

    budget    ├─ stays: 1/4 ─┤─ grows: up to 1/2 ─┤─ a range: 1/4, and about half as much to tell its keys ─┤
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from statecore.images.chunks import chunks_of, columns_of
from statecore.images.key_table import Columns, KeyTable
from statecore.images.packed_records import divided, last_writes, sampled_keys, unpacked
from statecore.images.spill import Spill

_SAMPLED = 1024
"""Keys that are looked at to see where ranges are to begin."""

_LARGEST_BLOCK, _SMALLEST_BLOCK = 64 << 10, 4 << 10
_LEAST_BUDGET = 256 << 10
"""With less than this, ranges would be rewritten for every few records."""

_STAYS, _GROWS, _FIRST, _LARGEST = 1 / 4, 1 / 2, 1 / 32, 1 / 4
"""Of the budget: what stays in memory, what that may grow to, what a range has first, and what it may have."""

_LOOK_AGAIN = 1.125
"""How much the file grows before it is looked at again."""

_MOST_WRITTEN = 2
"""How many times the bytes that are wanted may be on disk, more or less: what is wanted is estimated now and then."""


class SpilledTable:
    """Key ranges on disk.

    Args:
        directory: where the scratch file is made; must exist.
        budget: bytes of memory, shared with the table of the keys that stay.
        new_table: makes an empty table.

    Raises:
        Capacity: the directory has no room.
        Invalid: the file cannot be made.
    """

    def __init__(self, directory: Path, budget: int, new_table: Callable[[], KeyTable]) -> None:
        self._budget = max(budget, _LEAST_BUDGET)
        self._wanted = 0.0
        self._looked = 0
        self._largest = int(self._budget * _LARGEST)
        self._new_table = new_table
        self._spill = Spill(directory, min(_LARGEST_BLOCK, max(_SMALLEST_BLOCK, self._budget >> 10)))

    @property
    def memory(self) -> int:
        """Bytes of memory besides the tables."""
        return self._spill.memory

    @property
    def room(self) -> int:
        """Bytes that the table of the keys that stay may have."""
        return max(self._largest, int(self._budget * _GROWS) - self.memory)

    @property
    def file_bytes(self) -> int:
        """Bytes on disk."""
        return self._spill.file_bytes

    def take(self, table: KeyTable) -> KeyTable:
        """Take the upper part of the keys of a table that has become too large; the rest comes back as a new one.

        Raises:
            Capacity, Invalid, Retryable: as :meth:`add`.
        """
        ids = table.survivors(tombstones=True)
        share = min(0.9, min(self._budget * _STAYS, self.room / 2) / max(1, table.bytes))
        # Only the first ranges grow in any case: where keys descend, each takes buffers and gets no more records.
        size = self._largest / 2 if self._spill.ranges else self._budget * _FIRST
        shares = np.linspace(share, 1, max(1, int(table.bytes * (1 - share) / size)), endpoint=False)
        step = max(1, len(ids) // _SAMPLED)
        keys = [key for columns in _columns(table, ids[::step].copy()) for key in columns.keys.to_pylist()]
        firsts = _quantiles(keys, shares)
        self._spill.divide(0, firsts)
        rest = self._new_table()
        for columns in _columns(table, ids):
            rest.add(*self.add(columns))
        for one in self._spill.ranges[: len(firsts)]:
            one.live = one.written
        return rest

    def add(self, columns: Columns) -> Columns:
        """Take the records that lie in a range on disk; returns those that do not, and have a key.

        Raises:
            Capacity: the disk is full.
            Invalid: the file cannot be written.
            Retryable: what was read back is not what was written.
        """
        rest = self._spill.add(columns)
        ranges, written = self._spill.ranges, 0
        for number in reversed(range(len(ranges))):  # one that is divided moves those above it
            one = ranges[number]
            written += one.written
            if one.written > max(self._largest, 2 * one.live):
                self._rewrite(number)
        if written > max(self._budget, self._looked * _LOOK_AGAIN):
            self._bound_file(written)
        return rest

    def tables(self) -> Iterator[KeyTable]:
        """The keys of each range with their last writes, in key order. Each range is gone when it has been taken.

        Raises:
            Retryable: what was read back is not what was written.
        """
        for number in range(len(self._spill.ranges)):
            table = self._new_table()
            for columns in unpacked(last_writes(self._spill.take(number))):
                table.add(*columns)
            yield table

    def close(self) -> None:
        """Let go of the file."""
        self._spill.close()

    def _bound_file(self, written: int) -> None:
        """Rewrite ranges until the file is at most a few times what is wanted of it.

        How much that is, is known of a range when it was just rewritten, and estimated of the others.
        """
        ranges = self._spill.ranges
        while written > _MOST_WRITTEN * sum(max(one.live, one.written * self._wanted) for one in ranges):
            number = max(range(len(ranges)), key=lambda number: ranges[number].written - ranges[number].live)
            before = ranges[number].written
            if not before:
                break
            self._rewrite(number)
            written = sum(one.written for one in ranges)
        self._looked = written

    def _rewrite(self, number: int) -> None:
        """Drop what was overwritten in a range, and divide it if it is still large."""
        data = self._spill.take(number)
        written = len(data)
        data = last_writes(data)
        self._wanted = len(data) / max(1, written)
        parts = max(2, round(2 * len(data) / self._largest)) if len(data) > self._largest // 2 else 1
        firsts = _quantiles(sampled_keys(data, _SAMPLED), np.arange(1, parts) / parts) if parts > 1 else []
        self._spill.divide(number + 1, firsts)
        for place, first in reversed(list(enumerate(firsts, start=number + 1))):
            data, above = divided(data, first)
            self._spill.put(place, above)
        self._spill.put(number, data)
        for one in self._spill.ranges[number : number + 1 + len(firsts)]:
            one.live = one.written


def _columns(table: KeyTable, ids: npt.NDArray[np.uint32]) -> Iterator[Columns]:
    return map(columns_of, chunks_of(table, ids))


def _quantiles(keys: Sequence[bytes], shares: npt.NDArray[np.float64]) -> list[bytes]:
    """Keys below which these shares of some keys lie, more or less; ascending, and never the least one."""
    ordered = sorted(set(keys))
    if len(ordered) < 2:
        return []
    at = np.unique(np.clip((len(ordered) * shares).astype(np.int64), 1, len(ordered) - 1))
    return [ordered[number] for number in at.tolist()]
