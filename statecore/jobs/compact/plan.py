"""Which runs of a snapshot a fold merges: neighbours of one database, and of one partition of the changelog.

A fold is due where a database alone is worth one; then all are folded that have come near
(:mod:`statecore.images.compaction_policy`). A global store has the runs of each partition side by side, so these are
folded by themselves, and none is moved past those of another partition. What has records instead of rows, rows of
another version, or is not what the application declares, is left as it is; so are stores with versions, whose runs are
no history of one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from statecore.images.compaction_policy import FOLD, CompactionSettings, is_due, slices_to_compact
from statecore.images.model import ROW_VERSION, RunFormat
from statecore.repository.compatibility import differences
from statecore.repository.download import Wanted
from statecore.repository.manifest import StoredDatabase, StoredRun, StoreSnapshot, TaskManifest
from statecore.repository.rebase import Compaction
from statecore.spec.model import ApplicationSpec


@dataclass(frozen=True)
class Merge:
    """Runs of one database that become one.

    Attributes:
        task: the task.
        store: the store.
        segment: the segment that the database is; ``None`` where the store has none.
        inputs: the runs, side by side, in the order they are applied.
        is_lowest: whether nothing lies below them, so that deletes can go.
    """

    task: str
    store: str
    segment: int | None
    inputs: tuple[StoredRun, ...]
    is_lowest: bool

    @property
    def name(self) -> str:
        """What is merged, in words."""
        segment = "" if self.segment is None else f", segment {self.segment}"
        return f"store {self.store!r} of task {self.task}{segment}"

    @property
    def bytes(self) -> int:
        """Bytes of the runs' files."""
        return sum(stored.run.file_bytes for stored in self.inputs)

    @property
    def wanted(self) -> Iterator[Wanted]:
        """The runs' files."""
        whose = {"task": self.task, "store": self.store}
        for stored in self.inputs:
            yield Wanted(stored.run.sha256, stored.extent, f"A run of {self.name}", whose)

    def into(self, output: StoredRun | None) -> Compaction:
        """The fold, when it is known what the runs have become."""
        runs = tuple(stored.run for stored in self.inputs)
        return Compaction(self.store, self.segment, runs, output, self.is_lowest)


@dataclass(frozen=True)
class _Neighbours:
    """Runs of one database and partition that follow one another.

    Attributes:
        task: the task.
        store: the store.
        database: the database.
        first: which of its runs is the first of these.
        runs: the runs.
    """

    task: str
    store: str
    database: StoredDatabase
    first: int
    runs: tuple[StoredRun, ...]

    @property
    def sizes(self) -> list[int]:
        return [stored.run.file_bytes for stored in self.runs]

    @property
    def base(self) -> int:
        return sum(file.extent.bytes for file in self.database.base)

    def merge(self, which: slice) -> Merge:
        is_lowest = self.first + which.start == 0 and not self.database.base
        return Merge(self.task, self.store, self.database.segment, self.runs[which], is_lowest)


def planned_merges(
    parts: Iterable[TaskManifest], spec: ApplicationSpec, settings: CompactionSettings = FOLD
) -> tuple[Merge, ...]:
    """What is merged of the tasks of a snapshot; nothing where no fold is due.

    Args:
        parts: the tasks.
        spec: the application as it is declared.
        settings: when runs are merged.
    """
    found = [one for part in parts for store in part.stores for one in _neighbours(part.task, store, spec)]
    if not any(is_due(one.sizes, base=one.base, settings=settings) for one in found):
        return ()
    return tuple(
        one.merge(which) for one in found for which in slices_to_compact(one.sizes, base=one.base, settings=settings)
    )


def _neighbours(task: str, store: StoreSnapshot, spec: ApplicationSpec) -> Iterator[_Neighbours]:
    if store.kind.is_versioned or spec.store(store.store) is None:
        return
    if differences(task, store, spec, empty=store.left_to_restore):
        return
    for database in store.databases:
        first = 0
        for (_, format_, version), group in groupby(database.runs, _what):
            runs = tuple(group)
            if (format_, version) == (RunFormat.SST, ROW_VERSION):
                yield _Neighbours(task, store.store, database, first, runs)
            first += len(runs)


def _what(stored: StoredRun) -> tuple[object, RunFormat, int]:
    """What runs must have in common to be merged."""
    return stored.run.origin, stored.run.format, stored.run.row_version
