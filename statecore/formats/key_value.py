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
import pyarrow as pa
import pyarrow.compute as pc

from statecore.errors import Corrupted
from statecore.formats.kinds import StoreKind
from statecore.formats.row_format import RowFormat, binary_parts, int64_values

TIMESTAMP_BYTES = 8
"""Bytes of the timestamp in front of the value of a timestamped row."""


class TimestampedKeyValueFormat(RowFormat):
    """Rows of timestamped key-value stores."""

    stamped = True

    def decode(self, keys: pa.Array, values: pa.Array) -> pa.RecordBatch:
        """See :meth:`RowFormat.decode`."""
        plain, timestamps = take_off_timestamps(values, self.kind)
        return pa.RecordBatch.from_arrays([keys, timestamps, plain], ["key", "timestamp", "value"])


def put_on_timestamps(values: pa.Array, timestamps: pa.Array) -> pa.Array:
    """``int64 timestamp o value`` for each value.

    Args:
        values: record values, binary or large binary; nulls stay null.
        timestamps: int64 ms since the epoch, no nulls.

    Returns:
        Large binary.
    """
    wide = values if pa.types.is_large_binary(values.type) else values.cast(pa.large_binary())
    stamps = int64_values(timestamps).astype(">i8")
    prefixes = pa.Array.from_buffers(pa.binary(TIMESTAMP_BYTES), len(stamps), [None, pa.py_buffer(stamps)])
    return pc.binary_join_element_wise(prefixes.cast(pa.large_binary()), wide, _empty_separator())


def take_off_timestamps(rows: pa.Array, kind: StoreKind) -> tuple[pa.Array, pa.Array]:
    """The values and timestamps that :func:`put_on_timestamps` joined.

    Args:
        rows: row values, null for none.
        kind: what the store is, for the message.

    Returns:
        Values (large binary) and timestamps in ms, both null where the row is null.

    Raises:
        Corrupted: a row is shorter than a timestamp.
    """
    prefix = TIMESTAMP_BYTES
    # A null becomes a bare prefix, so that every row has one to take off.
    filled = rows.fill_null(bytes(prefix)).cast(pa.large_binary())
    offsets, data = binary_parts(filled)
    lengths = np.diff(offsets)
    if (lengths < prefix).any():
        short = int(np.flatnonzero(lengths < prefix)[0])
        raise Corrupted(
            f"Row {short} has a value of {lengths[short]} bytes; {kind.value} rows have at least {prefix}.",
            action="Check that the store is of the kind the spec says; if it is, rebuild it from its changelog.",
            kind=kind.value,
        )
    count = len(filled)
    data = data[offsets[0] : offsets[-1]]
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


FORMATS: dict[StoreKind, type[RowFormat]] = {
    StoreKind.KEY_VALUE: RowFormat,
    StoreKind.TIMESTAMPED_KEY_VALUE: TimestampedKeyValueFormat,
}
