"""Value types of run and image building: runs, images, and the databases that have older rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

from statecore.filesystem import FileState
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition


def segment_order(segment: int | None) -> int:
    """Sort key of a store's databases: by segment; ``None`` (a store without segments) first."""
    return -1 if segment is None else segment


@dataclass(frozen=True)
class BaseDatabases:
    """Databases that may have rows below the new runs, so that deletes must be kept; in others they are dropped."""

    all_databases: bool = False  # any database may; otherwise only those of segments
    # segment ids of databases that may have older rows; None for the one of a store without segments
    segments: frozenset[int | None] = frozenset()

    NONE: ClassVar[Self]  # The runs are the first rows of the store

    ALL: ClassVar[Self]  # Unknown: every delete is kept

    def may_have_rows(self, segment: int | None) -> bool:
        """Whether this database may have older rows."""
        return self.all_databases or segment in self.segments


BaseDatabases.NONE = BaseDatabases()
BaseDatabases.ALL = BaseDatabases(all_databases=True)


class RunFormat(StrEnum):
    """File format of a run; an incompatible change gets a new name."""

    SST = "sst"  # An SST file of the columnar writer (statecore.images.sst): the same bytes for the same rows
    RECORDS = "records"
    """Sorted records of a versioned store (:mod:`statecore.images.versions.sorted_records`), not rows: such a store is
    built from all of them, and cannot be advanced by a run.
    """


ROW_VERSION = 1
"""Version of the row format. It rises when the bytes written for a kind change, so that old and new are
distinguished."""


@dataclass(frozen=True)
class Run:
    """Rows of one offset range, last write per key, sorted in key order: one file, named by its hash.

    A run has no location; its holders know where its bytes are (:class:`RunFile`,
    ``statecore/jobs/pipeline/staging.py``).

    Its range says more than the origin of its records: this run contains everything that the records of the range left
    in *its database*. Its builder ensures that, so a run begins where the one before it in the same database ended, or
    where its builder began, also when offsets in between left nothing there::

        builder      [100 ──────────────┬──────────────┬──────────────┬────────── 500)
        segment 7     ├── run ──────────┤ ├── nothing ─┤
                                        ├──────────── run ────────────┤
        segment 8     ├── nothing ──────┤
                      ├──────────── run ───────────────┤

    Runs of different builders may have a gap between them, where a range left nothing. So runs of a database are in
    order when none begins before its predecessor ends, and adjacent when, in that order, no other run is between them.
    Only the reader of the ranges knows that no run is missing; the runs do not show it.
    """

    sha256: str  # hex digest of the whole file: its name, taken when it was finished and compared again after ingest
    format: RunFormat  # format of the file
    rows: int  # rows with a value
    deletes: int  # tombstones in the file
    bytes: int  # bytes of keys and values of the rows
    file_bytes: int  # size of the file
    digest: str  # order-free digest of the rows (see statecore.images.digest), 32 hex digits
    min_key: str  # smallest key, hex
    max_key: str  # greatest key, hex
    segment: int | None = None  # segment id of the rows; None where the store has no segments
    start: int = 0  # first offset of the range
    end: int = 0  # offset after the range
    # greatest time of a row up to end in ms where rows expire, as known to the builder; otherwise -1
    stream_time: int = -1
    store: str = ""  # name of the store; empty where the builder did not know it
    kind: StoreKind | None = None  # the store's kind, which determines the bytes of its rows; None likewise
    row_version: int = ROW_VERSION  # version of those bytes
    topic: str = ""  # the changelog of the offsets; empty likewise
    partition: int = -1  # its partition; -1 likewise

    @property
    def content(self) -> StoreDigest:
        """Content of its rows."""
        return StoreDigest(self.rows, self.bytes, self.digest)

    @property
    def origin(self) -> RunOrigin:
        """Store and changelog of its rows."""
        changelog = TopicPartition(self.topic, self.partition) if self.topic else None
        return RunOrigin(self.store, self.kind, changelog)


@dataclass(frozen=True)
class RunOrigin:
    """Store and changelog of a run's rows."""

    store: str = ""  # name of the store; empty where unknown
    kind: StoreKind | None = None  # its kind; None likewise
    changelog: TopicPartition | None = None  # partition of the records; None likewise

    def of(self, run: RunFile) -> RunFile:
        """A copy of the run with this origin."""
        topic, partition = ("", -1) if self.changelog is None else (self.changelog.topic, self.changelog.partition)
        return replace(run, store=self.store, kind=self.kind, topic=topic, partition=partition)


@dataclass(frozen=True, kw_only=True)
class RunFile(Run):
    """A run with its file."""

    path: Path  # the file; read or linked, never written to
    # state of the file when its hash was found to be the run's; None where it was not hashed
    state_when_hashed: FileState | None = None

    @property
    def run(self) -> Run:
        """The run without its path."""
        return Run(**{item.name: getattr(self, item.name) for item in fields(Run)})

    @staticmethod
    def of(run: Run, path: Path) -> RunFile:
        return RunFile(**{item.name: getattr(run, item.name) for item in fields(Run)}, path=path)


class StoreDigest(NamedTuple):
    """Content of a store."""

    rows: int  # live rows
    bytes: int  # bytes of their keys and values
    digest: str  # their digest (see statecore.images.digest), equal for equal rows however they were built

    @classmethod
    def known(cls, rows: int | None, bytes: int | None, digest: str | None) -> StoreDigest | None:
        """These values; ``None`` where one is unknown."""
        return None if rows is None or bytes is None or digest is None else cls(rows, bytes, digest)


@dataclass(frozen=True)
class Image:
    """A built store of one task: a database, or the directory of its segments' databases. It has no location.

    Its inputs are always known, and named by its identity. Its content (``rows``, ``bytes``, ``digest``) is known where
    the runs have it; on a base it is unknown until every row is read (``scans_bases`` of
    :func:`statecore.images.image.build_image`), and all three are ``None``.
    """

    # hash of its inputs (statecore.images.identity): equal for equal runs on equal bases; None for an image that was
    # only found and read
    identity: str | None
    rows: int | None  # live rows; None where unknown
    bytes: int | None  # bytes of keys and values of the rows; None likewise
    digest: str | None  # order-free digest of the rows, equal for equal rows however they were built; None likewise
    file_bytes: int  # bytes on disk
    # content of its offsets family: by <topic>-<partition> the last applied offset (a global store: the next one), or
    # -4 (OFFSET_UNKNOWN) when the changelog is empty
    offsets: Mapping[str, int]
    segments: int = 0  # number of segment databases; 0 where the store has none
    expired: int = 0  # rows of runs left out because their segment has expired; those of a base are not counted

    @property
    def content(self) -> StoreDigest | None:
        """Its content; ``None`` where unknown."""
        return StoreDigest.known(self.rows, self.bytes, self.digest)


@dataclass(frozen=True)
class SliceContent:
    """Content of a key range of a database, and its merged files (:mod:`statecore.images.key_range_merge`)."""

    made: tuple[Run | None, ...]  # merged run of each group of runs; None where no row was left
    content: StoreDigest  # content of the database in this key range
    entries: tuple[int, ...]  # number of entries of each of its runs in this key range


@dataclass(frozen=True)
class MergedDatabase:
    """A database whose runs were merged and digested before its image is built."""

    files: tuple[RunFile, ...]  # files to ingest, in this order
    content: StoreDigest
