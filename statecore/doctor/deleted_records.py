"""Whether a rebuild of a store would lose rows because the first records of its log were deleted.

Kafka Streams only compacts the changelogs of most stores, so they begin at offset 0. Those of windows and sessions
expire by the clock of the broker, normally long after their rows have expired by the time of the records. If a log
begins later than that, the live rows of the store are looked for in it.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Collection, Sequence, Set
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from statecore.changelog.model import IsolationLevel, LogOffsets, OffsetRange
from statecore.changelog.reader import ChangelogReader
from statecore.doctor.changelog_comparison import NewestRecords, ReadLimits, is_misfit, newest_records
from statecore.doctor.logged_store_offsets import DatabasePath
from statecore.errors import Corrupted, Invalid, NotFound
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.row_format import int64_at
from statecore.formats.rows.keys import (
    BASE_PREFIX,
    EMIT_FINAL_SESSION_KINDS,
    EMIT_FINAL_WINDOW_KINDS,
    PLAIN_WINDOW_KINDS,
)
from statecore.formats.topic_partition import TopicPartition
from statecore.formats.window import SEQUENCE_BYTES
from statecore.statedir.readonly_database import Database

_ROWS = 10_000
"""Rows of each segment that are looked for."""
_KEYS = 1 << 62
_TIME_BYTES = 8


def is_row_deleted(
    reader: ChangelogReader,
    partition: TopicPartition,
    log: LogOffsets,
    kind: StoreKind,
    retention_ms: int | None,
    databases: Sequence[DatabasePath],
    limits: ReadLimits,
) -> bool:
    """Whether a live row may have no record any more, because records were deleted; true if that is not known.

    Args:
        retention_ms: the retention of its rows; ``None`` if they do not expire.
        databases: the segments of the store; they are read only if their rows expire.
    """
    if log.log_start == 0:
        return False
    if retention_ms is None:
        return True
    newest = newest_records(reader, partition, log.log_start, log.log_end, limits)
    expired = None if newest is None else _expired(kind, newest, retention_ms)
    first = _first_time(reader, partition, log)
    if expired is not None and (first is None or first <= expired):
        return False
    every = newest_records(reader, partition, log.log_start, log.log_end, limits, _KEYS)
    if expired is None or every is None or not every.is_complete:
        return True
    keys = _comparable(kind, row_format(kind).row_keys(_keys_of(every)).to_pylist())
    try:
        return any(_has_other_row(one, kind, expired, keys) for one in databases)
    except (NotFound, Corrupted, Invalid):
        return True


def _keys_of(newest: NewestRecords) -> pa.Array:
    return pa.array([one.key for one in newest.records], pa.binary())


def _expired(kind: StoreKind, newest: NewestRecords, retention_ms: int) -> int | None:
    """The time (ms) up to which rows have expired; ``None`` if some record cannot belong to the kind."""
    keys = _keys_of(newest)
    values = pa.array([one.value for one in newest.records], pa.binary())
    if is_misfit(kind, keys, values, pa.array([one.timestamp for one in newest.records], pa.int64())):
        return None
    return max(row_format(kind).times(keys).tolist(), default=-1) - retention_ms


def _first_time(reader: ChangelogReader, partition: TopicPartition, log: LogOffsets) -> int | None:
    """The greatest timestamp (ms) of the first records of a log; ``None`` without records."""
    span = OffsetRange(*partition, log.log_start, log.log_end)
    for batch in reader.read(span, IsolationLevel.READ_UNCOMMITTED):
        if len(batch):
            return int(pc.max(batch["timestamp"]).as_py())
    return None


def _has_other_row(database: DatabasePath, kind: StoreKind, expired: int, keys: Set[bytes]) -> bool:
    """Whether a database has a row that has not expired and has none of the keys."""
    with Database(database.path) as opened:
        rows = [key for key, _ in islice(opened.rows(kind.data_column_family), _ROWS)]
    if kind in EMIT_FINAL_WINDOW_KINDS | EMIT_FINAL_SESSION_KINDS:  # others are of the index
        rows = [key for key in rows if key[:1] == bytes([BASE_PREFIX])]
    time_at = row_format(kind).time_at
    assert time_at is not None
    rows = [key for key in rows if len(key) >= (-time_at if time_at < 0 else time_at + _TIME_BYTES)]
    times = int64_at(pa.array(rows, pa.binary()), time_at).tolist()
    live = [row for row, time in zip(rows, times, strict=True) if time > expired]
    return not _comparable(kind, live) <= keys


def _comparable(kind: StoreKind, keys: Collection[bytes]) -> set[bytes]:
    """Row keys without the numbers of duplicates: a store and its log number them differently."""
    return {key[:-SEQUENCE_BYTES] if kind in PLAIN_WINDOW_KINDS else key for key in keys}
