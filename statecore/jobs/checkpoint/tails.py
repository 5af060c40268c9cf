"""Tails of a checkpoint: read, small ones in this process and long ones by workers, then validated.

A tail is sound or not (:mod:`statecore.jobs.pipeline.tail_check`). If not, its store is compared with the whole log if
the request asks for that and nothing prevents it (:mod:`statecore.jobs.checkpoint.reconcile.eligible`); else its base
is refused. One refused base makes the job plan and read everything again, so nothing is compared while a base is
refused::

    tails ──▶ all sound ──────────────────────────────▶ appended to their bases
          ├─▶ deletes may be missing in some ──▶ compared ──▶ the differences are appended instead
          └─▶ anything else is wrong with one ────────▶ its base is refused
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from statecore.jobs.bases.base import grouped
from statecore.jobs.checkpoint.job import CheckpointJob, Tails
from statecore.jobs.checkpoint.plan import CheckpointPlan
from statecore.jobs.checkpoint.planner import plan_checkpoint
from statecore.jobs.checkpoint.reconcile.eligible import split_eligible
from statecore.jobs.checkpoint.reconcile.run import Reconciliation
from statecore.jobs.checkpoint.request import WhenRefused
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.engine.processes import local_engine
from statecore.jobs.engine.protocol import Engine, Workers
from statecore.jobs.pipeline.read_stage import NOTHING_READ, ReadResult, read_changelogs
from statecore.jobs.pipeline.staging_place import DirectoryPlace, StagingPlace, TemporaryPlace
from statecore.jobs.pipeline.tail_check import Unsound, found_unsound
from statecore.repository.publish.publication import Publication

SMALL_TAIL = 2_000_000
"""Total offsets of all tails below which this process reads them itself: about as long as an engine takes to start."""

_READERS = (
    "statecore.jobs.pipeline.range_tasks",
    "statecore.images.runs",
    "statecore.images.kernels.kernel",
    "statecore.changelog.reader",
)


def read_sound_tails(job: CheckpointJob, publication: Publication, planned: CheckpointPlan) -> Tails:
    """Read the tails of a plan; plan and read again as long as one of their bases turns out unsound."""
    while True:  # each round refuses at least one more base; without a base the whole changelog is read
        read = _read(job, planned)
        job.faults.reach("checkpoint.after-runs")
        tails, unsound = _validate(job, Tails(planned, read))
        job.say_once(grouped(unsound.refused))
        job.refused |= unsound.permanent
        if not unsound.refused:
            return tails
        job.forget_plan()
        with job.phase("plan again"):
            planned = plan_checkpoint(job, publication)


def _read(job: CheckpointJob, planned: CheckpointPlan) -> ReadResult:
    """Read the tails of a plan into the repository."""
    plan = planned.plan
    if not plan.offsets:
        return NOTHING_READ
    engine = job.engine if plan.offsets >= job.small_tail else InProcessEngine(_READERS)
    with engine.start("checkpoint", job.spec) as workers, _place(job, workers, plan.plan_id) as place:
        shared = Path(place.directory) if isinstance(place, DirectoryPlace) else None
        if engine is job.engine:
            job.brokers, job.is_resumed = list(planned.brokers), planned.is_resumed
            job.wait_for(workers, plan.plan_id, lambda: shared, job.spec.kafka)
        with job.phase("read"):
            return read_changelogs(job.context, workers, plan, planned.bases, place, uploads=True)


@contextmanager
def _place(job: CheckpointJob, workers: Workers, plan_id: str) -> Iterator[StagingPlace]:
    """Staging of the workers: a temporary directory if all of them are on this machine."""
    with ExitStack() as stack:
        if workers.are_local():
            made = tempfile.TemporaryDirectory(prefix="statecore-checkpoint-", ignore_cleanup_errors=True)
            yield TemporaryPlace(stack.enter_context(made))
            return
        yield job.home.staging_place(plan_id)
        job.home.discard(plan_id)
        job.home.sweep()


def _validate(job: CheckpointJob, tails: Tails) -> tuple[Tails, Unsound]:
    """Validate tails; returns what is appended, differences in place of some tails, and the refused bases."""
    planned, read = tails.planned, tails.read
    if not planned.plan.offsets:
        return tails, Unsound.of(())
    with job.context.cluster() as cluster:
        found = found_unsound(planned, read.runs, cluster)
    if job.request.when_refused != WhenRefused.RECONCILE:
        return tails, found
    eligible, refused = split_eligible(planned, found.refused)
    if refused or not eligible:
        return tails, Unsound.of(refused)

    def engine(offsets: int) -> Engine:  # on this machine, because the runs of whole logs stay on its disk
        return InProcessEngine(_READERS) if offsets < job.small_tail else local_engine(job.engine)

    with job.phase("reconcile"):
        outcome = Reconciliation(job.context, planned, engine).run(eligible)
    runs = {**read.runs, **{key: one.results for key, one in outcome.stores.items()}}
    return Tails(planned, ReadResult(runs, read.versions), outcome.stores), Unsound.of(outcome.refused)
