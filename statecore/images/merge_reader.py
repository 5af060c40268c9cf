"""Reads several runs as one, key by key: the later run wins, a delete hides older rows.

The runs are SST files of our own layout (:mod:`statecore.images.sst`), so kernels read the mapped files directly.
:mod:`.runs_digest` digests the rows, :mod:`.merge_writer` writes them.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from statecore.images.digest import SEEDS
from statecore.images.kernels import merged_kernel
from statecore.images.kernels.merged_kernel import CURSOR, DAMAGE, DAMAGED, MORE, NEEDS_ROOM, STATE, Cursor, State
from statecore.images.key_table import Chunk
from statecore.images.mapped_runs import KeyRange, Table, damaged, first_block, index_entry
from statecore.images.model import RunFile
from statecore.images.sst import CHUNK_BYTES, CHUNK_ROWS
from statecore.kernels.library import address_of

_ALL = KeyRange()


@dataclass(frozen=True)
class MergeLimits:
    """Buffer sizes of a merge, and its work per kernel call."""

    rows: int = CHUNK_ROWS  # rows copied before they are written
    bytes_each: int = CHUNK_BYTES  # bytes of keys, and of values, likewise
    key_bytes: int = 256  # initial buffer size for the key of each run
    # most entries read in one kernel call: at most a second of work, so that interrupts are handled
    entries: int = 4 << 20


LIMITS = MergeLimits()


class Rows(NamedTuple):
    """Buffers that rows are copied into; see :class:`Chunk`."""

    key_offsets: npt.NDArray[np.int64]
    keys: npt.NDArray[np.uint8]
    value_offsets: npt.NDArray[np.int64]
    values: npt.NDArray[np.uint8]
    valid: npt.NDArray[np.uint8]

    @property
    def arguments(self) -> dict[str, Any]:
        """The buffers and their sizes as kernel arguments."""
        return {**self._asdict(), "limit": len(self.valid), "key_room": len(self.keys), "value_room": len(self.values)}

    @classmethod
    def room(cls, limits: MergeLimits) -> Self:
        """Allocate buffers of these limits."""
        return cls(
            key_offsets=np.zeros(limits.rows + 1, np.int64),
            keys=np.empty(limits.bytes_each, np.uint8),
            value_offsets=np.zeros(limits.rows + 1, np.int64),
            values=np.empty(limits.bytes_each, np.uint8),
            valid=np.empty(limits.rows, np.uint8),
        )

    def with_room_for(self, key_bytes: int, value_bytes: int) -> Self:
        """Buffers in which such a row fits; larger ones are new, and empty."""
        return self._replace(
            keys=np.empty(max(len(self.keys), key_bytes), np.uint8),
            values=np.empty(max(len(self.values), value_bytes), np.uint8),
        )

    def chunk(self, taken: int) -> Chunk:
        """View of the first rows."""
        return Chunk(
            self.key_offsets[: taken + 1],
            self.keys[: self.key_offsets[taken]],
            self.value_offsets[: taken + 1],
            self.values[: self.value_offsets[taken]],
            self.valid[:taken],
            np.zeros(taken, np.int64),
        )


class MergingRuns:
    """Reads runs together, from their first rows on."""

    def __init__(
        self, runs: Sequence[RunFile], tables: Sequence[Table], keys: KeyRange = _ALL, limits: MergeLimits = LIMITS
    ) -> None:
        count = len(runs)
        self.limits, self._runs, self._tables = limits, runs, tables
        self._is_whole = keys == _ALL
        self._low = np.frombuffer(keys.low or b"\0", np.uint8)
        self._high = np.frombuffer(keys.high or b"\0", np.uint8)
        self._cursors, self._heap = np.zeros((count, len(CURSOR)), np.int64), np.zeros(count, np.int64)
        self._keys = [np.zeros(limits.key_bytes, np.uint8) for _ in runs]
        self._last = np.zeros(limits.key_bytes, np.uint8)
        bounds = State(
            last=address_of(self._last),
            low=address_of(self._low),
            low_length=len(keys.low),
            high=address_of(self._high),
            high_length=-1 if keys.high is None else len(keys.high),
        )
        self._state = np.array(bounds, np.int64)
        for cursor, run, table, key in zip(self._cursors, runs, tables, self._keys, strict=True):
            cursor[:] = _cursor(run, table, keys)._replace(key=address_of(key), key_room=len(key))
        self._more = self._call(
            lambda: merged_kernel.run("begin", cursors=self._cursors, count=count, heap=self._heap, state=self._state)
        )

    @property
    def state(self) -> State:
        """Counters of the kernels so far."""
        return State(*self._state.tolist())

    @property
    def entries(self) -> list[int]:
        """Entries of each run read so far, inside the key range."""
        return [int(entries) for entries in self._cursors[:, CURSOR.entries]]

    @property
    def next_row_bytes(self) -> tuple[int, int]:
        """Bytes of key and value of the next row."""
        cursor = Cursor(*self._cursors[self._heap[0]].tolist())
        return cursor.key_length, cursor.value_length

    def add_up(self) -> bool:
        """Digest the next rows into ``state``; returns whether there are more."""
        return self._more and self._call_and_check_end(
            lambda: merged_kernel.run(
                "merge",
                cursors=self._cursors,
                heap=self._heap,
                state=self._state,
                limit=self.limits.entries,
                seed_a=SEEDS[0],
                seed_b=SEEDS[1],
            )
        )

    def take(self, rows: Rows, *, keep_deletes: bool) -> bool:
        """Copy the next live rows, none if one alone is too large (``state.taken``); returns whether there are more."""
        self._state[STATE.taken] = 0
        return self._more and self._call_and_check_end(
            lambda: merged_kernel.run(
                "take",
                cursors=self._cursors,
                heap=self._heap,
                state=self._state,
                keep_deletes=int(keep_deletes),
                **rows.arguments,
            )
        )

    def _call(self, work: Callable[[], int]) -> bool:
        """Call a kernel, again after each enlargement of a key buffer; returns whether there are more rows."""
        while (result := work()) == NEEDS_ROOM:
            self._make_room(self.state.stopped)
        if result == DAMAGED:
            found = self.state
            place = int(self._cursors[found.stopped, CURSOR.next_block])
            raise damaged(self._runs[found.stopped], f"{DAMAGE[found.damage]} (near byte {place})")
        return result == MORE

    def _make_room(self, run: int) -> None:
        """Enlarge a run's key buffer to what its next key needs, at least to twice its size."""
        cursor, held = self._cursors[run], self._keys[run]
        key = np.zeros(max(int(cursor[CURSOR.key_needed]), 2 * len(held)), np.uint8)
        key[: len(held)] = held
        self._keys[run] = key
        cursor[CURSOR.key], cursor[CURSOR.key_room] = address_of(key), len(key)
        if len(key) > len(self._last):
            last, self._last = self._last, np.zeros(len(key), np.uint8)
            self._last[: len(last)] = last
            self._state[STATE.last] = address_of(self._last)

    def _call_and_check_end(self, work: Callable[[], int]) -> bool:
        self._more = self._call(work)
        if self._is_whole and not self._more:
            check_entries(self._runs, self.entries)
        return self._more


def check_entries(runs: Sequence[RunFile], entries: Sequence[int]) -> None:
    """Check that the runs were read completely; ``entries`` are the entries read of each."""
    for run, found in zip(runs, entries, strict=True):
        if found != run.rows + run.deletes:
            raise damaged(run, f"has {found} entries instead of {run.rows + run.deletes}")


def _cursor(run: RunFile, table: Table, keys: KeyRange) -> Cursor:
    """Cursor from the first to the last block that may contain a key of the range."""
    start = address_of(table.data)
    cursor = Cursor(
        file=start, limit=table.entries, index_at=start + table.entries, index_end=start + table.entries_end
    )
    if keys.high is not None and (last := first_block(run, table, keys.high)) is not None:
        cursor = cursor._replace(index_end=start + index_entry(run, table, last).following)
    if keys.low:
        first = first_block(run, table, keys.low)
        if first is None:
            return cursor._replace(index_at=cursor.index_end)
        found = index_entry(run, table, first)
        cursor = cursor._replace(index_at=start + found.at, next_block=found.offset, skipping=1)
    return cursor
