"""Rows of window stores.

Key, in the changelog and in the store (``WindowKeySchema.toStoreKeyBinary``)::

    ┌───────────────┬─────────────────────────┬──────────────────┐
    │ key           │ window start, int64 ms  │ sequence, int32  │      big-endian
    └───────────────┴─────────────────────────┴──────────────────┘

    6b30 000001a1fd5664e0 00000000

The sequence is 0, or counts from 1 where the store keeps duplicates (the windows of stream-stream joins); it is never
negative, nor is the window's start. The segment of a row is that of its window's start. Values::

    kind                     changelog value      row value
    -----------------------  -------------------  ------------------------------------------------
    window, join-window      value                value
    timestamped-window       value                int64 timestamp in ms  o  value
    headers-window           value                headers  o  int64 timestamp in ms  o  value
                                                  (:mod:`statecore.formats.headers`)
"""

from __future__ import annotations

import statecore.extras.pipeline

import pyarrow as pa

from statecore.formats.columns import (
    bytes_at,
    cut,
    first_less,
    first_misfit,
    first_of,
    int32_array,
    int64_array,
    require,
    require_length,
)
from statecore.formats.headers import TimestampedHeadersFormat
from statecore.formats.key_value import TimestampedFormat
from statecore.formats.kinds import WINDOWED_KINDS, StoreKind
from statecore.formats.row_format import Misfit, Records, RowFormat, int64_at, int64_values, key_lengths
from statecore.formats.rows.keys import FARTHEST_AHEAD_MS as FARTHEST_AHEAD_MS
from statecore.formats.rows.keys import WINDOW_BYTES as SUFFIX_BYTES

SEQUENCE_BYTES = 4


class WindowFormat(RowFormat):
    """Rows of plain window stores and of the windows of stream-stream joins."""

    time_at = key_time_at = -SUFFIX_BYTES

    def check(self, records: Records) -> Misfit | None:
        return first_misfit(misfit_of_window_keys(self, records), super().check(records))

    def key_columns(self, keys: pa.Array) -> dict[str, pa.Array]:
        require_length(self.kind, keys, SUFFIX_BYTES, "key")
        starts = int64_at(keys, -SUFFIX_BYTES)
        require(self.kind, starts < 0, "has a key with a negative window start")
        sequence = int32_array(bytes_at(keys, -SEQUENCE_BYTES, SEQUENCE_BYTES))
        return {"key": cut(keys, back=SUFFIX_BYTES), "window_start": int64_array(starts), "sequence": sequence}


class TimestampedWindowFormat(TimestampedFormat, WindowFormat):
    """Rows of timestamped window stores."""


class HeadersWindowFormat(TimestampedHeadersFormat, WindowFormat):
    """Rows of window stores with headers."""


def misfit_of_window_keys(row_format: RowFormat, records: Records) -> Misfit | None:
    """First record whose key is not a window key, or ``None``; null keys are skipped."""
    misfit = misfit_of_timed_keys(row_format, records, SUFFIX_BYTES, "window")
    if misfit is not None:
        return misfit
    row = first_of(bytes_at(records.keys, -SEQUENCE_BYTES, 1)[:, 0] > 0x7F)
    return None if row is None else Misfit(row, "has a key with a negative sequence, which no window has")


def misfit_of_timed_keys(row_format: RowFormat, records: Records, least: int, what: str) -> Misfit | None:
    """First record whose key has fewer than ``least`` bytes, or a time that is negative or too far ahead.

    Where rows expire, a time more than :data:`FARTHEST_AHEAD_MS` after the record's own timestamp is invalid. Text, ids
    and keys of other kinds, read as windows, have such times; one of them would let all other rows expire.
    """
    keys = records.keys
    row = first_less(key_lengths(keys), least, keys)
    if row is not None:
        return Misfit(row, f"has a key of {len(keys[row].as_buffer())} bytes; {what} keys have at least {least}")
    times = row_format.times(keys)
    row = first_less(times, 0, keys)
    if row is not None:
        return Misfit(row, f"has a key with the negative {what} time {times[row]}")
    if row_format.kind not in WINDOWED_KINDS:
        return None
    stamps = int64_values(records.timestamps)
    row = first_of(times - FARTHEST_AHEAD_MS > stamps)
    if row is None:
        return None
    return Misfit(row, f"has a key with the {what} time {times[row]}, absurd in a record of the time {stamps[row]}")


FORMATS: dict[StoreKind, type[RowFormat]] = {
    StoreKind.WINDOW: WindowFormat,
    StoreKind.JOIN_WINDOW: WindowFormat,
    StoreKind.TIMESTAMPED_WINDOW: TimestampedWindowFormat,
    StoreKind.HEADERS_WINDOW: HeadersWindowFormat,
}
