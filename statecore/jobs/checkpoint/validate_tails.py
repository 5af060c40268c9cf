"""Validate tails before they are appended to their base snapshots, once all of them have been read.

A tail is sound or not (:mod:`statecore.jobs.bases.tail_check`). If not, its store is compared with the whole log if the
request asks for that and nothing prevents it (:mod:`statecore.jobs.checkpoint.reconcile`); else its base is refused.
One refused base makes the job plan and read everything again, so nothing is compared while a base is refused::

    tails ──▶ all sound ──────────────────────────────▶ appended to their bases
          ├─▶ deletes may be missing in some ──▶ compared ──▶ the differences are appended instead
          └─▶ anything else is wrong with one ────────▶ its base is refused
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from statecore.jobs.bases.base import Key
from statecore.jobs.bases.tail_check import Unsound, found_unsound
from statecore.jobs.checkpoint.plan import CheckpointPlan
from statecore.jobs.checkpoint.reconcile import Reconciled, Reconciler, divided
from statecore.jobs.checkpoint.request import WhenRefused
from statecore.jobs.engine import Engine
from statecore.jobs.job import Job
from statecore.jobs.pipeline.read_stage import ReadResult


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
        found = found_unsound(planned.plan, planned.bases, read.runs, planned.topics, cluster)
    if job.context.request.when_refused != WhenRefused.RECONCILE:
        return TailValidation(read, found)
    reconcilable, refused = divided(planned, found.refused)
    if refused or not reconcilable:
        return TailValidation(read, Unsound.of(refused))
    with job.phase("reconcile"):
        outcome = Reconciler(job.context, planned, local_engine).run(reconcilable)
    runs = {**read.runs, **{key: one.results for key, one in outcome.stores.items()}}
    return TailValidation(ReadResult(runs, read.versions), Unsound.of(outcome.refused), outcome.stores)
