"""Rows of key-value stores: what a changelog record becomes in the database, and back.

The key is the record's key, unchanged. The value (``RecordConverters``, ``StateManagerUtil.converterForStore``)::

    kind                     changelog value      row value
    -----------------------  -------------------  ------------------------------------------------
    key-value                value                value
    timestamped-key-value    value                int64 timestamp in ms, big-endian  o  value

    6b30 at 1795251660000 with 0000000000000014  ->  6b30 -> 000001a1fd5d5a20 0000000000000014

A null value is a tombstone and stays null: it deletes the row. Everything here is columnar, Arrow in and Arrow out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statecore.errors import Corrupted, Invalid
from statecore.formats.kinds import StoreKind

TIMESTAMP_BYTES = 8
"""Bytes of the timestamp in front of the value of a timestamped row."""

_IDENTITY = frozenset({StoreKind.KEY_VALUE})
_TIMESTAMPED = frozenset({StoreKind.TIMESTAMPED_KEY_VALUE})


def row_prefix_bytes(kind: StoreKind) -> int:
    """How many bytes a row of this kind has in front of the record's value.

    Raises:
        Invalid: no columnar row format for this kind.
    """
    if kind in _IDENTITY:
        return 0
    if kind in _TIMESTAMPED:
        return TIMESTAMP_BYTES
    raise Invalid(
        f"Stores of kind {kind.value} have no columnar row format in this version.",
        action="Leave the store out of the spec, or restore it with Kafka Streams.",
        kind=kind.value,
    )


def to_rows(kind: StoreKind, keys: pa.Array, values: pa.Array, timestamps: pa.Array) -> pa.Array:
    """Row values for changelog records.

    Args:
        kind: what the store is.
        keys: record keys; unused by the kinds here (versioned and windowed rows will need them).
        values: record values, binary or large binary; null is a tombstone.
        timestamps: record timestamps, int64 ms since the epoch, no nulls.

    Returns:
        As many values, null where ``values`` is null. For ``key-value`` it is ``values`` itself,
        otherwise large binary.

    Raises:
        Invalid: no columnar row format for this kind.
    """
    del keys
    prefix = row_prefix_bytes(kind)
    if prefix == 0:
        return values
    wide = values if pa.types.is_large_binary(values.type) else values.cast(pa.large_binary())
    stamps = _int64_values(timestamps).astype(">i8")
    prefixes = pa.Array.from_buffers(pa.binary(prefix), len(stamps), [None, pa.py_buffer(stamps)])
    return pc.binary_join_element_wise(prefixes.cast(pa.large_binary()), wide, _empty_separator())


def from_rows(kind: StoreKind, rows: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The record values and timestamps that rows were made from; the inverse of :func:`to_rows`, for dumps.

    Returns:
        Values (null where the row is null) and timestamps in ms (null where the kind keeps none or the row is null).

    Raises:
        Invalid: no columnar row format for this kind.
        Corrupted: a row is shorter than its prefix.
    """
    prefix = row_prefix_bytes(kind)
    if prefix == 0:
        return rows, pa.nulls(len(rows), pa.int64())
    lengths = pc.binary_length(rows).fill_null(prefix).to_numpy(zero_copy_only=False)
    if (lengths < prefix).any():
        short = int(np.flatnonzero(lengths < prefix)[0])
        raise Corrupted(
            f"Row {short} has a value of {lengths[short]} bytes; {kind.value} rows have at least {prefix}.",
            action="Check that the store is of the kind the spec says; if it is, rebuild it from its changelog.",
            kind=kind.value,
        )
    # A null becomes a bare prefix, so that every row has one to take off.
    filled = rows.fill_null(bytes(prefix)).cast(pa.large_binary())
    count = len(filled)
    offsets = np.frombuffer(filled.buffers()[1], np.int64)[filled.offset : filled.offset + count + 1]
    data = np.frombuffer(filled.buffers()[2], np.uint8)[offsets[0] : offsets[-1]] if count else np.empty(0, np.uint8)
    places = (offsets[:-1] - offsets[0])[:, None] + np.arange(prefix)
    numbers = data[places].reshape(-1).view(">i8").astype(np.int64)
    is_value = np.ones(len(data), bool)
    is_value[places] = False
    value_offsets = offsets - offsets[0] - prefix * np.arange(count + 1)
    buffers = [None, pa.py_buffer(value_offsets), pa.py_buffer(data[is_value])]
    values = pa.Array.from_buffers(pa.large_binary(), count, buffers)
    missing = rows.is_null()
    values = pc.if_else(missing, pa.scalar(None, pa.large_binary()), values)
    return values, pa.array(numbers, mask=missing.to_numpy(zero_copy_only=False))


def _empty_separator() -> pa.Scalar:
    """An empty large binary; ``pa.scalar`` would import pandas, most of a worker's start."""
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(bytes(16)), pa.py_buffer(b"")])[0]


def _int64_values(array: pa.Array) -> npt.NDArray[np.int64]:
    """The numbers of an array without nulls; ``to_numpy`` would import pandas too."""
    if not len(array):
        return np.empty(0, np.int64)
    return np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array)]
