"""Distinct keys that exceed a builder's memory: records on disk, and an in-memory table for one key range at a time.

When the memory is full, its records and every later one are written to disk, divided into key ranges (:mod:`.spill`),
without any lookup. After the last record the ranges are read back one after the other, and the last writes of each
become a table. A range that is too large for that is read in pieces and divided first. Earlier, ranges are only read
where the disk would hold many times the live bytes. The number of ranges stays about the same however much is on disk,
so memory follows the budget::

    budget    ├─ buffers: 1/8, and as much while a range is divided ─┤─ a range: up to 2/7 ─┤─ its keys and columns ─┤
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from statecore.images.chunks import chunks_of, columns_of
from statecore.images.key_table import Columns, KeyTable
from statecore.images.row_batches import last_writes, unpacked
from statecore.images.spill import Spill

_RANGES = 32  # Initial number of ranges. The buffers of twice as many do not stay in the processor's caches.
_SAMPLED, _SAMPLED_BYTES = 8192, 1 / 32  # Most keys sampled to find the starts of ranges, and their share of the budget

_LARGEST_BLOCK, _SMALLEST_BLOCK, _BLOCK = 64 << 10, 4 << 10, 1 / 512
"""Bytes of a block on disk: that share of the budget, within these limits."""

_NEEDED = 3  # Memory that reading a range needs, as a multiple of its bytes; mostly columns, if nothing was overwritten
_MOST_WRITTEN = 3  # Most bytes on disk, as a multiple of the live bytes


class ExternalKeyTable:
    """Key ranges on disk."""

    def __init__(self, directory: Path, budget: int, table: KeyTable, new_table: Callable[[], KeyTable]) -> None:
        self._budget = self._check_at = budget
        self._new_table = new_table
        self._spill = Spill(directory, min(_LARGEST_BLOCK, max(_SMALLEST_BLOCK, int(budget * _BLOCK))))
        self._largest = max(self._spill.buffer, (budget - _RANGES * self._spill.buffer) // _NEEDED)
        ids = table.survivors(tombstones=True)
        self._sample: list[bytes] = []
        self._every = max(1, len(ids) // _SAMPLED)
        self._chance = np.random.default_rng(0)  # periodic input must not be sampled periodically
        chunks = chunks_of(table, ids[:: self._every].copy())
        self._add_sample(key for chunk in chunks for key in columns_of(chunk).keys.to_pylist())
        self._spill.divide(0, _quantiles(self._sample, _RANGES))
        for chunk in chunks_of(table, ids):
            self._spill.add(columns_of(chunk))

    @property
    def written(self) -> int:
        """Bytes on disk that have not been read back."""
        return self._spill.written

    def add(self, columns: Columns) -> None:
        """Add records; those without a key are skipped."""
        self._spill.add(columns)
        rows = len(columns.keys)
        places = self._chance.integers(0, max(1, rows), self._chance.binomial(rows, 1 / self._every))
        self._add_sample(columns.keys.take(pa.array(places)).drop_null().to_pylist())
        if self._spill.written > self._check_at:
            self._bound_files()

    def tables(self) -> Iterator[KeyTable]:
        """Yield tables of last writes, one key range after the other in key order, and drop what was yielded."""
        while self._spill.ranges:
            if self._is_large(0):
                if self._divide(0):
                    continue
                self._spill.squeeze(0, self._largest)
            table = self._new_table()
            for columns in unpacked(last_writes(self._spill.take(0))):
                table.append(*columns)
            self._spill.remove(0, 1)
            yield table
            del table  # before the next one is read

    def close(self) -> None:
        """Close the files."""
        self._spill.close()

    def _add_sample(self, keys: Iterable[bytes]) -> None:
        """Add sampled keys. When they are too many, half are dropped, and the sampling rate is halved."""
        self._sample += keys
        if len(self._sample) > _SAMPLED or sum(map(len, self._sample)) > self._budget * _SAMPLED_BYTES:
            self._sample, self._every = self._sample[::2], self._every * 2

    def _bound_files(self) -> None:
        """Rewrite ranges, at least one, until the files are at most a few times the (estimated) live bytes."""
        ranges = self._spill.ranges
        while True:
            number = max(range(len(ranges)), key=lambda number: ranges[number].written - ranges[number].live)
            before = ranges[number].written
            if before <= ranges[number].live:
                break
            self._rewrite(number)
            share = ranges[number].live / before
            wanted = sum(max(one.live, one.written * share) for one in ranges)
            self._check_at = int(_MOST_WRITTEN * wanted)
            if self._spill.written <= self._check_at:
                break

    def _rewrite(self, number: int) -> None:
        """Drop overwritten records of a range. The parts that a large range is divided into become one range again."""
        spill = self._spill
        if not self._is_large(number):
            spill.put(number, last_writes(spill.take(number)))
        elif more := self._divide(number):
            self._rewrite(number)
            for part in range(number + 1, number + 1 + more):
                if self._is_large(part):
                    self._rewrite(part)
                    spill.move(part, number)
                else:
                    spill.put(number, last_writes(spill.take(part)))
            spill.remove(number + 1, more)
        else:
            spill.squeeze(number, self._largest)
        one = spill.ranges[number]
        one.live = one.written

    def _is_large(self, number: int) -> bool:
        return self._spill.ranges[number].written > self._largest

    def _divide(self, number: int) -> int:
        """Divide a range into smaller ones; returns the number of additional ranges."""
        ranges = self._spill.ranges
        first, end = ranges[number].first, ranges[number + 1].first if number + 1 < len(ranges) else None
        keys = [key for key in self._sample if key > first and (end is None or key < end)]
        firsts = _quantiles([first, *keys], min(_RANGES, 2 * ranges[number].written // self._largest + 1))
        if firsts:
            self._spill.divide(number, firsts)
        return len(firsts)


def _quantiles(keys: Sequence[bytes], parts: int) -> list[bytes]:
    """Keys that divide some keys into ``parts`` parts of about equal size; ascending, without the smallest key."""
    ordered = sorted(set(keys))
    places = {len(ordered) * part // parts for part in range(1, parts)} - {0}
    return [ordered[place] for place in sorted(places)]
