"""Builds task manifests of a backup, and finds what the newest snapshot already has."""

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
from statecore.repository.blob_verification import NamedFile, missing_files
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
from statecore.repository.snapshot_composition import stores_behind
from statecore.repository.upload import SMALL, LocalFile
from statecore.spec.model import ApplicationSpec, retention_of, segment_interval_of, task_of
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
    """The newest snapshot.

    Attributes:
        manifest: its manifest; ``None`` if there is no snapshot.
        task_manifests: its task manifests of the selected tasks.
    """

    manifest: Manifest | None
    task_manifests: Mapping[str, TaskManifest]

    def store(self, of: StoreKey) -> StoreSnapshot | None:
        task_manifest = self.task_manifests.get(of[0])
        return (
            None
            if task_manifest is None
            else next((store for store in task_manifest.stores if store.store == of[1]), None)
        )


def newest_of(repository: ApplicationRepository, tasks: Iterable[str]) -> Newest:
    """Read the newest snapshot's manifests of some tasks."""
    head = repository.read_head()
    entry = None if head is None else head.head.newest
    if entry is None:
        return Newest(None, {})
    with repository.read_to_publish():
        manifest, wanted = repository.manifest(entry).value, set(tasks)
        task_manifests = repository.task_manifests(
            [reference for reference in manifest.task_manifests if reference.task in wanted]
        )
    return Newest(manifest, {task: read.manifest for task, read in task_manifests.items()})


def equivalent_databases(copy: StoreCopy, files: Files, newest: Newest) -> tuple[StoredDatabase, ...] | None:
    """The newest snapshot's databases of a store if they are equivalent to this copy; otherwise ``None``.

    Writing to a copy creates files with random names and identities. So if that was necessary, a snapshot with the same
    offsets and every SST file of the originals is equivalent: the same was written to the same files then.
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


class VerifiedFiles(NamedTuple):
    """What need not be uploaded, because it was verified in the repository.

    Attributes:
        standing: reused databases, by store.
        known: locations of files, by hash.
        gone: files of the newest snapshot that are lost.
    """

    reused: Mapping[StoreKey, tuple[StoredDatabase, ...]]
    known: Mapping[str, Extent]
    lost_files: frozenset[NamedFile]

    def have_moved(self, bases: Iterable[Sequence[BaseFile]]) -> bool:
        """Whether lost files were stored elsewhere; then the newest snapshot cannot be used."""
        where = {file.sha256: file.extent for base in bases for file in base}
        return any(where.get(one.sha256, one.extent) != one.extent for one in self.lost_files)


def verified_of(
    repository: ApplicationRepository, copies: Sequence[StoreCopy], files: Files, newest: Newest
) -> VerifiedFiles:
    """Verify in the repository what of the newest snapshot need not be uploaded again."""
    reused = {key(copy): found for copy in copies if (found := equivalent_databases(copy, files, newest)) is not None}
    at_hand = {file.sha256: file.path for found in files.values() for those in found.values() for file in those}
    known = {
        digest: extent for digest, extent in extents_of(newest.task_manifests.values()).items() if digest in at_hand
    }
    reused_blobs = {
        of: {NamedFile(*one) for database in found for one in database.extents} for of, found in reused.items()
    }
    lost_files = missing_files(
        repository.blobs, {NamedFile(*one) for one in known.items()}.union(*reused_blobs.values()), at_hand
    )
    return VerifiedFiles(
        {of: found for of, found in reused.items() if not reused_blobs[of] & lost_files},
        {digest: extent for digest, extent in known.items() if NamedFile(digest, extent) not in lost_files},
        frozenset(lost_files),
    )


def snapshot_of(
    spec: ApplicationSpec, copy: StoreCopy, databases: Sequence[StoredDatabase], logs: Logs
) -> StoreSnapshot:
    """A store's manifest entry. Its content digest and stream time are unknown."""
    store = copy.taken.spec
    expires = retention_of(store) is not None and not copy.restored_by_kafka_streams
    return StoreSnapshot(
        store=store.name,
        kind=store.kind,
        identity=store_identity(store.kind, databases, copy.offsets, 0 if store.kind.is_segmented else None),
        changelogs=logs.ends[key(copy)],
        isolation=str(isolation_of(spec.processing_guarantee)),
        databases=tuple(databases),
        read_at_ms=None if copy.restored_by_kafka_streams else logs.read_at_ms(key(copy)),
        stream_time=None if expires else -1,
        retention_ms=retention_of(store),
        segment_interval_ms=segment_interval_of(store),
        restored_by_kafka_streams=copy.restored_by_kafka_streams,
        spec_digest=spec_hash(spec),
        statecore_release=__version__,
        delete_retention_ms=None if copy.restored_by_kafka_streams else logs.delete_retention_ms(key(copy)),
    )


def task_manifests_of(snapshots: Mapping[StoreKey, StoreSnapshot]) -> list[TaskManifest]:
    """Group stores by task."""
    by_task: dict[str, list[StoreSnapshot]] = {}
    for (task, _), store in sorted(snapshots.items()):
        by_task.setdefault(task, []).append(store)
    return [TaskManifest(task, tuple(stores)) for task, stores in by_task.items()]


def is_whole(spec: ApplicationSpec, copies: Sequence[StoreCopy], logs: Logs) -> bool:
    """Whether these are all stores of all tasks, by the number of partitions on the brokers."""
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


def refuse_older(task_manifests: Sequence[TaskManifest], newest: Newest) -> None:
    """Refuse to publish less than the newest snapshot has; without the brokers the topics count as the same."""
    for task_manifest in task_manifests:
        there = newest.task_manifests.get(task_manifest.task)
        for store, end, other in stores_behind(task_manifest, there) if there is not None else ():
            raise Fenced(
                f"Nothing was published: the newest snapshot has store {store.store} of task {task_manifest.task} up "
                f"to offset {other} of {end.topic_partition}, and this directory up to {end.end}.",
                code="snapshot-newer",
                action="Use the directory of the instance that has the task now; or, if the topic was recreated, let "
                "the brokers confirm that (without --offline).",
                task=task_manifest.task,
                store=store.store,
                partition=str(end.topic_partition),
                offset=other,
                end=end.end,
            )


_REFRESH_MS = 3_600_000
"""Ends of the same files that were read this much later justify a new manifest: it stays usable for longer."""


def _knows_more(store: StoreSnapshot, before: StoreSnapshot) -> bool:
    """Whether the brokers added a topic id, a much later or cluster-clock time, or a shorter delete retention."""
    topics = {end.topic_partition: end.topic_id for end in before.changelogs}
    named = any(end.topic_id and not topics.get(end.topic_partition) for end in store.changelogs)
    if store.read_at_ms is None:
        return named
    if store.delete_retention_ms is not None and (
        before.delete_retention_ms is None or store.delete_retention_ms < before.delete_retention_ms
    ):
        return True
    return named or before.read_at_ms is None or store.read_at_ms - before.read_at_ms > _REFRESH_MS


def is_unchanged(task_manifests: Sequence[TaskManifest], newest: Newest, *, whole: bool) -> bool:
    """Whether the newest snapshot has all of this."""
    if newest.manifest is None or (
        whole
        and {reference.task for reference in newest.manifest.task_manifests}
        != {task_manifest.task for task_manifest in task_manifests}
    ):
        return False
    for task_manifest in task_manifests:
        there = newest.task_manifests.get(task_manifest.task)
        stores = {store.store: store.identity for store in task_manifest.stores}
        known = {} if there is None else {store.store: store for store in there.stores}
        before = {name: store.identity for name, store in known.items()}
        if not stores.items() <= before.items() or (whole and stores != before):
            return False
        if any(_knows_more(store, known[store.store]) for store in task_manifest.stores):
            return False
    return True


def taken_store(copy: StoreCopy, logs: Logs, snapshot: StoreSnapshot, put: Collection[str]) -> StoreTaken:
    """Report of a published store; ``put`` has the hashes of uploaded files."""
    files = [file for database in snapshot.databases for file in database.base]
    return _taken(copy, logs, [(file.extent.bytes, file.sha256 in put) for file in files])


def listed(copy: StoreCopy) -> dict[int | None, list[LocalFile]]:
    """Files of a store by segment, for a plan; large data files are not read and have no hash."""
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
    """Report of a store that would be published.

    A data file never changes, and no other file of its database gets its number. So a file that was not hashed counts
    as known if the newest snapshot has one of the same name and size; or a run of the same size, which was named when
    it was fetched.
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
    """Report of a store from the size of each file, and whether it is new."""
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
        restored_by_kafka_streams=copy.restored_by_kafka_streams,
    )
