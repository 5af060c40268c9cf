"""From the files of stores to the parts of a manifest, and what the newest snapshot has of them already."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from statecore import __version__
from statecore.errors import Fenced
from statecore.filesystem import file_sha256
from statecore.formats.rocksdb_log import DATA_SUFFIXES
from statecore.jobs.backup.changelog_check import Logs
from statecore.jobs.backup.copies import StoreCopy
from statecore.jobs.backup.report import StoreTaken
from statecore.jobs.planning.plan import isolation_of
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.blob_verification import Named, lost
from statecore.repository.identity import store_identity
from statecore.repository.manifest import (
    BaseFile,
    Extent,
    Manifest,
    StoredDatabase,
    StoreSnapshot,
    TaskManifest,
    extents_of,
)
from statecore.repository.snapshot_composition import behind
from statecore.repository.upload import SMALL, LocalFile
from statecore.spec.derived import retention_of, segment_interval_of, task_of
from statecore.spec.model import ApplicationSpec
from statecore.spec.writer import spec_hash
from statecore.stores.rocksdb.checkpoint import named_files

StoreKey = tuple[str, str]
"""Task and name of a store."""

Files = Mapping[StoreKey, Mapping[int | None, Sequence[LocalFile]]]
"""The files of each store, by segment."""


def key(copy: StoreCopy) -> StoreKey:
    """Task and name of a store."""
    return copy.taken.task, copy.taken.spec.name


class Newest(NamedTuple):
    """What counts already.

    Attributes:
        manifest: the newest snapshot; ``None`` where there is none.
        parts: what it has of the tasks that are taken.
    """

    manifest: Manifest | None
    parts: Mapping[str, TaskManifest]

    def store(self, of: StoreKey) -> StoreSnapshot | None:
        """A store, if it has it."""
        part = self.parts.get(of[0])
        return None if part is None else next((store for store in part.stores if store.store == of[1]), None)


def newest_of(shelf: ApplicationRepository, tasks: Iterable[str]) -> Newest:
    """What the newest snapshot has of some tasks.

    Raises:
        Corrupted, Invalid, Retryable: it cannot be read.
    """
    head = shelf.read_head()
    entry = None if head is None else head.head.newest
    if entry is None:
        return Newest(None, {})
    with shelf.read_to_publish():
        manifest, wanted = shelf.manifest(entry).value, set(tasks)
        parts = shelf.parts([part for part in manifest.parts if part.task in wanted])
    return Newest(manifest, {task: read.part for task, read in parts.items()})


def standing_of(copy: StoreCopy, files: Files, newest: Newest) -> tuple[StoredDatabase, ...] | None:
    """The databases that the newest snapshot has of a store, where this one is no other; else ``None``.

    What is written to a copy has random names and identities in it. So where that was needed, a snapshot of the same
    offsets stands that has every SST file of the originals: the same was written to the same files then.
    """
    before, found = newest.store(key(copy)), files[key(copy)]
    if not copy.written or before is None or before.kind is not copy.taken.spec.kind or before.offsets != copy.offsets:
        return None
    stored = {database.segment: database for database in before.databases}
    if stored.keys() != found.keys() or any(database.runs for database in stored.values()):
        return None
    for segment, those in found.items():
        originals = {file.sha256 for file in those if file.path.name in copy.linked[segment]}
        if not originals <= {file.sha256 for file in stored[segment].base}:
            return None
    return before.databases


class Believed(NamedTuple):
    """What need not be put, because the newest snapshot has it and somebody has looked.

    Attributes:
        standing: the databases that stand, by store.
        known: where files lie, by hash.
        gone: files that the newest snapshot has, and that are not there any more.
    """

    standing: Mapping[StoreKey, tuple[StoredDatabase, ...]]
    known: Mapping[str, Extent]
    gone: frozenset[Named]

    def have_moved(self, bases: Iterable[Sequence[BaseFile]]) -> bool:
        """Whether files lie elsewhere now, so that the newest snapshot is of no use although it has the same files."""
        where = {file.sha256: file.extent for base in bases for file in base}
        return any(where.get(one.sha256, one.extent) != one.extent for one in self.gone)


def believed_of(shelf: ApplicationRepository, copies: Sequence[StoreCopy], files: Files, newest: Newest) -> Believed:
    """What of the newest snapshot need not be put again.

    Raises:
        Corrupted: a file has changed since it was hashed.
        Invalid, Retryable: nobody could look.
    """
    standing = {key(copy): found for copy in copies if (found := standing_of(copy, files, newest)) is not None}
    at_hand = {file.sha256: file.path for found in files.values() for those in found.values() for file in those}
    known = {digest: extent for digest, extent in extents_of(newest.parts.values()).items() if digest in at_hand}
    stood = {of: {Named(*one) for database in found for one in database.extents} for of, found in standing.items()}
    gone = lost(shelf.blobs, {Named(*one) for one in known.items()}.union(*stood.values()), at_hand)
    return Believed(
        {of: found for of, found in standing.items() if not stood[of] & gone},
        {digest: extent for digest, extent in known.items() if Named(digest, extent) not in gone},
        frozenset(gone),
    )


def snapshot_of(
    spec: ApplicationSpec, copy: StoreCopy, databases: Sequence[StoredDatabase], logs: Logs
) -> StoreSnapshot:
    """A store, as a manifest says it. What it holds nobody has read, and its stream time lies on no disk."""
    store = copy.taken.spec
    expires = retention_of(store) is not None and not copy.left_to_restore
    return StoreSnapshot(
        store=store.name,
        kind=store.kind,
        identity=store_identity(store.kind, databases, copy.offsets, 0 if store.kind.is_segmented else None),
        changelogs=logs.ends[key(copy)],
        isolation=str(isolation_of(spec.processing_guarantee)),
        databases=tuple(databases),
        cut_ms=None if copy.left_to_restore else logs.cut_ms(key(copy)),
        stream_time=None if expires else -1,
        retention_ms=retention_of(store),
        segment_interval_ms=segment_interval_of(store),
        left_to_restore=copy.left_to_restore,
        spec_digest=spec_hash(spec),
        made_by=__version__,
        horizon_ms=None if copy.left_to_restore else logs.horizon_ms(key(copy)),
    )


def parts_of(snapshots: Mapping[StoreKey, StoreSnapshot]) -> list[TaskManifest]:
    """Stores by task."""
    by_task: dict[str, list[StoreSnapshot]] = {}
    for (task, _), store in sorted(snapshots.items()):
        by_task.setdefault(task, []).append(store)
    return [TaskManifest(task, tuple(stores)) for task, stores in by_task.items()]


def is_whole(spec: ApplicationSpec, copies: Sequence[StoreCopy], logs: Logs) -> bool:
    """Whether these are all stores of all tasks that the application has: the brokers say how many tasks these are."""
    if logs.partitions is None:
        return False
    wanted = set()
    for store in (*spec.stores, *spec.global_stores):
        if not store.is_logged or not store.kind.can_be_built:
            continue
        if store.changelog not in logs.partitions:
            return False
        wanted |= {(task_of(store, number), store.name) for number in range(logs.partitions[store.changelog])}
    return wanted == {key(copy) for copy in copies}


def refuse_older(parts: Sequence[TaskManifest], newest: Newest) -> None:
    """Refuse to go back behind what counts, where nobody asked whether the topics are the same: they are taken for it.

    Raises:
        Fenced: the newest snapshot has more.
    """
    for part in parts:
        there = newest.parts.get(part.task)
        for store, end, other in behind(part, there) if there is not None else ():
            raise Fenced(
                f"Nothing was published: the newest snapshot has store {store.store} of task {part.task} up to "
                f"offset {other} of {end.topic_partition}, and this directory up to {end.end}.",
                code="snapshot-newer",
                action="Take the directory of the instance that has the task now; or, where the topic was made anew, "
                "let the brokers say so (without --offline).",
                task=part.task,
                store=store.store,
                partition=str(end.topic_partition),
                offset=other,
                end=end.end,
            )


_WORTH_MS = 3_600_000
"""A snapshot of the same files whose ends were read so much later is worth a manifest: it stays fit for longer."""


def _knows_more(store: StoreSnapshot, before: StoreSnapshot) -> bool:
    """Whether brokers have told what the snapshot before does not know: which topic it is, a much later moment, or one
    by their own clock, or that deletes are kept for a shorter time.
    """
    topics = {end.topic_partition: end.topic_id for end in before.changelogs}
    named = any(end.topic_id and not topics.get(end.topic_partition) for end in store.changelogs)
    if store.cut_ms is None:
        return named
    if store.horizon_ms is not None and (before.horizon_ms is None or store.horizon_ms < before.horizon_ms):
        return True
    return named or before.cut_ms is None or store.cut_ms - before.cut_ms > _WORTH_MS


def is_unchanged(parts: Sequence[TaskManifest], newest: Newest, *, whole: bool) -> bool:
    """Whether the newest snapshot has all of this.

    Args:
        parts: what was taken.
        newest: what counts.
        whole: whether that is all that the application has.
    """
    if newest.manifest is None or (
        whole and {part.task for part in newest.manifest.parts} != {part.task for part in parts}
    ):
        return False
    for part in parts:
        there = newest.parts.get(part.task)
        stores = {store.store: store.identity for store in part.stores}
        known = {} if there is None else {store.store: store for store in there.stores}
        before = {name: store.identity for name, store in known.items()}
        if not stores.items() <= before.items() or (whole and stores != before):
            return False
        if any(_knows_more(store, known[store.store]) for store in part.stores):
            return False
    return True


def taken_store(copy: StoreCopy, logs: Logs, snapshot: StoreSnapshot, put: Collection[str]) -> StoreTaken:
    """What is reported of a store that was taken.

    Args:
        copy: the store.
        logs: what the brokers said.
        snapshot: what it became.
        put: hashes of the files that were put.
    """
    files = [file for database in snapshot.databases for file in database.base]
    return _taken(copy, logs, [(file.extent.bytes, file.sha256 in put) for file in files])


def listed(copy: StoreCopy) -> dict[int | None, list[LocalFile]]:
    """The files of a store by segment, for a plan: large files of rows are not read, and have no hash."""
    found: dict[int | None, list[LocalFile]] = {}
    for segment, database in copy.databases.items():
        sizes = [(file, file.stat().st_size) for file in named_files(database)]
        found[segment] = [
            LocalFile(file, "" if size >= SMALL and file.suffix in DATA_SUFFIXES else file_sha256(file), size)
            for file, size in sizes
        ]
    return found


def planned_store(
    copy: StoreCopy,
    logs: Logs,
    files: Mapping[int | None, Sequence[LocalFile]],
    before: StoreSnapshot | None,
    hashes: Collection[str],
) -> StoreTaken:
    """What is reported of a store that would be taken.

    An SST file never changes, and no other of its database gets its number. So one that was not read is taken for
    known where the newest snapshot has one of its name and size; or a run of its size, which got its name when it was
    fetched.

    Args:
        copy: the store.
        logs: what the brokers said.
        files: from :func:`listed`.
        before: the store in the newest snapshot, if it has it.
        hashes: of the files that the newest snapshot has of all tasks that are taken.
    """
    stored = {} if before is None else {database.segment: database for database in before.databases}

    def is_known(segment: int | None, file: LocalFile) -> bool:
        if file.sha256:
            return file.sha256 in hashes
        database = stored.get(segment)
        alike = [(one.name, one.extent.bytes) for one in database.base] if database else []
        runs = [one.extent.bytes for one in database.runs] if database else []
        return (file.path.name, file.bytes) in alike or file.bytes in runs

    known = {(segment, file.path): is_known(segment, file) for segment, its in files.items() for file in its}
    originals = [
        (segment, file.path) for segment, its in files.items() for file in its if file.path.name in copy.linked[segment]
    ]
    stands = copy.written and before is not None and before.offsets == copy.offsets and stored.keys() == files.keys()
    if stands and all(known[one] for one in originals):
        known = dict.fromkeys(known, True)
    return _taken(
        copy, logs, [(file.bytes, not known[segment, file.path]) for segment, its in files.items() for file in its]
    )


def _taken(copy: StoreCopy, logs: Logs, files: Sequence[tuple[int, bool]]) -> StoreTaken:
    """A store whose files have these sizes, each with whether it is new."""
    ends = logs.ends[key(copy)]
    return StoreTaken(
        task=copy.taken.task,
        store=copy.taken.spec.name,
        kind=str(copy.taken.spec.kind),
        offsets={str(partition): offset for partition, offset in sorted(copy.offsets.items())},
        tail=-1 if logs.read_ms is None else sum(end.log_end - max(end.end, end.log_start) for end in ends),
        databases=len(copy.databases),
        files=len(files),
        bytes=sum(size for size, _ in files),
        new_files=sum(1 for _, is_new in files if is_new),
        new_bytes=sum(size for size, is_new in files if is_new),
        written=copy.written,
        left_to_restore=copy.left_to_restore,
    )
