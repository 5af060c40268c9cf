"""Repair: fixes the findings of a state directory and verifies the result.

Phases, and why a kill at any point is harmless::

    look      findings and their repairs                     nothing is changed; a plan ends here
    mend      change copies of task directories              in .statecore, which the next job cleans
    swap      whole tasks, by the placement journal          each task is entirely old or new; the next job finishes it
    rebuild   damaged stores, by separate restores           as a restore; a retry continues with what was read
    verify    diagnose again: report what remains            under the same lock as the first diagnosis

Each step improves the directory, so an interrupted repair is simply run again and repairs only what is still wrong; the
approval remains valid (:mod:`statecore.jobs.repair.resume`). Everything that a copy or a restore replaces is kept for a
week (:mod:`statecore.statedir.task_swap`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

from statecore.doctor.checks.context import CheckContext
from statecore.doctor.diagnosis import Diagnosis
from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.global_store_outcome import NextStart
from statecore.doctor.repair_actions import apply_repairs, why_not_repairable
from statecore.doctor.repair_plan import Rebuild, RepairPlan, plan_repairs, without_older
from statecore.errors import Corrupted, Invalid, Retryable
from statecore.faults import NO_FAULTS, FaultInjected, FaultPoints
from statecore.jobs.attempt import utc_now
from statecore.jobs.diagnose.run import brokers_of, diagnosis
from statecore.jobs.directory_change import DirectoryChange, declared_in, directory_of
from statecore.jobs.engine import Engine
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.history.directory_changes import unfinished_changes
from statecore.jobs.job import nobody
from statecore.jobs.plan_id import plan_id_of, refuse_another_plan, refuse_in_use
from statecore.jobs.repair.leftovers import discard_placed, discard_rebuilds
from statecore.jobs.repair.report import (
    REPAIR_SUFFIX,
    Outcome,
    RebuiltStores,
    RepairedTask,
    RepairReport,
)
from statecore.jobs.repair.request import RepairRequest
from statecore.jobs.repair.resume import approved_marker, marker_of
from statecore.jobs.restore.report import RestoreReport
from statecore.jobs.restore.request import CHEAPEST, NOTHING, RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.progress import Progress
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.journal_replay import Outcome as Placed
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.task_swap import TaskSwap, replaced_in

_SHOWN = 5
_GIVE_SPEC = "With --spec (statecore discover writes one) this repair rebuilds it."


def run_repair(
    request: RepairRequest,
    engine: Engine,
    progress: Progress | None = None,
    *,
    faults: FaultPoints = NO_FAULTS,
    say: Callable[[str], None] = nobody,
) -> RepairReport:
    """Repair a state directory; or plan it.

    Returns:
        The findings, what was done, and what remains.
    """
    try:
        spec = declared_in(request)
        return DirectoryRepair(request, engine, directory_of(request), spec, progress, faults, say).run()
    except FaultInjected:
        raise
    except Exception as error:
        raise as_statecore_error(error, _activity(request)) from error


class DirectoryRepair(DirectoryChange):
    """One attempt of a repair; subclasses restrict the plan (:meth:`planned`)."""

    report_suffix = REPAIR_SUFFIX
    called = "repair"

    def __init__(
        self,
        request: RepairRequest,
        engine: Engine,
        directory: StateDirectory,
        declared: ApplicationSpec | None,
        progress: Progress | None,
        faults: FaultPoints,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(request, directory, declared, progress, faults, say, _activity(request))
        self.request, self.engine = request, engine

    def words(self) -> tuple[str, ...]:
        """See :class:`DirectoryChange`; the greatest age has its own option name."""
        age = self.request.cleanup_max_age_ms
        options = self.request.to_words(without=("approved", "request_id", "cleanup_max_age_ms"))
        return "doctor", "--repair", *options, *(() if age is None else ("--cleanup-max-age", f"{age}ms"))

    def run(self) -> RepairReport:
        """Plan, or repair under the lock."""
        refuse_in_use(self.directory, "statecore doctor can diagnose it while it runs.")
        if not self.request.apply:
            return self._run()
        tries = unfinished_changes(self.directory.work_path)
        self.keeps_word = any(
            (one.job, one.attempt.request_id) == (self.called, self.request.request_id) for one in tries
        )
        with self.locked():
            self.faults.reach("repair.after-lock")
            discard_placed(self.directory.work_path)
            discard_rebuilds(self.directory.work_path, self.called, keep=self.request.request_id)
            return self._run()

    def _run(self) -> RepairReport:
        with self.phase("look"):
            seen = self._fingerprints()
            found, plan = self._examined()
        self.check(found, plan)
        mended = tuple(
            RepairedTask(task, tuple(map(str, of)), tuple(dict.fromkeys(code for one in of for code in one.codes)))
            for task, of in plan.actions.items()
        )
        rebuilt = self._planned_rebuilds(plan, found)
        of_rebuilds = [{**vars(one), "doubts": ()} for one in rebuilt]  # doubts name log ends, which may grow
        plan_id = plan_id_of({"mended": [*map(vars, mended)], "rebuilt": of_rebuilds, "fingerprints": seen})
        planned = self._report(Outcome.PLANNED, plan_id, found, plan.unrepaired, mended, rebuilt)
        if lacking := why_not_repairable(self.directory, plan.actions):
            planned = replace(planned, notes=(f"This user cannot apply the plan: {lacking}.", *planned.notes))
        if plan.is_empty:
            unchanged = replace(planned, outcome=Outcome.UNCHANGED)
            if self.request.apply and self.has_ended_others():  # this one has finished theirs
                self.end(plan_id, unchanged.to_json())
            return unchanged
        if not self.request.apply:
            return planned
        marker = marker_of(plan_id, mended, rebuilt)
        approved = approved_marker(self.directory.work_path, self.called, self.request.approved, marker)
        self._refuse(plan, plan_id, [doubt for one in rebuilt for doubt in one.doubts], goes_on=approved is not None)
        self.faults.reach("repair.after-plan")
        self.begin_changes(approved or marker)
        self.keeps_word = True  # also after a failure: the next attempt resumes what was approved
        kept = self._repair_copies(plan, seen, found.guarantee) if plan.actions else ""
        self.faults.reach("repair.after-mending")
        with self.phase("rebuild"):
            done = tuple(self._rebuild(one, planned) for one, planned in zip(plan.rebuilds, rebuilt, strict=True))
        discard_rebuilds(self.directory.work_path, self.called)
        with self.phase("verify"):
            after, left = self._examined()
        self._check_repaired(plan, after)
        worse = tuple(one for one in without_older(after.findings, after.stores) if one.severity is not Severity.NOTE)
        report = self._report(Outcome.REPAIRED, plan_id, found, worse, mended, done, kept=kept)
        if not left.is_empty:
            report = replace(
                report, notes=("The remaining findings can be repaired too: run this again.", *report.notes)
            )
        self.end(plan_id, report.to_json())
        return report

    def _tasks(self) -> list[str]:
        wanted = self.request.tasks
        return [task for task in self.directory.every_task() if not wanted or task in wanted]

    def _planned_rebuilds(self, plan: RepairPlan, found: Diagnosis) -> tuple[RebuiltStores, ...]:
        """Planned rebuilds with their sources and doubts."""
        logs: Mapping[Rebuild, tuple[str, ...]] = {}
        if self.declared is not None and not self.request.offline:
            from statecore.jobs.repair.rebuild_logs import doubts_about, logs_of

            logs = logs_of(self.declared, plan.rebuilds)
        sources = self._sources()
        return tuple(
            RebuiltStores(
                one.stores,
                one.tasks,
                one.codes,
                sources=sources,
                logs=logs.get(one, ()),
                doubts=doubts_about(one, logs[one], found.findings) if one in logs else (),
            )
            for one in plan.rebuilds
        )

    def _fingerprints(self) -> dict[str, str]:
        seen = {}
        for task in self._tasks():
            try:
                seen[task] = fingerprint(self.directory.task_path(task))
            except PermissionError as error:
                raise self._without_rights(why_not_repairable(self.directory, [task])) from error
        return seen

    def _without_rights(self, lacking: str) -> Invalid:
        return Invalid(
            f"In {self.directory.path} {lacking}.",
            code="permission-denied",
            action="Run this as root, or as a user that may; nothing was changed.",
            state_dir=str(self.directory.state_dir),
        )

    def _examined(self) -> tuple[Diagnosis, RepairPlan]:
        """Diagnose the directory and plan its repairs."""
        brokers = brokers_of(self.request, self.declared, self.progress, patient=False)
        found = diagnosis(
            self.request, self.directory, self.declared, brokers, self.progress, is_locked=self.request.apply
        )
        return found, self.planned(found)

    def planned(self, found: Diagnosis) -> RepairPlan:
        """Repairs of the findings."""
        return plan_repairs(found.findings, found.stores, rebuilds=self.declared is not None)

    def check(self, found: Diagnosis, plan: RepairPlan) -> None:
        """Refuse what must not be done before a plan is shown; a subclass hook."""

    def next_starts(self, found: Diagnosis) -> tuple[NextStart, ...]:  # noqa: ARG002
        """What the next start would do with stores, if the report includes it."""
        return ()

    def _sources(self) -> str:
        """Description of what stores are rebuilt from."""
        if self.declared is None:
            return ""
        brokers = f"the brokers at {self.declared.bootstrap_servers}"
        return f"{brokers} or a snapshot in {self.request.repository}" if self.request.repository else brokers

    def _left(self, finding: Finding) -> dict[str, Any]:
        """A remaining finding, with how to have it repaired."""
        document = finding.to_json()
        if finding.repair is Repair.REBUILD and self.declared is None:
            document["remedy"] += f" {_GIVE_SPEC}"
        return document

    def _refuse(self, plan: RepairPlan, plan_id: str, doubts: Sequence[str], *, goes_on: bool) -> None:
        if not goes_on:
            refuse_another_plan(self.directory, self.request.approved, plan_id)
        if doubts and not self.request.approved:
            raise Invalid(
                f"Stores in {self.directory.path} may have been made from other logs than they would be rebuilt from. "
                + " ".join(doubts[:_SHOWN]),
                code="rebuild-source-unverified",
                action="Make sure that these are the brokers and topics of this application, and not others of the "
                f"same names; then approve this plan: --approved {plan_id}. Nothing was changed.",
                state_dir=str(self.directory.state_dir),
                plan_id=plan_id,
                doubts=[*doubts],
            )
        if lacking := why_not_repairable(self.directory, plan.actions):
            raise self._without_rights(lacking)

    def _repair_copies(self, plan: RepairPlan, seen: dict[str, str], guarantee: ProcessingGuarantee | None) -> str:
        """Repair copies of the tasks and swap them in; returns where the old ones are kept."""
        how = CheckContext(self.request.application_id, guarantee, spec=self.declared)
        with ExitStack() as stack, self.phase("mend"):
            for task in plan.actions:
                if fingerprint(self.directory.task_path(task)) != seen[task]:
                    raise Retryable(
                        f"The directory of {task} in {self.directory.path} has changed since it was inspected.",
                        code="task-directory-changed",
                        action="Run this again; nothing was changed.",
                        task=task,
                    )
            exchange = stack.enter_context(
                TaskSwap(self.directory, self.request.request_id, self.faults, self.progress, keeps=True)
            )
            self.progress.phase("mend", len(plan.actions), "tasks")
            for task, of in plan.actions.items():
                apply_repairs(exchange.copy(task), of, how, self.directory)
                self.progress.advance()
            self.progress.done()
            outcomes = exchange.swap(plan.actions)
            failed = sorted(task for task, outcome in outcomes.items() if outcome is not Placed.PLACED)
            if failed:
                raise Corrupted(
                    f"{', '.join(failed)} in {self.directory.path} are not what they were repaired to.",
                    code="repair-unverified",
                    action="Check the disk, and what else writes there, then run this again.",
                    tasks=failed,
                )
            return str(exchange.kept_path)

    def _rebuild(self, one: Rebuild, planned: RebuiltStores) -> RebuiltStores:
        """Rebuild stores of some tasks by a restore that replaces them."""
        assert self.declared is not None
        before = set(replaced_in(self.directory))
        self.say(f"{', '.join(one.stores)} in {', '.join(one.tasks)}: to be rebuilt")
        request = RestoreRequest(
            spec_path=self.request.spec_path,
            state_dir=self.request.state_dir,
            stores=one.stores,
            partitions=one.partitions,
            replace=True,
            repository=self.request.repository,
            start_from=NOTHING if self.request.repository is None else CHEAPEST,
            request_id=f"{self.request.request_id}-{_name_of(one)}",
            owner=self.request.owner,
        )
        report = run_restore(
            request, self.engine, self.progress, faults=self.faults, say=self.say, keeps=True, locked=self.directory
        )
        assert isinstance(report, RestoreReport)
        self.faults.reach("repair.after-rebuild")
        kept = ", ".join(str(path) for path in replaced_in(self.directory) if path not in before)
        rows = sum(max(store.rows, 0) for store in report.stores)  # -1 for stores restored by Kafka Streams
        parents = tuple(sorted({store.parent for store in report.stores} - {""}))
        return replace(planned, rows=rows, parents=parents, kept=kept, seconds=report.seconds)

    def _check_repaired(self, plan: RepairPlan, after: Diagnosis) -> None:
        """Check that repaired findings are gone; otherwise repeated repairs would never end."""
        mended = {(one.task, one.store, code) for of in plan.actions.values() for one in of for code in one.codes}
        again = [
            one
            for one in after.findings
            if one.severity is not Severity.NOTE
            and ((one.task, one.store, one.code) in mended or (one.task, "", one.code) in mended)
        ]
        if again:
            raise Corrupted(
                f"A repaired finding in {self.directory.path} is still there: {again[0].task}: {again[0].what}",
                code="repair-ineffective",
                action="Report it; the replaced tasks are kept in .statecore/replaced for a week.",
                state_dir=str(self.directory.state_dir),
                task=again[0].task,
                finding=again[0].code,
            )

    def _kept_before(self, ours: Collection[str]) -> tuple[str, ...]:
        """A note on directories kept by other jobs, or by a killed attempt of this one."""
        others = [str(path) for path in replaced_in(self.directory) if str(path) not in ours]
        return (
            (f"Directories replaced by earlier jobs are kept for a week, too: {', '.join(others)}",) if others else ()
        )

    def _report(
        self,
        outcome: Outcome,
        plan_id: str,
        found: Diagnosis,
        left: Sequence[Finding],
        mended: tuple[RepairedTask, ...],
        rebuilt: tuple[RebuiltStores, ...],
        *,
        kept: str = "",
    ) -> RepairReport:
        return RepairReport(
            **asdict(self.attempt),
            finished=utc_now(),
            outcome=outcome,
            plan_id=plan_id,
            exit_code=max((one.severity.exit_code for one in left), default=0),
            kept=kept,
            seconds=time.monotonic() - self.began,
            phases=dict(self.phases),
            mended=mended,
            rebuilt=rebuilt,
            notes=(
                *(f"Not checked with the brokers: {one}" for one in found.undecided),
                *self._kept_before({kept, *(one.kept for one in rebuilt)}),
            ),
            found=tuple(one.to_json() for one in found.findings),
            left=tuple(map(self._left, left)),
            next_starts=self.next_starts(found),
        )


def _name_of(one: Rebuild) -> str:
    """A stable name for stores and tasks, so that a retry finds what was read for them."""
    return hashlib.sha256(repr((one.stores, one.tasks)).encode()).hexdigest()[:8]


def _activity(request: RepairRequest) -> str:
    return f"{request.state_dir} was repaired"
