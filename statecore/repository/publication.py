"""Publishing a snapshot: what it names is durable first, then it is named, by one swap of the head.

The order of writes, and what a kill leaves after each::

    files, packs       put by whoever made them              garbage, or what a retry finds
    parts, manifest    put by the driver                     the same
    head               swapped by the driver                 the snapshot counts; nothing is left to do

**Many writers.** A driver looks at the head when it begins, and again when it swaps. Where others have published
meanwhile and none of the tasks that it has worked on is among theirs, its parts are put beside theirs and it tries
again; where one is, it is ``Fenced``. It is, too, where the head has another epoch, and where a snapshot that counts is
ahead of it: heads only go forward.

**Another mark.** Where the place has become another repository since it was opened, nobody would find what the head
names. So the mark is read again before each swap, and a driver that finds another id is ``Fenced``.

**A lost reply.** A driver knows its own swap by the id of its snapshot. A retry knows what an earlier try has published
by the request, as long as the head still has that snapshot. So does a try that finds the head swapped by another try of
its own request: one whose reply came late, or that was taken for dead.

**Failures.** A job of which one store partition failed publishes nothing: a snapshot is of one application, and a task
that is older than its siblings would be a surprise to whoever starts from it. What was uploaded stays, and is found by
the retry.

**What is taken over** from the snapshot before, because the job did not touch it, is looked at when the snapshot
counts: who publishes is told where files of it are gone (:mod:`statecore.repository.taken_over`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple

from statecore import __version__
from statecore.documents import Document, encoded, kept
from statecore.errors import Fenced, Retryable, StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.repository.agreement import differences
from statecore.repository.head import Head, ReadHead, SnapshotEntry, encoded_head
from statecore.repository.keeping import kept_entries
from statecore.repository.manifest import (
    MANIFEST,
    ChangelogEnd,
    Manifest,
    PartReference,
    StoreSnapshot,
    TaskPart,
    first_cut,
    new_bytes,
)
from statecore.repository.part_documents import joined_parts
from statecore.repository.part_structure import check_made
from statecore.repository.repository import refuse_another_mark
from statecore.repository.shelf import ReadPart, Shelf
from statecore.repository.taken_over import warnings_of
from statecore.repository.upload import put_whole
from statecore.spec.model import ApplicationSpec
from statecore.spec.writer import spec_hash, spec_to_mapping

_TRIES = 20
_NOT_DECLARED = ("bootstrap_servers", "kafka", "kafka_connection", "spark")


@dataclass(frozen=True)
class Published:
    """A snapshot that counts.

    Attributes:
        snapshot: its id.
        identity: hash of what all its stores are made of.
        made: when it was published (ISO 8601, UTC).
        tasks: how many tasks it has.
        file_bytes: bytes of all files that it names.
        new_bytes: bytes of those that the snapshot before it does not name.
        earlier: whether an earlier try of the same request had published it.
        beside: snapshots of others that were published while this one was made.
        warnings: what an operator should know of tasks that it takes over from the snapshot before.
    """

    snapshot: str
    identity: str
    made: str
    tasks: int
    file_bytes: int
    new_bytes: int
    earlier: bool = False
    beside: int = 0
    warnings: tuple[str, ...] = ()


class _Seen(NamedTuple):
    """The head, and the newest snapshot, as they were at one moment."""

    head: ReadHead | None
    manifest: Document[Manifest] | None

    @property
    def parts(self) -> dict[str, PartReference]:
        return {} if self.manifest is None else {part.task: part for part in self.manifest.value.parts}

    @property
    def epoch(self) -> int:
        return 0 if self.head is None else self.head.head.epoch

    @property
    def generation(self) -> int:
        return 0 if self.head is None else self.head.head.generation


class Publication:
    """One publication: made when a job begins, so that it knows what others publish meanwhile.

    Args:
        shelf: where.
        spec: the application as it is declared.
        request: by which a retry recognises what an earlier try has published.
        origin: the command.
        clock: seconds since the epoch.
        name: makes the random part of a snapshot's id.
        faults: points at which tests let the process die.

    Raises:
        Corrupted, Invalid, Retryable: the head or the newest manifest cannot be used.
    """

    def __init__(
        self,
        shelf: Shelf,
        spec: ApplicationSpec,
        *,
        request: str,
        origin: str,
        clock: Callable[[], float],
        name: Callable[[], str] = lambda: uuid.uuid4().hex[:8],
        faults: FaultPoints = NO_FAULTS,
    ) -> None:
        self._shelf, self._spec, self._request, self._origin = shelf, spec, request, origin
        self._clock, self._name, self._faults = clock, name, faults
        self._begun = self._look()
        if self._begun.head is None and shelf.has_lost_head():
            raise shelf.lost_head()  # to publish now would lose them

    def earlier(self) -> Published | None:
        """What an earlier try of the same request has published, as long as it counts."""
        return self._own(self._begun)

    def _own(self, seen: _Seen) -> Published | None:
        """The snapshot of this request that counts, if there is one."""
        entries = () if seen.head is None else seen.head.head.snapshots
        entry = next((one for one in entries if one.request == self._request), None)
        return None if entry is None else _published(entry, earlier=True)

    def publish(self, parts: Sequence[TaskPart], *, whole: bool) -> Published:
        """Publish what a job has made.

        Args:
            parts: the stores that it has made, by task; all that they name is durable.
            whole: whether these are all stores of all tasks that the application has; else the others stay as the
                newest snapshot has them.

        Returns:
            The snapshot; where another try of the same request was first, that one, also while this one was at work.

        Raises:
            Fenced: others have published one of these tasks meanwhile, or are ahead of it; or the place has become
                another repository.
            Corrupted, Invalid, Retryable, Capacity: the repository cannot be used, or nobody knows whether it was
                published: a retry of the same request finds out.
            StatecoreError: a part contradicts itself, and nothing was put.
        """
        if (own := self.earlier()) is not None:
            return own
        check_made(parts)
        self._faults.reach("publish.before-parts")
        touched = {part.task for part in parts}
        with self._shelf.read_to_publish():
            before = self._shelf.parts([one for task, one in self._begun.parts.items() if task in touched])
        for part in parts:
            if part.task in before:
                self._refuse_older(part, before[part.task].part)
        complete = [_complete(part, before.get(part.task), self._spec, whole=whole) for part in parts]
        prepared = self._put_parts(complete)
        self._faults.reach("publish.after-parts")
        size = new_bytes(parts, [read.part for read in before.values()])
        seen = self._begun
        for _ in range(_TRIES):
            self._refuse_others(seen, touched | (self._begun.parts.keys() | seen.parts.keys() if whole else set()))
            published = self._swap(seen, self._manifest(seen, prepared, whole=whole), size)
            if published is not None:
                others = [reference for task, reference in seen.parts.items() if task not in touched and not whole]
                gone = () if whole else _left_out(parts, [read.part for read in before.values()], self._spec)
                taken_over = warnings_of(self._shelf, others, _taken_over(parts, complete))
                return replace(published, warnings=(*gone, *taken_over))
            seen = self._look()
            if (own := self._own(seen)) is not None:
                return own
        raise Retryable(
            f"The head of {self._shelf.application_id} was swapped by others {_TRIES} times while this job tried.",
            action="Run it again when fewer jobs publish to this application.",
            application_id=self._shelf.application_id,
        )

    def _look(self) -> _Seen:
        head = self._shelf.read_head()
        newest = None if head is None else head.head.newest
        with self._shelf.read_to_publish():
            return _Seen(head, None if newest is None else self._shelf.manifest(newest))

    def _refuse_others(self, seen: _Seen, touched: Iterable[str]) -> None:
        """Refuse to replace what others have published since this one began."""
        if seen.generation < self._begun.generation:
            raise self._shelf.lost_head() if seen.head is None else self._fenced("the head has gone back")
        if seen.epoch != self._begun.epoch:
            raise self._fenced("the head was made anew (statecore repair head) while this job was at work")
        theirs = sorted(task for task in touched if _hash(self._begun.parts.get(task)) != _hash(seen.parts.get(task)))
        if theirs:
            raise self._fenced(f"another job has published {', '.join(theirs[:5])} meanwhile")

    def _refuse_older(self, part: TaskPart, there: TaskPart) -> None:
        """Refuse to go back behind what counts already."""
        for store, end, other in behind(part, there):
            raise self._fenced(
                f"the newest snapshot has store {store.store} of task {part.task} up to offset {other} of "
                f"{end.topic_partition}, and this job up to {end.end}"
            )

    def _fenced(self, why: str) -> Fenced:
        return Fenced(
            f"Nothing was published for {self._shelf.application_id}: {why}.",
            action=f"Look who publishes to it ({self._shelf.look}), and start a new job (under a new request id).",
            application_id=self._shelf.application_id,
            repository=self._shelf.url,
        )

    def _put_parts(self, parts: Sequence[tuple[TaskPart, Mapping[str, Any] | None]]) -> dict[str, PartReference]:
        content, references = joined_parts(parts)
        name = self._shelf.names.parts(sha256(content).hexdigest())
        put_whole(self._shelf.blobs, name, content, len(content))
        return {one.task: replace(one, extent=replace(one.extent, blob=name)) for one in references}

    def _manifest(self, seen: _Seen, prepared: Mapping[str, PartReference], *, whole: bool) -> Manifest:
        now = datetime.fromtimestamp(self._clock(), UTC)
        parts = dict(prepared) if whole else {**seen.parts, **prepared}
        newest = None if seen.head is None else seen.head.head.newest
        declared = {name: value for name, value in spec_to_mapping(self._spec).items() if name not in _NOT_DECLARED}
        return Manifest(
            snapshot=f"{now:%Y%m%dT%H%M%SZ}-{self._name()}",
            repository=self._shelf.repository.mark.id,
            application_id=self._shelf.application_id,
            epoch=seen.epoch,
            generation=seen.generation + 1,
            previous=None if newest is None else newest.snapshot,
            made=now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            made_by=__version__,
            origin=self._origin,
            request=self._request,
            processing_guarantee=self._spec.processing_guarantee,
            spec=declared,
            spec_digest=spec_hash(self._spec),
            parts=tuple(parts[task] for task in sorted(parts)),
        )

    def _swap(self, seen: _Seen, manifest: Manifest, size: int) -> Published | None:
        """Put the manifest and swap the head; ``None`` where somebody else was first, with either."""
        shelf = self._shelf
        content = self._encoded(manifest, seen)
        name = shelf.names.manifest(manifest.snapshot)
        if not shelf.blobs.put_if_absent(name, content):
            return None  # it would be named with a hash that is not its own
        self._faults.reach("publish.after-manifest")
        entry = SnapshotEntry(
            manifest.snapshot,
            sha256(content).hexdigest(),
            manifest.identity,
            manifest.made,
            first_cut(part.cut_ms for part in manifest.parts),
            self._request,
            manifest.origin,
            len(manifest.parts),
            manifest.file_bytes,
            size,
        )
        before = None if seen.head is None else seen.head.head
        head = Head(
            manifest.repository,
            manifest.application_id,
            seen.epoch,
            manifest.generation,
            kept_entries((entry, *(before.snapshots if before else ()))),
        )
        version = None if seen.head is None else seen.head.version
        document = encoded_head(head, None if seen.head is None else seen.head.raw)
        self._faults.reach("publish.before-head")
        self._refuse_another_mark(name)
        if shelf.pointers.swap(shelf.names.head, document, version) is None:
            found = shelf.read_head()
            if found is None or found.head.entry(manifest.snapshot) is None:
                self._delete(name)
                return None
        self._faults.reach("publish.after-head")
        return _published(entry, beside=seen.generation - self._begun.generation)

    def _refuse_another_mark(self, manifest: str) -> None:
        try:
            refuse_another_mark(self._shelf.repository)
        except Fenced:
            self._delete(manifest)  # whoever looked for ids would find that of the repository that is no more
            raise

    def _delete(self, manifest: str) -> None:
        with suppress(StatecoreError):  # it is garbage, and no more than that
            self._shelf.blobs.delete(manifest)

    def _encoded(self, manifest: Manifest, seen: _Seen) -> bytes:
        document = MANIFEST.to_json(manifest)
        if seen.manifest is not None:
            document |= MANIFEST.unknown(seen.manifest.raw)
            document["parts"] = kept(document["parts"], seen.manifest.raw["parts"], "task")
        return encoded(MANIFEST.sealed(document))


def behind(part: TaskPart, there: TaskPart) -> Iterator[tuple[StoreSnapshot, ChangelogEnd, int]]:
    """What of a part is behind what counts already: the store, its end, and the end that counts.

    A topic that was made anew begins anew; where nobody asked a broker it is taken for the same. Versioned stores are
    left to Kafka Streams by whoever asks for it; another store that is left is empty.
    """
    ends = {
        (store.store, end.topic_partition): end
        for store in there.stores
        for end in store.changelogs
        if not store.left_to_restore
    }
    for store in part.stores:
        for end in store.changelogs if not (store.left_to_restore and store.kind.is_versioned) else ():
            known = ends.get((store.store, end.topic_partition), end)
            is_same = "" in (known.topic_id, end.topic_id) or known.topic_id == end.topic_id
            if is_same and known.end > end.end:
                yield store, end, known.end


def _complete(
    part: TaskPart, before: ReadPart | None, spec: ApplicationSpec, *, whole: bool
) -> tuple[TaskPart, Mapping[str, Any] | None]:
    """The part with the stores of its task that the job did not touch and the application still has, as they were."""
    made = {store.store for store in part.stores}
    others = [
        store
        for store in (before.part.stores if before is not None and not whole else ())
        if store.store not in made
        and spec.store(store.store) is not None
        and not differences(part.task, store, spec, empty=store.left_to_restore)
    ]
    stores = sorted([*part.stores, *others], key=lambda store: store.store)
    return replace(part, stores=tuple(stores)), None if before is None else before.raw


def _left_out(parts: Sequence[TaskPart], before: Iterable[TaskPart], spec: ApplicationSpec) -> Iterator[str]:
    """What is said of stores of these tasks that a job did not make, and that are not what is declared any more."""
    made = {(part.task, store.store) for part in parts for store in part.stores}
    for part in before:
        for store in part.stores:
            if (part.task, store.store) not in made:
                for one in differences(part.task, store, spec, empty=store.left_to_restore):
                    yield (
                        f"Store {store.store} of task {part.task} is not in the snapshot any more: its {one.what} is "
                        f"{one.there} in the one before, and the spec declares {one.declared}. Publish it anew."
                    )


def _taken_over(
    parts: Sequence[TaskPart], complete: Sequence[tuple[TaskPart, Mapping[str, Any] | None]]
) -> dict[str, list[StoreSnapshot]]:
    """The stores that a job did not make, of the tasks of which it made others."""
    made = {part.task: {store.store for store in part.stores} for part in parts}
    return {part.task: [store for store in part.stores if store.store not in made[part.task]] for part, _ in complete}


def _hash(reference: PartReference | None) -> str | None:
    return None if reference is None else reference.sha256


def _published(entry: SnapshotEntry, *, earlier: bool = False, beside: int = 0) -> Published:
    return Published(
        entry.snapshot,
        entry.identity,
        entry.made,
        entry.tasks,
        entry.file_bytes,
        entry.new_bytes,
        earlier,
        beside,
    )
