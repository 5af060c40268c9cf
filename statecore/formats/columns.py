"""Slices, joins and reads binary Arrow columns for the row formats, with NumPy on their buffers.

``to_numpy``, ``pa.array`` of a NumPy array and ``pa.scalar`` are avoided where changelogs are read: they import pandas,
most of a worker's start time.

:func:`varints` and :func:`numbers` read one value per row. Formats with repeated parts are read in rounds: every row's
first part, then every row's second, until no row has more.
"""

from __future__ import annotations

import statecore.extras.pipeline

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statecore.errors import Corrupted
from statecore.formats.kinds import StoreKind
from statecore.formats.row_format import Bytes, Misfit, Numbers, binary_parts, valid_mask
from statecore.formats.rows.row_errors import malformed_row

Mask = npt.NDArray[np.bool_]

_VARINT_BYTES = 5


class Varints(NamedTuple):
    """Variable-length numbers as Kafka writes them (``ByteUtils.writeVarint``: zig-zag, seven bits a byte)."""

    values: Numbers  # the numbers
    places: Numbers  # position after each number
    whole: Mask  # whether the number ends inside its row
    odd: Mask  # whether it has more bytes than needed; Kafka's own clients read such numbers, but never write them


def join(*columns: pa.Array) -> pa.Array:
    """Concatenate binary columns row by row, as large binary; null where one of them is null."""
    return pc.binary_join_element_wise(*(_large(column) for column in columns), _empty_separator())


def fixed(rows: Bytes) -> pa.Array:
    """Large binary column of the rows of a two-dimensional byte array; all rows have the array's width."""
    count, width = rows.shape
    data = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.Array.from_buffers(pa.binary(width), count, [None, data]).cast(pa.large_binary())


def int64_bytes(values: Numbers) -> Bytes:
    """Big-endian bytes of numbers, one row each."""
    return values.astype(">i8").view(np.uint8).reshape(len(values), 8)


def bytes_at(column: pa.Array, at: int, width: int) -> Bytes:
    """Bytes at a position of each element (from its end when negative), which must be there; zeros for nulls."""
    offsets, data = binary_parts(column)
    places = (offsets[1:] if at < 0 else offsets[:-1]) + at
    if column.null_count:
        result = np.zeros((len(column), width), np.uint8)
        present = valid_mask(column)
        result[present] = _windows(data, width)[places[present]]
        return result
    return _windows(data, width)[places]


def cut(column: pa.Array, front: int = 0, back: int = 0) -> pa.Array:
    """Elements, long enough or null, without some bytes at their front and back, as large binary."""
    offsets, data = binary_parts(column)
    starts, ends = offsets[:-1] + front, offsets[1:] - back
    if not column.null_count:
        return slices(data, starts, ends)
    present = valid_mask(column)
    starts, ends = np.where(present, starts, offsets[:-1]), np.where(present, ends, offsets[:-1])
    return with_nulls(slices(data, starts, ends), ~present)


def slices(data: Bytes, starts: Numbers, ends: Numbers) -> pa.Array:
    """Large binary column of slices of a buffer. The slices must be in order and must not overlap."""
    count = len(starts)
    if not count:
        return pa.Array.from_buffers(pa.large_binary(), 0, [None, pa.py_buffer(bytes(8)), pa.py_buffer(b"")])
    # Slices and gaps are the elements of one column; ``take`` selects every other one.
    borders = np.empty((count, 2), np.int64)
    borders[:, 0], borders[:, 1] = starts, ends
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), 2 * count - 1, buffers).take(
        int64_array(np.arange(0, 2 * count, 2))
    )


def with_nulls(column: pa.Array, missing: Mask) -> pa.Array:
    """A column of :func:`slices` or :func:`int64_array` with nulls where the mask is set."""
    if not missing.any():
        return column
    validity = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(column.type, len(column), [validity, *column.buffers()[1:]])


def int64_array(values: Numbers, missing: Mask | None = None) -> pa.Array:
    """Arrow column of numbers, null where the mask is set."""
    data = pa.py_buffer(np.ascontiguousarray(values, np.int64))
    column = pa.Array.from_buffers(pa.int64(), len(values), [None, data])
    return column if missing is None else with_nulls(column, missing)


def int32_array(rows: Bytes) -> pa.Array:
    """Arrow column of big-endian int32, four bytes a row."""
    values = np.ascontiguousarray(rows).reshape(-1).view(">i4").astype(np.int32)
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])


def bool_array(mask: Mask) -> pa.Array:
    """Arrow column of a mask."""
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(np.packbits(mask, bitorder="little"))])


def numbers(data: Bytes, places: Numbers, ends: Numbers, width: int) -> tuple[Numbers, Mask]:
    """Big-endian numbers of ``width`` bytes at a position of each row, -1 where they do not fit, and where they do."""
    whole = (places >= 0) & (ends - places >= width)
    found = np.full(len(places), -1, np.int64)
    rows = _windows(data, width)[places[whole]]
    found[whole] = rows.reshape(-1).view(f">i{width}")
    return found, whole


def varints(data: Bytes, places: Numbers, ends: Numbers) -> Varints:
    """Variable-length numbers at a position of each row."""
    if not len(data):
        nothing = np.zeros(len(places), bool)
        return Varints(np.zeros(len(places), np.int64), places, nothing, nothing)
    first = np.take(data, places, mode="clip")
    whole = places < ends
    raw, places, odd = (first & 0x7F).astype(np.int64), places + 1, np.zeros(len(places), bool)
    if (first > 0x7F).any():
        more = np.flatnonzero(first > 0x7F)
        for number in range(1, _VARINT_BYTES):
            byte = np.take(data, places[more], mode="clip").astype(np.int64)
            whole[more] &= places[more] < ends[more]
            raw[more] |= (byte & 0x7F) << 7 * number
            odd[more] = (byte == 0) | (byte > 0xF) & (number == _VARINT_BYTES - 1)
            places[more] += 1
            more = more[byte > 0x7F]
        whole[more] = False
        raw &= 0xFFFFFFFF
    return Varints((raw >> 1) ^ -(raw & 1), places, whole, odd)


def first_of(mask: Mask) -> int | None:
    """First position where a mask is set."""
    places = np.flatnonzero(mask)
    return int(places[0]) if len(places) else None


def first_misfit(*misfits: Misfit | None) -> Misfit | None:
    """The misfit of the first row."""
    return min((misfit for misfit in misfits if misfit is not None), key=lambda misfit: misfit.row, default=None)


def require(kind: StoreKind, broken: Mask, why: str) -> None:
    """Refuse ``broken`` rows of a kind; ``why`` ends the sentence: "has a key without a sequence"."""
    row = first_of(broken)
    if row is not None:
        raise corrupted(kind, row, why)


def first_less(numbers: Numbers, least: int, column: pa.Array) -> int | None:
    """First row of a column whose number is less than ``least``, or ``None``; nulls are skipped."""
    less = numbers < least
    if column.null_count:
        less &= valid_mask(column)
    return first_of(less)


def require_length(kind: StoreKind, column: pa.Array, least: int, what: str) -> None:
    """Refuse database keys or values (``what``) with fewer than ``least`` bytes; nulls are skipped."""
    lengths = np.diff(binary_parts(column)[0])
    row = first_less(lengths, least, column)
    if row is not None:
        raise corrupted(kind, row, f"has a {what} of {lengths[row]} bytes; {kind.value} rows have at least {least}")


def corrupted(kind: StoreKind, row: int, why: str) -> Corrupted:
    """Error for a database row that is malformed for its kind."""
    return malformed_row(kind, why, f"Row {row}", row=int(row))


def _large(column: pa.Array) -> pa.Array:
    return column if pa.types.is_large_binary(column.type) else column.cast(pa.large_binary())


def _windows(data: Bytes, width: int) -> Bytes:
    """View of every ``width`` consecutive bytes, to read at unaligned positions."""
    return np.lib.stride_tricks.as_strided(data, (max(0, len(data) - width + 1), width), (1, 1))


@cache
def _empty_separator() -> pa.Scalar:
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(bytes(16)), pa.py_buffer(b"")])[0]
