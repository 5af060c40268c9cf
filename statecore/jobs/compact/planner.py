"""Plans a compaction: which adjacent runs of one database and changelog partition are merged.

Compaction is due if one database alone is worth it; then all databases near the limit are compacted, too
(:mod:`statecore.jobs.compact.policy`). The runs of a global store are grouped by partition, and merged only within
their group. Runs with records instead of rows, with rows of another version, or of stores that differ from the spec are
left as they are; so are versioned stores, whose runs do not replace one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from statecore.images.model import ROW_VERSION, RunFormat
from statecore.jobs.compact.plan import Merge
from statecore.jobs.compact.policy import DEFAULT_SETTINGS, CompactionSettings, is_due, slices_to_compact
from statecore.repository.compatibility import differences
from statecore.repository.manifest import StoredDatabase, StoredRun, StoreSnapshot, TaskManifest
from statecore.spec.model import ApplicationSpec


@dataclass(frozen=True)
class _AdjacentRuns:
    """Adjacent runs of one database and partition; ``first`` is the index of the first of them."""

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
    task_manifests: Iterable[TaskManifest], spec: ApplicationSpec, settings: CompactionSettings = DEFAULT_SETTINGS
) -> tuple[Merge, ...]:
    """Merges for the tasks of a snapshot; none if no compaction is due."""
    found = [
        one
        for task_manifest in task_manifests
        for store in task_manifest.stores
        for one in _adjacent_runs(task_manifest.task, store, spec)
    ]
    if not any(is_due(one.sizes, base=one.base, settings=settings) for one in found):
        return ()
    return tuple(
        one.merge(which) for one in found for which in slices_to_compact(one.sizes, base=one.base, settings=settings)
    )


def _adjacent_runs(task: str, store: StoreSnapshot, spec: ApplicationSpec) -> Iterator[_AdjacentRuns]:
    if store.kind.is_versioned or spec.store(store.store) is None:
        return
    if differences(task, store, spec, empty=store.restored_by_kafka_streams):
        return
    for database in store.databases:
        first = 0
        for (_, format_, version), group in groupby(
            database.runs, lambda one: (one.run.origin, one.run.format, one.run.row_version)
        ):
            runs = tuple(group)
            if (format_, version) == (RunFormat.SST, ROW_VERSION):
                yield _AdjacentRuns(task, store.store, database, first, runs)
            first += len(runs)
