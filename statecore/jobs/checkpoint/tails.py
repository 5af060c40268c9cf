"""Tails of a checkpoint: read, small ones in this process and long ones by workers, then validated.

A tail is sound or not (:mod:`statecore.jobs.bases.tail_check`). If not, its store is compared with the whole log if the
request asks for that and nothing prevents it (:mod:`statecore.jobs.checkpoint.reconcile`); else its base is refused.
One refused base makes the job plan and read everything again, so nothing is compared while a base is refused::

    tails ──▶ all sound ──────────────────────────────▶ appended to their bases
          ├─▶ deletes may be missing in some ──▶ compared ──▶ the differences are appended instead
          └─▶ anything else is wrong with one ────────▶ its base is refused
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from statecore.jobs.bases.base import Key
from statecore.jobs.bases.planned_tails import PlannedTails
from statecore.jobs.bases.tail_check import Unsound
from statecore.jobs.checkpoint.plan import CheckpointPlan
from statecore.jobs.checkpoint.reconcile import Reconciled, Reconciler, divided
from statecore.jobs.checkpoint.request import WhenRefused
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.engine.processes import local_engine
from statecore.jobs.engine.protocol import Engine, Workers
from statecore.jobs.job import Job
from statecore.jobs.pipeline.read_stage import NOTHING_READ, ReadResult, read_changelogs
from statecore.jobs.pipeline.staging_place import DirectoryPlace, PassingPlace, StagingPlace

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


@dataclass(frozen=True)
class TailValidation:
    """Result of a validation.

    Attributes:
        read: what is appended to the bases; unused if one is refused.
        unsound: the refused bases.
        reconciled: the stores that were compared with their whole changelogs and corrected.
    """

    read: ReadResult
    unsound: Unsound
    reconciled: Mapping[Key, Reconciled] = field(default_factory=dict)


def validate_tails(
    job: Job, planned: CheckpointPlan, read: ReadResult, local_engine: Callable[[int], Engine]
) -> TailValidation:
    """Validate the tails of one round.

    Args:
        job: the checkpoint.
        planned: its plan.
        read: the tails.
        local_engine: an engine on this machine for so many offsets, because the runs of whole logs stay on its disk.
    """
    if not planned.plan.offsets:
        return TailValidation(read, Unsound.of(()))
    with job.context.cluster() as cluster:
        found = planned.unsound(read.runs, cluster)
    if job.context.request.when_refused != WhenRefused.RECONCILE:
        return TailValidation(read, found)
    reconcilable, refused = divided(planned, found.refused)
    if refused or not reconcilable:
        return TailValidation(read, Unsound.of(refused))
    with job.phase("reconcile"):
        outcome = Reconciler(job.context, planned, local_engine).run(reconcilable)
    runs = {**read.runs, **{key: one.results for key, one in outcome.stores.items()}}
    return TailValidation(ReadResult(runs, read.versions), Unsound.of(outcome.refused), outcome.stores)
