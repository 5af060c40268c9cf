"""Rows of the buffer of a stream-table join with a grace period (``Joined.withGracePeriod``).

The buffer (``RocksDBTimeOrderedKeyValueBuffer``) holds stream records until stream time has passed their grace. Key, in
the changelog and in the store, all numbers big-endian::

    ┌────┬───────────────────────┬───────────┬─────────────────┐
    │ 00 │ timestamp, int64 ms   │ key       │ sequence, int32 │
    └────┴───────────────────────┴───────────┴─────────────────┘

    00 000001a1fd5e3b20 6b34 0000006c

Value in the store (``BufferValue``, ``ProcessorRecordContext``); the changelog has eight more bytes at its end, the
buffer's time, always 0::

    int64 timestamp   int64 offset   int32 length, topic   int32 partition
    int32 headers (-1: none)   per header: int32 length, key   int32 length (-1: null), value
    int32 length (-1: null), prior value
    int32 length (-1: null; -2: the prior value), old value
    int32 length (-1: null), new value

The new value is the record's; prior and old value are null. There is one segment, ``<store>.0``, and its format does
not depend on ``dsl.store.format``.

Kafka Streams 4.3.1 and 4.4.0 restore this store wrongly: they take the changelog's keys, which are row keys already,
for plain window keys and convert them again, and keep the eight surplus bytes. Rows here have the keys and values that
the running store writes, the only form it can find and read.
"""

from __future__ import annotations

import statecore.extras.pipeline

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from statecore.formats.columns import (
    Mask,
    bytes_at,
    cut,
    first_misfit,
    first_of,
    int32_array,
    int64_array,
    numbers,
    require,
    require_length,
    slices,
    with_nulls,
)
from statecore.formats.headers import HeaderRound, headers_column
from statecore.formats.kinds import StoreKind
from statecore.formats.row_format import (
    Bytes,
    Misfit,
    Numbers,
    Records,
    RowFormat,
    binary_parts,
    int64_at,
    key_lengths,
    valid_mask,
)
from statecore.formats.rows.buffered import BUFFER_TIME_BYTES, KEY_BYTES, SHORTEST_VALUE
from statecore.formats.window import SEQUENCE_BYTES, misfit_of_timed_keys

_TIME_AT = 1


class GraceBufferFormat(RowFormat):
    """Rows of grace-period buffers."""

    time_at = key_time_at = _TIME_AT

    def check(self, records: Records) -> Misfit | None:
        return first_misfit(super().check(records), self._misfit_of_keys(records), _misfit_of(records.values))

    def row_values(self, records: Records) -> pa.Array:
        return cut(records.values, back=BUFFER_TIME_BYTES)

    def key_columns(self, keys: pa.Array) -> dict[str, pa.Array]:
        require_length(self.kind, keys, KEY_BYTES, "key")
        require(self.kind, bytes_at(keys, 0, 1)[:, 0] != 0, "has a key that does not begin with 00")
        times = int64_at(keys, _TIME_AT)
        require(self.kind, times < 0, "has a key with a negative time")
        return {
            "key": cut(keys, front=_TIME_AT + 8, back=SEQUENCE_BYTES),
            "sequence": int32_array(bytes_at(keys, -SEQUENCE_BYTES, SEQUENCE_BYTES)),
            "timestamp": int64_array(times),
        }

    def value_columns(self, values: pa.Array) -> dict[str, pa.Array]:
        """See :meth:`RowFormat.value_columns`; the value is that of the buffered record."""
        require_length(self.kind, values, SHORTEST_VALUE, "value")
        missing = ~valid_mask(values)
        parsed = _parse(values, back=0)
        require(self.kind, parsed.broken, "has a value that is not a buffered record")
        _, data = binary_parts(values)
        records = slices(data, parsed.values, parsed.values + np.maximum(parsed.lengths, 0))
        headers = headers_column(data, parsed.headers, missing, self.kind)
        return {"headers": headers, "value": with_nulls(records, missing | (parsed.lengths < 0))}

    def _misfit_of_keys(self, records: Records) -> Misfit | None:
        misfit = misfit_of_timed_keys(self, records, KEY_BYTES, "buffer")
        if misfit is not None:
            return misfit
        prefixes = bytes_at(records.keys, 0, 1)[:, 0]
        row = first_of(prefixes != 0)
        return None if row is None else Misfit(row, f"has a key that begins with {prefixes[row]:02x}, not with 00")


class _Parsed(NamedTuple):
    """Positions of the parts of buffered records."""

    broken: Mask  # malformed elements; nulls are not malformed
    headers: list[HeaderRound]  # the headers, in rounds: every row's first, then every row's second
    values: Numbers  # start of the new value
    lengths: Numbers  # its length; below 0 for a null


class _Cursor:
    """A position in each row, moved together; rows that end too early keep their position and lose ``fits``."""

    def __init__(self, data: Bytes, places: Numbers, ends: Numbers) -> None:
        self.data, self.places, self.ends = data, places.copy(), ends
        self.fits = np.ones(len(places), bool)

    def number(self, width: int) -> Numbers:
        found, whole = numbers(self.data, self.places, self.ends, width)
        self.fits &= whole
        self.places = np.where(self.fits, self.places + width, self.places)
        return found

    def piece(self, least: int) -> tuple[Numbers, Numbers]:
        """Read a length of at least ``least`` and skip that many bytes; returns their start and the length."""
        lengths = self.number(4)
        starts, after = self.places, self.places + np.maximum(lengths, 0)
        self.fits &= (lengths >= least) & (after <= self.ends)
        self.places = np.where(self.fits, after, starts)
        return starts, lengths


def _misfit_of(values: pa.Array) -> Misfit | None:
    present = valid_mask(values)
    lengths, least = key_lengths(values), SHORTEST_VALUE + BUFFER_TIME_BYTES
    row = first_of(present & (lengths < least))
    if row is not None:
        return Misfit(row, f"has a value of {lengths[row]} bytes; values of a buffer's changelog have at least {least}")
    row = first_of(_parse(values, back=BUFFER_TIME_BYTES).broken)
    return None if row is None else Misfit(row, "has a value that is not a buffered record followed by a time")


def _parse(values: pa.Array, *, back: int) -> _Parsed:
    """Parse buffered records that have ``back`` more bytes at their end."""
    offsets, data = binary_parts(values)
    present = valid_mask(values)
    cursor = _Cursor(data, offsets[:-1], offsets[1:] - back)
    cursor.number(8)
    cursor.number(8)
    cursor.piece(0)
    cursor.number(4)
    counts = cursor.number(4)
    cursor.fits &= counts >= -1
    headers = _headers(cursor, counts, present)
    cursor.piece(-1)
    cursor.piece(-2)
    starts, lengths = cursor.piece(-1)
    cursor.fits &= cursor.places == cursor.ends
    return _Parsed(
        present & ~cursor.fits, headers, np.where(cursor.fits, starts, offsets[:-1]), np.where(cursor.fits, lengths, -1)
    )


def _headers(cursor: _Cursor, counts: Numbers, present: Mask) -> list[HeaderRound]:
    """Read the headers of every row and move the cursor after them."""
    found = []
    rows = np.flatnonzero(present & cursor.fits & (counts > 0))
    left = counts[rows]
    while len(rows):
        inner = _Cursor(cursor.data, cursor.places[rows], cursor.ends[rows])
        keys, sizes = inner.piece(0)
        values, value_lengths = inner.piece(-1)
        cursor.places[rows], cursor.fits[rows] = inner.places, inner.fits
        whole = inner.fits
        found.append(HeaderRound(rows[whole], keys[whole], (keys + sizes)[whole], values[whole], value_lengths[whole]))
        left -= 1
        more = whole & (left > 0)
        rows, left = rows[more], left[more]
    return found


FORMATS: dict[StoreKind, type[RowFormat]] = {StoreKind.GRACE_BUFFER: GraceBufferFormat}
