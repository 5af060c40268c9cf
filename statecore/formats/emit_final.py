"""Rows of windows and sessions that are emitted once, when they close (``EmitStrategy.onWindowClose``).

Such stores are ordered by time, so that a scan finds what has closed. The changelog has the keys of
:mod:`statecore.formats.window` and :mod:`statecore.formats.session`; the store has a base row with the time first, and
in some stores an index row with an empty value, for lookups by key (``PrefixedWindowKeySchemas``,
``PrefixedSessionKeySchemas``; all numbers big-endian)::

    windows   changelog   key o start8 o seq4
              base row    00 o start8 o key o seq4    ->  value
              index row   01 o key o start8 o seq4    ->  empty       sliding windows, and all windows with headers
    sessions  changelog   key o end8 o start8
              base row    00 o end8 o start8 o key    ->  aggregate
              index row   01 o key o end8 o start8    ->  empty

    6b30 000001a1fd5664e0 00000000   ->   00 000001a1fd5664e0 6b30 00000000   and   01 6b30 000001a1fd5664e0 00000000

Both rows are in the segment of the window's start, or of the session's end; a tombstone deletes both. Values::

    kind                                   changelog value    row value
    -------------------------------------  -----------------  ------------------------------------------
    emit-final-(sliding-)window            value              int64 timestamp in ms o value
    headers-emit-final-(sliding-)window    value              headers o int64 timestamp in ms o value
    emit-final-session                     aggregate          aggregate
    headers-emit-final-session             aggregate          aggregate, without headers

The last line is a defect of Kafka Streams 4.3.1 that has become the format: its supplier
(``RocksDbTimeOrderedSessionHeadersBytesStoreSupplier``) returns the class without headers over the column family with
headers, so that a restore keeps the values unchanged and loses the headers. It reads back what it wrote. The index of
windows that do not slide is such a defect, too: with headers the store type does not depend on whether an index is
wanted (``RocksDbIndexedTimeOrderedWindowBytesStoreSupplier.determineStoreType``).
"""

from __future__ import annotations

import statecore.extras.pipeline

import numpy as np
import pyarrow as pa

from statecore.formats.columns import (
    bool_array,
    bytes_at,
    cut,
    first_misfit,
    fixed,
    int32_array,
    int64_array,
    join,
    require,
    require_length,
)
from statecore.formats.headers import TimestampedHeadersFormat
from statecore.formats.key_value import TimestampedFormat
from statecore.formats.kinds import StoreKind
from statecore.formats.row_format import Misfit, Records, RowFormat, int64_at
from statecore.formats.rows.keys import BASE_PREFIX, INDEX_PREFIX, SESSION_BYTES, WINDOW_BYTES
from statecore.formats.session import misfit_of_session_keys, session_columns
from statecore.formats.window import SEQUENCE_BYTES, misfit_of_window_keys

_TIME_BYTES = 8


class EmitFinalFormat(RowFormat):
    """Base of emit-final formats: base and index rows, distinguished by their first byte."""

    time_at = 1

    def decode(self, keys: pa.Array, values: pa.Array) -> pa.RecordBatch:
        require_length(self.kind, keys, 1, "key")
        prefixes = bytes_at(keys, 0, 1)[:, 0]
        base, index = prefixes == BASE_PREFIX, prefixes == INDEX_PREFIX
        require(self.kind, ~base & ~index, "has a key that begins neither with 00 nor with 01")
        rows = bool_array(base)
        return super().decode(keys.filter(rows), values.filter(rows))


class EmitFinalWindowFormat(EmitFinalFormat):
    """Keys of emit-final windows without index rows."""

    key_time_at = -WINDOW_BYTES

    def check(self, records: Records) -> Misfit | None:
        return first_misfit(misfit_of_window_keys(self, records), super().check(records))

    def row_keys(self, keys: pa.Array) -> pa.Array:
        starts = bytes_at(keys, -WINDOW_BYTES, _TIME_BYTES)
        sequences = bytes_at(keys, -SEQUENCE_BYTES, SEQUENCE_BYTES)
        return join(_prefixes(keys, BASE_PREFIX), fixed(starts), cut(keys, back=WINDOW_BYTES), fixed(sequences))

    def key_columns(self, keys: pa.Array) -> dict[str, pa.Array]:
        require_length(self.kind, keys, 1 + WINDOW_BYTES, "key")
        starts = int64_at(keys, 1)
        require(self.kind, starts < 0, "has a key with a negative window start")
        sequences = int32_array(bytes_at(keys, -SEQUENCE_BYTES, SEQUENCE_BYTES))
        plain = cut(keys, front=1 + _TIME_BYTES, back=SEQUENCE_BYTES)
        return {"key": plain, "window_start": int64_array(starts), "sequence": sequences}


class IndexedEmitFinalWindowFormat(EmitFinalWindowFormat):
    """Keys of emit-final windows with index rows."""

    indexed = True

    def index_keys(self, row_keys: pa.Array) -> pa.Array | None:
        starts = fixed(bytes_at(row_keys, 1, _TIME_BYTES))
        sequences = fixed(bytes_at(row_keys, -SEQUENCE_BYTES, SEQUENCE_BYTES))
        plain = cut(row_keys, front=1 + _TIME_BYTES, back=SEQUENCE_BYTES)
        return join(_prefixes(row_keys, INDEX_PREFIX), plain, starts, sequences)


class EmitFinalSessionFormat(EmitFinalFormat):
    """Rows of emit-final sessions."""

    indexed = True
    key_time_at = -SESSION_BYTES

    def check(self, records: Records) -> Misfit | None:
        return first_misfit(misfit_of_session_keys(self, records), super().check(records))

    def row_keys(self, keys: pa.Array) -> pa.Array:
        times = bytes_at(keys, -SESSION_BYTES, SESSION_BYTES)
        return join(_prefixes(keys, BASE_PREFIX), fixed(times), cut(keys, back=SESSION_BYTES))

    def index_keys(self, row_keys: pa.Array) -> pa.Array | None:
        times = bytes_at(row_keys, 1, SESSION_BYTES)
        plain = cut(row_keys, front=1 + SESSION_BYTES)
        return join(_prefixes(row_keys, INDEX_PREFIX), plain, fixed(times))

    def key_columns(self, keys: pa.Array) -> dict[str, pa.Array]:
        require_length(self.kind, keys, 1 + SESSION_BYTES, "key")
        times = session_columns(self.kind, int64_at(keys, 1 + _TIME_BYTES), int64_at(keys, 1))
        return {"key": cut(keys, front=1 + SESSION_BYTES), **times}


class _Window(TimestampedFormat, EmitFinalWindowFormat):
    pass


class _SlidingWindow(TimestampedFormat, IndexedEmitFinalWindowFormat):
    pass


class _HeadersWindow(TimestampedHeadersFormat, IndexedEmitFinalWindowFormat):
    pass  # indexed whether the windows slide or not, see above


def _prefixes(column: pa.Array, prefix: int) -> pa.Array:
    """Column of ``prefix`` bytes, one for each element of a column."""
    return fixed(np.full((len(column), 1), prefix, np.uint8))


FORMATS: dict[StoreKind, type[RowFormat]] = {
    StoreKind.EMIT_FINAL_WINDOW: _Window,
    StoreKind.EMIT_FINAL_SLIDING_WINDOW: _SlidingWindow,
    StoreKind.HEADERS_EMIT_FINAL_WINDOW: _HeadersWindow,
    StoreKind.HEADERS_EMIT_FINAL_SLIDING_WINDOW: _HeadersWindow,
    StoreKind.EMIT_FINAL_SESSION: EmitFinalSessionFormat,
    StoreKind.HEADERS_EMIT_FINAL_SESSION: EmitFinalSessionFormat,
}
