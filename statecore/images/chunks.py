"""Chunks of keys and last values in key order: gathering, Arrow columns, prepended timestamps, even chunk sizes."""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statecore.formats.key_value import put_on_timestamps
from statecore.images.key_table import Chunk, Columns, KeyTable
from statecore.images.sst import CHUNK_BYTES, CHUNK_ROWS


def chunks_of(table: KeyTable, ids: npt.NDArray[np.uint32]) -> Iterator[Chunk]:
    """Keys and last values of a table in the order of ids, as chunks."""
    return table.gather(ids, rows_at_once=CHUNK_ROWS, bytes_at_once=CHUNK_BYTES)


def columns_of(chunk: Chunk) -> Columns:
    """Arrow columns over a chunk's buffers."""
    validity, nulls = validity_of(chunk)
    count = len(chunk.valid)
    binary = pa.large_binary()
    return Columns(
        pa.Array.from_buffers(binary, count, [None, pa.py_buffer(chunk.key_offsets), pa.py_buffer(chunk.keys)]),
        pa.Array.from_buffers(
            binary, count, [validity, pa.py_buffer(chunk.value_offsets), pa.py_buffer(chunk.values)], nulls
        ),
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(chunk.timestamps)]),
    )


def stamped(chunk: Chunk) -> Chunk:
    """The chunk with each record's timestamp prepended to its value."""
    columns, count = columns_of(chunk), len(chunk.valid)
    _, offsets, data = put_on_timestamps(columns.values, columns.timestamps).buffers()
    return chunk._replace(
        value_offsets=np.frombuffer(offsets, np.int64)[: count + 1], values=np.frombuffer(data, np.uint8)
    )


def validity_of(chunk: Chunk) -> tuple[pa.Buffer | None, int]:
    """Arrow validity bitmap of a chunk (``None`` without deletes), and its number of deletes."""
    nulls = int(len(chunk.valid) - np.count_nonzero(chunk.valid))
    return (pa.py_buffer(np.packbits(chunk.valid, bitorder="little")) if nulls else None), nulls


class EvenChunks:
    """Splits rows into chunks at positions that depend on the rows alone.

    Rows of different chunks share no block of an SST file, so the same rows make the same file whatever tables they
    were gathered from. A chunk has as many rows as fit into its limits of rows, key bytes and value bytes, and at least
    one.
    """

    def __init__(self, rows: int = CHUNK_ROWS, bytes_each: int = CHUNK_BYTES) -> None:
        self._rows, self._bytes = rows, bytes_each
        self._held: Chunk | None = None

    def add(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield the complete chunks. The given chunk is held until then, so its buffers must not be written to."""
        if self._held is not None:
            if self._is_whole(self._held, chunk):  # the usual case, in which nothing is copied
                yield self._held
            else:
                chunk = _joined(self._held, chunk)
        low, count = 0, len(chunk.valid)
        while (end := self._end(chunk, low)) < count:
            yield _part(chunk, low, end)
            low = end
        self._held = _part(chunk, low, count)

    def rest(self) -> Iterator[Chunk]:
        """Yield the last chunk, if rows are left."""
        if self._held is not None:
            yield self._held
            self._held = None

    def _is_whole(self, chunk: Chunk, following: Chunk) -> bool:
        """Whether the first row of the following chunk no longer fits."""
        sizes = [(chunk.keys, following.key_offsets), (chunk.values, following.value_offsets)]
        return len(chunk.valid) == self._rows or any(
            len(have) + int(offsets[1] - offsets[0]) > self._bytes for have, offsets in sizes
        )

    def _end(self, chunk: Chunk, low: int) -> int:
        """End of the chunk that begins at row ``low``."""
        ends = [low + self._rows]
        for offsets in (chunk.key_offsets, chunk.value_offsets):
            ends.append(int(np.searchsorted(offsets, offsets[low] + self._bytes, side="right")) - 1)
        return max(low + 1, min(ends))


def _part(chunk: Chunk, low: int, high: int) -> Chunk:
    if high - low == len(chunk.valid):
        return chunk
    keys, values = chunk.key_offsets[low : high + 1], chunk.value_offsets[low : high + 1]
    return Chunk(
        keys - keys[0],
        chunk.keys[keys[0] : keys[-1]],
        values - values[0],
        chunk.values[values[0] : values[-1]],
        chunk.valid[low:high],
        chunk.timestamps[low:high],
    )


def _joined(first: Chunk, second: Chunk) -> Chunk:
    return Chunk(
        np.concatenate([first.key_offsets, second.key_offsets[1:] + first.key_offsets[-1]]),
        np.concatenate([first.keys, second.keys]),
        np.concatenate([first.value_offsets, second.value_offsets[1:] + first.value_offsets[-1]]),
        np.concatenate([first.values, second.values]),
        np.concatenate([first.valid, second.valid]),
        np.concatenate([first.timestamps, second.timestamps]),
    )
