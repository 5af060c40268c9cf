"""Repair: fixes the findings of a state directory and verifies the result.

It is a directory change (:mod:`statecore.jobs.directory_change`)::

    inspect   diagnose the directory and plan its repairs       planner.py
    approve   refuse doubtful rebuilds without an approval      plan.py
    change    repair copies of tasks and swap them in,          copies.py
              then rebuild damaged stores by restores           rebuilds.py
    verify    diagnose again, which says what remains           planner.py

Each step improves the directory, so an interrupted repair is simply run again and repairs only what is still wrong; the
approval remains valid. Everything that a copy or a restore replaces is kept for a week
(:mod:`statecore.statedir.task_copies`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from statecore.doctor.findings import Finding
from statecore.errors import Invalid
from statecore.jobs.attempt import utc_now
from statecore.jobs.context import JobContext
from statecore.jobs.directory_change import DirectoryChange, refuse_in_use
from statecore.jobs.engine.protocol import Engine, Started
from statecore.jobs.failures import translated_errors
from statecore.jobs.repair.copies import repair_copies
from statecore.jobs.repair.plan import PlannedRepair, approved_record
from statecore.jobs.repair.planner import RepairPlanner
from statecore.jobs.repair.rebuilds import kept_by_others, rebuild
from statecore.jobs.repair.report import REPAIR_SUFFIX, RebuiltStores, RepairOutcome, RepairReport
from statecore.jobs.repair.request import RepairRequest
from statecore.jobs.repair.staged_rebuilds import discard_placed, discard_rebuilds
from statecore.progress import Progress


def run_repair(request: RepairRequest, engine: Engine, progress: Progress | None = None, **opened: Any) -> RepairReport:
    """Repair a state directory; or plan it."""
    activity = f"{request.state_dir} was repaired"
    with translated_errors(activity):
        context = JobContext.open(request, progress, **opened)
        planner = RepairPlanner(context, context.existing_directory())
        return DirectoryRepair(planner, engine, activity).run()


@dataclass(frozen=True)
class _Repaired:
    """The result of a repair.

    Attributes:
        kept: where replaced tasks are kept.
        refused: why rebuilds were not done that the directory does not allow; it was not changed for them.
        remaining: the findings afterwards.
        is_complete: whether none of them can be repaired.
    """

    kept: str
    rebuilt: tuple[RebuiltStores, ...]
    refused: tuple[str, ...] = ()
    remaining: tuple[Finding, ...] = ()
    is_complete: bool = True


class DirectoryRepair(DirectoryChange[PlannedRepair, _Repaired, RepairReport]):
    """One attempt of a repair; the planner decides what is repaired."""

    report_suffix = REPAIR_SUFFIX
    name = "repair"

    def __init__(self, planner: RepairPlanner, engine: Engine, doing: str) -> None:
        super().__init__(planner.context, planner.directory, doing)
        self.planner, self.engine, self.request = planner, engine, planner.request
        self.approved = self.request.approved
        self._resumed: Mapping[str, Any] | None = None

    def command(self) -> tuple[str, ...]:
        return "repair", *self.request.to_words(without=("approved", "request_id")), *self.engine.options

    def refuse_in_use(self) -> None:
        refuse_in_use(self.directory, "statecore doctor can diagnose it while it runs.")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """See :class:`DirectoryChange`; also deletes what killed attempts have staged."""
        self.refuse_in_use()
        self.keeps_attempt_file = any(one.attempt.request_id == self.request.request_id for one in self.attempts())
        with super().locked():
            discard_placed(self.directory.work_path)
            discard_rebuilds(self.directory.work_path, self.name, keep=self.request.request_id)
            yield

    def inspect(self) -> PlannedRepair:
        return self.planner.plan()

    def refuse(self, plan: PlannedRepair) -> None:
        plan.refuse(self.directory, self.approved)

    def resumes(self, plan: PlannedRepair) -> bool:
        self._resumed = approved_record(self.attempts(), self.approved, plan.record())
        return self._resumed is not None

    def record(self, plan: PlannedRepair) -> Mapping[str, object]:
        self.keeps_attempt_file = True  # also after a failure: the next attempt resumes what was approved
        return self._resumed or plan.record()

    def change(self, plan: PlannedRepair) -> _Repaired:
        """Repair copies of tasks and swap them in, then rebuild stores."""
        kept = ""
        if plan.repairs.actions:
            with self.phase("repair"):
                kept = repair_copies(self, self.directory, plan)
        self.faults.reach("repair.after-repair")
        with self.phase("rebuild"):
            rebuilt, refused = self._rebuild(plan) if plan.repairs.rebuilds else ((), ())
        discard_rebuilds(self.directory.work_path, self.name)
        return _Repaired(kept, rebuilt, refused)

    def _rebuild(self, plan: PlannedRepair) -> tuple[tuple[RebuiltStores, ...], tuple[str, ...]]:
        """One restore after the other, on workers that are started once.

        One that would not place its stores in the directory as it is changes nothing, and keeps no other one from
        being done. If nothing else is, it is an error.
        """
        rebuilt, refused = [], []
        with self.engine.start(self.name, self.spec) as workers:
            engine = Started(workers, self.engine.options)
            for one, planned in zip(plan.repairs.rebuilds, plan.rebuilt, strict=True):
                try:
                    rebuilt.append(rebuild(self, engine, self.directory, one, planned))
                except Invalid as error:
                    if error.code != "placement-refused":
                        raise
                    refused.append((one, error))
        if refused and not rebuilt and not plan.repairs.actions:
            raise refused[0][1]
        return tuple(rebuilt), tuple(
            f"{', '.join(one.stores)} in {', '.join(one.tasks)} could not be rebuilt: {error}" for one, error in refused
        )

    def verify(self, plan: PlannedRepair, changed: _Repaired) -> _Repaired:
        with self.phase("verify"):
            remaining, is_complete = self.planner.remaining(plan)
        return replace(changed, remaining=remaining, is_complete=is_complete)

    def report(self, plan: PlannedRepair, changed: _Repaired | None) -> RepairReport:
        notes = [f"Not checked with the brokers: {one}" for one in plan.diagnosis.undecided]
        remaining: Sequence[Finding]
        if changed is not None:
            kept, rebuilt, remaining = changed.kept, changed.rebuilt, changed.remaining
            outcome = (
                RepairOutcome.PARTLY_REPAIRED if any(one.is_harmful for one in remaining) else RepairOutcome.REPAIRED
            )
            notes = [*changed.refused, *notes]
            if not changed.is_complete and not changed.refused:
                notes.insert(0, "The remaining findings can be repaired too: run this again.")
        else:
            outcome = RepairOutcome.UNCHANGED if plan.is_empty else RepairOutcome.PLANNED
            kept, rebuilt, remaining = "", plan.rebuilt, plan.repairs.unrepaired
            if lacking := plan.lacking_permission(self.directory):
                notes.insert(0, f"This user cannot apply the plan: {lacking}.")
        notes = [*(f"No store of the task is rebuilt: {one} [{one.code}]" for one in plan.repairs.refused), *notes]
        if others := kept_by_others(self.directory, {kept, *(one.kept for one in rebuilt)}):
            notes.append(f"Directories replaced by earlier jobs are kept for a week, too: {', '.join(others)}")
        return RepairReport(
            **asdict(self.attempt),
            finished=utc_now(),
            outcome=outcome,
            plan_id=plan.plan_id,
            exit_code=max((one.severity.exit_code for one in remaining), default=0),
            kept=kept,
            seconds=self.phases.elapsed,
            phases=dict(self.phases.wall),
            repaired=plan.repaired,
            rebuilt=rebuilt,
            notes=tuple(notes),
            found=tuple(one.to_json() for one in plan.diagnosis.findings),
            remaining=self.planner.reported(remaining),
            next_starts=self.planner.next_starts(plan.diagnosis),
        )
