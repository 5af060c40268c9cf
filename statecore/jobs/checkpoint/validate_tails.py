"""Validate tails before they are appended to their base snapshots, once all of them have been read.

A tail is sound or not (:mod:`statecore.jobs.bases.tail_check`). If not, its store is compared with the whole log if the
request asks for that and nothing prevents it (:mod:`statecore.jobs.bases.reconcile`); else its base is refused. One
refused base makes the job plan and read everything again, so nothing is compared while a base is refused::

    tails ──▶ all sound ──────────────────────────────▶ appended to their bases
          ├─▶ deletes may be missing in some ──▶ compared ──▶ the differences are appended instead
          └─▶ anything else is wrong with one ────────▶ its base is refused
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
from statecore.jobs.pipeline.range_tasks import ClusterSettings
from statecore.jobs.pipeline.read_stage import ReadResult
from statecore.jobs.processes import local_engine
from statecore.progress import Progress
from statecore.repository.application_repository import ApplicationRepository
from statecore.spec.model import ApplicationSpec


@dataclass(frozen=True)
class TailValidation:
    """Result of a validation.

    Attributes:
        made: what is appended to the bases; unused if one is refused.
        unsound: the refused bases.
        reconciled: the stores that were compared with their whole changelogs and corrected.
    """

    made: ReadResult
    unsound: Unsound
    reconciled: Mapping[Key, Reconciled] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TailValidator:
    """Validates the tails of one checkpoint, round after round.

    Attributes:
        settings: how workers connect to the brokers.
        connect: how this process does.
        when_refused: policy for a store in whose tail deletes may be missing.
        engine: reads long logs, if it runs on this machine.
        engine_of_little: reads short logs.
        little: offsets below which logs are short.
        memory_budget: bytes of records that a task may hold.
        phase: context manager around a phase.
    """

    spec: ApplicationSpec
    repository: ApplicationRepository
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

    def validate(self, planned: CheckpointPlan, made: ReadResult) -> TailValidation:
        plan = planned.plan
        if not plan.offsets:
            return TailValidation(made, Unsound.of(()))
        with self.connect() as cluster:
            found = found_unsound(plan, planned.bases, made.runs, planned.topics, cluster)
        if self.when_refused != WhenRefused.RECONCILE:
            return TailValidation(made, found)
        right, wrong = divided(planned, found.refused)
        if wrong or not right:
            return TailValidation(made, Unsound.of(wrong))
        outcome = self._reconciled(planned, right)
        runs = {**made.runs, **{key: one.results for key, one in outcome.stores.items()}}
        return TailValidation(ReadResult(runs, made.versions), Unsound.of(outcome.refused), outcome.stores)

    def _reconciled(self, planned: CheckpointPlan, right: Sequence[Refused]) -> Reconciliation:
        """Compare stores with their whole changelogs, on this machine."""
        with self.phase("reconcile"):
            return Reconciler(
                planned,
                spec=self.spec,
                repository=self.repository,
                settings=self.settings,
                connect=self.connect,
                engine=self._engine_here,
                memory_budget=self.memory_budget,
                progress=self.progress,
                faults=self.faults,
            ).run(right)

    def _engine_here(self, offsets: int) -> Engine:
        """An engine on this machine, because the runs of the logs stay on its disk."""
        if offsets < self.little:
            return self.engine_of_little
        return local_engine(self.engine)
