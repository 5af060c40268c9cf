"""Several runs read as one, key by key: the later run wins, a delete hides what is below it.

The runs are SST files of our own layout (:mod:`statecore.images.sst`), so kernels read them where they lie, mapped into
memory. What is done with the rows is the caller's: :mod:`.runs_digest` adds them up, :mod:`.merge` writes them.
"""

from __future__ import annotations

import statecore.extras.pipeline

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from statecore.errors import Corrupted
from statecore.images import kernel, merged_kernel
from statecore.images.addresses import address_of
from statecore.images.digest import SEEDS
from statecore.images.merged_kernel import CURSOR, DAMAGE, DAMAGED, MORE, NEEDS_ROOM, STATE, Cursor, State
from statecore.images.model import RunFile
from statecore.images.sst import FORMAT_VERSION

_MAGIC = 0x88E241B785F4CFF7
_XXH64 = 3
_FOOTER_BYTES = 53
_TRAILER_BYTES = 5
_KEY_ROOM = 256  # bytes that each run has for its key before a longer one comes


class Table(NamedTuple):
    """A run's file: its bytes, and where its index entries begin (data blocks lie before) and end."""

    data: npt.NDArray[np.uint8]
    entries: int
    entries_end: int


class Rows(NamedTuple):
    """Buffers that rows are copied into; see :class:`statecore.images.key_table.Chunk`."""

    key_offsets: npt.NDArray[np.int64]
    keys: npt.NDArray[np.uint8]
    value_offsets: npt.NDArray[np.int64]
    values: npt.NDArray[np.uint8]
    valid: npt.NDArray[np.uint8]


class MergingRuns:
    """Runs that are read together, from their first rows on.

    Args:
        runs: the runs in the order they were applied.
        tables: their files, from :func:`open_table`.

    Raises:
        Corrupted: a run is not in the format that its footer says.
    """

    def __init__(self, runs: Sequence[RunFile], tables: Sequence[Table]) -> None:
        count = len(runs)
        self._runs, self._tables = runs, tables
        self._cursors, self._heap = np.zeros((count, len(CURSOR)), np.int64), np.zeros(count, np.int64)
        self._keys = [np.zeros(_KEY_ROOM, np.uint8) for _ in runs]
        self._last = np.zeros(_KEY_ROOM, np.uint8)
        self._state = np.array(State(last=address_of(self._last)), np.int64)
        for cursor, table, key in zip(self._cursors, tables, self._keys, strict=True):
            start = address_of(table.data)
            cursor[:] = Cursor(
                file=start,
                limit=table.entries,
                index_at=start + table.entries,
                index_end=start + table.entries_end,
                key=address_of(key),
                key_room=len(key),
            )
        self._more = self._call(
            lambda: merged_kernel.run("begin", cursors=self._cursors, count=count, heap=self._heap, state=self._state)
        )

    @property
    def state(self) -> State:
        """What the kernels have counted so far."""
        return State(*self._state.tolist())

    @property
    def next_row_bytes(self) -> tuple[int, int]:
        """Bytes of key and value of the row that is next."""
        cursor = Cursor(*self._cursors[self._heap[0]].tolist())
        return cursor.key_length, cursor.value_length

    def add_up(self, limit: int) -> bool:
        """Read so many rows and add those that count to ``state``; whether there are more.

        Raises:
            Corrupted: a run is not in the format that its footer says, or has not as many entries as it should.
        """
        return self._more and self._call_and_check_end(
            lambda: merged_kernel.run(
                "merge",
                cursors=self._cursors,
                heap=self._heap,
                state=self._state,
                limit=limit,
                seed_a=SEEDS[0],
                seed_b=SEEDS[1],
            )
        )

    def take(self, rows: Rows, *, keep_deletes: bool) -> bool:
        """Copy rows that count into buffers, ``state.taken`` of them; whether there are more.

        Nothing is taken where the next row alone is larger than the buffers.

        Raises:
            Corrupted: as :meth:`add_up`.
        """
        self._state[STATE.taken] = 0
        return self._more and self._call_and_check_end(
            lambda: merged_kernel.run(
                "take",
                cursors=self._cursors,
                heap=self._heap,
                state=self._state,
                limit=len(rows.valid),
                keep_deletes=int(keep_deletes),
                key_room=len(rows.keys),
                value_room=len(rows.values),
                key_offsets=rows.key_offsets,
                keys=rows.keys,
                value_offsets=rows.value_offsets,
                values=rows.values,
                valid=rows.valid,
            )
        )

    def _call(self, work: Callable[[], int]) -> bool:
        """Call a kernel, and again as often as the key of a run needs more memory; whether there are more rows."""
        while (result := work()) == NEEDS_ROOM:
            self._make_room(self.state.stopped)
        if result == DAMAGED:
            found = self.state
            place = int(self._cursors[found.stopped, CURSOR.next_block])
            raise damaged(self._runs[found.stopped], f"{DAMAGE[found.damage]} (near byte {place})")
        return result == MORE

    def _make_room(self, run: int) -> None:
        """Give a run the memory that its next key needs, and twice what it had at least."""
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
        if not self._more:
            self._check_entries()
        return self._more

    def _check_entries(self) -> None:
        for run, entries in zip(self._runs, self._cursors[:, CURSOR.entries].tolist(), strict=True):
            if entries != run.rows + run.deletes:
                raise damaged(run, f"has {entries} entries instead of {run.rows + run.deletes}")


def open_table(run: RunFile, path: Path) -> Table:
    """Map the file of a run and find its index.

    Raises:
        Corrupted: it is no file of the columnar writer, or its index is damaged.
    """
    if path.stat().st_size < _FOOTER_BYTES:
        raise damaged(run, "is too short for an SST file")
    data = np.memmap(path, np.uint8, "r")
    footer = data[-_FOOTER_BYTES:].tobytes()
    version, magic = struct.unpack_from("<IQ", footer, 41)
    if magic != _MAGIC:
        raise damaged(run, "does not end as an SST file does")
    if (version, footer[0]) != (FORMAT_VERSION, _XXH64):
        raise damaged(run, f"is in format version {version} with checksums of type {footer[0]}, which no run is")
    _, _, offset, size = _numbers(run, footer[1:41])
    room = len(data) - _FOOTER_BYTES - _TRAILER_BYTES
    if size < 8 or offset > room or size > room - offset:
        raise damaged(run, "has an index outside of the file")
    whole = data[offset : offset + size + 1]
    (checksum,) = struct.unpack("<I", data[offset + size + 1 : offset + size + _TRAILER_BYTES].tobytes())
    if whole[-1] or kernel.run("xxh64", address=whole, length=len(whole), seed=0) & 0xFFFFFFFF != checksum:
        raise damaged(run, "has an index whose checksum differs")
    (blocks,) = struct.unpack("<I", whole[-5:-1].tobytes())
    if not 0 < blocks <= (size - 4) // 4:
        raise damaged(run, "has an index without entries or with too many")
    return Table(data, offset, offset + size - 4 - 4 * blocks)


def _numbers(run: RunFile, data: bytes) -> list[int]:
    """The four numbers of a footer's handles."""
    numbers, number, shift = [], 0, 0
    for byte in data:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(number)
            number = shift = 0
    if len(numbers) < 4:
        raise damaged(run, "has a footer without handles")
    return numbers[:4]


def damaged(run: RunFile, how: str) -> Corrupted:
    """The error for a run that is not what it was or must be."""
    return Corrupted(
        f"The run {run.path} {how}.",
        action="Build the run again; if it happens twice, check the disk and memory of this host.",
        path=str(run.path),
    )
