"""Decides whether a publication since a job began conflicts with what the job publishes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from statecore.errors import Corrupted, Fenced, Retryable
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import SnapshotEntry
from statecore.repository.layout import is_collected
from statecore.repository.manifest import ReadPosition, TaskManifest, TaskManifestReference
from statecore.repository.publish.head_reader import HeadReader, HeadState
from statecore.repository.publish.snapshot_composition import WrittenTaskManifest, stores_behind
from statecore.repository.task_manifest_validation import check_consistent
from statecore.words import number_of, shortened_list

Rebase = Callable[[TaskManifest, TaskManifest], TaskManifest | None]
"""Combines the task manifest of a job with that of the newest snapshot; ``None`` where the newest snapshot has all of
it. Raises ``Fenced`` where they do not fit together."""

_OVERTAKEN = frozenset({"offsets-changed", "snapshot-newer"})


def is_overtaken(error: Fenced) -> bool:
    """Whether another job has published other offsets of the same stores: a job that plans again can publish."""
    return error.code == "publication-conflict" and error.context.get("reason") in _OVERTAKEN


@dataclass(frozen=True)
class PublicationRequest:
    """What a job publishes.

    Attributes:
        task_manifests: of the tasks that the job has built. A task of the newest snapshot that is not among them is
            inherited, unless it is dropped.
        drops_other_tasks: whether the job has built all of the application. Tasks of the newest snapshot that it has
            not built are dropped then, and so are stores that it has not built of the tasks that it has.
        tasks: all tasks that the application has now. Other tasks are dropped, and so are stores that the spec no
            longer declares; each with a warning. ``None`` if the job does not know all tasks.
        rebase: how to combine a task manifest with that of a task in the newest snapshot. Without it the job's own
            replaces it, and is ``Fenced`` if another job has published the task since this one began.
        rebased_tasks: tasks that ``rebase`` is for; ``None`` for all.
        refused: task and name of stores that the job did not use as bases, with evidence. Only these may end before
            the store in the newest snapshot, if nobody has published them since.
        read_positions: by inherited task, when the job found its changelogs without new records.
    """

    task_manifests: tuple[TaskManifest, ...]
    drops_other_tasks: bool
    tasks: Collection[str] | None
    rebase: Rebase | None
    refused: Collection[tuple[str, str]]
    read_positions: Mapping[str, ReadPosition]
    rebased_tasks: Collection[str] | None = None

    @property
    def built(self) -> set[str]:
        """Tasks of the request's task manifests."""
        return {reference.task for reference in self.task_manifests}

    @property
    def replacing_everything(self) -> PublicationRequest:
        """The same of a job after which nothing of the newest snapshot is left, however far that has come."""
        every = {(one.task, store.store) for one in self.task_manifests for store in one.stores}
        return replace(self, drops_other_tasks=True, tasks=None, rebase=None, refused=every, read_positions={})

    def rebases(self, task: str) -> bool:
        """Whether what others have published of a task is combined with the request's."""
        return self.rebase is not None and (self.rebased_tasks is None or task in self.rebased_tasks)

    def drops(self, task: str) -> bool:
        """Whether the publication drops a task that the job has not made."""
        return task not in self.built and (
            self.drops_other_tasks or (self.tasks is not None and task not in self.tasks)
        )


class Conflicts:
    """Compares the current head with the one that a job began with."""

    def __init__(self, app_repository: ApplicationRepository, reader: HeadReader, begun: HeadState) -> None:
        self._app_repository, self._reader, self._begun = app_repository, reader, begun

    def changed(self, current: HeadState) -> set[str]:
        """Tasks that other jobs have published or dropped since the job began."""
        then, now = self._begun.references, current.references
        return {task for task in then.keys() | now.keys() if _hash(then.get(task)) != _hash(now.get(task))}

    def refuse(self, current: HeadState, request: PublicationRequest) -> None:
        """Refuse to replace what other jobs have published since the job began."""
        if current.generation < self._begun.generation:
            raise (
                self._app_repository.lost_head_error()
                if current.head is None
                else self._fenced(
                    f"the head has gone back; a job that publishes now makes a second branch. Rebuild it first: "
                    f"{self._app_repository.repair_command} --apply",
                    reason="head-reverted",
                )
            )
        if current.epoch != self._begun.epoch:
            raise self._fenced(
                "the head was rebuilt (statecore repo repair-head) while this job was running", reason="head-recreated"
            )
        rebased = {task for task in request.built & current.references.keys() if request.rebases(task)}
        theirs = sorted(
            task for task in self.changed(current) - rebased if task in request.built or request.drops(task)
        )
        if theirs:
            raise self._fenced(
                f"another job has published {shortened_list(theirs, 5)} since", reason="tasks-published", tasks=theirs
            )

    def refuse_collected(self, current: HeadState, written: Sequence[WrittenTaskManifest]) -> None:
        """Refuse to name blobs that a collection may delete: old ones that the head does not reach.

        Only then is what a head once does not reach, and what is older than its last collection, garbage for ever.
        """
        if current.head is None:
            return
        head = current.head.head
        late = {blob for one in written for blob in _blobs(one.manifest) if is_collected(blob, head.collection)}
        late -= {blob for one in written if one.before is not None for blob in _blobs(one.before.manifest)}
        for entry in head.snapshots:
            if not late:
                return
            with suppress(Corrupted):
                late -= self._named_by(entry, {one.manifest.task for one in written})
        if late:
            raise Retryable(
                f"{number_of(len(late), 'blob')} that this job uploaded may be deleted already: the repository was "
                "collected twice while it ran.",
                code="upload-collected",
                action="Run it again, which uploads them anew. If that happens often, give statecore repo prune a "
                "--min-age above the time of the longest job.",
                application_id=self._app_repository.application_id,
                repository=self._app_repository.url,
                blobs=sorted(late)[:5],
            )

    def _named_by(self, entry: SnapshotEntry, tasks: Collection[str]) -> set[str]:
        """Blobs that a snapshot names for some tasks."""
        manifest = self._app_repository.manifest(entry).value
        references = [one for one in manifest.task_manifests if one.task in tasks]
        read = self._reader.task_manifests(references).values()
        return {blob for one in read for blob in _blobs(one.manifest)}

    def rebased(self, current: HeadState, request: PublicationRequest) -> list[TaskManifest]:
        """The job's task manifests based on the newest snapshot, without those that it has already."""
        there = self._reader.task_manifests(
            reference for task, reference in current.references.items() if task in request.built
        )
        made = []
        for task_manifest in request.task_manifests:
            theirs = there.get(task_manifest.task)
            mine = (
                task_manifest
                if theirs is None or request.rebase is None or not request.rebases(task_manifest.task)
                else request.rebase(task_manifest, theirs.manifest)
            )
            if mine is None:
                continue
            if theirs is not None:
                self._refuse_older_stores(mine, theirs.manifest, request.refused)
            made.append(mine)
        if request.rebase is not None:
            check_consistent(made)
        return made

    def _refuse_older_stores(
        self, task_manifest: TaskManifest, there: TaskManifest, refused: Collection[tuple[str, str]]
    ) -> None:
        """Refuse a store that ends before the published one."""
        begun = self._begun.references.get(task_manifest.task)
        known = {} if begun is None else _identities(self._reader.task_manifests([begun])[task_manifest.task].manifest)
        now = _identities(there)
        for store, end, other in stores_behind(task_manifest, there):
            if (task_manifest.task, store.store) in refused and known.get(store.store) == now[store.store]:
                continue
            raise self._fenced(
                f"the newest snapshot has store {store.store} of task {task_manifest.task} up to offset {other} of "
                f"{end.topic_partition}, and this job up to {end.end}",
                reason="snapshot-newer",
                task=task_manifest.task,
                store=store.store,
                offset=end.end,
                found=other,
            )

    def _fenced(self, why: str, **context: Any) -> Fenced:
        return Fenced(
            f"Nothing was published for {self._app_repository.application_id}: {why}.",
            code="publication-conflict",
            action=f"Check which jobs publish to it ({self._app_repository.list_command}), and start a new "
            "job (under a new request id). While a job reads everything, pause checkpoints that ignore its in-progress "
            "marker (statecore checkpoint by cron).",
            application_id=self._app_repository.application_id,
            repository=self._app_repository.url,
            **context,
        )


def _identities(task_manifest: TaskManifest) -> dict[str, str]:
    return {store.store: store.identity for store in task_manifest.stores}


def _blobs(task_manifest: TaskManifest) -> set[str]:
    return {extent.blob for store in task_manifest.stores for _, extent in store.extents}


def _hash(reference: TaskManifestReference | None) -> str | None:
    return None if reference is None else reference.sha256
