"""The nouns of building: a run, what lies below one, an image, and how a store is divided by time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

from statecore.filesystem import FileMoment
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition


@dataclass(frozen=True)
class Segmentation:
    """How the rows of a store are divided by time.

    Attributes:
        retention_ms: how long rows are kept.
        interval_ms: time that one segment spans.
    """

    retention_ms: int
    interval_ms: int


def segment_order(segment: int | None) -> int:
    """Sorts the databases of a store: by segment, with the one of a store without segments (``None``) first."""
    return -1 if segment is None else segment


@dataclass(frozen=True)
class Below:
    """Which databases of a store may have rows below the runs that are made. There a delete has something to hide, and
    must be kept; in the others it is dropped.

    Attributes:
        anything: any database may; else those of ``segments`` alone.
        segments: the databases that may: ids of segments, ``None`` for the one of a store without segments.
    """

    anything: bool = False
    segments: frozenset[int | None] = frozenset()

    NOTHING: ClassVar[Self]
    """The runs are the first rows of the store."""

    ANYTHING: ClassVar[Self]
    """Nobody knows: every delete is kept."""

    def reaches(self, segment: int | None) -> bool:
        """Whether something may lie below in this database."""
        return self.anything or segment in self.segments


Below.NOTHING = Below()
Below.ANYTHING = Below(anything=True)


class RunFormat(StrEnum):
    """What the file of a run is; a change that older releases cannot read gets a name of its own."""

    SST = "sst"
    """An SST file of the columnar writer (:mod:`statecore.images.sst`): the same bytes for the same rows."""

    RECORDS = "records"
    """Sorted records of a versioned store (:mod:`statecore.images.versions.sorted_records`), which are no rows yet:
    such a store is built from all of them, and cannot be advanced by a run."""


ROW_VERSION = 1
"""Version of the bytes of rows. It rises when what is written of a kind changes, so that old and new are told apart."""


@dataclass(frozen=True)
class Run:
    """Rows of one offset range, last write per key, sorted in key order: one file, named by its hash.

    A run has no place. Whoever holds its bytes knows where they are (:class:`RunFile`,
    ``statecore/jobs/pipeline/staging.py``).

    Its range says more than where its records come from: of *its database*, all that the records of the range left is
    in this run. Whoever made it saw to that, so a run begins where the one before it in the same database ended, or
    where its builder began, also when offsets in between left nothing there::

        builder      [100 ──────────────┬──────────────┬──────────────┬────────── 500)
        segment 7     ├── run ──────────┤ ├── nothing ─┤
                                        ├──────────── run ────────────┤
        segment 8     ├── nothing ──────┤
                      ├──────────── run ───────────────┤

    Runs of different builders may have a gap between them, where a range left nothing. So runs of a database are in
    order when none begins before the one in front of it ends, and adjacent when, in that order, none of them lies
    between. That none is missing is known to whoever read the ranges, and cannot be seen on the runs.

    Attributes:
        sha256: hex digest of the whole file: its name, taken when it was finished and compared again after ingest.
        format: what the file is.
        rows: rows with a value.
        deletes: tombstones in the file.
        bytes: bytes of keys and values of the rows.
        file_bytes: size of the file.
        digest: order-free digest of the rows (see ``statecore.images.digest``), 32 hex digits.
        min_key: smallest key, hex.
        max_key: greatest key, hex.
        segment: id of the segment that the rows lie in; ``None`` where the store has no segments.
        start: first offset of the range.
        end: the offset it ends before.
        stream_time: greatest time of a row up to ``end`` in ms where rows expire, as whoever made it had seen; else -1.
        store: name of the store; empty where whoever made it did not know.
        kind: the store's kind, which decides the bytes of its rows; ``None`` likewise.
        row_version: version of those bytes.
        topic: the changelog of the offsets; empty likewise.
        partition: its partition; -1 likewise.
    """

    sha256: str
    format: RunFormat
    rows: int
    deletes: int
    bytes: int
    file_bytes: int
    digest: str
    min_key: str
    max_key: str
    segment: int | None = None
    start: int = 0
    end: int = 0
    stream_time: int = -1
    store: str = ""
    kind: StoreKind | None = None
    row_version: int = ROW_VERSION
    topic: str = ""
    partition: int = -1

    @property
    def origin(self) -> RunOrigin:
        """What its rows are of."""
        changelog = TopicPartition(self.topic, self.partition) if self.topic else None
        return RunOrigin(self.store, self.kind, changelog)


@dataclass(frozen=True)
class RunOrigin:
    """What the rows of a run are of.

    Attributes:
        store: name of the store; empty where nobody says it.
        kind: its kind; ``None`` likewise.
        changelog: the partition that the records come from; ``None`` likewise.
    """

    store: str = ""
    kind: StoreKind | None = None
    changelog: TopicPartition | None = None

    def of(self, run: RunFile) -> RunFile:
        """The run, which says so."""
        topic, partition = ("", -1) if self.changelog is None else (self.changelog.topic, self.changelog.partition)
        return replace(run, store=self.store, kind=self.kind, topic=topic, partition=partition)


@dataclass(frozen=True, kw_only=True)
class RunFile(Run):
    """A run whose file is at hand.

    Attributes:
        path: the file; read or linked, never written to.
        hashed: what the file was when whoever brought it found its hash to be that of the run; ``None`` where nobody
            has looked.
    """

    path: Path
    hashed: FileMoment | None = None

    @property
    def run(self) -> Run:
        """The run, without the place."""
        return Run(**{item.name: getattr(self, item.name) for item in fields(Run)})

    @staticmethod
    def of(run: Run, path: Path) -> RunFile:
        """The run, with the place of its file."""
        return RunFile(**{item.name: getattr(run, item.name) for item in fields(Run)}, path=path)


class StoreDigest(NamedTuple):
    """What a store holds.

    Attributes:
        rows: live rows.
        bytes: bytes of their keys and values.
        digest: their digest (see ``statecore.images.digest``), equal for equal rows however they were built.
    """

    rows: int
    bytes: int
    digest: str


@dataclass(frozen=True)
class Image:
    """A built store of one task: a database, or the directory of its segments' databases. It has no place either.

    What it was made of is always known, and named by its identity. What it holds (``rows``, ``bytes``, ``digest``) is
    known where the runs tell it; on a base nobody knows before every row is read (``verify_image``), and all three are
    ``None``.

    Attributes:
        identity: hash of what it was made of (:mod:`statecore.images.identity`): equal for equal runs on equal bases;
            ``None`` for one that was only found and read.
        rows: live rows; ``None`` where that is not known.
        bytes: bytes of keys and values of the rows; ``None`` likewise.
        digest: order-free digest of the rows, equal for equal rows however they were built; ``None`` likewise.
        file_bytes: bytes on disk.
        offsets: what its ``offsets`` family says: by ``<topic>-<partition>`` the last applied offset (a global store:
            the next one), or -4 (``OFFSET_UNKNOWN``) when the changelog is empty.
        segments: databases of segments; 0 where the store has none.
        expired: rows of runs left out because their segment has expired; of a base nobody counts them.
    """

    identity: str | None
    rows: int | None
    bytes: int | None
    digest: str | None
    file_bytes: int
    offsets: Mapping[str, int]
    segments: int = 0
    expired: int = 0

    @property
    def content(self) -> StoreDigest | None:
        """What it holds; ``None`` where that is not known."""
        if self.rows is None or self.bytes is None or self.digest is None:
            return None
        return StoreDigest(self.rows, self.bytes, self.digest)


@dataclass(frozen=True)
class SliceContent:
    """What a key range of a database holds, and what was written of it (:mod:`statecore.images.key_range_merge`).

    Attributes:
        made: for each group of runs that was merged the run that came of it; ``None`` where no row was left.
        content: what the database shows of these keys.
        entries: how many entries of each of its runs lie there.
    """

    made: tuple[Run | None, ...]
    content: StoreDigest
    entries: tuple[int, ...]


@dataclass(frozen=True)
class MergedDatabase:
    """A database whose runs were merged, and added up, before its image is built.

    Attributes:
        files: what is to be ingested, in this order.
        content: what it will show.
    """

    files: tuple[RunFile, ...]
    content: StoreDigest
