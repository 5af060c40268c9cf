"""Builds an image: a new database of one store of one task, from its runs on their base, with its offsets.

A store with segments is a directory of databases, one for each segment that is live at the stream time, each with the
same offsets. Where no segment has rows there is still one, of the stream time: without a database there is no offset,
and under exactly-once Kafka Streams would wipe the whole task::

    a database:   run  [300, 400)   ┐
                  run  [200, 300)   ┴ merged before the ingest, where Kafka Streams would when it opens this
                  run  [100, 200)     linked         (:mod:`statecore.images.universal_compaction` chooses)
                  base [  0, 100)     linked, if there is one: only added files are hashed

Ingest accepts a file with a flipped bit, so every file is hashed in the database, after ingest, and the hash must be
the one taken when the run was finished; except of an unmodified inode that was hashed while it was received.

Rows and digest come from the runs, without a scan (:mod:`statecore.images.runs_digest`), unless they are known. On a
base they stay unknown, unless a scan is requested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from statecore.errors import Corrupted, Invalid
from statecore.filesystem import file_hashes, is_unmodified, link_or_copy, sync_file, sync_tree, tree_bytes
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.segments import Segmentation, segment_name
from statecore.formats.topic_partition import TopicPartition
from statecore.images.digest import combined, digest_rows
from statecore.images.identity import image_identity
from statecore.images.linked_bases import CheckedBase, ImageBases, checked_bases, link_base, refuse_advance
from statecore.images.mapped_runs import check_present, check_unchanged, damaged
from statecore.images.merge_writer import merged_file
from statecore.images.model import ROW_VERSION, Image, MergedDatabase, RunFile, RunFormat, StoreDigest
from statecore.images.run_order import check_order, runs_of_one_partition
from statecore.images.runs_digest import known_digest, merged_digest
from statecore.images.universal_compaction import runs_to_merge
from statecore.stores.rocksdb.manifest_guard import remove_guard_record
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES, Durability

_WHEN_CLOSED = replace(KEEP_FILES, durability=Durability.PROCESS, guards_manifest=False)
"""A database under construction has no other users: it is synced to disk once, when it is closed."""

_NOT_MERGED: Mapping[int | None, MergedDatabase] = MappingProxyType({})


@dataclass(frozen=True)
class SegmentedRuns:
    """Parameters that divide a store's runs into segments."""

    store: str  # the store's name, the prefix of segment names
    segmentation: Segmentation  # retention and interval
    stream_time: int  # greatest time of all its keys in ms, including those of a base; -1 without keys


@dataclass(frozen=True)
class _Database:
    """Inputs of one database."""

    directory: Path  # where it is built
    base: CheckedBase | None
    runs: Sequence[RunFile]  # in the order they are applied


def build_image(
    directory: Path,
    kind: StoreKind,
    runs: Sequence[RunFile],
    offsets: Mapping[TopicPartition, int],
    *,
    segmented: SegmentedRuns | None = None,
    bases: ImageBases | None = None,
    merged: Mapping[int | None, MergedDatabase] = _NOT_MERGED,
    content: StoreDigest | None = None,
    computes_content: bool = True,
    scans_bases: bool = False,
) -> Image:
    """Build the databases of these runs; they are closed and durable when this returns.

    The directory is not valid before: build it under a temporary name, then move it. Run files are left in place, and
    no byte or inode of a base is changed.

    Returns:
        The image. Its content is unknown where it was not given, and one of its databases has a base that is not
        scanned (``scans_bases``), or ``computes_content`` is false.
    """
    _check_offsets(offsets)
    _check_runs(kind, runs, offsets, bases)
    if bases is not None:
        _check_ahead(offsets, bases)
        if runs or offsets != bases.offsets:
            refuse_advance(kind)
    below = {} if bases is None else checked_bases(bases, kind, list(offsets))
    expired = 0
    if not kind.is_segmented:
        databases: dict[int | None, _Database] = {None: _Database(directory, below.get(None), runs)}
    else:
        if segmented is None:
            raise ValueError(f"an image of a {kind.value} store needs its segmentation")
        databases, expired = _live_databases(directory, runs, below, segmented)
    digests = [
        _build_database(
            database,
            kind,
            offsets,
            merged.get(segment),
            reads=computes_content and content is None,
            scans=scans_bases and content is None,
        )
        for segment, database in databases.items()
    ]
    known = [found for found in digests if found is not None]
    if len(known) == len(digests):
        content = combined(*known)
    if kind.is_segmented:
        sync_file(directory.parent)  # the databases are durable, each with its name in the store's directory
    made_of = {key: (None if one.base is None else one.base.identity, one.runs) for key, one in databases.items()}
    return Image(
        identity=image_identity(kind, made_of, offsets),
        **_content(content),
        file_bytes=tree_bytes(directory),
        offsets={str(partition): offset for partition, offset in offsets.items()},
        segments=len(databases) if kind.is_segmented else 0,
        expired=expired,
    )


def _check_offsets(offsets: Mapping[TopicPartition, int]) -> None:
    for partition, offset in offsets.items():
        if offset < 0 and offset != OFFSET_UNKNOWN:
            raise Invalid(
                f"{offset} is not an offset of {partition}.",
                code="offset-invalid",
                action=f"Give the last applied offset, or {OFFSET_UNKNOWN} if it is unknown.",
                topic=partition.topic,
                partition=partition.partition,
                offset=offset,
            )


def _check_runs(
    kind: StoreKind, runs: Sequence[RunFile], offsets: Mapping[TopicPartition, int], bases: ImageBases | None
) -> None:
    for run in runs:
        if run.format is RunFormat.RECORDS:
            raise Invalid(
                f"{run.path} contains records of a versioned store, not rows.",
                code="kind-unsupported",
                action="Replay them with build_version_runs, and build the image of the resulting runs.",
                path=str(run.path),
            )
        if run.kind not in (None, kind) or run.row_version != ROW_VERSION:
            raise Invalid(
                f"{run.path} contains rows of a {run.kind} store in version {run.row_version}, not of a {kind} store "
                f"in version {ROW_VERSION}.",
                code="run-mismatch",
                action="Read the changelog again, as a store of this kind.",
                path=str(run.path),
            )
        changelog = run.origin.changelog
        if changelog is not None and changelog not in offsets:
            raise Invalid(
                f"{run.path} contains rows of {changelog}, and the image is of {', '.join(map(str, offsets))}.",
                code="run-mismatch",
                action="Use the runs of the image's own changelog.",
                path=str(run.path),
            )
        if bases is not None and run.start < (ends := _base_end(bases, changelog)):
            raise Invalid(
                f"A run begins at offset {run.start}, and the base ends at {ends}.",
                code="run-below-base",
                action="Give only runs that begin at the base's end or later.",
                offset=run.start,
            )
    if not kind.is_versioned:
        for together in runs_of_one_partition(runs, several=len(offsets) > 1):
            check_order(together)


def _check_ahead(offsets: Mapping[TopicPartition, int], bases: ImageBases) -> None:
    """Refuse an offset smaller than the base's."""
    for partition, offset in bases.offsets.items():
        if offsets.get(partition, offset) < offset:
            raise Invalid(
                f"The base is at offset {offset} of {partition}, and the image would have {offsets[partition]}.",
                code="offset-invalid",
                action="Give the last applied offset of the runs, or that of the base if there are none.",
                topic=partition.topic,
                partition=partition.partition,
                offset=offset,
            )


def _base_end(bases: ImageBases, changelog: TopicPartition | None) -> int:
    """End of the base in a partition; the smallest of all where a run does not name its partition."""
    return min(bases.starts.values()) if changelog is None else bases.starts[changelog]


def _live_databases(
    directory: Path, runs: Sequence[RunFile], below: Mapping[int | None, CheckedBase], segmented: SegmentedRuns
) -> tuple[dict[int | None, _Database], int]:
    """Database of each live segment, oldest first, and the number of expired rows in the runs."""
    of = segmented.segmentation
    first = of.first_live(segmented.stream_time)
    there = {run.segment for run in runs} | below.keys()
    live = sorted(segment for segment in there if segment is not None and segment >= first)
    expired = sum(run.rows for run in runs if run.segment not in live)
    databases: dict[int | None, _Database] = {}
    for segment in live or [max(segmented.stream_time, 0) // of.interval_ms]:
        name = segment_name(segmented.store, segment, of.interval_ms)
        its_runs = [run for run in runs if run.segment == segment]
        databases[segment] = _Database(directory / name, below.get(segment), its_runs)
    return databases, expired


def _build_database(
    database: _Database,
    kind: StoreKind,
    offsets: Mapping[TopicPartition, int],
    merged: MergedDatabase | None,
    *,
    reads: bool,
    scans: bool,
) -> StoreDigest | None:
    """Build a database; returns its content where runs have it, or where their rows or those of its base are read."""
    directory, base = database.directory, database.base
    merged = merged if base is None else None
    for run in database.runs if merged is None else merged.files:
        check_present(run)  # before a database is built; its bytes are checked after ingest
    if base is not None:
        link_base(base, directory)
    with RocksDBStore(directory, kind, create=base is None, settings=_WHEN_CLOSED) as store:
        runs = _merged(directory, base, database.runs) if merged is None else merged.files
        # Links, so that a run survives for a retry; ingest moves (renames) what it is given.
        staged = [directory / f"run-{number:05d}.ingest" for number in range(len(runs))]
        for run, target in zip(runs, staged, strict=True):
            if run.path.parent == directory:
                run.path.rename(target)
            else:
                link_or_copy(run.path, target)
        files = store.ingest(staged)
        _check_ingested(runs, files)
        found = None
        if merged is not None:
            found = merged.content
        elif base is None:
            found = merged_digest(runs, files) if reads else known_digest(runs)
        elif scans:
            found = digest_rows(store.scan_lists())
        store.commit(offsets)
    remove_guard_record(directory)
    if base is not None:
        sync_tree(directory)  # a store syncs a database that it created itself
    return found


def _merged(directory: Path, base: CheckedBase | None, runs: Sequence[RunFile]) -> list[RunFile]:
    """The runs, after merging those that Kafka Streams would otherwise merge when it opens the database."""
    merged: list[RunFile] = []
    done = 0
    for group in runs_to_merge(runs, None if base is None else base.sorted_runs):
        merged += runs[done : group.start]
        done = group.stop
        together = runs[group]
        for run in together:
            check_unchanged(run)
        path = directory / f"merged-{group.start:05d}"
        made = merged_file(path, together, keep_tombstones=base is not None or group.start > 0)
        merged += [] if made is None else [made]
    return merged + list(runs[done:])


def _content(found: StoreDigest | None) -> dict[str, Any]:
    return dict.fromkeys(StoreDigest._fields) if found is None else found._asdict()


def _check_ingested(runs: Sequence[RunFile], files: Sequence[Path]) -> None:
    """Check that the files in the database are the runs, in order, byte for byte."""
    if len(files) != len(runs):
        raise Corrupted(
            f"{len(runs)} runs were ingested, but {len(files)} files were added: {', '.join(map(str, files))}.",
            code="ingest-inconsistent",
            action="Run the job again, and report this if it happens twice.",
            expected=len(runs),
            found=len(files),
        )
    together = zip(runs, files, strict=True)
    unhashed = [(run, file) for run, file in together if not is_unmodified(file, run.state_when_hashed)]
    hashes = file_hashes([file for _, file in unhashed])
    for (run, file), sha256 in zip(unhashed, hashes, strict=True):
        if file.stat().st_size != run.file_bytes or sha256 != run.sha256:
            raise damaged(run, f"has changed since it was finished (the SHA-256 of {file} differs)")
