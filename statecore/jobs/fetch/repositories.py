"""Selects the repository to fetch from: the one that has the newest usable snapshot, and of several the first.

One that cannot be reached, has no such snapshot, or whose snapshots are all damaged is left out, with a note; so is one
that does not give the files of a snapshot. If files of a snapshot prove to be damaged, the same snapshot of the next
repository comes before an older one. Without any, the first error that does not say that there is none is raised:
another repository may have had one.
"""

from __future__ import annotations

from statecore.errors import Corrupted, NotFound, StatecoreError
from statecore.jobs.context import JobContext
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.select import FoundSnapshot, Snapshots, deleted_is_retryable
from statecore.repository.application_repository import ApplicationRepository


class Repositories:
    """The repositories of a request that have a usable snapshot.

    Attributes:
        snapshots, found: of the selected repository, and its snapshot that is fetched.
        notes: why others were left out, and which one was selected.
    """

    def __init__(self, context: JobContext[FetchRequest]) -> None:
        self.snapshots: Snapshots
        self.found: FoundSnapshot
        self.notes: list[str] = []
        self._say, self._request = context.say, context.request
        self._left: list[tuple[Snapshots, FoundSnapshot]] = []
        self._left_out: list[StatecoreError] = []
        errors = []
        for url in (self._request.repository, *self._request.replicas):
            try:
                is_first = url == self._request.repository
                repository = context.repository if is_first else ApplicationRepository.open(url, context.application_id)
                snapshots = Snapshots(repository, self._request, self._say)
                with deleted_is_retryable():
                    self._left.append((snapshots, snapshots.first()))
            except StatecoreError as error:
                if not self._request.replicas:
                    raise
                errors.append(error)
                self._note(f"{url} was left out: {error.what}")
        if not self._left:
            raise next((error for error in errors if not isinstance(error, NotFound)), errors[0])
        self._take_newest()

    def _note(self, note: str) -> None:
        self.notes.append(note)
        self._say(note)

    def _take_newest(self) -> None:
        histories = {(one.repository.repository.descriptor.id, one.epoch) for one, _ in self._left}
        self.snapshots, self.found = max(self._left, key=_published_at if len(histories) > 1 else _order)
        if self._request.replicas:
            first, older = self._left[0]
            if first is self.snapshots:
                why = ""
            elif any(one.snapshot == self.found.entry.snapshot for one in first.skipped):
                why = f", because that of {first.repository.url} cannot be used"
            else:
                why = f", because {first.repository.url} has only {older.entry.snapshot}"
            self._note(
                f"The snapshot {self.found.entry.snapshot} is fetched from {self.snapshots.repository.url}{why}."
            )

    def skip_unreadable(self, error: StatecoreError) -> None:
        """Skip damaged files; leave out a repository that does not give them. Raises an error of anything else."""
        if isinstance(error, Corrupted):
            self.skip(error)
            return
        if error.context.get("repository") != self.snapshots.repository.url:
            raise error
        self._left_out.append(error)
        if len(self._left) == 1:
            raise self._left_out[0]
        self._left.remove((self.snapshots, self.found))
        self._note(f"{self.snapshots.repository.url} was left out: {error.what}")
        self._take_newest()

    def skip(self, error: StatecoreError) -> None:
        """Skip the selected snapshot, and select the next newest."""
        at = self._left.index((self.snapshots, self.found))
        del self._left[at]
        try:
            self._left.insert(at, (self.snapshots, self.snapshots.after(self.found, error)))
        except StatecoreError as none_left:
            self._left_out.append(none_left)
            if not self._left:
                raise self._left_out[0] from none_left
            self._note(f"{self.snapshots.repository.url} was left out: {none_left.what}")
        self._take_newest()


def _order(one: tuple[Snapshots, FoundSnapshot]) -> tuple[int, int]:
    """Epoch and generation, which no clock decides; a replica has those of its primary, until a repair of that."""
    return one[1].manifest.epoch, one[1].manifest.generation


def _published_at(one: tuple[Snapshots, FoundSnapshot]) -> str:
    return one[1].entry.created_at
