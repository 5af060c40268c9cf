"""A snapshot: what an application's stores are made of, and the offsets they end at (``docs/repository-format.md``).

A snapshot copies nothing. It names, for each database of each store of each task, files in the repository::

    manifest ──▶ a task manifest each ──▶ stores ──▶ databases ──▶ base files: what Kafka Streams' RocksDB wrote
                                                                   runs: sorted rows of one offset range each

Runs are applied in the order of their list, by offset; those of a global store partition by partition. A task manifest
is a document of its own, named by its hash, so what a job did not touch is not written again.

What a store holds (rows, bytes, digest) is known where the job that made the snapshot had built an image of it. Where
runs overlap, or are on a base, it is unknown until everything is read; then it is saved beside, by the store's identity
(:mod:`statecore.repository.content_digests`). It is never a guess, and not part of the identity.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, NamedTuple

from statecore.documents import DocumentType
from statecore.errors import Corrupted
from statecore.formats.integers import min_known
from statecore.formats.kinds import StoreKind
from statecore.formats.segments import Segmentation
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import Run, StoreDigest
from statecore.repository.needs import NO_NEEDS, Needs
from statecore.spec.model import ProcessingGuarantee

LAYOUT = "4.3"  # The first release of Kafka Streams with the layout of the databases; 4.4 has the same

VERSION = 1
"""Version of the documents of a repository; every later release reads it."""

OTHER_RELEASE = "Use the release of statecore that made the snapshot, or make a new one."


@dataclass(frozen=True)
class Extent:
    """A range of bytes in a blob, given by its whole name."""

    blob: str
    start: int
    bytes: int


@dataclass(frozen=True)
class StoredRun:
    """A run and its bytes in the repository."""

    run: Run
    extent: Extent


@dataclass(frozen=True)
class BaseFile:
    """A file that RocksDB wrote; ``name`` is its name in the database's directory."""

    name: str
    sha256: str
    extent: Extent


@dataclass(frozen=True)
class StoredDatabase:
    """One database of a store."""

    segment: int | None  # id of its segment; None where the store has none
    runs: tuple[StoredRun, ...]  # in the order they are applied
    base: tuple[BaseFile, ...] = ()  # files below the runs; empty where there is no base

    @property
    def extents(self) -> Iterator[tuple[str, Extent]]:
        """SHA-256 and extent of every file."""
        for stored in self.runs:
            yield stored.run.sha256, stored.extent
        for file in self.base:
            yield file.sha256, file.extent


@dataclass(frozen=True)
class StoredEnd:
    """How far a store has applied one partition of its changelog, and the state of the log then."""

    topic: str
    partition: int
    topic_id: str  # the topic's id, 32 hex digits; empty where no broker was asked
    offset: int  # the offset in the store's databases: the last applied one (a global store: the next one), or -4
    end: int  # the offset that the data end before; offset + 1, except of a global store and of -4
    log_start: int = -1  # first offset of the log when the end was read; -1 where no broker was asked
    log_end: int = -1  # its log end offset then; -1 likewise
    leader_epoch: int = -1  # the leader's epoch then; -1 where it is unknown

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True)
class StoreSnapshot:
    """One store of one task."""

    store: str
    kind: StoreKind
    identity: str  # hash of what it is made of (statecore.images.identity)
    changelogs: tuple[StoredEnd, ...]  # ends by partition; one, except of a global store
    isolation: str  # how the changelog was read: read_committed or read_uncommitted
    databases: tuple[StoredDatabase, ...] = ()  # the store's databases; none where the store is empty
    # when the ends were read, in ms since the epoch; None where it is unknown, as of a directory when records existed
    # beyond its offsets. By the cluster's clock where delete_retention_ms is known, else by that of the machine that
    # made it, which proves no age.
    read_at_ms: int | None = None
    # the greatest time of a row in ms where rows expire, else -1; None where it is unknown
    stream_time: int | None = -1
    retention_ms: int | None = None  # how long rows are kept; None where they do not expire
    segment_interval_ms: int | None = None  # time that one segment spans; None where the store has none
    # the store is empty and its offset -4: Kafka Streams restores it from the start
    restored_by_kafka_streams: bool = False
    rows: int | None = None  # live rows; None where unknown
    bytes: int | None = None  # bytes of keys and values of the rows; None likewise
    digest: str | None = None  # order-free digest of the rows; None likewise
    spec_digest: str = ""  # hash of the spec that it was made by
    layout: str = LAYOUT  # the release of Kafka Streams whose layout its databases have
    statecore_release: str = ""  # the release of statecore that made it
    # the base snapshot that the newest runs were appended to; None where it was built whole
    base_snapshot: str | None = None
    # how long deletes were kept in the changelog, at least, as configured at read_at_ms: delete.retention.ms, or 2^63-1
    # where the topic was not compacted. None where it is unknown, or the cluster did not tell the time; then a tail
    # appended to it must be complete.
    delete_retention_ms: int | None = None

    @property
    def content(self) -> StoreDigest | None:
        """Digest of its rows; ``None`` where unknown."""
        return StoreDigest.known(self.rows, self.bytes, self.digest)

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        return {one.topic_partition: one.offset for one in self.changelogs}

    @property
    def segmentation(self) -> Segmentation | None:
        """How its rows are segmented by time; ``None`` where they are not."""
        return Segmentation.of(self.retention_ms, self.segment_interval_ms)

    @property
    def by_segment(self) -> dict[int | None, StoredDatabase]:
        """Its databases by segment; ``None`` is that of a store without segments."""
        return {database.segment: database for database in self.databases}

    @property
    def extents(self) -> Iterator[tuple[str, Extent]]:
        """SHA-256 and extent of every file."""
        for database in self.databases:
            yield from database.extents

    @property
    def file_bytes(self) -> int:
        return sum(extent.bytes for _, extent in self.extents)


class ReadPosition(NamedTuple):
    """A time at which no record existed beyond the ends of a task."""

    at_ms: int  # in ms since the epoch
    # the least time that deletes were kept in one of its changelogs then; None where it is unknown, and then the time
    # is not by the cluster's clock
    delete_retention_ms: int | None

    def is_later_than(self, known: StoreSnapshot | TaskManifestReference) -> bool:
        """Whether it replaces the recorded one; a time by the cluster's clock takes precedence over any other."""
        if (known.delete_retention_ms is None) != (self.delete_retention_ms is None):
            return self.delete_retention_ms is not None
        return known.read_at_ms is None or known.read_at_ms < self.at_ms


@dataclass(frozen=True)
class TaskManifest:
    """The stores of one task (Kafka Streams' task id, or ``global``), by name."""

    task: str
    stores: tuple[StoreSnapshot, ...]

    @property
    def file_bytes(self) -> int:
        return sum(store.file_bytes for store in self.stores)

    @property
    def read_at_ms(self) -> int | None:
        """When the first of its ends was read, in ms since the epoch; ``None`` where it is unknown."""
        return min_known(store.read_at_ms for store in self.stores if not store.restored_by_kafka_streams)

    @property
    def delete_retention_ms(self) -> int | None:
        """The least time that deletes were kept in one of its changelogs then; ``None`` where it is unknown."""
        return min_known(store.delete_retention_ms for store in self.stores if not store.restored_by_kafka_streams)

    @property
    def identity(self) -> str:
        """Hash of what its stores are made of."""
        return _hash_of([store.store, store.identity] for store in self.stores)

    def as_of(self, read_at_ms: int | None, delete_retention_ms: int | None = None) -> TaskManifest:
        """The task manifest with the later time at which its manifest knows that no record existed beyond its ends."""
        if read_at_ms is None:
            return self
        position = ReadPosition(read_at_ms, delete_retention_ms)
        later = [not store.restored_by_kafka_streams and position.is_later_than(store) for store in self.stores]
        if not any(later):
            return self
        stores = (
            replace(store, read_at_ms=read_at_ms, delete_retention_ms=delete_retention_ms) if is_later else store
            for store, is_later in zip(self.stores, later, strict=True)
        )
        return replace(self, stores=tuple(stores))


@dataclass(frozen=True)
class TaskManifestReference:
    """Reference to a task manifest."""

    task: str
    identity: str  # hash of what its stores are made of
    sha256: str  # hex digest of the compressed document
    extent: Extent  # the compressed document
    file_bytes: int  # bytes of all files that it names
    # when the first of its ends was read, or a later time at which no record existed beyond any of them, in ms since
    # the epoch; None where it is unknown
    read_at_ms: int | None
    # the least time that deletes were kept in one of its changelogs then; None where it is unknown, and then read_at_ms
    # is not by the cluster's clock
    delete_retention_ms: int | None = None


@dataclass(frozen=True)
class Manifest:
    """A snapshot of an application."""

    snapshot: str  # its unique id
    repository_id: str  # id of the repository
    application_id: str  # Kafka Streams' application.id
    epoch: int  # of the head that it was made for; orders manifests when a lost head is repaired
    generation: int  # of the head that was to name it; unique among published snapshots
    previous: str | None  # the snapshot that was the newest before; None for the first
    created_at: str  # when it was published (ISO 8601, UTC)
    statecore_release: str  # the release of statecore that made it
    origin: str  # the job that made it: restore, backup, checkpoint, compaction
    request_id: str  # the request, by which a retry recognises what an earlier attempt has published
    processing_guarantee: ProcessingGuarantee  # the application's own
    spec: Mapping[str, Any]  # the declared stores as in stores.yaml, without how Kafka is reached
    spec_digest: str  # hash of that
    task_manifests: tuple[TaskManifestReference, ...] = field(default=())  # references to the task manifests, by task
    needs: Needs = NO_NEEDS
    # id of the Kafka cluster that it, or the newest snapshot before it of which one was asked, is of; empty where no
    # broker was ever asked
    cluster_id: str = ""

    @property
    def order(self) -> tuple[int, int]:
        """Epoch and generation of the head that it was made for."""
        return self.epoch, self.generation

    @property
    def identity(self) -> str:
        """Hash of what all stores are made of: equal runs, in equal order, up to equal offsets."""
        return _hash_of([reference.task, reference.identity] for reference in self.task_manifests)

    @property
    def file_bytes(self) -> int:
        """Bytes of all files that it names."""
        return sum(reference.file_bytes for reference in self.task_manifests)

    def reference(self, task: str) -> TaskManifestReference | None:
        return next((reference for reference in self.task_manifests if reference.task == task), None)


MANIFEST = DocumentType("manifest of a snapshot", VERSION, Manifest, OTHER_RELEASE, is_open=True, is_sealed=True)
TASK_MANIFEST = DocumentType("task manifest", VERSION, TaskManifest, OTHER_RELEASE, is_open=True)


def verified_content(content: bytes, expected: str, what: str, action: str, **context: Any) -> bytes:
    """Return ``content`` if it has the expected SHA-256."""
    if sha256(content).hexdigest() != expected:
        raise Corrupted(
            f"{what} is damaged (its SHA-256 differs from the recorded one).",
            code="manifest-damaged",
            action=action,
            **context,
        )
    return content


def extents_of(task_manifests: Iterable[TaskManifest]) -> dict[str, Extent]:
    """Extents of the files that task manifests name, by hash."""
    return {
        digest: extent
        for task_manifest in task_manifests
        for store in task_manifest.stores
        for digest, extent in store.extents
    }


def new_bytes(task_manifests: Iterable[TaskManifest], before: Iterable[TaskManifest]) -> int:
    """Bytes of the files in task manifests that earlier ones do not name."""
    known = extents_of(before)
    return sum(extent.bytes for digest, extent in extents_of(task_manifests).items() if digest not in known)


def _hash_of(pairs: Iterable[list[str]]) -> str:
    return sha256(json.dumps(sorted(pairs), separators=(",", ":")).encode()).hexdigest()
