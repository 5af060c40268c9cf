"""Detects the kind of a store on disk by its column families, and by its rows where kinds share them.

Each store class opens exactly its own column families (:mod:`statecore.formats.releases`), so they settle most kinds.
The others differ in their rows, of which a sample is read. All of these must fit; times are compared with their
segment, so that a key does not pass for a time by chance (all integers big-endian)::

    window             key o start8 o seq4          start in the segment, seq 0
    join-window        key o start8 o seq4          start in the segment, seq > 0 (it counts from 1)
    session            key o end8 o start8          end in the segment, 0 <= start <= end
    emit-final-window  00 o start8 o key o seq4     start in the segment; no row begins with 01
      sliding          01 o key o start8 o seq4     index rows beside them, without a value (with headers: both kinds)
    emit-final-session 00 o end8 o start8 o key     end in the segment;
                       01 o key o end8 o start8     always with index rows
    grace-buffer       00 o time8 o key o seq4      one segment <store>.0, whatever the time; rows that Kafka Streams
                                                    has restored have other keys, which it never finds again
    versioned          int64 segment id o key       -1: validFrom8 o value; else next8 o min8 o {from8 o size4}* o ...
    list               ts8 o side1 o key            value: 01 o count4 o {length4 o bytes}*

A store without rows stays undecided among the kinds that share its families.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import gcd
from pathlib import Path
from typing import NamedTuple

from statecore.discover.kind_evidence import BUILT, BY_FAMILIES, GRACE_BUFFER_SUFFIX, Evidence
from statecore.errors import Corrupted, NotFound
from statecore.formats.integers import INT64_MAX
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import DEFAULT_COLUMN_FAMILY, OFFSETS_COLUMN_FAMILY
from statecore.formats.rows.buffered import BUFFER_TIME_BYTES, correct_key, parse_buffered
from statecore.statedir.readonly_database import Database
from statecore.statedir.store_places import StorePlace

_SAMPLED_FROM = (None, b"\x00\x00\x01", b"\x01", b"\xff" * 8)
"""Start keys of the samples: first rows, mis-keyed rows of a grace buffer, index rows, latest values of a versioned
store.
"""

_SAMPLED_ROWS = 100
_SAMPLED_DATABASES = 6
_LONG_AGO_MS = 10 * 365 * 86_400_000
"""1980: no segment interval is that long, so a greater time cannot be in the segment that begins at 0."""

_FAR_MS = 1 << 46
"""The year 4199: no record has such a time."""

_LATEST = -1


class Row(NamedTuple):
    """A sampled row; ``first`` and ``end`` bound the times of its segment."""

    key: bytes
    value: bytes
    first: int
    end: int


@dataclass(frozen=True)
class KindDetection:
    """Evidence in a store's databases.

    Attributes:
        evidence: the kinds that they leave possible.
        intervals: bounds (inclusive) of a versioned store's segment interval in ms, from its rows; or ``None``.
        older_rows: whether a family of an older format has rows (a store upgraded in place).
        is_empty: whether no row was found.
        unopenable: why no class of Kafka Streams would open it; empty if one would.
        miskeyed: sampled rows of a grace buffer with keys that only Kafka Streams' restore produces.
        uncertain_kinds: kinds that its rows do not rule out, although they look like another.
    """

    evidence: tuple[Evidence, ...]
    intervals: tuple[int, int] | None = None
    older_rows: bool = False
    is_empty: bool = True
    unopenable: str = ""
    miskeyed: int = 0
    uncertain_kinds: frozenset[StoreKind] = frozenset()


def kinds_opening_families(families: frozenset[str], *, segmented: bool) -> frozenset[StoreKind]:
    """The kinds whose class would open a database with these column families, those of older formats included."""
    data = families - {DEFAULT_COLUMN_FAMILY, OFFSETS_COLUMN_FAMILY}
    upgraded = {"keyValueWithTimestamp", "keyValueWithTimestampAndHeaders"}
    if data == upgraded:
        data = frozenset({"keyValueWithTimestampAndHeaders"})
    wanted = next(iter(data)) if data else DEFAULT_COLUMN_FAMILY
    if len(data) > 1 or not families:
        return frozenset()
    return frozenset(kind for kind in BUILT if kind.is_segmented == segmented and kind.data_column_family == wanted)


def detect_kind(places: Sequence[StorePlace]) -> KindDetection:
    """Detect the kind of a store from its directories in all its tasks. Raises ``Corrupted``."""
    segmented = places[0].segmented
    shape = frozenset(kind for kind in BUILT if kind.is_segmented == segmented)
    where = "its directory"
    starts = [segment.start for place in places for segment in place.segments if segment.start is not None]
    longest = gcd(*(start for start in starts if start)) or _LONG_AGO_MS
    families: frozenset[str] | None = None
    rows: list[Row] = []
    older = False
    for database, start in _databases(places):
        if len(rows) >= _SAMPLED_ROWS * _SAMPLED_DATABASES:
            break
        try:
            with Database(database) as opened:
                families = opened.families if families is None else families | opened.families
                left = kinds_opening_families(opened.families, segmented=segmented)
                if not left:
                    continue
                family = next(iter(left)).data_column_family
                if family != DEFAULT_COLUMN_FAMILY:
                    older |= any(True for _ in islice(opened.rows(DEFAULT_COLUMN_FAMILY), 1))
                rows += _sample(opened, family, start, longest if start else _LONG_AGO_MS)
        except NotFound:
            continue  # a segment that expired meanwhile
    if families is None:
        return KindDetection((Evidence(shape, where),))
    left = kinds_opening_families(families, segmented=segmented)
    if not left:
        text = f"no store of Kafka Streams has the column families {', '.join(sorted(families))} in this layout"
        return KindDetection((), unopenable=text)
    evidence = [Evidence(left, BY_FAMILIES)]
    if segmented and StoreKind.GRACE_BUFFER in left:
        evidence.append(_grace_buffer(places, starts, rows))
    if rows:
        evidence.append(Evidence(kinds_fitting_rows(rows, left), "its rows"))
    miskeyed = sum(map(_is_miskeyed, rows)) if segmented and places[0].store.endswith(GRACE_BUFFER_SUFFIX) else 0
    left_by = tuple(one for one in evidence if one.kinds)
    doubtful = kinds_not_ruled_out(rows, left)
    return KindDetection(
        left_by, versioned_intervals(rows), older, not rows, miskeyed=miskeyed, uncertain_kinds=doubtful
    )


def _databases(places: Sequence[StorePlace]) -> list[tuple[Path, int | None]]:
    """Databases with the start of their segment: the newest segment of every task before any older one."""
    ranked: list[tuple[int, Path, int | None]] = []
    for place in places:
        if place.segmented:
            newest_first = reversed(place.segments)
            ranked += [(age, segment.path, segment.start) for age, segment in enumerate(newest_first)]
        else:
            ranked += [(0, path, None) for path in place.databases]
    return [(path, start) for _, path, start in sorted(ranked, key=lambda one: one[0])]


def _sample(database: Database, family: str, start: int | None, length: int) -> list[Row]:
    first = start or 0
    found: dict[bytes, Row] = {}
    for place in _SAMPLED_FROM:
        for key, value in islice(database.rows(family, place), _SAMPLED_ROWS):
            found[key] = Row(key, value, first, first + length)
    return list(found.values())


def _grace_buffer(places: Sequence[StorePlace], starts: Sequence[int], rows: Sequence[Row]) -> Evidence:
    """Evidence for or against a grace buffer: one segment of 1970 with times of this century, unlike any window.

    With the name and the rows of one it is one in every task, even if the segment of some task was renamed.
    """
    others = BUILT - {StoreKind.GRACE_BUFFER}
    only = frozenset({StoreKind.GRACE_BUFFER})
    is_named = places[0].store.endswith(GRACE_BUFFER_SUFFIX)
    if is_named and rows and all(_is_of_grace_buffer(row) for row in rows):
        return Evidence(only, "its name and its rows")
    if set(starts) != {0}:
        return Evidence(others, "its segments")
    if rows and all(_is_of_grace_buffer(row) for row in rows):
        return Evidence(only, "its rows")
    if not rows and is_named:
        return Evidence(only, "its name")
    return Evidence(others if rows else BUILT, "its rows")


def kinds_fitting_rows(rows: Sequence[Row], among: frozenset[StoreKind]) -> frozenset[StoreKind]:
    """The given kinds that every row fits; empty if there is none, or rows do not distinguish them."""
    indexed = any(row.key[:1] == b"\x01" and not row.value for row in rows)
    left = frozenset(kind for kind in among if all(_FITS.get(kind, _fits)(row) for row in rows))
    by_index = {
        StoreKind.EMIT_FINAL_WINDOW: not indexed,
        StoreKind.EMIT_FINAL_SLIDING_WINDOW: indexed,
        StoreKind.HEADERS_EMIT_FINAL_SLIDING_WINDOW: indexed,
        StoreKind.EMIT_FINAL_SESSION: indexed,
        StoreKind.HEADERS_EMIT_FINAL_SESSION: indexed,
    }
    left = frozenset(kind for kind in left if by_index.get(kind, True))
    # Every row fits a plain store; if all rows parse as something stricter, it is that.
    return left - {StoreKind.KEY_VALUE} if len(left) > 1 else left


def kinds_not_ruled_out(rows: Sequence[Row], among: frozenset[StoreKind]) -> frozenset[StoreKind]:
    """The given kinds that rows do not rule out for certain.

    Times may be in microseconds, or any number that a record has. A plain row with the key -1 and a number looks like a
    value of a versioned store, and an emit-final store of endless retention has one segment, as a grace buffer.
    """
    by_time = bool(rows) and all(_is_in_endless_segment(row) for row in rows)
    found = {
        StoreKind.KEY_VALUE: all(_is_versioned_by_chance(row) for row in rows),
        StoreKind.VERSIONED_KEY_VALUE: all(_is_versioned(row, INT64_MAX) for row in rows),
        StoreKind.LIST: all(_is_list(row, INT64_MAX) for row in rows),
        StoreKind.EMIT_FINAL_WINDOW: by_time,
        StoreKind.EMIT_FINAL_SLIDING_WINDOW: by_time,
        StoreKind.EMIT_FINAL_SESSION: by_time,
    }
    return frozenset(kind for kind, may_be in found.items() if may_be and kind in among)


def versioned_intervals(rows: Sequence[Row]) -> tuple[int, int] | None:
    """Bounds of the segment interval of a versioned store: a row's newest ``validTo`` is in its segment."""
    shortest, longest = 1, _FAR_MS
    for row in rows:
        segment = _int64(row.key, 0)
        if segment is not None and segment > 0 and _is_old_versions(row.value):
            until = _int64(row.value, 0) or 0
            shortest = max(shortest, until // (segment + 1) + 1)
            longest = min(longest, until // segment)
    return (shortest, longest) if longest != _FAR_MS and shortest <= longest else None


def _fits(_row: Row) -> bool:
    return True


def _is_window(row: Row) -> bool:
    return _in_segment(row, -12) and _int32(row.key, -4) == 0


def _is_join_window(row: Row) -> bool:
    return _in_segment(row, -12) and _int32(row.key, -4) > 0


def _is_any_window(row: Row) -> bool:
    return _in_segment(row, -12)


def _is_session(row: Row) -> bool:
    return _in_segment(row, -16) and _starts_before(row, -8, -16)


def _is_emit_final_window(row: Row) -> bool:
    if row.key[:1] == b"\x01" and not row.value:
        return _in_segment(row, -12) and len(row.key) >= 13
    return row.key[:1] == b"\0" and len(row.key) >= 13 and _in_segment(row, 1) and len(row.value) >= 8


def _is_emit_final_session(row: Row) -> bool:
    if row.key[:1] == b"\x01" and not row.value:
        return len(row.key) >= 17 and _is_session(row)
    return row.key[:1] == b"\0" and len(row.key) >= 17 and _in_segment(row, 1) and _starts_before(row, 9, 1)


def _is_buffered(row: Row) -> bool:
    time = _int64(row.key, 1)
    return row.key[:1] == b"\0" and len(row.key) >= 13 and time is not None and _LONG_AGO_MS < time < _FAR_MS


def _is_of_grace_buffer(row: Row) -> bool:
    return _is_buffered(row) or _is_miskeyed(row)


def _is_in_endless_segment(row: Row) -> bool:
    """Whether it is a row of an emit-final store with one segment of 1970, and no buffered record."""
    if row.first or (row.key[:1] == b"\x01" and not row.value):
        return not row.first
    try:
        parse_buffered(row.value)
    except Corrupted:
        return _is_buffered(row)
    return False


def _is_miskeyed(row: Row) -> bool:
    """Whether Kafka Streams has restored it: its value is a buffered record and its time, which is 0."""
    if row.key[:1] != b"\0" or not row.value.endswith(bytes(BUFFER_TIME_BYTES)):
        return False
    if not _is_buffered(row._replace(key=correct_key(row.key))):
        return False
    try:
        parse_buffered(row.value[:-BUFFER_TIME_BYTES])
    except Corrupted:
        return False
    return True


def _is_versioned(row: Row, far: int = _FAR_MS) -> bool:
    segment = _int64(row.key, 0)
    if segment is None or segment < _LATEST:
        return False
    if segment == _LATEST:
        since = _int64(row.value, 0)
        return since is not None and 0 <= since < far
    return _is_old_versions(row.value, far)


def _is_versioned_by_chance(row: Row) -> bool:
    """Whether a key that begins with -1, with a number as value, is all that makes it a row of a versioned store."""
    since = _int64(row.value, 0)
    return _int64(row.key, 0) == _LATEST and since is not None and (since < _LONG_AGO_MS or len(row.value) == 8)


def _is_old_versions(value: bytes, far: int = _FAR_MS) -> bool:
    """Whether a value is one of ``RocksDBVersionedStoreSegmentValueFormatter``: entries newest first, then values."""
    until, since = _int64(value, 0), _int64(value, 8)
    if until is None or since is None or not 0 <= since <= until < far:
        return False
    at, values = 16, 0
    while at + 12 <= len(value):
        begins, size = struct.unpack_from(">qi", value, at)
        at += 12
        values += max(size, 0)
        if size < -1 or not 0 <= begins <= until:
            return False
        # The last one, and the oldest but where Kafka Streams has put a late record wrongly. A record that it processed
        # again is there twice.
        if begins == since and at + values == len(value):
            return True
    return False


def _is_list(row: Row, far: int = _FAR_MS) -> bool:
    time = _int64(row.key, 0)
    if time is None or not 0 <= time < far or row.key[8:9] not in (b"\0", b"\x01") or row.value[:1] != b"\x01":
        return False
    if len(row.value) < 5:
        return False
    count, at = _int32(row.value, 1), 5
    for _ in range(max(count, 0)):
        if at + 4 > len(row.value):
            return False
        at += 4 + max(_int32(row.value, at), 0)
    return count > 0 and at == len(row.value)


_FITS: dict[StoreKind, Callable[[Row], bool]] = {
    StoreKind.WINDOW: _is_window,
    StoreKind.JOIN_WINDOW: _is_join_window,
    StoreKind.TIMESTAMPED_WINDOW: _is_any_window,
    StoreKind.HEADERS_WINDOW: _is_any_window,
    StoreKind.SESSION: _is_session,
    StoreKind.HEADERS_SESSION: _is_session,
    StoreKind.EMIT_FINAL_WINDOW: _is_emit_final_window,
    StoreKind.EMIT_FINAL_SLIDING_WINDOW: _is_emit_final_window,
    StoreKind.EMIT_FINAL_SESSION: _is_emit_final_session,
    StoreKind.HEADERS_EMIT_FINAL_WINDOW: _is_emit_final_window,
    StoreKind.HEADERS_EMIT_FINAL_SLIDING_WINDOW: _is_emit_final_window,
    StoreKind.HEADERS_EMIT_FINAL_SESSION: _is_emit_final_session,
    StoreKind.GRACE_BUFFER: _is_of_grace_buffer,
    StoreKind.VERSIONED_KEY_VALUE: _is_versioned,
    StoreKind.LIST: _is_list,
}


def _in_segment(row: Row, at: int) -> bool:
    time = _int64(row.key, at)
    return time is not None and row.first <= time < row.end


def _starts_before(row: Row, start_at: int, end_at: int) -> bool:
    start, end = _int64(row.key, start_at), _int64(row.key, end_at)
    return start is not None and end is not None and 0 <= start <= end


def _int64(data: bytes, at: int) -> int | None:
    """The number at a position, from the end if negative; ``None`` outside of the bytes."""
    begin = at if at >= 0 else len(data) + at
    return int.from_bytes(data[begin : begin + 8], signed=True) if 0 <= begin <= len(data) - 8 else None


def _int32(data: bytes, at: int) -> int:
    begin = at if at >= 0 else len(data) + at
    return int.from_bytes(data[begin : begin + 4], signed=True)
