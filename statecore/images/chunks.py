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
