"""A store of one task held against another store: database by database, every row once, or none where files are shared.

Two databases are the same without a look at a row where the files of their rows are: hard links of one another, in the
same order and levels, and no log. Segments are compared from the newest to the oldest, so that by the second one it is
known up to what time rows have come, and which segments have expired.
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

from statecore.doctor.row_reader import Chunk, check_families, current_rows, layers
from statecore.errors import Corrupted, NotFound
from statecore.formats.emit_final import EmitFinalFormat, EmitFinalSessionFormat
from statecore.formats.kinds import WINDOWED_KINDS, StoreKind
from statecore.formats.registry import row_format
from statecore.formats.releases import OFFSETS_COLUMN_FAMILY
from statecore.formats.rocksdb_log import read_manifest
from statecore.formats.row_format import int64_at
from statecore.formats.rows.keys import BASE_PREFIX, INDEX_PREFIX
from statecore.formats.segments import first_live_segment
from statecore.images.model import Segmentation
from statecore.jobs.diff.row_diff import Example, RowCounts, RowDiff, in_words
from statecore.statedir.readonly_database import Database
from statecore.stores.rocksdb.directory import current_manifest

Databases = Mapping[int | None, Path]
"""The databases of a store by the start of their segment in ms, ``None`` where it has none."""

_IN_WORDS = ("key", "window_start", "session_start", "session_end", "sequence", "side")


@dataclass(frozen=True)
class SegmentCounts:
    """How the rows of one segment compare.

    Attributes:
        segment: its start in ms.
        counts: how.
    """

    segment: int | None
    counts: RowCounts


@dataclass(frozen=True)
class Compared:
    """How two stores compare.

    Attributes:
        counts: of all rows that were read; rows of files that both share are not among them.
        rows: of the store that is looked at, as far as they were read.
        digest: of those, as :mod:`statecore.images.digest` has it.
        reference_rows: likewise, of the reference.
        reference_digest: likewise.
        databases: how many there are, of either side.
        shared: databases of which no row was read, because both sides have the same files.
        expired: segments that were left out, because their rows have expired.
        segments: the segments whose rows differ, the newest first, as far as they are no more than a hundred.
        examples: some rows of each difference.
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
    """Compare two stores.

    Args:
        kind: what both are; ``?`` where nobody knows it, and then rows are compared as they lie.
        store: the databases of the one that is looked at.
        reference: those that it is held against.
        examples: rows of each difference that are kept.
        segmentation: where given, segments whose rows have expired by the newest row of either side are left out.
        read: told the bytes that were read.

    Raises:
        Corrupted: a database cannot be read.
        Invalid: a database is not of the kind.
    """
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
        # The newest segment is read for the time of its rows.
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
        in_words(found.examples, lambda key: key_in_words(kind, key)),
    )


def _compare(
    kind: StoreKind,
    segment: int | None,
    mine: Path | None,
    theirs: Path | None,
    found: RowDiff,
    newest: _Newest | None,
) -> RowCounts:
    """Compare one database; one that has gone meanwhile, as expired segments go, has no rows."""
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
    """The time of the newest row that was seen.

    Args:
        kind: what the store is.
    """

    def __init__(self, kind: StoreKind) -> None:
        self._format = row_format(kind) if kind in WINDOWED_KINDS else None
        self._time = -1

    def see(self, keys: list[bytes]) -> None:
        """Look at keys of rows. Those that only index others begin with another byte, and tell nothing more."""
        if self._format is None or self._format.time_at is None:
            return
        if self._format.time_at > 0:
            keys = [key for key in keys if key[0] == BASE_PREFIX]
        if keys:
            times = int64_at(pa.array(keys, pa.large_binary()), self._format.time_at)
            self._time = max(self._time, int(np.max(times)))

    def has_expired(self, segment: int | None, segmentation: Segmentation) -> bool:
        """Whether Kafka Streams would not keep a segment, which begins at a time in ms."""
        if segment is None or self._time < 0:
            return False
        live = first_live_segment(self._time, segmentation.retention_ms, segmentation.interval_ms)
        return segment < live * segmentation.interval_ms


_BLOB_LEVEL = -1
"""Of a blob file, which is in no level."""


def have_same_files(one: Path, other: Path) -> bool:
    """Whether the rows of two databases lie in the same files: hard links, in the same order, and nothing in a log."""
    try:
        mine, theirs = _files(one), _files(other)
    except (OSError, ValueError):  # whoever reads them says what is wrong
        return False
    return mine is not None and mine == theirs


def _files(database: Path) -> list[tuple[str, int, int, int]] | None:
    """Family, level and inode of each file of rows, by its number; ``None`` where there are rows in a log."""
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


def key_in_words(kind: StoreKind, key: bytes) -> dict[str, str]:
    """A row's key as a person reads it, column by column; empty where it is none of the kind, or nobody knows that.

    Of a row that only indexes another one it is said that it does.
    """
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
    return words | {name: _word(column[0].as_py()) for name, column in columns.items() if name in _IN_WORDS}


def _word(value: Any) -> str:
    if not isinstance(value, bytes):
        return str(value)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value.hex()
    return text if text.isprintable() else value.hex()
