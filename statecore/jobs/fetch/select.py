"""Which snapshot is fetched: the newest that is whole and fits, or the one that was named.

A snapshot that is damaged, or that does not fit the topics, is passed over: the next older one is tried, and that is
said. Where one was named, or none is left, the error is raised.

While a snapshot is fetched others publish, and heads name no more checkpoints than are of use. So where something of a
snapshot is missing or damaged, the head is read again: one that it still names is damaged; one that it does not name
any more may have been collected, and the newest that it names now is next.

"There is none" (``NotFound``) and "nobody could look" (``Retryable``) are never the same, and neither passes anything
over. That there is none is said of an application without any snapshot alone: whoever begins with nothing then must not
do so because a name was misspelt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile

from statecore.errors import Corrupted, Invalid, StatecoreError
from statecore.jobs.bases.delete_horizons import horizons_since
from statecore.jobs.fetch.request import FetchRequest
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import Head, SnapshotEntry
from statecore.repository.layout import NEWEST
from statecore.repository.manifest import Manifest, TaskManifest
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import parse_spec

_NOBODY = "nobody:1"
"""In place of brokers: a snapshot does not say how Kafka is reached."""

_SHOWN = 10


@dataclass(frozen=True)
class FoundSnapshot:
    """A snapshot that can be read.

    Attributes:
        entry: what the head says of it.
        manifest: its manifest.
        parts: the tasks of it that are asked for.
        spec: the application as the snapshot declares it, without brokers.
    """

    entry: SnapshotEntry
    manifest: Manifest
    parts: Mapping[str, TaskManifest]
    spec: ApplicationSpec


@dataclass(frozen=True)
class SkippedSnapshot:
    """A snapshot that could not be used.

    Attributes:
        snapshot: its id.
        why: what is wrong with it.
        code: that of the error.
        is_removed: whether the head does not name it any more.
    """

    snapshot: str
    why: str
    code: str = ""
    is_removed: bool = False


class Snapshots:
    """The snapshots that a request may use, one after the other.

    Args:
        shelf: where they are.
        request: what is asked for.
        say: told what is passed over.

    Raises:
        NotFound: the application has none.
        Invalid: it does not have the one that was named.
        Corrupted, Invalid, Retryable: nobody can say which there are.

    Attributes:
        shelf: where they are.
        passed_over: those that could not be used.
        has_unfit: whether one of them did not fit, and is not merely damaged.
    """

    def __init__(self, shelf: ApplicationRepository, request: FetchRequest, say: Callable[[str], None]) -> None:
        self.passed_over: list[SkippedSnapshot] = []
        self.has_unfit = False
        self.shelf = shelf
        self._request, self._say = request, say
        self._left = iter(self._candidates(shelf.head()))
        self._tried: set[str] = set()
        self._errors: list[StatecoreError] = []
        self._gone: list[StatecoreError] = []

    def _candidates(self, head: Head) -> list[SnapshotEntry]:
        self._every = head.snapshots
        named = self._request.snapshot
        if named == NEWEST:
            return list(head.snapshots)
        entry = head.entry(named)
        if entry is None:
            known = ", ".join(one.snapshot for one in head.snapshots[:_SHOWN])
            raise Invalid(
                f"{self.shelf.application_id} has no snapshot {named} in {self.shelf.url}.",
                code="snapshot-missing",
                action=f"Name one of those that count: {known}{', ...' if len(head.snapshots) > _SHOWN else ''}; "
                f"or {NEWEST}.",
                snapshot=named,
            )
        return [entry]

    def first(self) -> FoundSnapshot:
        """The first that can be read.

        Raises:
            Invalid: it does not have a task that was named.
            Corrupted: none can be.
            Invalid, Retryable: one is of another version, or nobody could look.
        """
        return self._next()

    def after(self, found: FoundSnapshot, error: StatecoreError) -> FoundSnapshot:
        """The next older one that can be read, because this one cannot be used.

        Raises:
            StatecoreError: there is none.
        """
        self._pass_over(found.entry, error)
        self.has_unfit |= isinstance(error, Invalid)
        return self._next()

    def _next(self) -> FoundSnapshot:
        while (entry := next(self._left, None)) is not None:
            self._tried.add(entry.snapshot)
            try:
                manifest = self.shelf.manifest(entry).value
                lacking = self._lacking(entry, manifest)
                if lacking is None:
                    return self._read(entry, manifest)
                if not self._errors:
                    raise lacking
                self._pass_over(entry, lacking)
            except Corrupted as error:
                self._pass_over(entry, error)
        raise self._none()

    def _lacking(self, entry: SnapshotEntry, manifest: Manifest) -> Invalid | None:
        """The error where a task was named that the snapshot does not have."""
        missing = sorted(set(self._request.tasks) - {part.task for part in manifest.parts})
        if not missing:
            return None
        return Invalid(
            f"The snapshot {entry.snapshot} of {manifest.application_id} has no task {', '.join(missing)}.",
            code="snapshot-task-missing",
            action=f"It has {', '.join(part.task for part in manifest.parts)}: name some of these.",
            snapshot=entry.snapshot,
            tasks=missing,
        )

    def _read(self, entry: SnapshotEntry, manifest: Manifest) -> FoundSnapshot:
        wanted = [part for part in manifest.parts if self._request.wants(part.task)]
        parts = {task: read.part for task, read in self.shelf.parts(wanted).items()}
        declared = parse_spec({**manifest.spec, "bootstrap_servers": _NOBODY}, f"<snapshot {entry.snapshot}>")
        return FoundSnapshot(entry, manifest, parts, replace(declared, bootstrap_servers=""))

    def _pass_over(self, entry: SnapshotEntry, error: StatecoreError) -> None:
        why, is_removed = error.what, False
        if isinstance(error, Corrupted) and (head := self.shelf.head()).entry(entry.snapshot) is None:
            self._left = iter([one for one in self._candidates(head) if one.snapshot not in self._tried])
            self._gone.append(error)
            why, is_removed = f"{why} The head does not name it any more.", True
        elif self._request.snapshot != NEWEST:
            raise error
        else:
            self._errors.append(error)
        self.passed_over.append(SkippedSnapshot(entry.snapshot, why, error.code, is_removed))
        self._say(f"The snapshot {entry.snapshot} is passed over: {why}")

    def _none(self) -> StatecoreError:
        """The error of the newest, with what is wrong with all others."""
        newest = (self._errors or self._gone)[0]
        if len(self.passed_over) == 1:
            return newest
        lines = "\n".join(f"  {one.snapshot}: {one.why}" for one in self.passed_over)
        return newest.restated(
            f"None of the {len(self.passed_over)} snapshots of {self.shelf.application_id} in {self.shelf.url} can be "
            f"used:\n{lines}\n",
            passed_over=[vars(one) for one in self.passed_over],
        )

    def horizons_since(self, found: FoundSnapshot) -> dict[str, int]:
        """By task the least time for which deletes were kept, as the snapshots say that are newer than one.

        Raises:
            Invalid, Retryable: a manifest cannot be read.
        """
        newer = takewhile(lambda one: one.snapshot != found.entry.snapshot, self._every)
        return horizons_since(newer, lambda entry: self.shelf.manifest(entry).value)

    def notes(self) -> Iterator[str]:
        """What was passed over, for the report."""
        return (f"The snapshot {one.snapshot} was passed over: {one.why}" for one in self.passed_over)
