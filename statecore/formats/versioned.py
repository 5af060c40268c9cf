"""Rows of versioned key-value stores: the latest value of each key, and older versions by segment.

One database holds both; a segment is a prefix of its keys (``LogicalKeyValueSegment``). All numbers are big-endian::

    key     ┌──────────────────────┬───────────┐
            │ segment id, int64    │ key       │       -1 (ffffffffffffffff): the latest value
            └──────────────────────┴───────────┘

    value   ┌──────────────────────┬───────────┐
    latest  │ validFrom, int64 ms  │ value     │       none where the key is deleted
            └──────────────────────┴───────────┘

    value   ┌─────────────────────┬────────────────────────┬─────────────────────────────────────┬────────┬───┐
    others  │ validTo of the      │ validFrom of the       │ validFrom, int64 ms; size, int32    │ value  │ … │
            │ newest, int64 ms    │ oldest, int64 ms       │ … newest first, -1: tombstone       │        │   │
            └─────────────────────┴────────────────────────┴─────────────────────────────────────┴────────┴───┘
                                                                                            values oldest first

    0000000001c88e5e 61 -> 000001a1fd57eb80 000001a1fd570120 000001a1fd579d60 00000004 000001a1fd570120 00000004
                           "ver2" "ver4"
    0000000001c88e5d 63 -> 000001a1fd5668c8 000001a1fd5668c8 000001a1fd5668c8 ffffffff
    ffffffffffffffff 64 -> 000001a1fd566cb0 "d1"

A version is in the segment of its ``validTo``: segment id = validTo / interval. It ends where the next one of its row
begins. Between two rows of a key, and after the newest without a latest value, the key is deleted; that tombstone is
not stored. A tombstone that is alone, as in the second example, is stored with ``validTo`` equal to ``validFrom``: its
end is not stored. After a restart Kafka Streams 4.3 and 4.4 may put a late record before a version that is newer; that
one ends the row, and is never found again. At-least-once a record that is processed again may be there twice: the
second one is never found, and is no version here.

The changelog has the plain key and value, and ``validFrom`` as the record's timestamp; a null value is a tombstone. The
rows of a key depend on all its records and on stream time (:mod:`statecore.images.versions`).

Sources: ``RocksDBVersionedStore``, ``RocksDBVersionedStoreSegmentValueFormatter``, KIP-889, Kafka Streams 4.3.1.
"""

from __future__ import annotations

import statecore.extras.pipeline

import numpy as np
import pyarrow as pa

from statecore.formats.columns import Mask, cut, int64_array, numbers, require, require_length, slices, with_nulls
from statecore.formats.kinds import StoreKind
from statecore.formats.row_format import Misfit, Numbers, Records, RowFormat, binary_parts, int64_at, negative_timestamp
from statecore.formats.rows.versions import LATEST_SEGMENT, SEGMENT_BYTES

_HEAD_BYTES, _VERSION_BYTES = 16, 12


class VersionedFormat(RowFormat):
    """Rows of versioned key-value stores."""

    def check(self, records: Records) -> Misfit | None:
        return negative_timestamp(records.timestamps)

    def decode(self, keys: pa.Array, values: pa.Array) -> pa.RecordBatch:
        """See :meth:`RowFormat.decode`; versions of a row are oldest first, tombstones have a null value.

        ``valid_to`` is null for latest values, and equal to ``valid_from`` where the row does not store it.
        """
        require_length(self.kind, keys, SEGMENT_BYTES, "key")
        segments = int64_at(keys, 0)
        require(self.kind, segments < LATEST_SEGMENT, "has a key with a negative segment id that is not -1")
        latest = segments == LATEST_SEGMENT
        rows, valid_from, valid_to, starts, sizes = self._versions(values, latest)
        _, data = binary_parts(values)
        deleted = sizes < 0
        found = with_nulls(slices(data, starts, starts + np.maximum(sizes, 0)), deleted)
        columns = {
            "key": cut(keys, SEGMENT_BYTES).take(int64_array(rows)),
            "valid_from": int64_array(valid_from),
            "valid_to": int64_array(valid_to, latest[rows]),
            "value": found,
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def _versions(self, values: pa.Array, latest: Mask) -> tuple[Numbers, Numbers, Numbers, Numbers, Numbers]:
        """Row, validFrom, validTo, value start and length (-1: tombstone) of each version, by row, oldest first."""
        offsets, data = binary_parts(values)
        starts, ends = offsets[:-1], offsets[1:]
        kind = self.kind
        first, whole = numbers(data, starts, ends, 8)
        require(kind, ~whole, "has a value without a time")
        oldest, whole = numbers(data, starts + 8, ends, 8)
        require(kind, ~whole & ~latest, "has a value without the time of its oldest version")
        alone = np.flatnonzero(latest)
        found = [(alone, first[alone], first[alone], starts[alone] + 8, ends[alone] - starts[alone] - 8)]
        # Each round reads the next version of every row that has one: newest first.
        rows = np.flatnonzero(~latest)
        valid_to, places, value_ends = first[rows], starts[rows] + _HEAD_BYTES, ends[rows]
        rounds = [np.zeros(len(alone), np.int64)]
        while len(rows):
            valid_from, whole = numbers(data, places, value_ends, 8)
            size, whole_size = numbers(data, places + 8, value_ends, 4)
            size = np.where(size < 0, -1, size)
            places = places + _VERSION_BYTES
            last = valid_from == oldest[rows]
            is_first = len(rounds) == 1
            shown_late = last & ((valid_from == first[rows]) & (size < 0) if is_first else True)
            bad = ~whole | ~whole_size | (valid_from < 0) | ((valid_from >= valid_to) & ~shown_late)
            value_ends = value_ends - np.maximum(size, 0)
            bad |= value_ends < places
            broken = np.zeros(len(values), bool)
            broken[rows[bad]] = True
            require(kind, broken, "has versions that end too early or are out of order")
            found.append((rows, valid_from, valid_to, value_ends, size))
            rounds.append(np.full(len(rows), len(rounds), np.int64))
            unread = last & (value_ends != places)
            while unread.any():
                again, whole = numbers(data, places, value_ends, 8)
                size, whole_size = numbers(data, places + 8, value_ends, 4)
                unread &= whole & whole_size & (again == oldest[rows])
                places = np.where(unread, places + _VERSION_BYTES, places)
                value_ends = np.where(unread, value_ends - np.maximum(size, 0), value_ends)
                unread &= value_ends > places
            broken[rows[last & (value_ends != places)]] = True
            require(kind, broken, "has bytes that belong to no version")
            rows, valid_to = rows[~last], valid_from[~last]
            places, value_ends = places[~last], value_ends[~last]
        order = np.lexsort((-np.concatenate(rounds), np.concatenate([one[0] for one in found])))
        row, begin, end, start, size = (np.concatenate(parts)[order] for parts in zip(*found, strict=True))
        return row, begin, end, start, size


FORMATS: dict[StoreKind, type[RowFormat]] = {StoreKind.VERSIONED_KEY_VALUE: VersionedFormat}
