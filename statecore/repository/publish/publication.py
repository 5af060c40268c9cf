"""Publishes a snapshot: first everything that it names is made durable, then one swap of the head names it.

``docs/repository-format.md`` has the order of writes, and what a kill leaves after each.

**Many writers.** A driver reads the head when it begins, and again when it swaps. Where other jobs have published in
between, and none of its own tasks, its task manifests are put beside theirs and it tries again. Where one of its tasks
was published, *rebase* (:mod:`statecore.repository.publish.rebase`) combines both, or the job is ``Fenced``. It is
fenced, too, where the head has another epoch, where the place has another repository descriptor, and where a published
snapshot is ahead of it: heads only go forward, except for stores that the job has refused with evidence.

**A lost reply.** A driver recognises its own swap by the id of its snapshot. A retry recognises what an earlier attempt
has published by the request id, as long as the head still has that snapshot. So does an attempt that finds the head
swapped by another attempt of its own request, whose reply came late, or that was taken for dead.

**Failures.** A job with one failed store partition publishes nothing: a snapshot is of one application, and a task that
is older than the others would surprise its readers. What was uploaded stays, and is found by the retry.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256

from statecore import __version__
from statecore.documents import encode_json, preserve_unknown
from statecore.errors import Fenced, Retryable, StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.formats.integers import min_known
from statecore.objectstore.pointers import SWAP_TRIES
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import Head, Retention, SnapshotEntry, encoded_head
from statecore.repository.manifest import (
    MANIFEST,
    Manifest,
    ReadPosition,
    TaskManifest,
    TaskManifestReference,
    new_bytes,
)
from statecore.repository.needs import NO_NEEDS
from statecore.repository.publish.cluster_check import is_of_other_cluster, partial_move_refused, publication_refused
from statecore.repository.publish.conflicts import Conflicts, PublicationRequest, Rebase
from statecore.repository.publish.head_reader import HeadReader, HeadState
from statecore.repository.publish.inherited_blobs import missing_blob_warnings
from statecore.repository.publish.snapshot_composition import SnapshotComposition, compose, task_manifest_blob
from statecore.repository.publish.upload import put_verified
from statecore.repository.repository import check_descriptor_unchanged
from statecore.repository.retention import newest_put_at, retained_entries
from statecore.repository.task_manifest_validation import check_consistent
from statecore.spec.model import ApplicationSpec
from statecore.spec.writer import spec_hash, spec_to_mapping

_NOT_DECLARED = ("bootstrap_servers", "kafka", "kafka_connection", "spark")


@dataclass(frozen=True)
class Published:
    """A published snapshot."""

    snapshot: str  # its id
    identity: str  # hash of what all its stores are made of
    created_at: str  # when it was published (ISO 8601, UTC)
    tasks: int
    file_bytes: int  # bytes of all files that it names
    new_bytes: int  # bytes of those that the previous snapshot does not name
    earlier: bool = False  # whether an earlier attempt of the same request had published it
    concurrent: int = 0  # snapshots of other jobs that were published while this one was built
    warnings: tuple[str, ...] = ()  # what an operator should know of inherited and of dropped tasks
    # tasks whose task manifests were written for it; unknown (empty) for an earlier attempt
    made_tasks: tuple[str, ...] = ()
    kept_tasks: tuple[str, ...] = ()  # tasks that stay as in the previous snapshot; likewise
    dropped_tasks: tuple[str, ...] = ()  # tasks of the previous snapshot that it does not have; likewise
    # a time at which it had all records, in ms since the epoch; None where unknown
    read_at_ms: int | None = None


@dataclass(frozen=True)
class Unchanged:
    """The newest snapshot, to which a checkpoint had nothing to append.

    Attributes:
        read_at_ms: a time at which it had all records, in ms since the epoch.
    """

    snapshot: str
    read_at_ms: int


class Publication:
    """One publication; made when a job begins, to detect what other jobs publish while it runs."""

    def __init__(
        self,
        app_repository: ApplicationRepository,
        spec: ApplicationSpec,
        *,
        request: str,
        origin: str,
        clock: Callable[[], float],
        name: Callable[[], str] = lambda: uuid.uuid4().hex[:8],
        faults: FaultPoints = NO_FAULTS,
    ) -> None:
        self._app_repository, self._spec, self._request, self._origin = app_repository, spec, request, origin
        self._clock, self._name, self._faults = clock, name, faults
        self._reader = HeadReader(app_repository)
        self._put_blobs: set[str] = set()
        app_repository.repository.check_primary()
        app_repository.check_needs(None)
        self._begun = self._reader.read()
        app_repository.check_needs(None if self._begun.head is None else self._begun.head.head)
        if self._begun.head is None and app_repository.has_lost_head():
            raise app_repository.lost_head_error()  # publishing now would lose its snapshots
        self._conflicts = Conflicts(app_repository, self._reader, self._begun)
        self._cluster_id, self._accepts_cluster = "", False

    def check_cluster(self, cluster_id: str, accepted: str | None = None, *, is_whole: bool = False) -> None:
        """Refuse to publish if the newest snapshot is of another cluster; for a job that has asked brokers.

        To be called before anything is uploaded. The snapshot will have the id, and :meth:`publish` checks it again.

        Args:
            cluster_id: of the brokers; empty where they have none.
            accepted: id of the cluster whose stores may take the place of those of any other.
            is_whole: whether the job publishes all of the application, as one that moves to another cluster has to.

        Raises:
            Invalid: the newest snapshot is of another cluster (``cluster-changed``).
        """
        self._cluster_id, self._accepts_cluster = cluster_id, accepted == cluster_id and is_whole
        if self._is_moved(self._begun) and accepted == cluster_id and not is_whole:
            assert self.newest is not None
            raise partial_move_refused(self._app_repository, self.newest, cluster_id)
        self._refuse_other_cluster(self._begun)

    def _is_moved(self, current: HeadState) -> bool:
        """Whether the newest snapshot is of another cluster than the job."""
        return current.manifest is not None and is_of_other_cluster(current.manifest.value, self._cluster_id)

    def _refuse_other_cluster(self, current: HeadState) -> None:
        if current.manifest is not None and self._is_moved(current) and not self._accepts_cluster:
            raise publication_refused(self._app_repository, current.manifest.value, self._cluster_id)

    @property
    def newest(self) -> Manifest | None:
        """The newest snapshot as it was when the job began; ``None`` where there was none."""
        return None if self._begun.manifest is None else self._begun.manifest.value

    @property
    def entries(self) -> tuple[SnapshotEntry, ...]:
        """The snapshots that were published when the job began, newest first."""
        return () if self._begun.head is None else self._begun.head.head.snapshots

    def task_manifests(self) -> dict[str, TaskManifest]:
        """All task manifests of the newest snapshot when the job began, by task; read once."""
        return {
            task: read.manifest for task, read in self._reader.task_manifests(self._begun.references.values()).items()
        }

    def earlier(self) -> Published | None:
        """What an earlier attempt of the same request has published, while the head names it."""
        return self._published_by_request(self._begun)

    def _published_by_request(self, current: HeadState) -> Published | None:
        """The published snapshot of this request, if there is one."""
        entries = () if current.head is None else current.head.head.snapshots
        entry = next((one for one in entries if one.request_id == self._request), None)
        return None if entry is None else _published(entry, earlier=True)

    def publish(
        self,
        task_manifests: Sequence[TaskManifest],
        *,
        drops_other_tasks: bool,
        tasks: Collection[str] | None = None,
        rebase: Rebase | None = None,
        rebased_tasks: Collection[str] | None = None,
        refused: Collection[tuple[str, str]] = frozenset(),
        read_positions: Mapping[str, ReadPosition] | None = None,
        checks_blobs_hourly: bool = False,
    ) -> Published | None:
        """Publish what a job has built, or find what an earlier attempt published; ``None`` if nothing is left.

        Args:
            task_manifests, drops_other_tasks, tasks, rebase, rebased_tasks, refused, read_positions: see
                :class:`statecore.repository.publish.conflicts.PublicationRequest`.
            checks_blobs_hourly: whether files are checked only by the first publication of an hour, which checks all
                files of the written tasks as well. Otherwise every publication checks the files that it inherits.
        """
        if (earlier := self.earlier()) is not None:
            return earlier
        check_consistent(task_manifests)
        self._faults.reach("publish.before-task-manifests")
        asked = PublicationRequest(
            tuple(task_manifests), drops_other_tasks, tasks, rebase, refused, read_positions or {}, rebased_tasks
        )
        current = self._begun
        for _ in range(SWAP_TRIES):
            self._refuse_other_cluster(current)
            wanted = asked.replacing_everything if self._is_moved(current) else asked
            self._conflicts.refuse(current, wanted)
            made = self._conflicts.rebased(current, wanted)
            new = self._composed(current, wanted, made)
            if not new.is_changed:
                return None
            self._conflicts.refuse_collected(current, new.written)
            references = self._put_task_manifests(new)
            self._faults.reach("publish.after-task-manifests")
            size = new_bytes(
                (one.manifest for one in new.written), (one.before.manifest for one in new.written if one.before)
            )
            published = self._swap(current, self._manifest(current, references), size)
            if published is not None:
                return replace(
                    published,
                    warnings=(*new.warnings, *self._warnings(current, new, published, hourly=checks_blobs_hourly)),
                    made_tasks=tuple(sorted(one.manifest.task for one in new.written)),
                    kept_tasks=tuple(sorted(new.kept)),
                    dropped_tasks=new.dropped,
                )
            current = self._reader.read()
            if (earlier := self._published_by_request(current)) is not None:
                return earlier
        raise Retryable(
            f"The head of {self._app_repository.application_id} was swapped by other jobs {SWAP_TRIES} times while "
            "this job tried.",
            code="head-contended",
            action="Run it again when fewer jobs publish to this application.",
            application_id=self._app_repository.application_id,
        )

    def _composed(
        self, current: HeadState, wanted: PublicationRequest, made: Sequence[TaskManifest]
    ) -> SnapshotComposition:
        changed = self._conflicts.changed(current)
        return compose(
            made,
            current.references,
            self._reader.task_manifests,
            self._spec,
            unchanged=wanted.built - {task_manifest.task for task_manifest in made},
            whole=wanted.drops_other_tasks,
            tasks=wanted.tasks,
            read_positions={
                task: cut for task, cut in wanted.read_positions.items() if task not in changed | wanted.built
            },
        )

    def _put_task_manifests(self, new: SnapshotComposition) -> Mapping[str, TaskManifestReference]:
        """Put the written task manifests; references to all task manifests of the snapshot."""
        if not new.written:
            return new.kept
        name, content, references = task_manifest_blob(
            new, self._reader.known, self._app_repository.names.task_manifests
        )
        if name not in self._put_blobs:
            put_verified(self._app_repository.blobs, name, content, len(content), sha256(content).hexdigest())
            self._put_blobs.add(name)
        return references

    def _warnings(
        self, current: HeadState, new: SnapshotComposition, published: Published, *, hourly: bool
    ) -> Iterable[str]:
        """Warnings about inherited files."""
        stores = {one.manifest.task: one.manifest.stores if hourly else one.inherited for one in new.written}
        if (
            hourly
            and current.manifest is not None
            and _hour(current.manifest.value.created_at) == _hour(published.created_at)
        ):
            return ()
        return missing_blob_warnings(self._app_repository, list(new.kept.values()), stores, self._reader.known)

    def _manifest(self, current: HeadState, references: Mapping[str, TaskManifestReference]) -> Manifest:
        now = datetime.fromtimestamp(self._clock(), UTC)
        newest = None if current.head is None else current.head.head.newest
        declared = {name: value for name, value in spec_to_mapping(self._spec).items() if name not in _NOT_DECLARED}
        return Manifest(
            snapshot=f"{now:%Y%m%dT%H%M%SZ}-{self._name()}",
            repository_id=self._app_repository.repository.descriptor.id,
            application_id=self._app_repository.application_id,
            epoch=current.epoch,
            generation=current.generation + 1,
            previous=None if newest is None else newest.snapshot,
            created_at=now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            statecore_release=__version__,
            origin=self._origin,
            request_id=self._request,
            processing_guarantee=self._spec.processing_guarantee,
            spec=declared,
            spec_digest=spec_hash(self._spec),
            task_manifests=tuple(references[task] for task in sorted(references)),
            cluster_id=self._cluster_id or ("" if current.manifest is None else current.manifest.value.cluster_id),
        )

    def _swap(self, current: HeadState, manifest: Manifest, size: int) -> Published | None:
        """Put the manifest and swap the head; ``None`` where another job was first with either."""
        app_repository = self._app_repository
        content = self._encoded(manifest, current)
        name = app_repository.names.manifest(manifest.snapshot)
        if not app_repository.blobs.put_if_absent(name, content):
            return None  # the head would name it with a wrong hash
        self._faults.reach("publish.after-manifest")
        entry = SnapshotEntry(
            manifest.snapshot,
            sha256(content).hexdigest(),
            manifest.identity,
            manifest.created_at,
            min_known(reference.read_at_ms for reference in manifest.task_manifests),
            self._request,
            manifest.origin,
            len(manifest.task_manifests),
            manifest.file_bytes,
            size,
        )
        before = None if current.head is None else current.head.head
        keep = Retention() if before is None else before.keep
        entries = (entry, *(before.snapshots if before else ()))
        head = Head(
            manifest.repository_id,
            manifest.application_id,
            current.epoch,
            manifest.generation,
            retained_entries(entries, keep, newest_put_at(app_repository, entries, keep)),
            *((before.collection, before.collection_began_ms) if before else (0, 0)),
            keep,
            NO_NEEDS if before is None else before.needs,
        )
        version = None if current.head is None else current.head.version
        document = encoded_head(head, None if current.head is None else current.head.raw)
        self._faults.reach("publish.before-head")
        self._refuse_another_descriptor(name)
        if app_repository.pointers.swap(app_repository.names.head, document, version) is None:
            found = app_repository.read_head()
            if found is None:
                return None  # a repair may be making the head anew, and name this manifest
            if found.head.entry(manifest.snapshot) is None:
                self._delete_manifest(name)
                return None
        self._faults.reach("publish.after-head")
        return _published(entry, concurrent=current.generation - self._begun.generation)

    def _refuse_another_descriptor(self, manifest: str) -> None:
        try:
            check_descriptor_unchanged(self._app_repository.repository)
        except Fenced:
            self._delete_manifest(manifest)  # else it would carry the id of a repository that no longer exists
            raise

    def _delete_manifest(self, manifest: str) -> None:
        with suppress(StatecoreError):  # it is only garbage
            self._app_repository.blobs.delete(manifest)

    def _encoded(self, manifest: Manifest, current: HeadState) -> bytes:
        document = MANIFEST.to_json(manifest)
        if current.manifest is not None:
            document |= MANIFEST.unknown(current.manifest.raw)
            document["task_manifests"] = preserve_unknown(
                document["task_manifests"], current.manifest.raw["task_manifests"], "task"
            )
        return encode_json(MANIFEST.sealed(document))


def _hour(made: str) -> str:
    """The hour of a timestamp: ``2026-11-23T01``."""
    return made[:13]


def _published(entry: SnapshotEntry, *, earlier: bool = False, concurrent: int = 0) -> Published:
    return Published(
        entry.snapshot,
        entry.identity,
        entry.created_at,
        entry.tasks,
        entry.file_bytes,
        entry.new_bytes,
        earlier,
        concurrent,
        read_at_ms=entry.read_at_ms,
    )
