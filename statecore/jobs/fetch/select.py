"""Selects the snapshot to fetch: the newest one that is complete and fits, or the named one.

A snapshot that is damaged, or does not fit the topics, is skipped with a note, and the next older one is tried. If one
was named, or none is left, the error is raised.

Others publish during a fetch, and heads drop checkpoints that are no longer useful. So if something of a snapshot is
missing or damaged, the head is read again: a snapshot that it still lists is damaged; one that it no longer lists may
have been collected, and the newest listed one is next.

"There is none" (``NotFound``) and "cannot be read" (``Retryable``) are never confused, and neither skips a snapshot.
``NotFound`` is raised only for an application without any snapshot: a caller that then starts from nothing must not do
so because of a misspelt name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile

from statecore.errors import Corrupted, Invalid, NotFound, Retryable, StatecoreError
from statecore.jobs.bases.snapshot_bases import delete_retention_since
from statecore.jobs.fetch.request import FetchRequest
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import Head, SnapshotEntry
from statecore.repository.layout import NEWEST
from statecore.repository.manifest import Manifest, TaskManifest
from statecore.repository.recorded_spec import recorded_spec
from statecore.spec.model import ApplicationSpec

_SHOWN = 10


@dataclass(frozen=True)
class FoundSnapshot:
    """A readable snapshot.

    Attributes:
        task_manifests: those of the requested tasks.
        spec: the application as the snapshot declares it, without brokers.
    """

    entry: SnapshotEntry
    manifest: Manifest
    task_manifests: Mapping[str, TaskManifest]
    spec: ApplicationSpec


@dataclass(frozen=True)
class SkippedSnapshot:
    """A snapshot that could not be used.

    Attributes:
        is_removed: whether the head no longer lists it.
    """

    snapshot: str
    why: str
    code: str = ""
    is_removed: bool = False


class Snapshots:
    """The candidate snapshots of a request, in order.

    Attributes:
        has_unfit: whether a skipped one did not fit, rather than being damaged.
        epoch: of the head.
    """

    def __init__(self, repository: ApplicationRepository, request: FetchRequest, say: Callable[[str], None]) -> None:
        self.skipped: list[SkippedSnapshot] = []
        self.has_unfit = False
        self.repository = repository
        self._request, self._say = request, say
        head = repository.head()
        self.epoch = head.epoch
        self._candidates_left = iter(self._candidates(head))
        self._tried: set[str] = set()
        self._errors: list[StatecoreError] = []
        self._removed_errors: list[StatecoreError] = []

    def _candidates(self, head: Head) -> list[SnapshotEntry]:
        self._every = head.snapshots
        named = self._request.snapshot
        if named == NEWEST:
            return list(head.snapshots)
        entry = head.entry(named)
        if entry is None:
            known = ", ".join(one.snapshot for one in head.snapshots[:_SHOWN])
            raise Invalid(
                f"{self.repository.application_id} has no snapshot {named} in {self.repository.url}.",
                code="snapshot-missing",
                action=f"Name one of {known}{', ...' if len(head.snapshots) > _SHOWN else ''}; or {NEWEST}.",
                snapshot=named,
            )
        return [entry]

    def first(self) -> FoundSnapshot:
        """The first readable snapshot."""
        return self._next()

    def after(self, found: FoundSnapshot, error: StatecoreError) -> FoundSnapshot:
        """Skip a snapshot and return the next readable one."""
        self._skip(found.entry, error)
        self.has_unfit |= isinstance(error, Invalid)
        return self._next()

    def _next(self) -> FoundSnapshot:
        while (entry := next(self._candidates_left, None)) is not None:
            self._tried.add(entry.snapshot)
            try:
                manifest = self.repository.manifest(entry).value
                lacking = self._lacking(entry, manifest)
                if lacking is None:
                    return self._read(entry, manifest)
                if not self._errors:
                    raise lacking
                self._skip(entry, lacking)
            except Corrupted as error:
                self._skip(entry, error)
        raise self._no_usable_snapshot()

    def _lacking(self, entry: SnapshotEntry, manifest: Manifest) -> Invalid | None:
        """Error if the snapshot lacks a named task."""
        missing = sorted(set(self._request.tasks) - {reference.task for reference in manifest.task_manifests})
        if not missing:
            return None
        there = ", ".join(reference.task for reference in manifest.task_manifests)
        return Invalid(
            f"The snapshot {entry.snapshot} of {manifest.application_id} has no task {', '.join(missing)}.",
            code="snapshot-task-missing",
            action=f"It has {there}: name some of them."
            if there
            else "It has no tasks at all. Fetch another one (--snapshot); the snapshots are listed by "
            f"{self.repository.list_command}",
            snapshot=entry.snapshot,
            tasks=missing,
        )

    def _read(self, entry: SnapshotEntry, manifest: Manifest) -> FoundSnapshot:
        wanted = [reference for reference in manifest.task_manifests if self._request.wants(reference.task)]
        task_manifests = {task: read.manifest for task, read in self.repository.task_manifests(wanted).items()}
        return FoundSnapshot(entry, manifest, task_manifests, recorded_spec(manifest))

    def _skip(self, entry: SnapshotEntry, error: StatecoreError) -> None:
        why, is_removed = error.what, False
        if isinstance(error, Corrupted) and (head := self.repository.head()).entry(entry.snapshot) is None:
            self._candidates_left = iter([one for one in self._candidates(head) if one.snapshot not in self._tried])
            self._removed_errors.append(error)
            why, is_removed = f"{why} The head no longer lists it.", True
        elif self._request.snapshot != NEWEST:
            raise error
        else:
            self._errors.append(error)
        self.skipped.append(SkippedSnapshot(entry.snapshot, why, error.code, is_removed))
        self._say(f"The snapshot {entry.snapshot} is skipped: {why}")

    def _no_usable_snapshot(self) -> StatecoreError:
        """The newest snapshot's error, with the problems of all others."""
        newest = (self._errors or self._removed_errors)[0]
        if len(self.skipped) == 1:
            return newest
        lines = "\n".join(f"  {one.snapshot}: {one.why}" for one in self.skipped)
        return newest.restated(
            f"None of the {len(self.skipped)} snapshots of {self.repository.application_id} in "
            f"{self.repository.url} can be used:\n{lines}\n",
            skipped_snapshots=[vars(one) for one in self.skipped],
        )

    def delete_retention_since(self, found: FoundSnapshot) -> dict[str, int]:
        """By task the shortest delete retention in ms that snapshots newer than this one recorded."""
        newer = takewhile(lambda one: one.snapshot != found.entry.snapshot, self._every)
        return delete_retention_since(newer, lambda entry: self.repository.manifest(entry).value)

    def notes(self) -> Iterator[str]:
        """Notes on skipped snapshots, for the report."""
        return (f"The snapshot {one.snapshot} was skipped: {one.why}" for one in self.skipped)


@contextmanager
def deleted_is_retryable() -> Iterator[None]:
    """Turn ``NotFound`` into ``Retryable`` while existing snapshots are used: it must mean only "no snapshot"."""
    try:
        yield
    except NotFound as error:
        raise Retryable(
            f"Something was deleted during the fetch: {error.what}",
            code="snapshot-deleted",
            action="Find out what deleted it, then run this again.",
            **error.context,
        ) from error
