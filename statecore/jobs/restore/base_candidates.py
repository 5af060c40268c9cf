"""Candidate bases of a restore: the stores of the state directory, snapshots of the repository, or none.

======================  =========================  ===========================  ===========================
``start_from``          stores of the directory    snapshots                    none
======================  =========================  ===========================  ===========================
``cheapest``            without ``replace``        stores not in the directory  stores not in the directory
``newest``, an id                                  that one                     if that is refused
``directory``           only these
``none``                                                                        always
======================  =========================  ===========================  ===========================

With ``cheapest``, between a snapshot and none the one that takes less work is used: offsets to read, bytes to download.
A store of the directory is only replaced by one that is based on it, unless ``replace`` was requested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from statecore.changelog.model import LogOffsets
from statecore.errors import Reason, missing_option
from statecore.formats.releases import GLOBAL
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import DIRECTORY, Base, Key, Refused
from statecore.jobs.bases.directory_bases import DirectoryBases
from statecore.jobs.bases.snapshot_bases import SnapshotBases
from statecore.jobs.restore.request import CHEAPEST, FROM_DIRECTORY, NOTHING, RestoreRequest
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.layout import NEWEST
from statecore.repository.listing import entry_of
from statecore.repository.manifest import TaskManifest
from statecore.spec.model import ApplicationSpec
from statecore.statedir.state_directory import StateDirectory
from statecore.words import shortened_list

RECORD_BYTES = 200
"""About how many bytes are downloaded and hashed in the time that reading one record into a run takes."""


class RestoreCandidates:
    """Candidate bases of a restore; see :class:`statecore.jobs.bases.base.BaseCandidates`.

    Attributes:
        newest: the newest snapshot; empty if there is none, or none is used.
    """

    def __init__(
        self,
        request: RestoreRequest,
        spec: ApplicationSpec,
        directory: StateDirectory | None,
        repository: ApplicationRepository | None,
        refused: Mapping[tuple[Key, str], Reason],
        cluster_id: str = "",
    ) -> None:
        start = request.start_from
        self.spec, self.directory = spec, directory
        self._here = None
        if directory is not None and (start == FROM_DIRECTORY or (start == CHEAPEST and not request.replace)):
            self._here = DirectoryBases(directory, spec, refused)
        self._snapshots = None
        self.newest = ""
        if repository is None and start not in (CHEAPEST, NOTHING, FROM_DIRECTORY):
            raise missing_option(
                f"The repository of snapshot {start} is not given.", "Name the repository (--repository).", "repository"
            )
        head = None if repository is None or start in (NOTHING, FROM_DIRECTORY) else repository.read_head()
        if repository is not None and head is None and start not in (NOTHING, FROM_DIRECTORY, CHEAPEST, NEWEST):
            repository.head()  # raises the reason why there is none
        if repository is not None and head is not None:
            every = head.head.snapshots
            self.newest = every[0].snapshot if every else ""
            if start == CHEAPEST:
                entries = every
            else:
                entries = every[:1] if start == NEWEST else (entry_of(repository, head.head, start),)
            newer = every[: every.index(entries[0])] if entries else ()
            self._snapshots = SnapshotBases(repository, spec, entries, None, {}, refused, newer, cluster_id)

    def of(self, key: Key) -> Iterator[Base | Refused]:
        if self.has_store(key):  # may only be replaced by a store that is based on it
            assert self._here is not None
            yield from self._here.of(key)
        elif self._snapshots is not None:
            yield from self._snapshots.of(key)

    def named(self, key: Key, name: str) -> Base | None:
        """The base that a frozen plan names; ``None`` if it is not available any more."""
        if name == DIRECTORY:
            found = next(self._here.of(key), None) if self._here is not None else None
            return found if isinstance(found, Base) else None
        return None if self._snapshots is None else self._snapshots.named(key, name)

    def task(self, snapshot: str, task: str) -> TaskManifest | None:
        """A task of a snapshot; ``None`` if it has none, or cannot be read."""
        return None if self._snapshots is None else self._snapshots.task(snapshot, task)

    def has_store(self, key: Key) -> bool:
        """Whether the state directory has a store that may be a base."""
        return self._here is not None and self._here.has(key)

    def why_incomplete(self, key: Key) -> Refused | None:
        """The refusal of a store of the directory that was deleted in part; ``None`` of any other."""
        return None if self._here is None else self._here.why_incomplete(key)

    def needs_placement(self, task: str) -> bool:
        """Whether a task lacks a store without which an exactly-once start wipes it: a placement creates that."""
        if not self.spec.processing_guarantee.is_exactly_once or task == GLOBAL:
            return False
        expected = [store for store in self.spec.stores_of(task) if store.is_logged and store.kind.can_be_built]
        return not all(self.has_store((task, store.name)) for store in expected)

    def notes_of_missing(self, keys: Sequence[Key]) -> list[str]:
        """Operator notes: declared stores that tasks of the directory lack, of which an advance builds none."""
        if self.directory is None:
            return []
        named = [f"{store} in {task}" for task, store in sorted(keys) if self.directory.task_path(task).is_dir()]
        if not named:
            return []
        return [
            f"Declared stores are missing, and an advance builds none: {shortened_list(named)}. Kafka Streams restores "
            "them from the start of their changelogs; statecore restore builds them."
        ]


def cost(base: Base | None, logs: Mapping[TopicPartition, LogOffsets]) -> float:
    """Cost of continuing from a base, or from nothing, in records to read."""
    starts = {part: log.log_start for part, log in logs.items()}
    downloaded = 0
    if base is not None:
        starts = {part: base.ends[part].end for part in logs}
        downloaded = 0 if base.snapshot is None else base.snapshot.file_bytes
    return sum(max(0, log.log_end - starts[part]) for part, log in logs.items()) + downloaded / RECORD_BYTES
