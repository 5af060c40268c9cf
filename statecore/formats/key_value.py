"""Rows of key-value stores: conversion of changelog records to database rows, and back.

The key is the record's key, unchanged. The value (``RecordConverters``, ``StateManagerUtil.converterForStore``)::

    kind                     changelog value      row value
    -----------------------  -------------------  ------------------------------------------------
    key-value                value                value
    timestamped-key-value    value                int64 timestamp in ms, big-endian  o  value
    headers-key-value        value                headers  o  int64 timestamp in ms  o  value
                                                  (:mod:`statecore.formats.headers`)

    6b30 at 1795251660000 with 0000000000000014  ->  6b30 -> 000001a1fd5d5a20 0000000000000014

A null value is a tombstone and stays null: it deletes the row. All functions are columnar.
"""

from __future__ import annotations

import statecore.extras.pipeline

import pyarrow as pa

from statecore.formats.columns import cut, fixed, int64_array, int64_bytes, join, require_length
from statecore.formats.kinds import StoreKind
from statecore.formats.row_format import RowFormat, int64_at, int64_values, valid_mask
from statecore.formats.rows.values import TIMESTAMP_BYTES


class TimestampedFormat(RowFormat):
    """Rows of timestamped key-value stores; base of all formats with timestamped values."""

    stamped = True

    def value_columns(self, values: pa.Array) -> dict[str, pa.Array]:
        plain, timestamps = take_off_timestamps(values, self.kind)
        return {"timestamp": timestamps, "value": plain}


def put_on_timestamps(values: pa.Array, timestamps: pa.Array) -> pa.Array:
    """Prepend int64 ms to values (null stays null), as large binary: ``int64 timestamp o value``."""
    return join(fixed(int64_bytes(int64_values(timestamps))), values)


def take_off_timestamps(rows: pa.Array, kind: StoreKind) -> tuple[pa.Array, pa.Array]:
    """Split row values into values (large binary) and timestamps (ms), both null where the row is null."""
    require_length(kind, rows, TIMESTAMP_BYTES, "value")
    missing = ~valid_mask(rows) if rows.null_count else None
    return cut(rows, front=TIMESTAMP_BYTES), int64_array(int64_at(rows, 0), missing)


FORMATS: dict[StoreKind, type[RowFormat]] = {
    StoreKind.KEY_VALUE: RowFormat,
    StoreKind.TIMESTAMPED_KEY_VALUE: TimestampedFormat,
}
