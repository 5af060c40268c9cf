"""A snapshot: what an application's stores are made of, and the offsets they end at.

A snapshot copies nothing. It names, for each database of each store of each task, files that lie in the repository::

    manifest ──▶ a part for each task ──▶ stores ──▶ databases ──▶ base files: what Kafka Streams' RocksDB wrote
                                                                   runs: sorted rows of one offset range each

    a database:   run  [300, 400)   applied last
                  run  [100, 300)
                  base [  0, 100)   RocksDB's own files, where the snapshot is of a state directory

Order is data: runs are applied as they stand here, by offset, in a global store partition by partition. A part is a
document of its own that is named by its hash, so what a job did not touch is not written again: the new manifest refers
to the old part. Parts of one job lie compressed, one after the other, in one blob
(:mod:`statecore.repository.task_manifest_documents`).

What a store holds (rows, bytes, digest) is known where whoever made the snapshot had built an image of it. Where runs
overlap, or lie on a base, nobody knows it before everything is read; then it is kept beside, by the store's identity,
once somebody has (:mod:`statecore.repository.content_digests`). It is never a guess, and no part of the identity.

Documents are open: fields that this release does not know stay as they are in parts that it does not write anew. A
version that it does not know is refused. Every byte is covered: the head has the manifest's hash, the manifest those of
its parts, and these those of all files. A manifest is sealed besides, for whoever has lost the head.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from statecore.documents import DocumentType
from statecore.errors import Corrupted
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import Run, Segmentation, StoreDigest
from statecore.spec.model import ProcessingGuarantee

LAYOUT = "4.3"
"""The first release of Kafka Streams with the layout that the databases have; 4.4 has it, too."""

VERSION = 0
"""Of manifests, parts and heads. It is 0 until the format has been reviewed, and may change until then."""

OTHER_RELEASE = "Use the release of statecore that made the snapshot, or make a new one."


@dataclass(frozen=True)
class Extent:
    """Where bytes lie: in a blob, from ``start`` on.

    Attributes:
        blob: the blob's name, whole.
        start: first byte.
        bytes: how many.
    """

    blob: str
    start: int
    bytes: int


@dataclass(frozen=True)
class StoredRun:
    """A run, and where its bytes lie."""

    run: Run
    extent: Extent


@dataclass(frozen=True)
class BaseFile:
    """A file that RocksDB wrote.

    Attributes:
        name: its name in the database's directory.
        sha256: hex digest of it.
        extent: where its bytes lie.
    """

    name: str
    sha256: str
    extent: Extent


@dataclass(frozen=True)
class StoredDatabase:
    """One database of a store.

    Attributes:
        segment: id of the segment that it is; ``None`` where the store has none.
        runs: in the order they are applied.
        base: the files below them; none where the runs are all.
    """

    segment: int | None
    runs: tuple[StoredRun, ...]
    base: tuple[BaseFile, ...] = ()

    @property
    def extents(self) -> Iterator[tuple[str, Extent]]:
        """SHA-256 and place of every file."""
        for stored in self.runs:
            yield stored.run.sha256, stored.extent
        for file in self.base:
            yield file.sha256, file.extent


@dataclass(frozen=True)
class ChangelogEnd:
    """How far a store has applied one partition of its changelog, and what the log was like then.

    Attributes:
        topic: the topic.
        partition: the partition.
        topic_id: the topic's id, 32 hex digits; empty where nobody asked a broker.
        offset: what the store's databases say: the last applied offset (a global store: the next one), or -4.
        end: the offset that the data end before; ``offset + 1``, except of a global store and of -4.
        log_start: first offset of the log when the end was read; -1 where nobody asked a broker.
        log_end: its log end offset then; -1 likewise.
        leader_epoch: the leader's epoch then; -1 where it is not known.
    """

    topic: str
    partition: int
    topic_id: str
    offset: int
    end: int
    log_start: int = -1
    log_end: int = -1
    leader_epoch: int = -1

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True)
class StoreSnapshot:
    """One store of one task.

    Attributes:
        store: its name.
        kind: its kind.
        identity: hash of what it is made of (:mod:`statecore.images.identity`).
        changelogs: how far it has come, by partition; one, except of a global store.
        isolation: how the changelog was read: ``read_committed`` or ``read_uncommitted``.
        databases: the store's databases; none where the store is empty.
        cut_ms: when the ends were read, in ms since the epoch; ``None`` where nobody knows it, as of a directory behind
            whose offsets there were records already. By the cluster's clock where ``horizon_ms`` is known, else by that
            of the machine that made it, which proves no age.
        stream_time: the greatest time of a row in ms where rows expire, else -1; ``None`` where nobody knows it.
        retention_ms: how long rows are kept; ``None`` where they do not expire.
        segment_interval_ms: time that one segment spans; ``None`` where the store has none.
        left_to_restore: the store is empty and its offset -4: Kafka Streams is to restore it from the start.
        rows: live rows; ``None`` where that was not known.
        bytes: bytes of keys and values of the rows; ``None`` likewise.
        digest: order-free digest of the rows; ``None`` likewise.
        spec_digest: hash of the spec that it was made by.
        layout: the release of Kafka Streams whose layout its databases have.
        made_by: the release of statecore that made it.
        advanced_from: the snapshot above whose store the newest runs were put; ``None`` where it was made whole.
        horizon_ms: how long deletes were kept in the changelog, at least, as it was configured at ``cut_ms``:
            ``delete.retention.ms``, or 2^63-1 where the topic was not compacted. ``None`` where nobody knows it, or
            the cluster did not tell the time; then a tail above it has to be whole.
    """

    store: str
    kind: StoreKind
    identity: str
    changelogs: tuple[ChangelogEnd, ...]
    isolation: str
    databases: tuple[StoredDatabase, ...] = ()
    cut_ms: int | None = None
    stream_time: int | None = -1
    retention_ms: int | None = None
    segment_interval_ms: int | None = None
    left_to_restore: bool = False
    rows: int | None = None
    bytes: int | None = None
    digest: str | None = None
    spec_digest: str = ""
    layout: str = LAYOUT
    made_by: str = ""
    advanced_from: str | None = None
    horizon_ms: int | None = None

    @property
    def content(self) -> StoreDigest | None:
        """What it holds; ``None`` where that was not known."""
        if self.rows is None or self.bytes is None or self.digest is None:
            return None
        return StoreDigest(self.rows, self.bytes, self.digest)

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """What its databases say."""
        return {one.topic_partition: one.offset for one in self.changelogs}

    @property
    def segmentation(self) -> Segmentation | None:
        """How it is divided by time, if it is."""
        if self.retention_ms is None or self.segment_interval_ms is None:
            return None
        return Segmentation(self.retention_ms, self.segment_interval_ms)

    @property
    def extents(self) -> Iterator[tuple[str, Extent]]:
        """SHA-256 and place of every file."""
        for database in self.databases:
            yield from database.extents

    @property
    def file_bytes(self) -> int:
        """Bytes of all its files."""
        return sum(extent.bytes for _, extent in self.extents)


@dataclass(frozen=True)
class TaskManifest:
    """The part of a manifest that is of one task.

    Attributes:
        task: Kafka Streams' task id, or ``global``.
        stores: its stores, by name.
    """

    task: str
    stores: tuple[StoreSnapshot, ...]

    @property
    def file_bytes(self) -> int:
        """Bytes of all its files."""
        return sum(store.file_bytes for store in self.stores)

    @property
    def cut_ms(self) -> int | None:
        """When the first of its ends was read, in ms since the epoch; ``None`` where nobody knows it."""
        return least_known(store.cut_ms for store in self.stores if not store.left_to_restore)

    @property
    def horizon_ms(self) -> int | None:
        """The least time that deletes were kept in one of its changelogs then; ``None`` where nobody knows it."""
        return least_known(store.horizon_ms for store in self.stores if not store.left_to_restore)

    @property
    def identity(self) -> str:
        """Hash of what its stores are made of."""
        return _hash_of([store.store, store.identity] for store in self.stores)

    def as_of(self, cut_ms: int | None, horizon_ms: int | None = None) -> TaskManifest:
        """The part, where its manifest knows a later moment at which nothing lay behind its ends than it does itself.

        Args:
            cut_ms: that moment, in ms since the epoch.
            horizon_ms: how long deletes were kept then.
        """
        known = [_is_cut(store, cut_ms, horizon_ms) for store in self.stores]
        if cut_ms is None or all(known):
            return self
        stores = (
            store if is_known else replace(store, cut_ms=cut_ms, horizon_ms=horizon_ms)
            for store, is_known in zip(self.stores, known, strict=True)
        )
        return replace(self, stores=tuple(stores))


@dataclass(frozen=True)
class TaskManifestReference:
    """Where the part of a task lies.

    Attributes:
        task: the task.
        identity: hash of what its stores are made of.
        sha256: hex digest of the part's document, compressed as it lies there.
        extent: where that lies.
        file_bytes: bytes of all files that it names.
        cut_ms: when the first of its ends was read, or a later moment at which nothing lay behind any of them, in ms
            since the epoch; ``None`` where nobody knows it.
        horizon_ms: the least time that deletes were kept in one of its changelogs then; ``None`` where nobody knows it,
            and then ``cut_ms`` is not by the cluster's clock.
    """

    task: str
    identity: str
    sha256: str
    extent: Extent
    file_bytes: int
    cut_ms: int | None
    horizon_ms: int | None = None


@dataclass(frozen=True)
class Manifest:
    """A snapshot of an application.

    Attributes:
        snapshot: its id, unlike that of any other.
        repository: id of the repository that it lies in.
        application_id: Kafka Streams' ``application.id``.
        epoch: of the head that it was made for; one who repairs a head that is lost knows by it which came before.
        generation: of the head that was to name it, unlike that of any other snapshot that counts.
        previous: the snapshot that was the newest before; ``None`` for the first.
        made: when it was published (ISO 8601, UTC).
        made_by: the release of statecore that made it.
        origin: the command that made it: ``restore``, ``snapshot``, ``checkpoint``, ``fold``.
        request: by which a retry recognises what an earlier try has published.
        processing_guarantee: the application's own.
        spec: the declared stores, as ``stores.yaml`` would say them, without how Kafka is reached.
        spec_digest: hash of that.
        parts: the part of each task, by task.
    """

    snapshot: str
    repository: str
    application_id: str
    epoch: int
    generation: int
    previous: str | None
    made: str
    made_by: str
    origin: str
    request: str
    processing_guarantee: ProcessingGuarantee
    spec: Mapping[str, Any]
    spec_digest: str
    parts: tuple[TaskManifestReference, ...] = field(default=())

    @property
    def identity(self) -> str:
        """Hash of what all stores are made of: equal runs, in the same order, up to the same offsets."""
        return _hash_of([part.task, part.identity] for part in self.parts)

    @property
    def file_bytes(self) -> int:
        """Bytes of all files that it names."""
        return sum(part.file_bytes for part in self.parts)

    def part(self, task: str) -> TaskManifestReference | None:
        """The part of a task, if it has one."""
        return next((part for part in self.parts if part.task == task), None)


MANIFEST = DocumentType("manifest of a snapshot", VERSION, Manifest, OTHER_RELEASE, is_open=True, is_sealed=True)
PART = DocumentType("part of a manifest", VERSION, TaskManifest, OTHER_RELEASE, is_open=True)


def checked(content: bytes, expected: str, what: str, action: str, **context: Any) -> bytes:
    """Bytes whose hash is known, if they are those.

    Args:
        content: the bytes.
        expected: their SHA-256, in hex.
        what: what they are, for messages.
        action: what to do where they are not.
        context: names as fields, for machines.

    Raises:
        Corrupted: they are not.
    """
    if sha256(content).hexdigest() != expected:
        raise Corrupted(
            f"{what} is not what was written (its SHA-256 differs).", code="manifest-damaged", action=action, **context
        )
    return content


def extents_of(parts: Iterable[TaskManifest]) -> dict[str, Extent]:
    """Where the files lie that some parts name, by hash."""
    return {digest: extent for part in parts for store in part.stores for digest, extent in store.extents}


def new_bytes(parts: Iterable[TaskManifest], before: Iterable[TaskManifest]) -> int:
    """Bytes of the files that some parts name, and those that were there before do not."""
    known = extents_of(before)
    return sum(extent.bytes for digest, extent in extents_of(parts).items() if digest not in known)


def least_known(values: Iterable[int | None]) -> int | None:
    """The first of some moments, or the least of some times; ``None`` where one is not known, or there is none."""
    known = list(values)
    return None if None in known else min((one for one in known if one is not None), default=None)


def _is_cut(store: StoreSnapshot, cut_ms: int | None, horizon_ms: int | None) -> bool:
    """Whether a store knows of itself as much as its manifest does of a moment at which nothing lay behind its ends.

    Of two moments of which one is by the cluster's clock, that one counts.
    """
    if store.left_to_restore or cut_ms is None:
        return True
    if (store.horizon_ms is None) != (horizon_ms is None):
        return horizon_ms is None
    return store.cut_ms is not None and store.cut_ms >= cut_ms


def _hash_of(pairs: Iterable[list[str]]) -> str:
    return sha256(json.dumps(sorted(pairs), separators=(",", ":")).encode()).hexdigest()
