"""The repair: what a look at a state directory found is mended, and looked at again.

Order of things, and why a kill at any moment is harmless::

    look      every finding, and what would mend it          nothing is changed; a plan ends here
    mend      copies of task directories are changed         in .statecore, which the next job sweeps
    swap      whole tasks, by the journal of placements      each task wholly old or wholly new; the next job settles it
    rebuild   damaged stores, by restores of their own       as a restore says; a retry goes on with what was read
    look      again: what is left is said

Each step leaves the directory better than before, so whoever stops in the middle runs the same again, and only what is
still wrong is mended. What is replaced is kept for a week (:mod:`statecore.placement.exchange`), but for what a restore
replaces, which is rows that could not be read or believed.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

from statecore.errors import Corrupted, Invalid, Retryable
from statecore.faults import NO_FAULTS, FaultInjected, FaultPoints
from statecore.jobs.approval import plan_id_of, refuse_another_plan, refuse_in_use
from statecore.jobs.attempt import utc_now
from statecore.jobs.engine import Engine
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.home import DirectoryHome
from statecore.jobs.job import Job, Surroundings, nobody
from statecore.jobs.repair_report import (
    REPAIR_SUFFIX,
    MendedTask,
    Outcome,
    RebuiltStores,
    RepairReport,
)
from statecore.jobs.repair_request import RepairRequest
from statecore.jobs.report import RestoreReport
from statecore.jobs.request import CHEAPEST, NOTHING, RestoreRequest
from statecore.jobs.restore import run_restore
from statecore.maintenance.catalogue import Severity
from statecore.maintenance.checks.circumstances import Circumstances
from statecore.maintenance.doctor import Diagnosis, Topics, examine
from statecore.maintenance.findings import Finding
from statecore.maintenance.layout import application_directory, check_application
from statecore.maintenance.mending import mend
from statecore.maintenance.repairs import Rebuild, RepairPlan, plan_repairs
from statecore.placement.apply import recover
from statecore.placement.exchange import Exchange
from statecore.placement.settlement import Outcome as Placed
from statecore.placement.state_directory import StateDirectory
from statecore.placement.trees import fingerprint
from statecore.progress import NullProgress, Progress
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee
from statecore.spec.reader import load_spec


def run_repair(
    request: RepairRequest,
    engine: Engine,
    progress: Progress | None = None,
    *,
    faults: FaultPoints = NO_FAULTS,
    say: Callable[[str], None] = nobody,
) -> RepairReport:
    """Mend what is found in a state directory; or say what would be done.

    Args:
        request: which directory, and whether to do it.
        engine: who rebuilds stores; its workers see the directory.
        progress: told how far it is; ``None`` for nobody.
        faults: points at which tests let the process die.
        say: told what an operator should read at once.

    Returns:
        What was found, what was done, and what is left.

    Raises:
        NotFound: there is no such application, task or store.
        Invalid: a store has to be rebuilt and there is no spec; or the plan is not the one that was approved; or what a
            repair needs is not there. Nothing was changed.
        Fenced: the application runs, or another job does; nothing was changed.
        Capacity, Corrupted, Retryable: as :func:`statecore.jobs.restore.run_restore`; what was mended before stays.
        StatecoreError: a defect of this program.
    """
    try:
        spec = load_spec(Path(request.spec_path)) if request.spec_path is not None else None
        check_application(spec, request.application_id)
        found = application_directory(Path(request.state_dir), request.application_id)
        directory = StateDirectory(found.state_dir, found.application_id, request.owner)
        home = DirectoryHome(directory.work_path, directory.work_path, request.request_id)
        declared = spec or ApplicationSpec.undeclared(request.application_id)
        around = Surroundings(declared, home, progress or NullProgress(), faults, say)
        return _Repair(request, around, directory, spec, engine).run()
    except FaultInjected:
        raise
    except Exception as error:
        raise as_statecore_error(error, _doing(request)) from error


class _Repair(Job):
    """One try of a repair."""

    report_suffix = REPAIR_SUFFIX

    def __init__(
        self,
        request: RepairRequest,
        around: Surroundings,
        directory: StateDirectory,
        declared: ApplicationSpec | None,
        engine: Engine,
    ) -> None:
        super().__init__(around, request_id=request.request_id, state_dir=request.state_dir, doing=_doing(request))
        self.request, self.directory, self.declared = request, directory, declared
        self.engine = engine

    def run(self) -> RepairReport:
        """Plan, or repair."""
        refuse_in_use(self.directory, "statecore doctor looks at it as it runs.")
        if self.request.apply:
            with self.directory.lock():
                self.faults.reach("repair.after-lock")
                if recovered := str(recover(self.directory, self.faults)):
                    self.say(recovered)
        with self.phase("look"):
            seen = {task: fingerprint(self.directory.task_path(task)) for task in self._tasks()}
            found, plan = self._examined()
        mended = tuple(
            MendedTask(task, tuple(map(str, of)), tuple(dict.fromkeys(code for one in of for code in one.codes)))
            for task, of in plan.mendings.items()
        )
        rebuilt = tuple(RebuiltStores(one.stores, one.tasks, one.codes) for one in plan.rebuilds)
        plan_id = plan_id_of({"mended": [*map(vars, mended)], "rebuilt": [*map(vars, rebuilt)], "fingerprints": seen})
        planned = self._report(Outcome.PLANNED, plan_id, found, plan.left, mended, rebuilt)
        if plan.is_nothing_to_do:
            return replace(planned, outcome=Outcome.UNCHANGED)
        if not self.request.apply:
            return planned
        self._refuse(plan, plan_id)
        self.faults.reach("repair.after-plan")
        kept = self._mended(plan, seen, found.guarantee) if plan.mendings else ""
        self.faults.reach("repair.after-mending")
        with self.phase("rebuild"):
            restores = [self._rebuilt(one) for one in plan.rebuilds]
        with self.phase("verify"):
            after, left = self._examined()
        self._check_mended(plan, after)
        done = tuple(_done(one, restore) for one, restore in zip(rebuilt, restores, strict=True))
        worse = tuple(one for one in after.findings if one.severity is not Severity.NOTE)
        report = self._report(Outcome.REPAIRED, plan_id, found, worse, mended, done, kept=kept)
        if not left.is_nothing_to_do:
            notes = ("What is left can be repaired too: run this again.",)
            report = replace(report, notes=notes)
        with self.directory.lock():
            self.finish(plan_id, report.to_json())
        return report

    def _tasks(self) -> list[str]:
        wanted = self.request.tasks
        return [task for task in self.directory.every_task() if not wanted or task in wanted]

    def _examined(self) -> tuple[Diagnosis, RepairPlan]:
        """What is found, and what mends it."""
        brokers: Topics | None = None
        if self.declared is not None and not self.request.offline:
            from statecore.maintenance.doctor_topics import Brokers

            brokers = Brokers(self.declared.bootstrap_servers, self.declared)
        diagnosis = examine(
            self.directory,
            spec=self.declared,
            guarantee=self.request.processing_guarantee,
            tasks=self.request.tasks,
            stores=self.request.stores,
            scan=self.request.scan,
            cleanup_max_age_ms=self.request.cleanup_max_age_ms,
            topics=brokers,
            progress=self.progress if self.request.scan else None,
        )
        return diagnosis, plan_repairs(diagnosis.findings, diagnosis.stores)

    def _refuse(self, plan: RepairPlan, plan_id: str) -> None:
        refuse_another_plan(self.directory, self.request.approved, plan_id)
        if plan.rebuilds and self.declared is None:
            stores = sorted({store for one in plan.rebuilds for store in one.stores})
            raise Invalid(
                f"{', '.join(stores)} in {self.directory.path} can only be rebuilt, and there is no spec that says of "
                "what.",
                action="Give the application's stores.yaml (--spec; statecore discover writes one); nothing was "
                "changed.",
                state_dir=str(self.directory.state_dir),
                stores=stores,
            )

    def _mended(self, plan: RepairPlan, seen: dict[str, str], guarantee: ProcessingGuarantee | None) -> str:
        """Mend copies of the tasks and put them in place; where the old ones lie."""
        how = Circumstances(self.request.application_id, guarantee, spec=self.declared)
        with ExitStack() as stack, self.phase("mend"):
            stack.enter_context(self.directory.lock())
            for task in plan.mendings:
                if fingerprint(self.directory.task_path(task)) != seen[task]:
                    raise Retryable(
                        f"The directory of {task} in {self.directory.path} has changed since it was looked at.",
                        action="Run this again; nothing was changed.",
                        task=task,
                    )
            exchange = stack.enter_context(
                Exchange(self.directory, self.request.request_id, self.faults, self.progress, keeps=True)
            )
            self.progress.phase("mend", len(plan.mendings), "tasks")
            for task, of in plan.mendings.items():
                mend(exchange.copy(task), of, how)
                self.progress.advance()
            self.progress.done()
            outcomes = exchange.swap(plan.mendings)
            failed = sorted(task for task, outcome in outcomes.items() if outcome is not Placed.PLACED)
            if failed:
                raise Corrupted(
                    f"{', '.join(failed)} in {self.directory.path} did not become what they were mended to.",
                    action="Check the disk and who writes there, then run this again.",
                    tasks=failed,
                )
            return str(exchange.kept_path)

    def _rebuilt(self, one: Rebuild) -> RestoreReport:
        """Rebuild stores of some tasks by a restore, which replaces them."""
        assert self.declared is not None
        self.say(f"{', '.join(one.stores)} in {', '.join(one.tasks) or 'all tasks'}: rebuilt")
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
        report = run_restore(request, self.engine, self.progress, faults=self.faults, say=self.say)
        assert isinstance(report, RestoreReport)
        self.faults.reach("repair.after-rebuild")
        return report

    def _check_mended(self, plan: RepairPlan, after: Diagnosis) -> None:
        """Make sure that what was mended is not found again: to run it again would not end."""
        mended = {(one.task, one.store, code) for of in plan.mendings.values() for one in of for code in one.codes}
        again = [
            one
            for one in after.findings
            if one.severity is not Severity.NOTE
            and ((one.task, one.store, one.code) in mended or (one.task, "", one.code) in mended)
        ]
        if again:
            raise Corrupted(
                f"What was mended in {self.directory.path} is found again: {again[0].task}: {again[0].what}",
                action="Report it; what was there before lies in .statecore/replaced for a week.",
                state_dir=str(self.directory.state_dir),
            )

    def _report(
        self,
        outcome: Outcome,
        plan_id: str,
        found: Diagnosis,
        left: Sequence[Finding],
        mended: tuple[MendedTask, ...],
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
            found=tuple(one.to_json() for one in found.findings),
            left=tuple(one.to_json() for one in left),
        )


def _done(planned: RebuiltStores, restore: RestoreReport) -> RebuiltStores:
    """What became of a rebuild. The rows of stores that are left to Kafka Streams are not counted."""
    rows = sum(max(store.rows, 0) for store in restore.stores)
    parents = tuple(sorted({store.parent for store in restore.stores} - {""}))
    return replace(planned, rows=rows, parents=parents, seconds=restore.seconds)


def _name_of(one: Rebuild) -> str:
    """The same for the same stores and tasks, so that a retry finds what was read for them."""
    return hashlib.sha256(repr((one.stores, one.tasks)).encode()).hexdigest()[:8]


def _doing(request: RepairRequest) -> str:
    return f"{request.state_dir} was repaired"
