"""Packed records, which a builder keeps outside its table, one after the other instead of in columns.

A record (little-endian)::

    uint32 key length   uint32 value length, or FFFFFFFF for a delete   int64 timestamp   key   value
"""

from __future__ import annotations

import statecore.extras.pipeline

import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from statecore.images.chunks import columns_of
from statecore.images.kernels import kernel
from statecore.images.kernels.kernel import PACKED_DELETE, PACKED_HEADER, UNPACKED
from statecore.images.key_table import Chunk, Columns

_RECORD = struct.Struct("<IIq")
_ROWS_AT_ONCE = 65_536


def last_writes(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Compact packed records in place to the last one of each key, in order."""
    most = len(data) // PACKED_HEADER
    tags, places = np.empty(most, np.uint32), np.empty(most, np.int64)  # untouched memory takes no pages
    rows = kernel.run("tag_packed", data=data, end=len(data), tags=tags, places=places)
    bits = (2 * rows).bit_length()
    table = np.zeros(1 << bits, np.uint64)
    end = kernel.run("keep_last", data=data, tags=tags, places=places, rows=rows, table=table, bits=bits)
    return data[:end]


def record_bytes(data: npt.NDArray[np.uint8]) -> int:
    """Bytes of the first packed record."""
    key, value, _ = _RECORD.unpack(data[:PACKED_HEADER].tobytes())
    return PACKED_HEADER + int(key) + (0 if value == PACKED_DELETE else int(value))


def whole_records(data: npt.NDArray[np.uint8]) -> int:
    """End of the last whole packed record."""
    found = np.empty(len(UNPACKED), np.int64)
    return kernel.run("measure_packed", data=data, end=len(data), most=len(data), unpacked=found)


def unpacked(data: npt.NDArray[np.uint8]) -> Iterator[Columns]:
    """Yield packed records as columns, a batch at a time, in buffers of their own."""
    measured = np.zeros(len(UNPACKED), np.int64)
    while len(data):
        end = kernel.run("measure_packed", data=data, end=len(data), most=_ROWS_AT_ONCE, unpacked=measured)
        made = _buffers(*measured.tolist())
        kernel.run(
            "unpack",
            data=data,
            rows=len(made.valid),
            key_offsets=made.key_offsets,
            keys=made.keys,
            value_offsets=made.value_offsets,
            values=made.values,
            valid=made.valid,
            stamps=made.timestamps,
        )
        yield columns_of(made)
        data = data[end:]


def _buffers(rows: int, key_bytes: int, value_bytes: int) -> Chunk:
    """Allocate buffers."""
    return Chunk(
        key_offsets=np.empty(rows + 1, np.int64),
        keys=np.empty(key_bytes, np.uint8),
        value_offsets=np.empty(rows + 1, np.int64),
        values=np.empty(value_bytes, np.uint8),
        valid=np.empty(rows, np.uint8),
        timestamps=np.empty(rows, np.int64),
    )


def packed_row(columns: Columns, row: int) -> npt.NDArray[np.uint8]:
    """One record, whose value may be large: it is copied once."""
    key, value = columns.keys[row].as_py(), columns.values[row].as_buffer()
    header = _RECORD.pack(len(key), PACKED_DELETE if value is None else len(value), columns.timestamps[row].as_py())
    return np.concatenate([np.frombuffer(part, np.uint8) for part in (header, key, value or b"")])
