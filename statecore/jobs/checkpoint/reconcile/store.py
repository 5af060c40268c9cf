"""Compare one store of a snapshot with its whole changelog, database by database.

The rows are compared by :mod:`statecore.images.reconcile`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

from statecore.changelog.soundness import BaseEnd, start_moved
from statecore.errors import Corrupted, Reason
from statecore.images.model import RunFile, segment_order
from statecore.jobs.bases.base import Base, Refused
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.ranges import RangeResult
from statecore.jobs.planning.plan import PartitionPlan
from statecore.objectstore.base import Blobs
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.download import FILES, RemoteFile, download
from statecore.repository.manifest import Extent, StoredDatabase


@dataclass(frozen=True)
class ReconciledStore:
    """A store that was compared with its whole changelog and corrected.

    Attributes:
        refused: why its tail was not enough.
        part: what was read: its whole changelog.
        results: statistics of the read, with the runs that were published above the base.
    """

    refused: Refused
    part: PartitionPlan
    results: tuple[RangeResult, ...]

    def __str__(self) -> str:
        one, runs = self.refused, [run for result in self.results for run in result.runs]
        return (
            f"Store {one.store} of task {one.task} was compared with its whole changelog, and the differences, "
            f"{sum(run.rows for run in runs):,} rows and {sum(run.deletes for run in runs):,} deletes, were appended "
            f"to {one.base}: {one.why}."
        )


@dataclass(frozen=True)
class StoreReconciliation:
    """A store and its whole changelog.

    Attributes:
        base: the store in the newest snapshot.
        results: the runs of that changelog.
    """

    refused: Refused
    base: Base
    part: PartitionPlan
    results: tuple[RangeResult, ...]

    @property
    def moved_start(self) -> Reason | None:
        """Why the read is not of the whole log: it lost its start meanwhile."""
        start = BaseEnd(self.part.topic_partition, self.part.topic_id, self.part.start, -1, None)
        return start_moved(start, [result.statistics for result in self.results], name="its former start")

    @property
    def _databases(self) -> tuple[StoredDatabase, ...]:
        assert self.base.snapshot is not None  # no base in the state directory is compared
        return self.base.snapshot.databases

    def differences(self, repository: ApplicationRepository, log: Blobs, scratch: Path, output: Path) -> list[RunFile]:
        """Write a run for each database that differs from the log. Raises ``Corrupted`` for a damaged run."""
        from statecore.images.reconcile import reconciled_run  # rarely needed by a checkpoint

        below, above = self._base_runs(repository, scratch), self._log_runs(log, scratch)
        start, first = self.base.ends[self.part.topic_partition].end, self._first_live_segment()
        files: list[RunFile] = []
        for segment in sorted(below.keys() | above.keys(), key=segment_order):
            if segment is not None and segment < first:
                continue
            path = output / str(len(files))
            runs = below.get(segment, []), above.get(segment, [])
            made = reconciled_run(path, *runs, start=start, end=self.part.end)
            files += [] if made is None else [made]
        return files

    def _base_runs(self, repository: ApplicationRepository, scratch: Path) -> dict[int | None, list[RunFile]]:
        """The downloaded runs of the base, by segment."""
        about = {"task": self.refused.task, "store": self.refused.store}
        wanted = [
            RemoteFile(stored.run.sha256, stored.extent, self._a_run, about)
            for database in self._databases
            for stored in database.runs
        ]
        download(repository, wanted, scratch, keeps=False)
        return {
            database.segment: [RunFile.of(stored.run, scratch / FILES / stored.run.sha256) for stored in database.runs]
            for database in self._databases
        }

    def _log_runs(self, log: Blobs, scratch: Path) -> dict[int | None, list[RunFile]]:
        found: dict[int | None, list[RunFile]] = defaultdict(list)
        for run in (run for result in self.results for run in result.runs):
            if not staging.is_whole(log, run):
                raise Corrupted(
                    f"{self._a_run} that was just written does not match its hash.",
                    code="staged-file-corrupted",
                    action="Check the disk.",
                    task=self.refused.task,
                    store=self.refused.store,
                    file=run.sha256,
                )
            found[run.segment].append(staging.at_hand(log, run, scratch))
        return found

    @property
    def _a_run(self) -> str:
        return f"a run of store {self.refused.store} of task {self.refused.task}"

    def _first_live_segment(self) -> int:
        """The first segment that has not expired, by the stream times of base and log."""
        of = self.part.segmentation if self.part.kind.is_segmented else None
        if of is None:
            return 0
        stream_time = max(self.base.stream_time, *(result.stream_time for result in self.results), -1)
        return of.first_live(stream_time)

    def reconciled(self, files: list[RunFile], extents: tuple[Extent, ...]) -> ReconciledStore:
        """The result, once the differences are published."""
        *others, last = (replace(result, runs=(), extents=()) for result in self.results)
        with_runs = replace(last, runs=tuple(file.run for file in files), extents=extents)
        return ReconciledStore(self.refused, self.part, (*others, with_runs))
