"""What a restore may be put upon: the stores of the state directory, snapshots of the repository, or nothing.

======================  =========================  ==============================  =======================
``start_from``          stores of the directory    snapshots                       nothing
======================  =========================  ==============================  =======================
``cheapest``            without ``replace``        of stores that it has not       of stores that it has not
``latest``, an id                                  that one                        where that is refused
``directory``           those alone
``none``                                                                           always
======================  =========================  ==============================  =======================

Of a snapshot and nothing that is taken which takes less work: offsets to be read, and bytes to be brought. A store that
the directory has is not replaced by one that is not made of it, unless that was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from statecore.changelog.model import LogOffsets
from statecore.errors import Invalid, Reason
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import DIRECTORY, Base, Key, Refused
from statecore.jobs.bases.directory_bases import DirectoryBases
from statecore.jobs.bases.snapshot_bases import SnapshotBases
from statecore.jobs.restore.request import CHEAPEST, HERE, LATEST, NOTHING, RestoreRequest
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.listing import entry_of
from statecore.repository.manifest import TaskManifest
from statecore.spec.model import ApplicationSpec
from statecore.statedir.state_directory import StateDirectory

RECORD_BYTES = 200
"""About how many bytes are brought and hashed in the time in which a record is read into a run."""


class RestoreCandidates:
    """See the module's text, and :class:`statecore.jobs.bases.base.BaseCandidates`.

    Args:
        request: what is asked for.
        spec: the application as it is declared.
        directory: its directory; ``None`` where nothing is placed.
        shelf: its snapshots; ``None`` without a repository.
        refused: parents that were refused after their tails were read, with the reason.

    Raises:
        NotFound: no snapshot of the id that was asked for counts.
        Corrupted, Invalid, Retryable: the repository cannot be read, or is none.

    Attributes:
        newest: the newest snapshot; empty where there is none, or none is of use.
        spec: the application.
        directory: its directory; ``None`` where nothing is placed.
    """

    def __init__(
        self,
        request: RestoreRequest,
        spec: ApplicationSpec,
        directory: StateDirectory | None,
        shelf: ApplicationRepository | None,
        refused: Mapping[tuple[Key, str], Reason],
    ) -> None:
        start = request.start_from
        self.spec, self.directory = spec, directory
        self._here = None
        if directory is not None and (start == HERE or (start == CHEAPEST and not request.replace)):
            self._here = DirectoryBases(directory, spec, refused)
        self._snapshots = None
        self.newest = ""
        if shelf is None and start not in (CHEAPEST, NOTHING, HERE):
            raise Invalid(
                f"Nobody knows where the snapshot {start} is.",
                code="option-missing",
                action="Name the repository (--repository).",
                option="repository",
            )
        head = None if shelf is None or start in (NOTHING, HERE) else shelf.read_head()
        if shelf is not None and head is None and start not in (NOTHING, HERE, CHEAPEST, LATEST):
            shelf.head()  # which says why there is none
        if shelf is not None and head is not None:
            every = head.head.snapshots
            self.newest = every[0].snapshot if every else ""
            if start == CHEAPEST:
                entries = every
            else:
                entries = every[:1] if start == LATEST else (entry_of(shelf, head.head, start),)
            newer = every[: every.index(entries[0])] if entries else ()
            self._snapshots = SnapshotBases(shelf, spec, entries, None, {}, refused, newer)

    def of(self, key: Key) -> Iterator[Base | Refused]:
        """See :class:`statecore.jobs.bases.base.BaseCandidates`."""
        if self.has_store(key):  # which nothing but what is made of it may take the place of
            assert self._here is not None
            yield from self._here.of(key)
        elif self._snapshots is not None:
            yield from self._snapshots.of(key)

    def named(self, key: Key, name: str) -> Base | None:
        """The parent that a frozen plan names; ``None`` where it cannot be had any more."""
        if name == DIRECTORY:
            found = next(self._here.of(key), None) if self._here is not None else None
            return found if isinstance(found, Base) else None
        return None if self._snapshots is None else self._snapshots.named(key, name)

    def task(self, snapshot: str, task: str) -> TaskManifest | None:
        """What a snapshot has of a task; ``None`` where it has nothing, or cannot be read."""
        return None if self._snapshots is None else self._snapshots.task(snapshot, task)

    def has_store(self, key: Key) -> bool:
        """Whether the state directory has a store that may be built upon."""
        return self._here is not None and self._here.has(key)


def cost(parent: Base | None, logs: Mapping[TopicPartition, LogOffsets]) -> float:
    """What it costs to go on from a parent, or from nothing: in records that are read.

    Args:
        parent: the parent.
        logs: the changelog of the store, with the end at which a read would stop as ``log_end``.
    """
    starts = {part: log.log_start for part, log in logs.items()}
    brought = 0
    if parent is not None:
        starts = {part: parent.ends[part].end for part in logs}
        brought = 0 if parent.snapshot is None else parent.snapshot.file_bytes
    return sum(max(0, log.log_end - starts[part]) for part, log in logs.items()) + brought / RECORD_BYTES
