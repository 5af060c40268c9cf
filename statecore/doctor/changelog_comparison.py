"""Detects a recreated changelog by comparing rows of a store with the log's last records before its offset.

A state directory does not record topic ids. But if a store was closed at an offset, the last record of a key up to that
offset is its row, value by value, for kinds whose rows are records. So some of the newest keys before the offset
are looked up. A store of another log, which by now is longer than the offset, has none of these values.

The evidence of one key (:class:`Comparison`) is interpreted with care. A row that an earlier or a later record explains
belongs to this log: the store lost an update, or its offset was lowered. A missing row counts only if it cannot have
expired, and no delete behind the offset may be compacted away. No difference of a row counts that is older than its
store's retention: no query returns it, and a restore by Kafka Streams 4.4 begins with the records of that time.
Timestamps and headers are not compared, because a topic may stamp its records itself (``message.timestamp.type``). One
matching key is enough to report nothing.

Windows of stream-stream joins keep duplicates. The store numbers them, and the changelog does so for itself: a null
value counts in the changelog alone. So their rows are looked for by key and window, whatever the number, and only that
there is none proves anything.
"""

from __future__ import annotations

import statecore.extras.pipeline

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice, takewhile
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from statecore.changelog.model import IsolationLevel, OffsetRange, ReadStatistics
from statecore.changelog.reader import ChangelogReader
from statecore.discover.kind_evidence import BUILT
from statecore.doctor.logged_store_offsets import DatabasePath
from statecore.errors import Corrupted, NotFound
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.releases import OFFSETS_COLUMN_FAMILY
from statecore.formats.row_format import Records
from statecore.formats.rows.keys import PLAIN_WINDOW_KINDS
from statecore.formats.segments import Segmentation
from statecore.formats.topic_partition import TopicPartition
from statecore.formats.window import SEQUENCE_BYTES
from statecore.statedir.readonly_database import Database

COMPARABLE_KINDS = BUILT - {StoreKind.VERSIONED_KEY_VALUE, StoreKind.GRACE_BUFFER}
"""Kinds of which each row is one record; versioned rows and grace buffers are built from many."""

KEYS = 16
"""Keys that are looked up per partition."""

MORE_KEYS = 512
"""Keys that are looked up if the newest ones indicate another log: a store that lost its last updates has the rows
of older ones.
"""

MIN_KEYS = 3
"""Keys that have to indicate another log, unless the log has fewer."""

_SPANS = (64, 4_096, 131_072)
_BYTES = 32 << 20
_MOST_DUPLICATES = 1_000
_ROWS = 1_000  # of a column family that are looked up in its log


class Comparison(Enum):
    """Result of comparing one key."""

    EQUAL = "the row is the record's"
    EXPLAINED = "the row is an earlier or a later record's"
    FOREIGN = "the row is of no record that was seen"
    MISSING = "there is no row"
    UNDECIDED = "nothing is shown"


class LastRecord(NamedTuple):
    """The last record of a key before an offset.

    Attributes:
        value: ``None`` for a delete.
        timestamp: ms since the epoch.
    """

    key: bytes
    value: bytes | None
    timestamp: int
    offset: int


@dataclass(frozen=True)
class NewestRecords:
    """The last records of some keys before an offset.

    Attributes:
        records: the newest first.
        earlier_values: key → values of its earlier records, as far as they were read.
        is_complete: whether the log has no more keys before the offset.
        latest: the greatest timestamp (ms) of the records that were read.
    """

    records: Sequence[LastRecord]
    earlier_values: Mapping[bytes, frozenset[bytes]] = field(default_factory=dict)
    is_complete: bool = False
    latest: int = -1


class LaterRecords(NamedTuple):
    """Records behind an offset.

    Attributes:
        keys: the wanted keys that have a record there.
        has_gaps: whether offsets are missing there: compaction may have removed deletes.
    """

    keys: frozenset[bytes]
    has_gaps: bool


class ReadLimits:
    """Limits of reading logs."""

    def __init__(self, until: float, most_bytes: int = _BYTES) -> None:
        self.until, self.most_bytes = until, most_bytes

    @property
    def is_expired(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self.until

    def are_reached(self, statistics: ReadStatistics) -> bool:
        """Whether a read has to stop."""
        return statistics.bytes_fetched + statistics.bytes_decoded >= 2 * self.most_bytes or self.is_expired


def newest_records(
    reader: ChangelogReader, partition: TopicPartition, start: int, end: int, limits: ReadLimits, keys: int = KEYS
) -> NewestRecords | None:
    """The last records of the newest keys of ``[start, end)``; ``None`` if that exceeds the limits."""
    found = None
    for span in _SPANS:
        begin = max(start, end - span)
        batches = _all_of(reader, OffsetRange(*partition, begin, end), IsolationLevel.READ_COMMITTED, limits)
        if batches is None:
            return found
        found = _newest_of(batches, keys, whole=begin == start)
        if begin == start or len(found.records) >= keys:
            break
    return found


def newest_of_segments(
    reader: ChangelogReader,
    span: OffsetRange,
    kind: StoreKind,
    segmentation: Segmentation,
    stream_time: int,
    limits: ReadLimits,
) -> NewestRecords | None:
    """The last records of the newest keys of each unexpired segment; ``None`` if that exceeds the limits.

    None are returned if a record cannot belong to the kind: its time, and so its segment, is not known.

    Args:
        stream_time: the greatest time (ms) that the store may have seen, by its segments.
    """
    batches = _all_of(reader, span, IsolationLevel.READ_COMMITTED, limits)
    if batches is None:
        return None
    if any(is_misfit(kind, batch["key"], batch["value"], batch["timestamp"]) for batch in batches):
        return NewestRecords(())
    times = row_format(kind).times
    of_batch = [times(batch["key"]).tolist() for batch in batches]
    first_live = segmentation.first_live(max((time for of in of_batch for time in of), default=stream_time))
    first_live = max(first_live, segmentation.first_live(stream_time))
    groups = [[time // segmentation.interval_ms for time in of] for of in of_batch]
    found = _newest_of(batches, KEYS, whole=False, groups=groups)
    live = [
        one
        for one, time in zip(
            found.records, times(pa.array([one.key for one in found.records], pa.binary())), strict=True
        )
        if time // segmentation.interval_ms >= first_live
    ]
    return replace(found, records=live)


def later_records(
    reader: ChangelogReader, span: OffsetRange, keys: Collection[bytes], limits: ReadLimits
) -> LaterRecords | None:
    """The given keys with records in a range; ``None`` if that exceeds the limits. Raises as :func:`newest_records`."""
    wanted, seen = pa.array(sorted(keys), pa.binary()), set[bytes]()
    for batch in reader.read(span, IsolationLevel.READ_UNCOMMITTED):
        seen.update(batch["key"].filter(pc.is_in(batch["key"], value_set=wanted)).to_pylist())
        if limits.are_reached(reader.statistics):
            return None
    return LaterRecords(frozenset(seen), reader.statistics.removed > 0)


def _all_of(
    reader: ChangelogReader, span: OffsetRange, isolation: IsolationLevel, limits: ReadLimits
) -> list[pa.RecordBatch] | None:
    batches = []
    for batch in reader.read(span, isolation):
        batches.append(batch)
        if limits.are_reached(reader.statistics):
            return None
    return batches


def _newest_of(
    batches: Sequence[pa.RecordBatch], keys: int, *, whole: bool, groups: Sequence[Sequence[int]] | None = None
) -> NewestRecords:
    """The last records of so many keys, of each group if the group of each record is given."""
    written: dict[bytes, LastRecord] = {}
    earlier: dict[bytes, set[bytes]] = {}
    counts = Counter[int]()
    full = False
    for number, batch in reversed(list(enumerate(batches))):
        columns = [batch[name].to_pylist() for name in ("key", "value", "timestamp", "offset")]
        columns.append([0] * len(batch) if groups is None else list(groups[number]))
        for key, value, timestamp, offset, group in zip(*(reversed(column) for column in columns), strict=True):
            if key is None:
                continue
            if key in written:
                if value is not None:
                    earlier.setdefault(key, set()).add(value)
            elif counts[group] < keys:
                written[key] = LastRecord(key, value, timestamp, offset)
                counts[group] += 1
            else:
                full = True
    seen = {key: frozenset(values) for key, values in earlier.items()}
    latest = max((pc.max(batch["timestamp"]).as_py() for batch in batches if len(batch)), default=-1)
    return NewestRecords(tuple(written.values()), seen, whole and not full, latest)


def compare_rows(
    kind: StoreKind,
    databases: Sequence[DatabasePath],
    newest: NewestRecords,
    retention_ms: int | None = None,
    *,
    live: bool = False,
) -> dict[bytes, Comparison]:
    """Compare the rows of a store with the last records of their keys; ``live`` if no segment can have expired."""
    rows_of = row_format(kind)
    keys = pa.array([one.key for one in newest.records], pa.binary())
    values = pa.array([one.value for one in newest.records], pa.binary())
    timestamps = pa.array([one.timestamp for one in newest.records], pa.int64())
    shown = dict.fromkeys((one.key for one in newest.records), Comparison.UNDECIDED)
    if not len(keys) or is_misfit(kind, keys, values, timestamps):
        return shown
    times = [None] * len(keys) if rows_of.key_time_at is None else rows_of.times(keys).tolist()
    wanted: dict[DatabasePath, list[tuple[LastRecord, bytes]]] = {}
    for one, row_key, at in zip(newest.records, rows_of.row_keys(keys).to_pylist(), times, strict=True):
        found = _database_at(databases, at)
        if found is None and live and one.value is not None:
            shown[one.key] = Comparison.MISSING
        elif found is not None:
            wanted.setdefault(found, []).append((one, row_key))
    for found, looked in wanted.items():
        with Database(found.path) as database:
            for one, row_key in looked:
                sure = found.start is None or found.end is not None
                shown[one.key] = _compare(
                    database, kind, one, row_key, newest.earlier_values.get(one.key, frozenset()), sure
                )
    for one in () if retention_ms is None else _older(newest, times, databases, retention_ms):
        if shown[one.key] is not Comparison.EQUAL:
            shown[one.key] = Comparison.UNDECIDED
    return shown


def _older(
    newest: NewestRecords, times: Sequence[int | None], databases: Sequence[DatabasePath], retention_ms: int
) -> list[LastRecord]:
    """The records that are older than the retention, by the time of their row or by their own timestamp."""
    starts = (one.start for one in databases)
    stream_time = max((at for at in (*times, *starts) if at is not None), default=-1)
    return [
        one
        for one, at in zip(newest.records, times, strict=True)
        if one.timestamp < newest.latest - retention_ms or (at is not None and at <= stream_time - retention_ms)
    ]


def is_misfit(kind: StoreKind, keys: pa.Array, values: pa.Array, timestamps: pa.Array) -> bool:
    """Whether some record cannot belong to a store of the kind."""
    no_headers = pa.array([b"\x00"] * len(keys), pa.binary())
    return row_format(kind).check(Records(keys, values, timestamps, no_headers)) is not None


def has_rows(kind: StoreKind, databases: Iterable[DatabasePath]) -> bool:
    """Whether a store has any row; false if it cannot be read."""
    for one in databases:
        try:
            with Database(one.path) as database:
                for family in (kind.data_column_family, *kind.older_column_families):
                    if next(database.rows(family), None) is not None:
                        return True
        except (NotFound, Corrupted):
            return False
    return False


class Unrecorded(NamedTuple):
    """How many of the first rows of a store have no record in its log."""

    rows: int
    looked_up: int


def rows_without_record(
    reader: ChangelogReader, span: OffsetRange, kind: StoreKind, databases: Iterable[DatabasePath], limits: ReadLimits
) -> Unrecorded | None:
    """Look the first rows of a store up in its whole log; ``None`` if that exceeds the limits."""
    batches = _all_of(reader, span, IsolationLevel.READ_UNCOMMITTED, limits)
    if batches is None:
        return None
    keys = {key for batch in batches for key in row_format(kind).row_keys(batch["key"].drop_null()).to_pylist()}
    rows: list[bytes] = []
    for one in databases:
        with suppress(NotFound, Corrupted), Database(one.path) as database:
            for family in (kind.data_column_family, *kind.older_column_families):
                if family in database.families:
                    rows += [key for key, _ in islice(database.rows(family), _ROWS)]
    return Unrecorded(sum(key not in keys for key in rows), len(rows))


def _database_at(databases: Sequence[DatabasePath], at: int | None) -> DatabasePath | None:
    """The database for rows of a time; ``None`` if there is no such segment, because it may have expired."""
    if at is None:
        return databases[0] if databases else None
    begun = [one for one in databases if one.start is not None and one.start <= at]
    found = max(begun, key=lambda one: one.start or 0, default=None)
    return None if found is None or (found.end is not None and at >= found.end) else found


def _compare(
    database: Database, kind: StoreKind, written: LastRecord, row_key: bytes, earlier: Collection[bytes], sure: bool
) -> Comparison:
    """Compare one row with its record; ``sure`` if the row can be in no other database."""
    numbered = kind in PLAIN_WINDOW_KINDS and row_key[-SEQUENCE_BYTES:] != bytes(SEQUENCE_BYTES)
    rows = _duplicates(database, kind, row_key) if numbered else _row(database, kind.data_column_family, row_key)
    if not rows:
        older = database.families - {kind.data_column_family, OFFSETS_COLUMN_FAMILY}
        is_older = any(_row(database, family, row_key) for family in older)
        return Comparison.UNDECIDED if written.value is None or is_older or not sure else Comparison.MISSING
    try:
        values = [_value(kind, row) for row in rows]
    except Corrupted:
        return Comparison.UNDECIDED  # another kind, or damaged: other checks report it
    if written.value in values:
        return Comparison.EQUAL
    if numbered:
        return Comparison.UNDECIDED
    return Comparison.EXPLAINED if values[0] in earlier else Comparison.FOREIGN


def _row(database: Database, family: str, key: bytes) -> list[bytes]:
    """The row of a key, if there is one."""
    return [value for found, value in islice(database.rows(family, key), 1) if found == key]


def _duplicates(database: Database, kind: StoreKind, key: bytes) -> list[bytes]:
    """The rows of a key and window, whatever their numbers."""
    prefix = key[:-SEQUENCE_BYTES]
    rows = islice(database.rows(kind.data_column_family, prefix), _MOST_DUPLICATES)
    return [value for found, value in takewhile(lambda row: row[0].startswith(prefix), rows) if len(found) == len(key)]


def _value(kind: StoreKind, row: bytes) -> bytes:
    """The changelog's value of a row, without the prefix that the store adds."""
    if kind is StoreKind.LIST:
        return row
    (value,) = row_format(kind).value_columns(pa.array([row], pa.large_binary()))["value"].to_pylist()
    return bytes(value)


def proof(newest: NewestRecords, comparisons: Mapping[bytes, Comparison], later: LaterRecords) -> list[LastRecord]:
    """The records that prove that a store belongs to another log; empty if nothing is proven."""
    counts_by_result = Counter(comparisons.values())
    if counts_by_result[Comparison.EQUAL] or counts_by_result[Comparison.EXPLAINED]:
        return []
    counts = {Comparison.FOREIGN} if later.has_gaps else {Comparison.FOREIGN, Comparison.MISSING}
    found = [one for one in newest.records if comparisons[one.key] in counts and one.key not in later.keys]
    values = sum(one.value is not None for one in newest.records)
    return found if found and len(found) >= (min(MIN_KEYS, values) if newest.is_complete else MIN_KEYS) else []


def differing(comparisons: Mapping[bytes, Comparison]) -> list[bytes]:
    """Keys whose rows differ from their records."""
    return [
        key for key, one in comparisons.items() if one in (Comparison.FOREIGN, Comparison.MISSING, Comparison.EXPLAINED)
    ]
