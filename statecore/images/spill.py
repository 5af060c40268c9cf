"""Records on disk, divided by key range, that exceed a builder's memory.

This is the hybrid hash aggregation of databases (Shapiro, "Join Processing in Database Systems with Large Main
Memories", 1986), divided by key ranges instead of hashes. Ranges are in key order, and within a range only the last
write of each key counts, so a builder that takes one range after the other, each small enough for its memory, writes
one sorted run without a merge::

    keys    ────────────┬───────────┬──────────┬──────────▶
            range 0     range 1     range 2    range 3         bounds: first keys of all ranges but the first
            blocks      blocks      blocks     blocks          records in offset order

Records are packed into a buffer for each range. When it is full, its whole blocks go to a scratch file
(:mod:`.scratch_file`). The concatenated blocks of a range are its records (:mod:`.row_batches`); a record may span
blocks. Ranges share a few files, adjacent ranges the same one, so that the disk space of the first ones is freed while
the last ones are still read.
"""

from __future__ import annotations

import statecore.extras.pipeline

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from statecore.images.kernels import kernel
from statecore.images.kernels.addresses import binary_column
from statecore.images.kernels.kernel import PACKED_HEADER
from statecore.images.key_table import Columns
from statecore.images.row_batches import last_writes, packed_row, record_bytes, whole_records
from statecore.images.scratch_file import ScratchFile

_BUFFER_BLOCKS = 2  # Blocks of a buffer: the remainder after whole blocks were written, and room for one more
_FILES, _READ_AT_ONCE = 8, 16

_BUCKET_BITS = 10  # There are 2 to this power buckets between the smallest and the greatest bound, searched at once


@dataclass
class Range:
    """The records of one key range."""

    first: bytes  # first key of the range
    file: int = 0  # index of the file with its blocks
    # numbers of its blocks, oldest first, without those in its buffer
    blocks: array[int] = field(default_factory=lambda: array("q"))
    written: int = 0  # bytes of these blocks
    live: int = 0  # bytes of its records after it was last rewritten, an estimate of the live bytes


@dataclass
class _Bounds:
    """First keys of ranges, in the form that the kernels read."""

    keys: list[bytes]
    data: npt.NDArray[np.uint8] = field(init=False)
    offsets: npt.NDArray[np.int64] = field(init=False)
    words: npt.NDArray[np.uint64] = field(init=False)
    skip: int = field(init=False)
    shift: int = field(init=False)
    starts: npt.NDArray[np.uint32] = field(init=False)

    def __post_init__(self) -> None:
        ends = zip(self.keys[0], self.keys[-1], strict=False) if self.keys else ()  # the keys ascend
        self.skip = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], ends))
        self.data = np.frombuffer(b"".join(self.keys) + bytes(8), np.uint8)
        self.offsets = np.cumsum([0, *map(len, self.keys)]).astype(np.int64)
        words = [int.from_bytes(key[self.skip : self.skip + 8].ljust(8, b"\0"), "big") for key in self.keys]
        self.words = np.array(words, np.uint64)
        least, most = (words[0], words[-1]) if words else (0, 0)
        self.shift = max(0, (most - least).bit_length() - _BUCKET_BITS)
        buckets = [(word - least) >> self.shift for word in words]
        self.starts = np.searchsorted(buckets, np.arange((1 << _BUCKET_BITS) + 1)).astype(np.uint32)

    @property
    def arguments(self) -> dict[str, int | npt.NDArray[Any]]:
        """Kernel arguments."""
        return {
            "bounds": self.data,
            "bound_offsets": self.offsets,
            "count": len(self.keys),
            "skip": self.skip,
            "words": self.words,
            "starts": self.starts,
            "shift": self.shift,
        }


class Spill:
    """Records divided by key range; initially there is one range."""

    def __init__(self, directory: Path, block: int) -> None:
        self._files = [ScratchFile(directory, block) for _ in range(_FILES)]
        self._block = block
        self.buffer = _BUFFER_BLOCKS * block  # bytes of memory per range
        self._ranges = [Range(b"")]
        self._bounds = _Bounds([])
        self._buffers = np.empty((1, self.buffer), np.uint8)
        self._fill = np.zeros(1, np.int64)
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
    def written(self) -> int:
        """Bytes of all blocks."""
        return sum(one.written for one in self._ranges)

    @property
    def file_bytes(self) -> int:
        """Size of all files."""
        return sum(file.size for file in self._files)

    def divide(self, number: int, firsts: Sequence[bytes]) -> None:
        """Split a range, and distribute its records."""
        pieces = self._pieces(number, _READ_AT_ONCE)
        at, fresh = number + 1, not self.file_bytes
        self._ranges[at:at] = [Range(first, self._ranges[number].file) for first in firsts]
        if fresh:
            for place, one in enumerate(self._ranges):
                one.file = place * _FILES // len(self._ranges)
        self._bounds = _Bounds([one.first for one in self._ranges[1:]])
        self._buffers = np.insert(self._buffers, [at] * len(firsts), 0, axis=0)
        self._fill = np.insert(self._fill, [at] * len(firsts), 0)
        _each_whole(pieces, self._repack)

    def squeeze(self, number: int, size: int) -> None:
        """Drop overwritten records of a range within pieces of ``size`` bytes."""

        def squeezed(data: npt.NDArray[np.uint8]) -> int:
            end = whole_records(data)
            self.put(number, last_writes(data[:end]))
            return end

        _each_whole(self._pieces(number, max(1, size // self._block)), squeezed)

    def _repack(self, data: npt.NDArray[np.uint8]) -> int:
        """Append packed records to their ranges; returns the end of the last whole record."""
        bounds, full, at = self._bounds, np.empty(1, np.int64), 0
        while True:
            at = kernel.run(
                "repack",
                data=data,
                at=at,
                end=len(data),
                **bounds.arguments,
                buffers=self._buffers,
                room=self.buffer,
                fill=self._fill,
                full=full,
            )
            if full[0] < 0:
                return at
            if self._fill[full[0]] < self._block:  # the record is larger than a block
                end = at + record_bytes(data[at:])
                self.put(int(full[0]), data[at:end])
                at = end
            self._write_buffers()

    def remove(self, number: int, count: int) -> None:
        """Remove ``count`` empty ranges from ``number`` on; a file without ranges is closed, which frees its space."""
        files = {one.file for one in self._ranges[number : number + count]}
        del self._ranges[number : number + count]
        for left in files - {one.file for one in self._ranges}:
            self._files[left].close()
        self._bounds = _Bounds([one.first for one in self._ranges[1:]])
        self._buffers = np.delete(self._buffers, np.s_[number : number + count], axis=0)
        self._fill = np.delete(self._fill, np.s_[number : number + count])

    def add(self, columns: Columns) -> None:
        """Add records; those without a key are skipped."""
        rows = len(columns.keys)
        if not rows:
            return
        ranges = np.empty(rows, np.uint32)
        keys, values = binary_column(columns.keys), binary_column(columns.values)
        kernel.run(
            "route",
            offsets=keys.offsets,
            width=keys.width,
            data=keys.data,
            valid=keys.valid,
            rows=rows,
            **self._bounds.arguments,
            out=ranges,
        )
        source = {
            "offsets": keys.offsets,
            "width": keys.width,
            "data": keys.data,
            "value_offsets": values.offsets,
            "value_width": values.width,
            "value_data": values.data,
            "value_valid": values.valid,
            "stamps": columns.timestamps.buffers()[1].address + 8 * columns.timestamps.offset,
            "rows": rows,
        }
        full = np.zeros(1, np.int64)
        row = 0
        while True:
            row = kernel.run(
                "pack",
                **source,
                ranges=ranges,
                row=row,
                buffers=self._buffers,
                room=self.buffer,
                fill=self._fill,
                full=full,
            )
            if row == rows:
                return
            if self._fill[full[0]] < self._block:  # the record is larger than a block
                self.put(int(full[0]), packed_row(columns, row))
                row += 1
            self._write_buffers()

    def take(self, number: int) -> npt.NDArray[np.uint8]:
        """Remove and return the records of a range, packed, oldest first, in a buffer that the next call reuses."""
        blocks, rest = self._emptied(number)
        written = len(blocks) * self._block
        size = written + len(rest)
        if len(self._taken) < size:
            self._taken = np.empty(size * 9 // 8, np.uint8)
        self._files[self._ranges[number].file].take(blocks, self._taken.data)
        self._taken[written:size] = rest
        return self._taken[:size]

    def move(self, number: int, to: int) -> None:
        """Append the records of a range to another one."""
        for piece in self._pieces(number, _READ_AT_ONCE):
            self.put(to, piece)

    def _pieces(self, number: int, count: int) -> Iterator[npt.NDArray[np.uint8]]:
        """Bytes of a range, ``count`` blocks at a time. The range is empty when this returns, and can be added to."""
        blocks, rest = self._emptied(number)
        return chain(self._read(self._files[self._ranges[number].file], blocks, count), (rest.copy(),))

    def _emptied(self, number: int) -> tuple[array[int], npt.NDArray[np.uint8]]:
        """Empty a range; returns its blocks and the used part of its buffer, which is valid until records are added."""
        of, fill = self._ranges[number], int(self._fill[number])
        blocks, of.blocks, of.written, of.live = of.blocks, array("q"), 0, 0
        self._fill[number] = 0
        return blocks, self._buffers[number, :fill]

    def _read(self, file: ScratchFile, blocks: array[int], count: int) -> Iterator[npt.NDArray[np.uint8]]:
        into = np.empty(min(count, len(blocks)) * self._block, np.uint8)
        for low in range(0, len(blocks), count):
            some = blocks[low : low + count]
            file.take(some, into.data)
            yield into[: len(some) * self._block]

    def put(self, number: int, data: npt.NDArray[np.uint8]) -> None:
        """Append packed records to a range. Raises as :meth:`ScratchFile.write`."""
        of, fill, block = self._ranges[number], int(self._fill[number]), self._block
        missing = min(-fill % block, len(data))  # of the last block in the buffer
        head, data = np.concatenate([self._buffers[number, :fill], data[:missing]]), data[missing:]
        parts = [head, data] if len(data) else [head]
        blocks = [part[at : at + block].data for part in parts for at in range(0, len(part) // block * block, block)]
        of.blocks.extend(self._files[of.file].write(blocks))
        of.written += len(blocks) * block
        left = len(parts[-1]) % block
        self._buffers[number, :left] = parts[-1][len(parts[-1]) - left :]
        self._fill[number] = left

    def close(self) -> None:
        """Close the files; idempotent."""
        for file in self._files:
            file.close()

    def _write_buffers(self) -> None:
        """Write the first block of each buffer that has a whole one."""
        full = np.flatnonzero(self._fill >= self._block).tolist()
        view, block, room = self._buffers.reshape(-1).data, self._block, self.buffer
        for file, numbers in groupby(full, key=lambda number: self._ranges[number].file):
            some = list(numbers)
            places = self._files[file].write([view[number * room : number * room + block] for number in some])
            for number, place in zip(some, places, strict=True):
                self._ranges[number].blocks.append(place)
                self._ranges[number].written += block
        count = len(self._fill)
        kernel.run("drop_first", buffers=self._buffers, count=count, room=room, fill=self._fill, size=block)


def _each_whole(pieces: Iterable[npt.NDArray[np.uint8]], use: Callable[[npt.NDArray[np.uint8]], int]) -> None:
    """Pass pieces to ``use``, which returns the end of the last whole record; put the rest before the next piece.

    Pieces of a large record are collected until it is whole, so that the cost is linear.
    """
    data, size, needed = np.empty(0, np.uint8), 0, 0
    for piece in pieces:
        end = size + len(piece)
        if end > len(data):
            data, before = np.empty(max(end, needed + len(piece)), np.uint8), data
            data[:size] = before[:size]
            del before
        data[size:end] = piece
        if end < needed:
            size = end
            continue
        used = use(data[:end])
        size = end - used
        data[:size] = data[used:end]
        needed = record_bytes(data[:size]) if size >= PACKED_HEADER else 0
