"""Rows of window stores.

Key, in the changelog and in the store (``WindowKeySchema.toStoreKeyBinary``)::

    ┌───────────────┬─────────────────────────┬──────────────────┐
    │ key           │ window start, int64 ms  │ sequence, int32  │      big-endian
    └───────────────┴─────────────────────────┴──────────────────┘

    6b30 000001a1fd5664e0 00000000

The sequence is 0, or counts from 1 where the store keeps duplicates (the windows of stream-stream joins). The segment
of a row is that of its window's start. Values::

    kind                     changelog value      row value
    -----------------------  -------------------  ------------------------------------------------
    window, join-window      value                value
    timestamped-window       value                int64 timestamp in ms  o  value
    headers-window           value                headers  o  int64 timestamp in ms  o  value
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statecore.formats.kinds import StoreKind
from statecore.formats.row_format import Misfit, Records, RowFormat, key_lengths, negative_timestamp

SUFFIX_BYTES = 12
"""Bytes of window start and sequence behind the key."""


class WindowFormat(RowFormat):
    """Rows of plain window stores and of the windows of stream-stream joins."""

    time_at = key_time_at = -SUFFIX_BYTES

    def check(self, records: Records) -> Misfit | None:
        """See :meth:`RowFormat.check`."""
        return misfit_of_timed_keys(self, records.keys, SUFFIX_BYTES, "window") or (
            negative_timestamp(records.timestamps) if self.stamped else None
        )


class TimestampedWindowFormat(WindowFormat):
    """Rows of timestamped window stores."""

    stamped = True


def misfit_of_timed_keys(row_format: RowFormat, keys: pa.Array, suffix: int, what: str) -> Misfit | None:
    """The first key that is too short to end in times, or whose time is negative; ``None`` when all are well."""
    short = key_lengths(keys) < suffix
    if keys.null_count:
        short &= np.frombuffer(keys.is_valid().cast(pa.uint8()).buffers()[1], np.uint8)[: len(keys)] != 0
    if short.any():
        row = int(np.flatnonzero(short)[0])
        return Misfit(row, f"has a key of {len(keys[row].as_buffer())} bytes; {what} keys have at least {suffix}")
    times = row_format.times(keys)
    early = times < (-1 if keys.null_count else 0)
    if early.any():
        row = int(np.flatnonzero(early)[0])
        return Misfit(row, f"has a key with the negative {what} time {times[row]}")
    return None


FORMATS: dict[StoreKind, type[RowFormat]] = {
    StoreKind.WINDOW: WindowFormat,
    StoreKind.JOIN_WINDOW: WindowFormat,
    StoreKind.TIMESTAMPED_WINDOW: TimestampedWindowFormat,
}
