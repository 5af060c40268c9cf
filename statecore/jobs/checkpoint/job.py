"""One attempt of a checkpoint: what its phases share, and its report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from statecore.errors import Reason, StatecoreError
from statecore.jobs.attempt import utc_now
from statecore.jobs.bases.base import Key
from statecore.jobs.checkpoint.plan import CheckpointPlan
from statecore.jobs.checkpoint.reconcile.store import ReconciledStore
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.context import JobContext
from statecore.jobs.engine.protocol import Engine
from statecore.jobs.job import Job
from statecore.jobs.job_home import home_of
from statecore.jobs.pipeline.read_stage import NOTHING_READ, ReadResult
from statecore.jobs.planning.frozen_plan import PLAN_SUFFIX
from statecore.jobs.read_report import ReadReport
from statecore.jobs.read_report_stores import job_report
from statecore.repository.publish.publication import Published, Unchanged


def activity(request: CheckpointRequest) -> str:
    """What the job did, for messages of errors."""
    return f"a checkpoint was made in {request.repository}"


@dataclass(frozen=True)
class Tails:
    """Tails that were read.

    Attributes:
        read: what is appended to the bases.
        reconciled: the stores that were compared with their whole changelogs; their differences are in ``read``.
    """

    planned: CheckpointPlan
    read: ReadResult
    reconciled: Mapping[Key, ReconciledStore] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.planned.notes, *map(str, self.reconciled.values()))


class CheckpointJob(Job):
    """One attempt of a checkpoint.

    Attributes:
        small_tail: total offsets of all tails below which this process reads them itself.
        continues_own_plan: whether this attempt resumes the plan of its own first process, and has no note about that.
        refused: bases that must not be used, with the reason; each round of planning and reading may add some.
        damaged: stores of which no snapshot may be a base, not even one that another job publishes meanwhile.
    """

    def __init__(
        self,
        context: JobContext[CheckpointRequest],
        engine: Engine,
        small_tail: int,
        *,
        continues_own_plan: bool = False,
        damaged: Mapping[Key, Reason] = MappingProxyType({}),
    ) -> None:
        super().__init__(context, home_of(context), activity(context.request))
        self.request, self.repository = context.request, context.repository
        self.repository.repository.check_primary()
        self.engine, self.small_tail, self.continues_own_plan = engine, small_tail, continues_own_plan
        self.refused: dict[tuple[Key, str], Reason] = {}
        self.damaged = dict(damaged)
        self._said: set[str] = set()

    def say_once(self, lines: Iterable[str]) -> None:
        """Tell the operator lines that this attempt has not told yet."""
        for line in lines:
            if line not in self._said:
                self._said.add(line)
                self.say(line)

    def forget_plan(self) -> tuple[str, ...]:
        """Delete the frozen plan, which a retry would resume; returns a note where that is not possible.

        The checkpoint is made by then, so credentials without the right to delete are no failure.
        """
        try:
            self.home.forget(PLAN_SUFFIX)
        except StatecoreError as error:
            note = f"warning: the checkpoint is made, but its plan could not be deleted ({error.code}): {error.what}"
            self.say_once([note])
            return (note,)
        return ()

    def report(
        self,
        tails: Tails | None,
        notes: tuple[str, ...],
        published: Published | None,
        unchanged: Unchanged | None = None,
    ) -> ReadReport:
        """The report, in the form of a restore's. Without tails it says that nothing was to be done.

        Prints the warnings.
        """
        warnings = () if published is None else tuple(f"warning: {one}" for one in published.warnings)
        for warning in warnings:
            self.say(warning)
        return job_report(
            self,
            None if tails is None else tails.planned.plan,
            NOTHING_READ if tails is None else tails.read,
            parts={} if tails is None else {key: (one.part,) for key, one in tails.reconciled.items()},
            notes=(*notes, *warnings),
            placed=False,
            finished=utc_now(),
            repository=self.repository.url,
            published=published,
            unchanged=unchanged,
        )
