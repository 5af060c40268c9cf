"""Detects conflicting publications since a job began."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from statecore.errors import Fenced
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head_reader import HeadReader, Seen
from statecore.repository.manifest import TaskManifest, TaskManifestReference
from statecore.repository.snapshot_composition import Cut, behind
from statecore.repository.task_manifest_structure import check_made

Rebase = Callable[[TaskManifest, TaskManifest], TaskManifest | None]
"""Combines the task manifest of a job with that of the newest snapshot; ``None`` where the newest snapshot has all of
it. Raises ``Fenced`` where they do not fit together."""


@dataclass(frozen=True)
class Asked:
    """A publication request; see :meth:`statecore.repository.publication.Publication.publish`."""

    parts: tuple[TaskManifest, ...]
    whole: bool
    tasks: Collection[str] | None
    rebase: Rebase | None
    refused: Collection[tuple[str, str]]
    cuts: Mapping[str, Cut]

    @property
    def made(self) -> set[str]:
        """Tasks of the request's task manifests."""
        return {part.task for part in self.parts}

    def drops(self, task: str) -> bool:
        """Whether the publication drops a task that the job has not made."""
        return task not in self.made and (self.whole or (self.tasks is not None and task not in self.tasks))


class Conflicts:
    """Compares the current head with the one that a job began with."""

    def __init__(self, shelf: ApplicationRepository, reader: HeadReader, begun: Seen) -> None:
        self._shelf, self._reader, self._begun = shelf, reader, begun

    def changed(self, seen: Seen) -> set[str]:
        """Tasks that other jobs have published or dropped since the job began."""
        then, now = self._begun.references, seen.references
        return {task for task in then.keys() | now.keys() if _hash(then.get(task)) != _hash(now.get(task))}

    def refuse(self, seen: Seen, asked: Asked) -> None:
        """Refuse to replace what other jobs have published since the job began.

        Raises:
            Fenced, Corrupted: they have, or the head has gone back, or was rebuilt.
        """
        if seen.generation < self._begun.generation:
            raise (
                self._shelf.lost_head()
                if seen.head is None
                else self._fenced("the head has gone back", reason="head-reverted")
            )
        if seen.epoch != self._begun.epoch:
            raise self._fenced(
                "the head was rebuilt (statecore repair head) while this job was running", reason="head-recreated"
            )
        rebased = asked.made & seen.references.keys() if asked.rebase is not None else set()
        theirs = sorted(task for task in self.changed(seen) - rebased if task in asked.made or asked.drops(task))
        if theirs:
            raise self._fenced(
                f"another job has published {', '.join(theirs[:5])} since", reason="tasks-published", tasks=theirs
            )

    def above(self, seen: Seen, asked: Asked) -> list[TaskManifest]:
        """The job's task manifests based on the newest snapshot, without those that it has already.

        Raises:
            Fenced: what other jobs have published and what this job has made do not fit together.
            Corrupted, Invalid, Retryable: what they have published cannot be used.
        """
        there = self._reader.parts(reference for task, reference in seen.references.items() if task in asked.made)
        made = []
        for part in asked.parts:
            theirs = there.get(part.task)
            mine = part if theirs is None or asked.rebase is None else asked.rebase(part, theirs.part)
            if mine is None:
                continue
            if theirs is not None:
                self._refuse_older(mine, theirs.part, asked.refused)
            made.append(mine)
        if asked.rebase is not None:
            check_made(made)
        return made

    def _refuse_older(self, part: TaskManifest, there: TaskManifest, refused: Collection[tuple[str, str]]) -> None:
        """Refuse a store that ends before the published one."""
        begun = self._begun.references.get(part.task)
        known = {} if begun is None else _identities(self._reader.parts([begun])[part.task].part)
        now = _identities(there)
        for store, end, other in behind(part, there):
            if (part.task, store.store) in refused and known.get(store.store) == now[store.store]:
                continue
            raise self._fenced(
                f"the newest snapshot has store {store.store} of task {part.task} up to offset {other} of "
                f"{end.topic_partition}, and this job up to {end.end}",
                reason="snapshot-newer",
                task=part.task,
                store=store.store,
                offset=end.end,
                found=other,
            )

    def _fenced(self, why: str, **context: Any) -> Fenced:
        return Fenced(
            f"Nothing was published for {self._shelf.application_id}: {why}.",
            code="publication-conflict",
            action=f"Check which jobs publish to it ({self._shelf.look}), and start a new job (under a new request "
            "id). A job that reads everything needs the checkpoints paused while it runs.",
            application_id=self._shelf.application_id,
            repository=self._shelf.url,
            **context,
        )


def _identities(part: TaskManifest) -> dict[str, str]:
    return {store.store: store.identity for store in part.stores}


def _hash(reference: TaskManifestReference | None) -> str | None:
    return None if reference is None else reference.sha256
