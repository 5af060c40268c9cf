"""Compares one task's store with another store, database by database; no rows are read where files are shared.

Two databases are equal without reading a row if their data files are hard links of each other, in the same order and
levels, and there is no log. Segments are compared from the newest to the oldest, so that from the second one on the
newest row time, and with it the expired segments, are known.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from statecore.errors import Corrupted, NotFound
from statecore.formats.emit_final import EmitFinalFormat, EmitFinalSessionFormat
from statecore.formats.kinds import WINDOWED_KINDS, StoreKind
from statecore.formats.registry import row_format
from statecore.formats.releases import OFFSETS_COLUMN_FAMILY
from statecore.formats.rocksdb_log import read_manifest
from statecore.formats.row_format import int64_at
from statecore.formats.rows.keys import BASE_PREFIX, INDEX_PREFIX
from statecore.formats.segments import Segmentation
from statecore.jobs.diff.row_diff import Example, RowCounts, RowDiff, with_decoded_keys
from statecore.jobs.diff.row_reader import Chunk, check_families, current_rows, layers
from statecore.statedir.readonly_database import Database
from statecore.stores.rocksdb.directory import current_manifest

Databases = Mapping[int | None, Path]
"""The databases of a store by the start of their segment in ms, ``None`` without segments."""

_SHOWN_COLUMNS = ("key", "window_start", "session_start", "session_end", "sequence", "side")


@dataclass(frozen=True)
class SegmentCounts:
    """Row counts of one segment.

    Attributes:
        segment: its start in ms.
    """

    segment: int | None
    counts: RowCounts


@dataclass(frozen=True)
class Compared:
    """Comparison of two stores.

    Attributes:
        counts: counts of all rows that were read, without rows of shared files.
        rows: rows of the compared store that were read.
        digest: digest of these rows (:mod:`statecore.images.digest`).
        shared: databases that were not read, because both sides have the same files.
        expired: skipped segments, because their rows have expired.
        segments: segments with differences, the newest first, at most a hundred.
    """

    counts: RowCounts = field(default_factory=RowCounts)
    rows: int = 0
    digest: str = ""
    reference_rows: int = 0
    reference_digest: str = ""
    databases: int = 0
    shared: int = 0
    expired: int = 0
    segments: tuple[SegmentCounts, ...] = ()
    examples: tuple[Example, ...] = ()


_MOST_SEGMENTS = 100


def compare_stores(
    kind: StoreKind,
    store: Databases,
    reference: Databases,
    *,
    examples: int,
    segmentation: Segmentation | None = None,
    read: Callable[[int], None] = lambda _: None,
) -> Compared:
    found = RowDiff(examples, read)
    newest = _Newest(kind)
    shared = expired = 0
    differing = []
    order = sorted({*store, *reference}, key=lambda segment: -1 if segment is None else segment, reverse=True)
    for segment in order:
        if segmentation is not None and newest.has_expired(segment, segmentation):
            expired += 1
            continue
        mine, theirs = store.get(segment), reference.get(segment)
        # The newest segment is always read, for the times of its rows.
        wants_time = segmentation is not None and segment == order[0]
        if not wants_time and mine is not None and theirs is not None and have_same_files(mine, theirs):
            shared += 1
            continue
        counts = _compare(kind, segment, mine, theirs, found, newest if wants_time else None)
        if not counts.are_equal and segment is not None:
            differing.append(SegmentCounts(segment, counts))
    return Compared(
        found.counts,
        found.content.rows,
        found.content.digest,
        found.reference.rows,
        found.reference.digest,
        len(order),
        shared,
        expired,
        tuple(differing[:_MOST_SEGMENTS]),
        with_decoded_keys(found.examples, lambda key: decoded_key(kind, key)),
    )


def _compare(
    kind: StoreKind, segment: int | None, mine: Path | None, theirs: Path | None, found: RowDiff, newest: _Newest | None
) -> RowCounts:
    """Compare one database; a segment that was deleted meanwhile, as expired ones are, has no rows."""
    with ExitStack() as opened:
        pair: list[Database | None] = []
        for path in (mine, theirs):
            database = None
            if path is not None and segment is not None:
                with suppress(NotFound):
                    database = opened.enter_context(Database(path))
            elif path is not None:
                database = opened.enter_context(Database(path))
            if database is not None:
                check_families(database, kind)
            pair.append(database)
        families = {family for database in pair if database is not None for family in database.families}
        counts = RowCounts()
        for layer in layers(kind, families):
            streams = [_rows(database, kind, layer, newest) for database in pair]
            counts += found.compare(segment, *streams)
        return counts


def _rows(database: Database | None, kind: StoreKind, layer: str, newest: _Newest | None) -> Iterator[Chunk]:
    if database is None:
        return
    for chunk in current_rows(database, kind, layer):
        if newest is not None:
            newest.see(chunk[0])
        yield chunk


class _Newest:
    """The newest row time seen so far."""

    def __init__(self, kind: StoreKind) -> None:
        self._format = row_format(kind) if kind in WINDOWED_KINDS else None
        self._time = -1

    def see(self, keys: list[bytes]) -> None:
        """Update the newest time from keys; index rows have another prefix and add nothing."""
        if self._format is None or self._format.time_at is None:
            return
        if self._format.time_at > 0:
            keys = [key for key in keys if key[0] == BASE_PREFIX]
        if keys:
            times = int64_at(pa.array(keys, pa.large_binary()), self._format.time_at)
            self._time = max(self._time, int(np.max(times)))

    def has_expired(self, start_ms: int | None, segmentation: Segmentation) -> bool:
        """Whether Kafka Streams would delete the segment that starts at this time."""
        if start_ms is None or self._time < 0:
            return False
        return start_ms < segmentation.first_live(self._time) * segmentation.interval_ms


_BLOB_LEVEL = -1
"""Level of a blob file, which has none."""


def have_same_files(one: Path, other: Path) -> bool:
    """Whether two databases have the same data files: hard links, in the same order, and no rows in a log."""
    try:
        mine, theirs = _files(one), _files(other)
    except (OSError, ValueError):  # reading the rows reports what is wrong
        return False
    return mine is not None and mine == theirs


def _files(database: Path) -> list[tuple[str, int, int, int]] | None:
    """Family, level and inode of each data file, by number; ``None`` if there are rows in a log."""
    if any(file.stat().st_size for file in database.glob("*.log")):
        return None
    manifest = read_manifest(current_manifest(database)[1])
    named = [(file.number, file.family, file.level, file.name) for file in manifest.files.values()]
    named += [(blob.number, blob.family, _BLOB_LEVEL, blob.name) for blob in manifest.blobs.values()]
    found = []
    for _, family, level, name in sorted(named):
        if family != OFFSETS_COLUMN_FAMILY:
            status = (database / name).stat()
            found.append((family, level, status.st_dev, status.st_ino))
    return found


def decoded_key(kind: StoreKind, key: bytes) -> dict[str, str]:
    """Decode a row's key by column; empty if it does not fit the kind, or the kind is unknown."""
    if not kind.can_be_built:
        return {}
    found, words = row_format(kind), {}
    if isinstance(found, EmitFinalFormat) and key[:1] == bytes([INDEX_PREFIX]):
        is_session = isinstance(found, EmitFinalSessionFormat)
        found, key = row_format(StoreKind.SESSION if is_session else StoreKind.WINDOW), key[1:]
        words = {"row": "index"}
    try:
        columns = found.key_columns(pa.array([key], pa.large_binary()))
    except Corrupted:
        return {}
    return words | {name: _printable(column[0].as_py()) for name, column in columns.items() if name in _SHOWN_COLUMNS}


def _printable(value: Any) -> str:
    if not isinstance(value, bytes):
        return str(value)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value.hex()
    return text if text.isprintable() else value.hex()
