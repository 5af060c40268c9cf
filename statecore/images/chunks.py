"""Keys and last values of a table in key order, chunk by chunk: as Arrow columns, and with timestamps in front."""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statecore.formats.key_value import put_on_timestamps
from statecore.images.key_table import Chunk, Columns, KeyTable

# Small enough that a chunk, its rows and their Python objects stay in the cache between the steps.
_ROWS_AT_ONCE = 4096
_BYTES_AT_ONCE = 1 << 20


def chunks_of(table: KeyTable, ids: npt.NDArray[np.uint32]) -> Iterator[Chunk]:
    """Keys and last values of a table in the order of ids, as chunks."""
    return table.gather(ids, rows_at_once=_ROWS_AT_ONCE, bytes_at_once=_BYTES_AT_ONCE)


def columns_of(chunk: Chunk) -> Columns:
    """A chunk as Arrow columns, over the same buffers."""
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
    """The chunk with each record's timestamp in front of its value."""
    columns, count = columns_of(chunk), len(chunk.valid)
    _, offsets, data = put_on_timestamps(columns.values, columns.timestamps).buffers()
    return chunk._replace(
        value_offsets=np.frombuffer(offsets, np.int64)[: count + 1], values=np.frombuffer(data, np.uint8)
    )


def validity_of(chunk: Chunk) -> tuple[pa.Buffer | None, int]:
    """Arrow's validity bitmap of a chunk, if it has deletes, and their number."""
    nulls = int(len(chunk.valid) - np.count_nonzero(chunk.valid))
    return (pa.py_buffer(np.packbits(chunk.valid, bitorder="little")) if nulls else None), nulls


class EvenChunks:
    """Cuts rows that come in chunks of any size where the rows alone say: rows of one chunk share no block of an SST
    file with those of another, so the same rows make the same file whatever tables they were gathered from.

    A chunk has as many rows as fit into its limits of rows, of bytes of keys and of bytes of values, and at least one.
    """

    def __init__(self, rows: int = _ROWS_AT_ONCE, bytes_each: int = _BYTES_AT_ONCE) -> None:
        self._rows, self._bytes = rows, bytes_each
        self._held: Chunk | None = None

    def add(self, chunk: Chunk) -> Iterator[Chunk]:
        """The chunks that are whole now. The given one is kept until then, so nobody may write to its buffers."""
        if self._held is not None:
            if self._is_whole(self._held, chunk):  # as in most cases, and then nothing is copied
                yield self._held
            else:
                chunk = _joined(self._held, chunk)
        low, count = 0, len(chunk.valid)
        while (end := self._end(chunk, low)) < count:
            yield _part(chunk, low, end)
            low = end
        self._held = _part(chunk, low, count)

    def rest(self) -> Iterator[Chunk]:
        """The last one, if there is any row left."""
        if self._held is not None:
            yield self._held
            self._held = None

    def _is_whole(self, chunk: Chunk, following: Chunk) -> bool:
        """Whether the first row of the following chunk does not fit into one."""
        sizes = [(chunk.keys, following.key_offsets), (chunk.values, following.value_offsets)]
        return len(chunk.valid) == self._rows or any(
            len(have) + int(offsets[1] - offsets[0]) > self._bytes for have, offsets in sizes
        )

    def _end(self, chunk: Chunk, low: int) -> int:
        """Where the chunk ends that begins at a row."""
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
