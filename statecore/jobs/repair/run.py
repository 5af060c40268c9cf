"""Repair: fixes the findings of a state directory and verifies the result.

It is a directory change (:mod:`statecore.jobs.directory_change`) whose last step rebuilds damaged stores, by separate
restores: a retry continues with what they have read. It verifies by a second diagnosis, which says what remains.

Each step improves the directory, so an interrupted repair is simply run again and repairs only what is still wrong; the
approval remains valid (:mod:`statecore.jobs.repair.rebuilds`). Everything that a copy or a restore replaces is kept for
a week (:mod:`statecore.statedir.task_copies`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from statecore.doctor.checks.context import CheckContext
from statecore.doctor.diagnosis import Diagnosis
from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.global_store_outcome import NextStart
from statecore.doctor.repair_actions import apply_repairs, why_not_repairable
from statecore.doctor.repair_plan import Rebuild, RepairPlan, plan_repairs, without_older
from statecore.errors import Corrupted, Invalid, Retryable
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.jobs.attempt import utc_now
from statecore.jobs.context import JobContext, ignore
from statecore.jobs.diagnose.run import brokers_of, diagnosis
from statecore.jobs.directory_change import DirectoryChange, plan_id_of, refuse_in_use
from statecore.jobs.engine import Engine
from statecore.jobs.failures import translated_errors
from statecore.jobs.repair.rebuilds import (
    approved_record,
    discard_placed,
    discard_rebuilds,
    doubts_about,
    logs_of,
    plan_record,
)
from statecore.jobs.repair.report import (
    REPAIR_SUFFIX,
    Outcome,
    RebuiltStores,
    RepairedTask,
    RepairReport,
)
from statecore.jobs.repair.request import RepairRequest
from statecore.jobs.restore.report import RestoreReport
from statecore.jobs.restore.request import CHEAPEST, NOTHING, RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.progress import Progress
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.journal_replay import PlacementOutcome
from statecore.statedir.task_copies import TaskCopies, replaced_in

_SHOWN = 5
_GIVE_SPEC = "With --spec (statecore discover writes one) this repair rebuilds it."


def run_repair(
    request: RepairRequest,
    engine: Engine,
    progress: Progress | None = None,
    *,
    faults: FaultPoints = NO_FAULTS,
    say: Callable[[str], None] = ignore,
) -> RepairReport:
    """Repair a state directory; or plan it.

    Returns:
        The findings, what was done, and what remains.
    """
    with translated_errors(_activity(request)):
        return DirectoryRepair(JobContext.open(request, progress, faults=faults, say=say), engine).run()


@dataclass(frozen=True)
class PlannedRepair:
    """The repairs of the findings in a directory.

    Attributes:
        diagnosis: the findings.
        actions: what is done to copies of tasks, and which stores are rebuilt.
        fingerprints: of the task directories, by task.
        repaired: the tasks as part of the report.
        rebuilt: the rebuilds as part of the report.
    """

    diagnosis: Diagnosis
    actions: RepairPlan
    fingerprints: Mapping[str, str]
    repaired: tuple[RepairedTask, ...]
    rebuilt: tuple[RebuiltStores, ...]

    @property
    def plan_id(self) -> str:
        rebuilt = [{**vars(one), "doubts": ()} for one in self.rebuilt]  # doubts name log ends, which may grow
        return plan_id_of(
            {"repaired": [*map(vars, self.repaired)], "rebuilt": rebuilt, "fingerprints": self.fingerprints}
        )

    @property
    def is_empty(self) -> bool:
        return self.actions.is_empty

    @property
    def doubts(self) -> list[str]:
        """Why a person has to approve the plan."""
        return [doubt for one in self.rebuilt for doubt in one.doubts]


@dataclass(frozen=True)
class _Repaired:
    """Where replaced tasks are kept, rebuilt stores, and the findings afterwards."""

    kept: str
    rebuilt: tuple[RebuiltStores, ...]
    remaining: tuple[Finding, ...] = ()
    is_complete: bool = True


class DirectoryRepair(DirectoryChange[PlannedRepair, _Repaired, RepairReport]):
    """One attempt of a repair; subclasses restrict the plan (:meth:`plan_repairs`)."""

    report_suffix = REPAIR_SUFFIX
    name = "repair"

    def __init__(
        self,
        context: JobContext[RepairRequest],
        engine: Engine,
    ) -> None:
        request = context.request
        super().__init__(context, context.existing_directory(), _activity(request))
        self.request, self.engine, self.approved = request, engine, request.approved
        self._resumed: Mapping[str, Any] | None = None

    def command(self) -> tuple[str, ...]:
        """See :class:`DirectoryChange`; the greatest age has its own option name."""
        age = self.request.cleanup_max_age_ms
        options = self.request.to_words(without=("approved", "request_id", "cleanup_max_age_ms"))
        return "repair", *options, *(() if age is None else ("--cleanup-max-age", f"{age}ms"))

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
        """Diagnose the directory, and plan its repairs."""
        fingerprints = self._fingerprints()
        found = self.diagnose()
        actions = self.plan_repairs(found)
        self.check(found, actions)
        repaired = tuple(
            RepairedTask(task, tuple(map(str, of)), tuple(dict.fromkeys(code for one in of for code in one.codes)))
            for task, of in actions.actions.items()
        )
        return PlannedRepair(found, actions, fingerprints, repaired, self._planned_rebuilds(actions, found))

    def refuse(self, plan: PlannedRepair) -> None:
        """Refuse doubtful rebuilds that ignore has approved, and repairs that this user may not do."""
        if plan.doubts and not self.approved:
            raise Invalid(
                f"Stores in {self.directory.path} may have been made from other logs than they would be rebuilt from. "
                + " ".join(plan.doubts[:_SHOWN]),
                code="rebuild-source-unverified",
                action="Make sure that these are the brokers and topics of this application, and not others of the "
                f"same names; then approve this plan: --approved {plan.plan_id}. Nothing was changed.",
                state_dir=str(self.directory.state_dir),
                plan_id=plan.plan_id,
                doubts=plan.doubts,
            )
        if lacking := why_not_repairable(self.directory, plan.actions.actions):
            raise self._without_permission(lacking)

    def resumes(self, plan: PlannedRepair) -> bool:
        rest = plan_record(plan.plan_id, plan.repaired, plan.rebuilt)
        self._resumed = approved_record(self.attempts(), self.approved, rest)
        return self._resumed is not None

    def record(self, plan: PlannedRepair) -> Mapping[str, object]:
        self.keeps_attempt_file = True  # also after a failure: the next attempt resumes what was approved
        return self._resumed or plan_record(plan.plan_id, plan.repaired, plan.rebuilt)

    def change(self, plan: PlannedRepair) -> _Repaired:
        """Repair copies of tasks and swap them in, then rebuild stores."""
        kept = self._repair_copies(plan) if plan.actions.actions else ""
        self.faults.reach("repair.after-repair")
        with self.phase("rebuild"):
            rebuilt = tuple(
                self._rebuild(one, planned) for one, planned in zip(plan.actions.rebuilds, plan.rebuilt, strict=True)
            )
        discard_rebuilds(self.directory.work_path, self.name)
        return _Repaired(kept, rebuilt)

    def verify(self, plan: PlannedRepair, changed: _Repaired) -> _Repaired:
        """Diagnose again; repaired findings have to be gone, else repeated repairs would never end."""
        with self.phase("verify"):
            after = self.diagnose()
            actions = self.plan_repairs(after)
        repaired = {
            (one.task, one.store, code) for of in plan.actions.actions.values() for one in of for code in one.codes
        }
        again = [
            one
            for one in after.findings
            if one.severity is not Severity.NOTE
            and ((one.task, one.store, one.code) in repaired or (one.task, "", one.code) in repaired)
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
        worse = tuple(one for one in without_older(after.findings, after.stores) if one.severity is not Severity.NOTE)
        return replace(changed, remaining=worse, is_complete=actions.is_empty)

    def diagnose(self) -> Diagnosis:
        """Diagnose the directory."""
        brokers = brokers_of(self.request, self.declared, self.progress, patient=False)
        return diagnosis(
            self.request, self.directory, self.declared, brokers, self.progress, is_locked=self.request.apply
        )

    def plan_repairs(self, found: Diagnosis) -> RepairPlan:
        """Repairs of the findings."""
        return plan_repairs(found.findings, found.stores, rebuilds=self.declared is not None)

    def check(self, found: Diagnosis, actions: RepairPlan) -> None:
        """Refuse what must not be done before a plan is shown; a subclass hook."""

    def next_starts(self, found: Diagnosis) -> tuple[NextStart, ...]:  # noqa: ARG002
        """What the next start would do with stores, if the report includes it."""
        return ()

    def _tasks(self) -> list[str]:
        return [task for task in self.directory.every_task() if not self.request.tasks or task in self.request.tasks]

    def _planned_rebuilds(self, actions: RepairPlan, found: Diagnosis) -> tuple[RebuiltStores, ...]:
        """Planned rebuilds with their sources and doubts."""
        logs: Mapping[Rebuild, tuple[str, ...]] = {}
        if self.declared is not None and not self.request.offline:
            logs = logs_of(self.declared, actions.rebuilds)
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
            for one in actions.rebuilds
        )

    def _fingerprints(self) -> dict[str, str]:
        found = {}
        for task in self._tasks():
            try:
                found[task] = fingerprint(self.directory.task_path(task))
            except PermissionError as error:
                raise self._without_permission(why_not_repairable(self.directory, [task])) from error
        return found

    def _without_permission(self, lacking: str) -> Invalid:
        return Invalid(
            f"In {self.directory.path} {lacking}.",
            code="permission-denied",
            action="Run this as root, or as a user that may; nothing was changed.",
            state_dir=str(self.directory.state_dir),
        )

    def _sources(self) -> str:
        """Description of what stores are rebuilt from."""
        if self.declared is None:
            return ""
        brokers = f"the brokers at {self.declared.bootstrap_servers}"
        return f"{brokers} or a snapshot in {self.request.repository}" if self.request.repository else brokers

    def _remaining(self, finding: Finding) -> dict[str, Any]:
        """A remaining finding, with how to have it repaired."""
        document = finding.to_json()
        if finding.repair is Repair.REBUILD and self.declared is None:
            document["remedy"] += f" {_GIVE_SPEC}"
        return document

    def _repair_copies(self, plan: PlannedRepair) -> str:
        """Repair copies of the tasks and swap them in; returns where the old ones are kept."""
        actions = plan.actions.actions
        how = CheckContext(self.request.application_id, plan.diagnosis.guarantee, spec=self.declared)
        with ExitStack() as stack, self.phase("repair"):
            for task in actions:
                if fingerprint(self.directory.task_path(task)) != plan.fingerprints[task]:
                    raise Retryable(
                        f"The directory of {task} in {self.directory.path} has changed since it was inspected.",
                        code="task-directory-changed",
                        action="Run this again; nothing was changed.",
                        task=task,
                    )
            swap = stack.enter_context(
                TaskCopies(self.directory, self.request.request_id, self.faults, self.progress, keeps=True)
            )
            self.progress.phase("repair", len(actions), "tasks")
            for task, of in actions.items():
                apply_repairs(swap.copy(task), of, how, self.directory)
                self.progress.advance()
            self.progress.done()
            failed = sorted(
                task for task, outcome in swap.swap(actions).items() if outcome is not PlacementOutcome.PLACED
            )
            if failed:
                raise Corrupted(
                    f"{', '.join(failed)} in {self.directory.path} are not what they were repaired to.",
                    code="repair-unverified",
                    action="Check the disk, and what else writes there, then run this again.",
                    tasks=failed,
                )
            return str(swap.kept_path)

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
        bases = tuple(sorted({store.base for store in report.stores} - {""}))
        return replace(planned, rows=rows, bases=bases, kept=kept, seconds=report.seconds)

    def _kept_before(self, ours: Collection[str]) -> list[str]:
        """Directories kept by other jobs, or by a killed attempt of this one."""
        return [str(path) for path in replaced_in(self.directory) if str(path) not in ours]

    def report(self, plan: PlannedRepair, changed: _Repaired | None) -> RepairReport:
        outcome, kept, rebuilt, notes = (
            Outcome.REPAIRED,
            "",
            plan.rebuilt,
            [f"Not checked with the brokers: {one}" for one in plan.diagnosis.undecided],
        )
        remaining: Sequence[Finding] = plan.actions.unrepaired
        if changed is not None:
            kept, rebuilt, remaining = changed.kept, changed.rebuilt, changed.remaining
            if not changed.is_complete:
                notes.insert(0, "The remaining findings can be repaired too: run this again.")
        else:
            outcome = Outcome.UNCHANGED if plan.is_empty else Outcome.PLANNED
            if lacking := why_not_repairable(self.directory, plan.actions.actions):
                notes.insert(0, f"This user cannot apply the plan: {lacking}.")
        if others := self._kept_before({kept, *(one.kept for one in rebuilt)}):
            notes.append(f"Directories replaced by earlier jobs are kept for a week, too: {', '.join(others)}")
        return RepairReport(
            **asdict(self.attempt),
            finished=utc_now(),
            outcome=outcome,
            plan_id=plan.plan_id,
            exit_code=max((one.severity.exit_code for one in remaining), default=0),
            kept=kept,
            seconds=time.monotonic() - self.began,
            phases=dict(self.phases),
            repaired=plan.repaired,
            rebuilt=rebuilt,
            notes=tuple(notes),
            found=tuple(one.to_json() for one in plan.diagnosis.findings),
            remaining=tuple(map(self._remaining, remaining)),
            next_starts=self.next_starts(plan.diagnosis),
        )


def _name_of(one: Rebuild) -> str:
    """A stable name for stores and tasks, so that a retry finds what was read for them."""
    return hashlib.sha256(repr((one.stores, one.tasks)).encode()).hexdigest()[:8]


def _activity(request: RepairRequest) -> str:
    return f"{request.state_dir} was repaired"
