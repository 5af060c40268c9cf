"""Read the tails of a checkpoint: small ones in this process, long ones by the engine's workers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from statecore.jobs.bases.planned_tails import PlannedTails
from statecore.jobs.engine import Engine, Workers
from statecore.jobs.in_process import InProcessEngine
from statecore.jobs.job import Job
from statecore.jobs.pipeline.read_stage import NOTHING_READ, ReadResult, read_changelogs
from statecore.jobs.pipeline.staging_place import DirectoryPlace, PassingPlace, StagingPlace
from statecore.jobs.processes import local_engine

SMALL_TAIL = 2_000_000
"""Total offsets of all tails below which this process reads them itself: about as long as an engine takes to start."""

_READERS = (
    "statecore.jobs.pipeline.range_tasks",
    "statecore.images.runs",
    "statecore.images.kernels.kernel",
    "statecore.changelog.reader",
)


@dataclass(frozen=True)
class TailReader:
    """Reads the tails of one checkpoint.

    Attributes:
        engine: reads long tails.
        small_tail: total offsets below which tails are small.
    """

    job: Job
    engine: Engine
    small_tail: int

    def read(self, planned: PlannedTails) -> ReadResult:
        """Read the tails of a plan into the repository."""
        job, plan = self.job, planned.plan
        if not plan.offsets:
            return NOTHING_READ
        engine = self.engine if plan.offsets >= self.small_tail else InProcessEngine(_READERS)
        with engine.start("checkpoint", job.spec) as workers, self._place(workers, plan.plan_id) as place:
            shared = Path(place.directory) if isinstance(place, DirectoryPlace) else None
            if engine is self.engine:
                job.wait_for(workers, plan.plan_id, lambda: shared, job.spec.kafka)
            with job.phase("read"):
                return read_changelogs(job.context, workers, plan, planned.bases, place, uploads=True)

    @contextmanager
    def _place(self, workers: Workers, plan_id: str) -> Iterator[StagingPlace]:
        """Staging of the workers: a temporary directory if all of them are on this machine."""
        with ExitStack() as stack:
            if workers.are_here():
                made = tempfile.TemporaryDirectory(prefix="statecore-checkpoint-", ignore_cleanup_errors=True)
                yield PassingPlace(stack.enter_context(made))
                return
            yield self.job.home.place(plan_id)
            self.job.home.discard(plan_id)
            self.job.home.sweep()

    def local_engine(self, offsets: int) -> Engine:
        """An engine on this machine for so many offsets, because their runs stay on its disk."""
        return InProcessEngine(_READERS) if offsets < self.small_tail else local_engine(self.engine)
