"""Records on disk, divided by key range: what a builder does with those that its memory has no room for.

This is the hybrid hash aggregation of databases (Shapiro, "Join Processing in Database Systems with Large Main
Memories", 1986), divided by ranges of keys instead of hashes. Ranges follow one another in key order, and within a
range only the last write of each key counts, so a builder that takes one range after the other, each small enough for
its memory, writes one sorted run without ever merging::

    keys    a ────────────┬───────────┬──────────┬──────────▶ z
            in memory     range 0     range 1    range 2          bounds: the keys at which ranges begin
                          blocks      blocks     blocks           records in offset order

Records are packed into a buffer for each range. When it is full, its whole blocks go to a scratch file that all ranges
share (:mod:`.scratch_file`). The blocks of a range, one after the other, are its records (:mod:`.packed_records`); one
may begin in a block and end in the next.
"""

from __future__ import annotations

import statecore.extras.pipeline

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from statecore.images import kernel
from statecore.images.addresses import binary_column
from statecore.images.key_table import Columns
from statecore.images.packed_records import kept_rows, packed_row
from statecore.images.scratch_file import ScratchFile

_BUFFER_BLOCKS = 2
"""Of a buffer: what is left of a block when whole ones were written, and room for one more."""


@dataclass
class Range:
    """The records of one range of keys.

    Attributes:
        first: the key that the range begins at.
        blocks: of its records, oldest first, but for those in its buffer.
        written: bytes of these blocks.
        live: bytes of its records when it was last rewritten: as many are still wanted, more or less.
    """

    first: bytes
    blocks: array[int] = field(default_factory=lambda: array("q"))
    written: int = 0
    live: int = 0


@dataclass
class _Bounds:
    """The first keys of all ranges, as the kernel reads them."""

    keys: list[bytes]
    data: npt.NDArray[np.uint8] = field(init=False)
    offsets: npt.NDArray[np.int64] = field(init=False)
    words: npt.NDArray[np.uint64] = field(init=False)
    skip: int = field(init=False)

    def __post_init__(self) -> None:
        ends = zip(self.keys[0], self.keys[-1], strict=False) if self.keys else ()  # the keys ascend
        self.skip = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], ends))
        self.data = np.frombuffer(b"".join(self.keys) + bytes(8), np.uint8)
        self.offsets = np.cumsum([0, *map(len, self.keys)]).astype(np.int64)
        words = [key[self.skip : self.skip + 8].ljust(8, b"\0") for key in self.keys]
        self.words = np.array([int.from_bytes(word, "big") for word in words], np.uint64)


class Spill:
    """Records divided by key range; those below the first range are not its own.

    Args:
        directory: where the scratch file is made; must exist.
        block: bytes of its blocks.

    Raises:
        Capacity, Invalid: as :class:`ScratchFile`.
    """

    def __init__(self, directory: Path, block: int) -> None:
        self._file = ScratchFile(directory, block)
        self._room = _BUFFER_BLOCKS * self._file.capacity
        self._ranges: list[Range] = []
        self._bounds = _Bounds([])
        self._buffers = np.empty((0, self._room), np.uint8)
        self._fill = np.zeros(0, np.int64)
        self._taken = np.empty(0, np.uint8)

    @property
    def ranges(self) -> Sequence[Range]:
        """The ranges, in key order."""
        return self._ranges

    @property
    def memory(self) -> int:
        """Bytes of the buffers."""
        return self._buffers.nbytes + self._taken.nbytes

    @property
    def file_bytes(self) -> int:
        """The size of the scratch file."""
        return self._file.size

    def divide(self, at: int, firsts: Sequence[bytes]) -> None:
        """Begin ranges.

        Args:
            at: in front of which range.
            firsts: the keys they begin at: ascending, between the first keys of their neighbours. What lies in them
                already, in the range before, stays there, so that one must have been taken.
        """
        self._ranges[at:at] = map(Range, firsts)
        self._bounds = _Bounds([one.first for one in self._ranges])
        self._buffers = np.insert(self._buffers, [at] * len(firsts), 0, axis=0)
        self._fill = np.insert(self._fill, [at] * len(firsts), 0)

    def add(self, columns: Columns) -> Columns:
        """Take the records that lie in a range.

        Returns:
            Those that lie below the first, in buffers of their own; none without a key.

        Raises:
            Capacity, Invalid: as :meth:`ScratchFile.write`.
        """
        rows = len(columns.keys)
        if not rows:
            return columns
        ranges = np.empty(rows, np.uint32)
        keys, values = binary_column(columns.keys), binary_column(columns.values)
        stamps = columns.timestamps.buffers()[1].address + 8 * columns.timestamps.offset
        bounds = self._bounds
        kernel.run(
            "route",
            offsets=keys.offsets,
            width=keys.width,
            data=keys.data,
            valid=keys.valid,
            rows=rows,
            bounds=bounds.data,
            bound_offsets=bounds.offsets,
            count=len(bounds.keys),
            skip=bounds.skip,
            words=bounds.words,
            out=ranges,
        )
        source: dict[str, Any] = {
            "offsets": keys.offsets,
            "width": keys.width,
            "data": keys.data,
            "value_offsets": values.offsets,
            "value_width": values.width,
            "value_data": values.data,
            "value_valid": values.valid,
            "stamps": stamps,
            "rows": rows,
        }
        self._pack(columns, ranges, source)
        return kept_rows(ranges, source)

    def _pack(
        self,
        columns: Columns,
        ranges: npt.NDArray[np.uint32],
        source: Mapping[str, Any],
    ) -> None:
        full = np.zeros(1, np.int64)
        row, rows = 0, len(ranges)
        while True:
            row = kernel.run(
                "pack",
                **source,
                ranges=ranges,
                first=1,
                row=row,
                buffers=self._buffers,
                room=self._room,
                fill=self._fill,
                full=full,
            )
            if row == rows:
                return
            if self._fill[full[0]] < self._file.capacity:  # the record is larger than a block
                self.put(int(full[0]), packed_row(columns, row))
                row += 1
            self._write_buffers()

    def take(self, number: int) -> npt.NDArray[np.uint8]:
        """The records of a range, packed, oldest first; it is empty from now on.

        Args:
            number: the range.

        Returns:
            A part of a buffer that the next call uses again.

        Raises:
            Retryable: a block is not what was written.
        """
        of, fill, block = self._ranges[number], int(self._fill[number]), self._file.capacity
        if len(self._taken) < len(of.blocks) * block + fill:
            self._taken = np.empty((len(of.blocks) * block + fill) * 9 // 8, np.uint8)
        at = 0
        for one in of.blocks:
            at += self._file.take(one, self._taken[at : at + block])
        self._taken[at : at + fill] = self._buffers[number, :fill]
        of.blocks, of.written, of.live = array("q"), 0, 0
        self._fill[number] = 0
        return self._taken[: at + fill]

    def put(self, number: int, data: npt.NDArray[np.uint8]) -> None:
        """Add packed records to a range.

        Raises:
            Capacity, Invalid: as :meth:`ScratchFile.write`.
        """
        fill, capacity = int(self._fill[number]), self._file.capacity
        if fill:
            data = np.concatenate([self._buffers[number, :fill], data])
        whole = len(data) // capacity * capacity
        self._written(number, [data[at : at + capacity].data for at in range(0, whole, capacity)])
        self._fill[number] = len(data) - whole
        self._buffers[number, : len(data) - whole] = data[whole:]

    def close(self) -> None:
        """Let go of the file; again is fine."""
        self._file.close()

    def _write_buffers(self) -> None:
        """Write the first block of each buffer that has one."""
        capacity = self._file.capacity
        full = np.flatnonzero(self._fill >= capacity).tolist()
        blocks = self._file.write([self._buffers[number, :capacity].data for number in full])
        for number, block in zip(full, blocks, strict=True):
            self._ranges[number].blocks.append(block)
            self._ranges[number].written += capacity
            rest = int(self._fill[number]) - capacity
            self._buffers[number, :rest] = self._buffers[number, capacity : capacity + rest]
            self._fill[number] = rest

    def _written(self, number: int, blocks: list[memoryview]) -> None:
        self._ranges[number].blocks.extend(self._file.write(blocks))
        self._ranges[number].written += len(blocks) * self._file.capacity
