"""Builds an image: one fresh database from the runs of one changelog partition, with its offset, and checks it.

Ingest accepts a file with a flipped bit, so every file is hashed where it lies in the database, after ingest, and that
hash must be the one taken when the run was finished. (Once: it covers whatever happened to the file until then.)

Runs that overlap stay as they are up to a few; above that RocksDB merges them into disjoint files here, where nobody
waits for it, instead of at the application's first start.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from statecore.errors import Corrupted, Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.topic_partition import TopicPartition
from statecore.images.digest import EMPTY, StoreDigest, digest_rows
from statecore.images.model import Image, Run
from statecore.stores.files import file_sha256, link_or_copy, sync_tree, tree_bytes
from statecore.stores.rocksdb import RocksDBStore

MAX_OVERLAPPING = 4
"""Overlapping runs left in one database; RocksDB's default starts to compact at as many files in its first level."""


def build_image(
    directory: Path,
    kind: StoreKind,
    runs: Sequence[Run],
    changelog: TopicPartition,
    offset: int,
    *,
    max_overlapping: int = MAX_OVERLAPPING,
) -> Image:
    """Make a database of these runs, closed and durable when this returns.

    The directory is not valid before: build under a name nobody reads, then move it. Run files are left in place.

    Args:
        directory: the database directory; must not exist.
        kind: what the store is.
        runs: the runs in offset order; none makes an empty store.
        changelog: the partition they were read from.
        offset: last applied offset (a global store: the next one), or -4 (``OFFSET_UNKNOWN``).
        max_overlapping: most runs with overlapping keys that are left unmerged.

    Raises:
        Invalid: the directory exists, or the offset is not one.
        Corrupted: a run is not the file it was when it was finished; the half-built directory is left for inspection.
        Capacity: no room.
    """
    if offset < 0 and offset != OFFSET_UNKNOWN:
        raise Invalid(
            f"{offset} is no offset for {changelog}.",
            action=f"Give the last applied offset, or {OFFSET_UNKNOWN} when it is unknown.",
            topic=changelog.topic,
            partition=changelog.partition,
        )
    for run in runs:
        _check_present(run)
    with RocksDBStore(directory, kind, create=True) as store:
        # Links, so that a run survives for a retry; ingest moves (renames) what it is given.
        staged = [directory / f"run-{number:05d}.ingest" for number in range(len(runs))]
        for run, target in zip(runs, staged, strict=True):
            link_or_copy(Path(run.path), target)
        _check_ingested(runs, store.ingest(staged))
        if not disjoint(runs) and len(runs) > max_overlapping:
            store.compact()
        found = _found(store, runs)
        store.commit({changelog: offset})
    sync_tree(directory)
    return Image(
        path=str(directory),
        rows=found.rows,
        bytes=found.bytes,
        digest=found.digest,
        file_bytes=tree_bytes(directory),
        committed_offset=offset,
    )


def verify_image(path: Path, kind: StoreKind, changelog: TopicPartition) -> Image:
    """Read every row of an image, without changing a byte of it.

    Raises:
        NotFound: no database at the path.
        Corrupted: a block cannot be read, or the offset of the changelog partition is missing.
        Invalid: a database of another kind.
    """
    with RocksDBStore(path, kind, read_only=True) as store:
        offset = store.committed_offset(changelog)
        found = digest_rows(store.scan_lists())
    if offset is None:
        raise Corrupted(
            f"The store at {path} has no offset for {changelog}.",
            action="Rebuild it from its changelog.",
            topic=changelog.topic,
            partition=changelog.partition,
        )
    return Image(
        path=str(path),
        rows=found.rows,
        bytes=found.bytes,
        digest=found.digest,
        file_bytes=tree_bytes(path),
        committed_offset=offset,
    )


def _check_present(run: Run) -> None:
    """Refuse a run that is missing or cut before a database is made; its bytes are checked after ingest."""
    path = Path(run.path)
    if not path.is_file():
        raise _damaged(run, "is missing")
    size = path.stat().st_size
    if size != run.file_bytes:
        raise _damaged(run, f"has {size} bytes instead of {run.file_bytes}")


def disjoint(runs: Sequence[Run]) -> bool:
    """Whether no two runs share a range of keys."""
    ranges = sorted((bytes.fromhex(run.min_key), bytes.fromhex(run.max_key)) for run in runs)
    return all(left[1] < right[0] for left, right in pairwise(ranges))


def _check_ingested(runs: Sequence[Run], files: Sequence[Path]) -> None:
    """The files in the database must be the runs, in their order, byte for byte."""
    if len(files) != len(runs):
        raise Corrupted(
            f"{len(runs)} runs were ingested, but {len(files)} files appeared: {', '.join(map(str, files))}.",
            action="Run the job again, and report this if it happens twice.",
        )
    for run, file in zip(runs, files, strict=True):
        if file.stat().st_size != run.file_bytes or file_sha256(file) != run.sha256:
            raise _damaged(run, f"is not the file it was when it was finished (the SHA-256 of {file} differs)")


def _found(store: RocksDBStore, runs: Sequence[Run]) -> StoreDigest:
    """Rows and digest: known for a single run, read back where runs were laid over each other."""
    if not runs:
        return StoreDigest(0, 0, EMPTY)
    if len(runs) == 1:
        return StoreDigest(runs[0].rows, runs[0].bytes, runs[0].digest)
    return digest_rows(store.scan_lists())


def _damaged(run: Run, how: str) -> Corrupted:
    return Corrupted(
        f"The run {run.path} {how}.",
        action="Build the run again; if it happens twice, check the disk and memory of this host.",
        path=run.path,
    )
