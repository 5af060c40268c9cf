"""Builds an image: the fresh database of one store of one task from its runs, with its offsets, and checks it.

A store with segments is a directory of databases, one for each segment that is live at the stream time, each with the
same offsets; runs of expired segments are left out. Where no segment has rows there is still one, of the stream time:
without a database there is no offset, and under exactly-once Kafka Streams would wipe the whole task::

    <directory>/                      a database                        key-value, versioned, list
    <directory>/<store>.<start ms>/   a database for each segment       windows, sessions, grace buffer

Ingest accepts a file with a flipped bit, so every file is hashed where it lies in the database, after ingest, and that
hash must be the one taken when the run was finished. (Once: it covers whatever happened to the file until then.)

Rows and digest come from the runs, without a scan (:mod:`statecore.images.runs_digest`); what RocksDB rewrote is read
back.

Runs that overlap stay as they are up to a few; above that RocksDB merges them into disjoint files here, where nobody
waits for it, instead of at the application's first start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from statecore.errors import Corrupted, Invalid
from statecore.filesystem import file_sha256, link_or_copy, sync_file, tree_bytes
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.segments import first_live_segment, segment_name
from statecore.formats.topic_partition import TopicPartition
from statecore.images.digest import EMPTY, StoreDigest, combined, digest_rows
from statecore.images.merging import damaged
from statecore.images.model import Image, RunFile, Segmentation
from statecore.images.runs_digest import merged_digest
from statecore.stores.rocksdb import RocksDBStore
from statecore.stores.rocksdb_witness import forget_witness
from statecore.stores.settings import KEEP_FILES, Durability

MAX_OVERLAPPING = 4
"""Overlapping runs left in one database; RocksDB's default starts to compact at as many files in its first level."""


_WHEN_CLOSED = replace(KEEP_FILES, durability=Durability.PROCESS)
"""A database in the making is nobody's: it is forced to the disk once, when it is closed."""


@dataclass(frozen=True)
class SegmentedRuns:
    """What is needed to divide a store's runs into segments.

    Attributes:
        store: the store's name, with which the names of segments begin.
        segmentation: retention and interval.
        stream_time: the greatest time of all its keys in ms; -1 when it has none.
    """

    store: str
    segmentation: Segmentation
    stream_time: int


def build_image(
    directory: Path,
    kind: StoreKind,
    runs: Sequence[RunFile],
    offsets: Mapping[TopicPartition, int],
    *,
    segmented: SegmentedRuns | None = None,
    max_overlapping: int = MAX_OVERLAPPING,
) -> Image:
    """Make the databases of these runs, closed and durable when this returns.

    The directory is not valid before: build under a name nobody reads, then move it. Run files are left in place.

    Args:
        directory: the store's directory; must not exist.
        kind: what the store is.
        runs: the runs in the order they are applied; none makes an empty store.
        offsets: by changelog partition the last applied offset (a global store: the next one), or -4
            (``OFFSET_UNKNOWN``).
        segmented: how the store is divided by time; required where the kind has segments.
        max_overlapping: most runs with overlapping keys that are left unmerged.

    Raises:
        Invalid: the directory exists, or an offset is not one.
        Corrupted: a run is not the file it was when it was finished; the half-built directory is left for inspection.
        Capacity: no room.
    """
    for partition, offset in offsets.items():
        if offset < 0 and offset != OFFSET_UNKNOWN:
            raise Invalid(
                f"{offset} is no offset for {partition}.",
                action=f"Give the last applied offset, or {OFFSET_UNKNOWN} when it is unknown.",
                topic=partition.topic,
                partition=partition.partition,
            )
    if not kind.is_segmented:
        found = _build_database(directory, kind, runs, offsets, max_overlapping)
        return _image(directory, found, offsets)
    if segmented is None:
        raise ValueError(f"an image of a {kind.value} store needs its segmentation")
    live, expired = _live_segments(runs, segmented)
    found = StoreDigest(0, 0, EMPTY)
    for segment, its_runs in live.items():
        name = segment_name(segmented.store, segment, segmented.segmentation.interval_ms)
        found = combined(found, _build_database(directory / name, kind, its_runs, offsets, max_overlapping))
    sync_file(directory.parent)  # the databases are durable, each with its name in the store's directory
    return replace(_image(directory, found, offsets), segments=len(live), expired=expired)


def _live_segments(runs: Sequence[RunFile], segmented: SegmentedRuns) -> tuple[dict[int, list[RunFile]], int]:
    """The runs of each segment that is live, oldest first, and the rows of those that have expired."""
    of = segmented.segmentation
    first = first_live_segment(segmented.stream_time, of.retention_ms, of.interval_ms)
    live: dict[int, list[RunFile]] = {}
    expired = 0
    for run in sorted(runs, key=lambda run: run.segment or 0):  # stable: runs of a segment stay in their order
        if run.segment is not None and run.segment >= first:
            live.setdefault(run.segment, []).append(run)
        else:
            expired += run.rows
    return live or {max(segmented.stream_time, 0) // of.interval_ms: []}, expired


def _build_database(
    directory: Path,
    kind: StoreKind,
    runs: Sequence[RunFile],
    offsets: Mapping[TopicPartition, int],
    max_overlapping: int,
) -> StoreDigest:
    for run in runs:
        _check_present(run)
    with RocksDBStore(directory, kind, create=True, settings=_WHEN_CLOSED) as store:
        # Links, so that a run survives for a retry; ingest moves (renames) what it is given.
        staged = [directory / f"run-{number:05d}.ingest" for number in range(len(runs))]
        for run, target in zip(runs, staged, strict=True):
            link_or_copy(run.path, target)
        files = store.ingest(staged)
        _check_ingested(runs, files)
        found = merged_digest(runs, files)
        if not disjoint(runs) and len(runs) > max_overlapping:
            store.compact()
            _read_back(store, runs, found)
        store.commit(offsets)
    forget_witness(directory)
    return found


def _image(directory: Path, found: StoreDigest, offsets: Mapping[TopicPartition, int]) -> Image:
    return Image(
        rows=found.rows,
        bytes=found.bytes,
        digest=found.digest,
        file_bytes=tree_bytes(directory),
        offsets={str(partition): offset for partition, offset in offsets.items()},
    )


def verify_image(path: Path, kind: StoreKind, changelogs: Sequence[TopicPartition]) -> Image:
    """Read every row of an image, without changing a byte of it.

    Args:
        path: the store's directory.
        kind: what the store is.
        changelogs: the partitions whose offset every database of it must have.

    Raises:
        NotFound: no database at the path.
        Corrupted: a block cannot be read, an offset is missing, or segments disagree in theirs.
        Invalid: a database of another kind.
    """
    databases = [path] if not kind.is_segmented else sorted(one for one in path.iterdir() if one.is_dir())
    found, offsets = StoreDigest(0, 0, EMPTY), dict[TopicPartition, int]()
    for database in databases or [path]:
        with RocksDBStore(database, kind, read_only=True, settings=KEEP_FILES) as store:
            for changelog in changelogs:
                offset = store.committed_offset(changelog)
                if offset is None or offsets.setdefault(changelog, offset) != offset:
                    raise _without_offset(database, changelog, offset)
            found = combined(found, digest_rows(store.scan_lists()))
    return replace(_image(path, found, offsets), segments=len(databases) if kind.is_segmented else 0)


def _without_offset(database: Path, changelog: TopicPartition, offset: int | None) -> Corrupted:
    how = "has no offset" if offset is None else f"has another offset ({offset}) than the other segments"
    return Corrupted(
        f"The store at {database} {how} for {changelog}.",
        action="Rebuild it from its changelog.",
        topic=changelog.topic,
        partition=changelog.partition,
    )


def _check_present(run: RunFile) -> None:
    """Refuse a run that is missing or cut before a database is made; its bytes are checked after ingest."""
    path = run.path
    if not path.is_file():
        raise damaged(run, "is missing")
    size = path.stat().st_size
    if size != run.file_bytes:
        raise damaged(run, f"has {size} bytes instead of {run.file_bytes}")


def disjoint(runs: Sequence[RunFile]) -> bool:
    """Whether no two runs share a range of keys."""
    ranges = sorted((bytes.fromhex(run.min_key), bytes.fromhex(run.max_key)) for run in runs)
    return all(left[1] < right[0] for left, right in pairwise(ranges))


def _check_ingested(runs: Sequence[RunFile], files: Sequence[Path]) -> None:
    """The files in the database must be the runs, in their order, byte for byte."""
    if len(files) != len(runs):
        raise Corrupted(
            f"{len(runs)} runs were ingested, but {len(files)} files appeared: {', '.join(map(str, files))}.",
            action="Run the job again, and report this if it happens twice.",
        )
    for run, file in zip(runs, files, strict=True):
        if file.stat().st_size != run.file_bytes or file_sha256(file) != run.sha256:
            raise damaged(run, f"is not the file it was when it was finished (the SHA-256 of {file} differs)")


def _read_back(store: RocksDBStore, runs: Sequence[RunFile], expected: StoreDigest) -> None:
    """What RocksDB made of the runs must be what they have."""
    found = digest_rows(store.scan_lists())
    if found != expected:
        raise Corrupted(
            f"RocksDB made {found.rows} rows of {len(runs)} runs with {expected.rows} rows, or other bytes.",
            action="Run the job again; if it happens twice, check the disk and memory of this host.",
        )
