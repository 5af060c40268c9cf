"""What of a checkpoint's tails goes upon its parents: judged when all of them have been read.

A tail is sound or it is not (:mod:`statecore.jobs.bases.tail_check`). Where it is not, its store is compared with the
whole log if the request wants that and nothing speaks against it (:mod:`statecore.jobs.bases.reconcile`); else its
parent is refused. One refused parent has the job plan and read all of it anew. So nothing is compared while a parent is
refused::

    tails ──▶ all sound ──────────────────────────────────────▶ they are put upon their parents
          ├─▶ deletes may be missing in some ──▶ compared ────▶ what differs is put there in their place
          └─▶ anything else is wrong with one ────────────────▶ its parent is refused
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from statecore.changelog.cluster import Cluster
from statecore.faults import FaultPoints
from statecore.jobs.bases.base import Key, Refused
from statecore.jobs.bases.reconcile import Reconciled, Reconciler, Reconciliation, divided
from statecore.jobs.bases.tail_check import Unsound, found_unsound
from statecore.jobs.checkpoint.plan import CheckpointPlan
from statecore.jobs.checkpoint.request import WhenRefused
from statecore.jobs.engine import Engine
from statecore.jobs.pipeline.publish import Made
from statecore.jobs.pipeline.range_tasks import ClusterSettings
from statecore.jobs.processes import of_this_machine
from statecore.progress import Progress
from statecore.repository.application_repository import ApplicationRepository
from statecore.spec.model import ApplicationSpec


@dataclass(frozen=True)
class TailValidation:
    """What was found out.

    Attributes:
        made: what is put upon the parents; nothing of it where one is refused.
        unsound: the parents that are refused.
        reconciled: the stores that were compared with their whole changelogs, and made right.
    """

    made: Made
    unsound: Unsound
    reconciled: Mapping[Key, Reconciled] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TailValidator:
    """Judges the tails of one checkpoint, round after round.

    Attributes:
        spec: the application.
        shelf: where the snapshots are.
        settings: how workers reach the brokers.
        connect: how this process does.
        when_refused: what is wanted of a store in whose tail deletes may be missing.
        engine: who reads long logs, where it is of this machine.
        engine_of_little: who reads the others.
        little: offsets of logs below which they are no long ones.
        memory_budget: bytes of records that a task may hold.
        phase: around the steps of a phase.
        progress: told how far it is.
        faults: points at which tests let the process die.
    """

    spec: ApplicationSpec
    shelf: ApplicationRepository
    settings: ClusterSettings
    connect: Callable[[], AbstractContextManager[Cluster]]
    when_refused: WhenRefused
    engine: Engine
    engine_of_little: Engine
    little: int
    memory_budget: int
    phase: Callable[[str], AbstractContextManager[None]]
    progress: Progress
    faults: FaultPoints

    def judged(self, planned: CheckpointPlan, made: Made) -> TailValidation:
        """What of the tails goes upon their parents.

        Args:
            planned: the plan.
            made: what came of it.

        Raises:
            Invalid, Retryable: brokers or repository cannot be reached.
            StatecoreError: what stopped a worker.
        """
        plan = planned.plan
        if not plan.offsets:
            return TailValidation(made, Unsound.of(()))
        with self.connect() as cluster:
            found = found_unsound(plan, planned.parents, made.runs, planned.topics, cluster)
        if self.when_refused != WhenRefused.RECONCILE:
            return TailValidation(made, found)
        right, wrong = divided(planned, found.refused)
        if wrong or not right:
            return TailValidation(made, Unsound.of(wrong))
        outcome = self._reconciled(planned, right)
        runs = {**made.runs, **{key: one.results for key, one in outcome.stores.items()}}
        return TailValidation(Made(runs, made.versions), Unsound.of(outcome.refused), outcome.stores)

    def _reconciled(self, planned: CheckpointPlan, right: Sequence[Refused]) -> Reconciliation:
        """Compare stores with their whole changelogs, on this machine."""
        with self.phase("reconcile"):
            return Reconciler(
                planned,
                spec=self.spec,
                shelf=self.shelf,
                settings=self.settings,
                connect=self.connect,
                engine=self._engine_here,
                memory_budget=self.memory_budget,
                progress=self.progress,
                faults=self.faults,
            ).run(right)

    def _engine_here(self, offsets: int) -> Engine:
        """An engine of this machine, on whose disk lies what the logs leave."""
        if offsets < self.little:
            return self.engine_of_little
        return of_this_machine(self.engine)
