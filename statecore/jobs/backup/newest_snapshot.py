"""The newest snapshot: what of a backup it already has, and what of it a backup must not lose."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from statecore.errors import Fenced
from statecore.formats.releases import GLOBAL
from statecore.formats.topic_partition import is_known_topic_id, is_same_topic
from statecore.jobs.backup.copies import StoreCopy
from statecore.jobs.backup.files import Files, listed_files
from statecore.jobs.backup.stores import StoreKey
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.blob_verification import NamedFile, missing_files
from statecore.repository.manifest import (
    Extent,
    Manifest,
    StoredDatabase,
    StoredEnd,
    StoreSnapshot,
    TaskManifest,
    extents_of,
)
from statecore.repository.publish.snapshot_composition import stores_behind
from statecore.repository.publish.upload import LocalFile

GLOBAL_TASKS = (GLOBAL,)
"""The task for which :func:`furthest_global_stores` is."""

IDENTITY = "IDENTITY"  # RocksDB's file with the random name of a database

_REFRESH_MS = 3_600_000
"""Ends of the same files that were read this much later justify a new manifest: it stays usable for longer."""


class NewestSnapshot(NamedTuple):
    """The newest snapshot of the application."""

    manifest: Manifest | None
    task_manifests: Mapping[str, TaskManifest]

    @property
    def hashes(self) -> Collection[str]:
        return extents_of(self.task_manifests.values()).keys()

    def store(self, of: StoreKey) -> StoreSnapshot | None:
        found = self.task_manifests.get(of[0])
        return None if found is None else next((store for store in found.stores if store.store == of[1]), None)


def read_newest(repository: ApplicationRepository, tasks: Iterable[str]) -> NewestSnapshot:
    head = repository.read_head()
    entry = None if head is None else head.head.newest
    if entry is None:
        return NewestSnapshot(None, {})
    with repository.read_to_publish():
        manifest, wanted = repository.manifest(entry).value, set(tasks)
        read = repository.task_manifests([one for one in manifest.task_manifests if one.task in wanted])
    return NewestSnapshot(manifest, {task: one.manifest for task, one in read.items()})


def equivalent_databases(copy: StoreCopy, files: Files, newest: NewestSnapshot) -> tuple[StoredDatabase, ...] | None:
    """The newest snapshot's databases of a store if they are equivalent to this copy; otherwise ``None``.

    Writing to a copy creates files with random names and identities. So if that was necessary, a snapshot with the same
    offsets and every SST file of the originals is equivalent: the same was written to the same files then.
    """
    before, found = newest.store(copy.key), files[copy.key]
    if (
        not copy.written
        or before is None
        or before.kind is not copy.selected.spec.kind
        or before.offsets != copy.offsets
    ):
        return None
    stored = before.by_segment
    if stored.keys() != found.keys() or any(database.runs for database in stored.values()):
        return None
    for segment, those in found.items():
        originals = (file for file in those if file.path.name in copy.linked[segment])
        if not all(has_file(stored[segment], file) for file in originals):
            return None
    return before.databases


def has_file(database: StoredDatabase, file: LocalFile) -> bool:
    """Whether a database has a file; one without a hash, of a plan, is known by name and size: it never changes."""
    if file.sha256:
        return any(one.sha256 == file.sha256 for one in database.base)
    return any((one.name, one.extent.bytes) == (file.path.name, file.bytes) for one in database.base)


def is_as_far(theirs: StoreSnapshot | None, ends: Sequence[StoredEnd], identities: set[str]) -> bool:
    """Whether a published global store is kept instead of that of a directory, which has these ends.

    Every instance has all global stores, each as far as it has come. A store with equal ends is another instance's,
    unless its database is the same: by the hash of RocksDB's ``IDENTITY``.
    """
    if theirs is None or theirs.restored_by_kafka_streams:
        return False
    published = {end.topic_partition: end for end in theirs.changelogs}
    if any(
        end.topic_partition not in published or not is_same_topic(end.topic_id, published[end.topic_partition].topic_id)
        for end in ends
    ):
        return False
    if [end.end for end in ends] == [published[end.topic_partition].end for end in ends]:
        return not identities or not identities <= _identities_of(theirs)
    return any(end.end < published[end.topic_partition].end for end in ends)


def _identities_of(store: StoreSnapshot) -> set[str]:
    return {file.sha256 for database in store.databases for file in database.base if file.name == IDENTITY}


def without_known_global_stores(
    repository: ApplicationRepository,
    copies: Sequence[StoreCopy],
    ends: Mapping[StoreKey, Sequence[StoredEnd]],
    listed: Files,
    newest: NewestSnapshot,
) -> list[StoreCopy]:
    """The copies without global stores that the newest snapshot has as far, and whole; ``listed`` is of a plan."""

    def is_known(copy: StoreCopy) -> bool:
        found = listed.get(copy.key) or listed_files(copy)
        identities = {file.sha256 for files in found.values() for file in files if file.path.name == IDENTITY}
        theirs = newest.store(copy.key)
        return is_as_far(theirs, ends[copy.key], identities) and not _missing(repository, theirs)

    return [copy for copy in copies if copy.selected.task != GLOBAL or not is_known(copy)]


def _missing(repository: ApplicationRepository, store: StoreSnapshot | None) -> bool:
    """Whether files of a published store are lost or damaged; then the one of the directory takes its place."""
    databases = () if store is None else store.databases
    files = {NamedFile(*one) for database in databases for one in database.extents}
    return bool(missing_files(repository.blobs, files))


def furthest_global_stores(mine: TaskManifest, theirs: TaskManifest) -> TaskManifest | None:
    """Combines the global stores of a backup with those that another instance has published since it began."""
    there = {store.store: store for store in theirs.stores}
    stores = [
        there[store.store] if is_as_far(there.get(store.store), store.changelogs, _identities_of(store)) else store
        for store in mine.stores
    ]
    return None if all(store is there.get(store.store) for store in stores) else TaskManifest(mine.task, tuple(stores))


class VerifiedFiles(NamedTuple):
    """What need not be uploaded, because it was verified in the repository.

    Attributes:
        reused: databases of stores that need no upload.
        known: locations of files, by hash.
    """

    reused: Mapping[StoreKey, tuple[StoredDatabase, ...]]
    known: Mapping[str, Extent]
    lost_files: frozenset[NamedFile]

    def have_moved(self, stores: Iterable[Sequence[StoredDatabase]]) -> bool:
        """Whether lost files were stored elsewhere; then the newest snapshot cannot be used."""
        where = {file.sha256: file.extent for databases in stores for one in databases for file in one.base}
        return any(where.get(one.sha256, one.extent) != one.extent for one in self.lost_files)


def verify_files(
    repository: ApplicationRepository, copies: Sequence[StoreCopy], files: Files, newest: NewestSnapshot
) -> VerifiedFiles:
    """Verify in the repository what of the newest snapshot need not be uploaded again."""
    reused = {copy.key: found for copy in copies if (found := equivalent_databases(copy, files, newest)) is not None}
    at_hand = {file.sha256: file.path for found in files.values() for those in found.values() for file in those}
    stored = extents_of(newest.task_manifests.values())
    known = {digest: extent for digest, extent in stored.items() if digest in at_hand}
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


def refuse_older(task_manifests: Sequence[TaskManifest], newest: NewestSnapshot) -> None:
    """Refuse to publish less than the newest snapshot has; without the brokers the topics count as the same."""
    for mine in task_manifests:
        there = newest.task_manifests.get(mine.task)
        for store, end, other in stores_behind(mine, there) if there is not None else ():
            raise Fenced(
                f"Nothing was published: the newest snapshot has store {store.store} of task {mine.task} up to "
                f"offset {other} of {end.topic_partition}, and this directory up to {end.end}.",
                code="snapshot-newer",
                action="Use the directory of the instance that has the task now; or, if the topic was recreated, let "
                "the brokers confirm that (without --offline).",
                task=mine.task,
                store=store.store,
                partition=str(end.topic_partition),
                offset=other,
                end=end.end,
            )


def _knows_more(store: StoreSnapshot, before: StoreSnapshot) -> bool:
    """Whether the brokers added a topic id, a much later or cluster-clock time, or a shorter delete retention."""
    had = {end.topic_partition for end in before.changelogs if is_known_topic_id(end.topic_id)}
    named = any(is_known_topic_id(end.topic_id) and end.topic_partition not in had for end in store.changelogs)
    if store.read_at_ms is None:
        return named
    if store.delete_retention_ms is not None and (
        before.delete_retention_ms is None or store.delete_retention_ms < before.delete_retention_ms
    ):
        return True
    return named or before.read_at_ms is None or store.read_at_ms - before.read_at_ms > _REFRESH_MS


def is_unchanged(task_manifests: Sequence[TaskManifest], newest: NewestSnapshot, *, whole: bool) -> bool:
    """Whether the newest snapshot has all of this."""
    if newest.manifest is None or (
        whole and {one.task for one in newest.manifest.task_manifests} != {one.task for one in task_manifests}
    ):
        return False
    for mine in task_manifests:
        there = newest.task_manifests.get(mine.task)
        stores = {store.store: store.identity for store in mine.stores}
        known = {} if there is None else {store.store: store for store in there.stores}
        before = {name: store.identity for name, store in known.items()}
        if not stores.items() <= before.items() or (whole and stores != before):
            return False
        if any(_knows_more(store, known[store.store]) for store in mine.stores):
            return False
    return True
