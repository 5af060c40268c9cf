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
import pyarrow as pa

from statecore.images import kernel
from statecore.images.kernel import PACKED_DELETE, PACKED_HEADER, UNPACKED
from statecore.images.key_table import Columns

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
        made = _Made(*measured.tolist())
        deletes = kernel.run("unpack", data=data, **made.arguments("value_offsets", "stamps"))
        yield made.columns(deletes)
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
    made = _Made(*measured.tolist())
    return made.columns(
        kernel.run("keep_rows", ranges=ranges, **(made.arguments("new_offsets", "new_stamps") | dict(source)))
    )


class _Made:
    """Buffers of new columns."""

    def __init__(self, rows: int, key_bytes: int, value_bytes: int) -> None:
        self._rows = rows
        self._key_offsets, self._value_offsets = np.empty(rows + 1, np.int64), np.empty(rows + 1, np.int64)
        self._keys, self._values = np.empty(key_bytes, np.uint8), np.empty(value_bytes, np.uint8)
        self._valid, self._stamps = np.empty(rows, np.uint8), np.empty(rows, np.int64)

    def arguments(self, value_offsets: str, stamps: str) -> dict[str, Any]:
        """What a kernel is given that writes them; two of them have other names where it reads such, too."""
        return {
            "rows": self._rows,
            "key_offsets": self._key_offsets,
            "keys": self._keys,
            value_offsets: self._value_offsets,
            "values": self._values,
            "valid": self._valid,
            stamps: self._stamps,
        }

    def columns(self, deletes: int) -> Columns:
        """The columns, when they have been written."""
        validity = pa.py_buffer(np.packbits(self._valid, bitorder="little")) if deletes else None
        key_buffers = [None, pa.py_buffer(self._key_offsets), pa.py_buffer(self._keys)]
        value_buffers = [validity, pa.py_buffer(self._value_offsets), pa.py_buffer(self._values)]
        return Columns(
            pa.Array.from_buffers(pa.large_binary(), self._rows, key_buffers),
            pa.Array.from_buffers(pa.large_binary(), self._rows, value_buffers, deletes),
            pa.Array.from_buffers(pa.int64(), self._rows, [None, pa.py_buffer(self._stamps)]),
        )


def packed_row(columns: Columns, row: int) -> npt.NDArray[np.uint8]:
    """One row, packed."""
    key, value = columns.keys[row].as_py(), columns.values[row].as_py()
    header = _RECORD.pack(len(key), PACKED_DELETE if value is None else len(value), columns.timestamps[row].as_py())
    return np.frombuffer(header + key + (value or b""), np.uint8)
