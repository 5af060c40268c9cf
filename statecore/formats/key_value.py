"""Rows of key-value stores: what a changelog record becomes in the database, and back.

The key is the record's key, unchanged. The value (``RecordConverters``, ``StateManagerUtil.converterForStore``)::

    kind                     changelog value      row value
    -----------------------  -------------------  ------------------------------------------------
    key-value                value                value
    timestamped-key-value    value                int64 timestamp in ms, big-endian  o  value

    6b30 at 1795251660000 with 0000000000000014  ->  6b30 -> 000001a1fd5d5a20 0000000000000014

A null value is a tombstone and stays null: it deletes the row. Everything here is columnar, Arrow in and Arrow out, and
touches each byte once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statecore.errors import Corrupted, Invalid
from statecore.formats.kinds import StoreKind

TIMESTAMP_BYTES = 8
"""Bytes of the timestamp in front of the value of a timestamped row."""

_NOTHING = np.empty(0, np.uint8)
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
    from statecore.formats import kernel, memory

    offsets, width, data, valid = memory.binary_addresses(values)
    stamps = np.ascontiguousarray(
        timestamps.to_numpy(zero_copy_only=False), np.int64
    )  # read by address: may be read-only
    present = len(values) - values.null_count
    row_offsets = np.empty(len(values) + 1, np.int64)
    rows = np.empty(memory.value_bytes(values) + prefix * present, np.uint8)
    kernel.add_timestamps(
        offsets,
        width,
        data,
        _NOTHING if valid is None else valid,
        memory.address_of(stamps),
        row_offsets,
        memory.address_of(rows),
    )
    return _large_binary(row_offsets, rows, values)


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
    from statecore.formats import kernel, memory

    offsets, width, data, valid = memory.binary_addresses(rows)
    stamps = np.zeros(len(rows), np.int64)
    value_offsets = np.empty(len(rows) + 1, np.int64)
    values = np.empty(memory.value_bytes(rows), np.uint8)
    short = kernel.take_timestamps(
        offsets, width, data, _NOTHING if valid is None else valid, stamps, value_offsets, memory.address_of(values)
    )
    if short >= 0:
        raise Corrupted(
            f"Row {short} has a value of {len(rows[short].as_py())} bytes; {kind.value} rows have at least {prefix}.",
            action="Check that the store is of the kind the spec says; if it is, rebuild it from its changelog.",
            kind=kind.value,
        )
    mask = None if valid is None else valid == 0
    return _large_binary(value_offsets, values, rows), pa.array(stamps, mask=mask)


def _large_binary(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], like: pa.Array) -> pa.Array:
    """A large binary array over these buffers with the nulls of another array."""
    from statecore.formats import memory

    valid = memory.validity_bytes(like)
    validity = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers, like.null_count)
