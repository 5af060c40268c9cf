"""Packed records: how a builder keeps records outside its table, one after the other without columns.

A record (little-endian)::

    uint32 key length   uint32 value length, or FFFFFFFF for a delete   int64 timestamp   key   value
"""

from __future__ import annotations

import statecore.extras.pipeline

import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from statecore.images import kernel
from statecore.images.chunks import columns_of
from statecore.images.kernel import PACKED_DELETE, PACKED_HEADER, UNPACKED
from statecore.images.key_table import Chunk, Columns

_RECORD = struct.Struct("<IIq")
_ROWS_AT_ONCE = 65_536
_MEASURED = ("offsets", "width", "value_offsets", "value_width", "value_valid", "rows")


def last_writes(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The last of the packed records of each key, in their order, in the same place."""
    tags = np.empty(len(data) // PACKED_HEADER, np.uint32)  # what is not written to takes no memory
    rows = kernel.run("tag_packed", data=data, end=len(data), tags=tags)
    bits = (2 * rows).bit_length()
    table = np.zeros(1 << bits, np.uint64)
    end = kernel.run("keep_last", data=data, tags=tags, rows=rows, table=table, bits=bits)
    return data[:end]


def sampled_keys(data: npt.NDArray[np.uint8], count: int) -> list[bytes]:
    """Keys of about so many packed records, from all over them."""
    every = max(1, len(data) // count)
    places = np.empty(len(data) // every + 2, np.int64)
    found = kernel.run("sample_packed", data=data, end=len(data), every=every, places=places)
    keys = []
    for at in places[:found].tolist():
        length, _, _ = _RECORD.unpack(data[at : at + PACKED_HEADER].tobytes())
        keys.append(data[at + PACKED_HEADER : at + PACKED_HEADER + length].tobytes())
    return keys


def divided(data: npt.NDArray[np.uint8], first: bytes) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Packed records with keys below one, in the same place, and the others; both in their order."""
    above = np.empty(len(data), np.uint8)
    bound = np.frombuffer(first, np.uint8)
    end = kernel.run("divide_packed", data=data, end=len(data), bound=bound, bound_length=len(first), above=above)
    return data[:end], above[: len(data) - end]


def unpacked(data: npt.NDArray[np.uint8]) -> Iterator[Columns]:
    """Packed records, so many at once, in buffers of their own."""
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


def kept_rows(ranges: npt.NDArray[np.uint32], source: Mapping[str, Any]) -> Columns:
    """The rows of range 0, in buffers of their own.

    Args:
        ranges: the range of each row.
        source: the columns as arguments of a kernel.
    """
    measured = np.zeros(len(UNPACKED), np.int64)
    said = {name: source[name] for name in _MEASURED}
    kernel.run("measure_kept", ranges=ranges, unpacked=measured, **said)
    made = _buffers(*measured.tolist())
    kernel.run(
        "keep_rows",
        **source,
        ranges=ranges,
        key_offsets=made.key_offsets,
        keys=made.keys,
        new_offsets=made.value_offsets,
        values=made.values,
        valid=made.valid,
        new_stamps=made.timestamps,
    )
    return columns_of(made)


def _buffers(rows: int, key_bytes: int, value_bytes: int) -> Chunk:
    """Buffers for so many rows, not filled yet."""
    return Chunk(
        key_offsets=np.empty(rows + 1, np.int64),
        keys=np.empty(key_bytes, np.uint8),
        value_offsets=np.empty(rows + 1, np.int64),
        values=np.empty(value_bytes, np.uint8),
        valid=np.empty(rows, np.uint8),
        timestamps=np.empty(rows, np.int64),
    )


def packed_row(columns: Columns, row: int) -> npt.NDArray[np.uint8]:
    """One row, packed."""
    key, value = columns.keys[row].as_py(), columns.values[row].as_py()
    header = _RECORD.pack(len(key), PACKED_DELETE if value is None else len(value), columns.timestamps[row].as_py())
    return np.frombuffer(header + key + (value or b""), np.uint8)
