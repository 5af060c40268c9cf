"""Plans a repair: diagnoses the directory, and chooses the repairs and rebuilds of the findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from statecore.doctor.diagnosis import Diagnosis
from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.global_store_outcome import NextStart
from statecore.doctor.repair_actions import why_not_repairable
from statecore.doctor.repair_plan import (
    Rebuild,
    RepairPlan,
    is_rebuildable,
    plan_repairs,
    restore_remedy,
    without_older,
)
from statecore.errors import Corrupted, Reason
from statecore.jobs.context import JobContext
from statecore.jobs.diagnose.run import brokers_of, diagnosis
from statecore.jobs.repair.plan import PlannedRepair, permission_denied, refused_rebuilds
from statecore.jobs.repair.rebuild_plan import doubts_about, logs_of, repository_for
from statecore.jobs.repair.report import RebuiltStores, RepairedTask
from statecore.jobs.repair.request import RepairRequest
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.state_directory import StateDirectory

_GIVE_SPEC = "With --spec (statecore discover writes one) this repair rebuilds it."
_DECLARE_STORE = "This repair rebuilds it if the spec declares its kind and its changelog in this subtopology."


class RepairPlanner:
    """Diagnoses one directory, and plans its repairs; a subclass may restrict both."""

    def __init__(self, context: JobContext[RepairRequest], directory: StateDirectory) -> None:
        self.context, self.request, self.directory = context, context.request, directory

    def plan(self) -> PlannedRepair:
        """Diagnose the directory, and plan its repairs."""
        fingerprints = self._fingerprints()
        found = self.diagnose()
        repairs = self.plan_repairs(found)
        self.check(found, repairs)
        repaired = tuple(
            RepairedTask(task, tuple(map(str, of)), tuple(dict.fromkeys(code for one in of for code in one.codes)))
            for task, of in repairs.actions.items()
        )
        return PlannedRepair(found, repairs, fingerprints, repaired, self._planned_rebuilds(repairs, found))

    def diagnose(self) -> Diagnosis:
        return self.diagnosis_of(self.request)

    def diagnosis_of(self, request: RepairRequest) -> Diagnosis:
        """Diagnose what a request selects."""
        declared, progress = self.context.declared, self.context.progress
        brokers = brokers_of(request, declared, progress, patient=False)
        return diagnosis(request, self.directory, declared, brokers, progress, is_locked=request.apply)

    def plan_repairs(self, found: Diagnosis) -> RepairPlan:
        """Plan its repairs, without rebuilds that the placement would refuse."""
        plan, declared = self.repairs_of(found), self.context.declared
        refused = () if declared is None else refused_rebuilds(self.directory, declared, plan, found.stores)
        return self.repairs_of(found, refused) if refused else plan

    def repairs_of(self, found: Diagnosis, refused: Sequence[Reason] = ()) -> RepairPlan:
        """The repairs of some findings; a subclass may select them."""
        declared = self.context.declared
        return plan_repairs(found.findings, found.stores, spec=declared, rebuilds=declared is not None, refused=refused)

    def check(self, found: Diagnosis, repairs: RepairPlan) -> None:
        """Refuse what must not be done before a plan is shown; a subclass hook."""

    def next_starts(self, found: Diagnosis) -> tuple[NextStart, ...]:  # noqa: ARG002
        """What the next start would do with stores, if the report includes it."""
        return ()

    def remaining(self, plan: PlannedRepair) -> tuple[tuple[Finding, ...], bool]:
        """Diagnose again: what is left, and whether none is repairable. Raises ``Corrupted`` for repaired ones."""
        after = self.diagnose()
        repaired = {
            (one.task, one.store, code) for of in plan.repairs.actions.values() for one in of for code in one.codes
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
        return worse, self.plan_repairs(after).is_empty

    def reported(self, findings: Sequence[Finding]) -> tuple[Mapping[str, Any], ...]:
        """Remaining findings for the report, each with how to have it repaired."""
        declared, documents = self.context.declared, []
        for finding in findings:
            documents.append(document := finding.to_json())
            if finding.repair is not Repair.REBUILD:
                document["remedy"] += restore_remedy(finding, declared)
            elif declared is None:
                document["remedy"] += f" {_GIVE_SPEC}"
            elif not is_rebuildable(declared, finding.task, finding.store):
                document["remedy"] += f" {_DECLARE_STORE}"
        return tuple(documents)

    def _planned_rebuilds(self, repairs: RepairPlan, found: Diagnosis) -> tuple[RebuiltStores, ...]:
        """Planned rebuilds with their sources and doubts."""
        declared = self.context.declared
        logs: Mapping[Rebuild, tuple[str, ...]] = {}
        if declared is not None and not self.request.offline:
            logs = logs_of(
                declared,
                repairs.rebuilds,
                self.directory.path,
                found.stores,
                self.request.timeout,
                self.request.compare_time,
            )
        return tuple(
            RebuiltStores(
                one.stores,
                one.tasks,
                one.codes,
                sources=self._sources(one),
                logs=logs.get(one, ()),
                doubts=doubts_about(one, logs.get(one, ()), found.findings, found.stores),
            )
            for one in repairs.rebuilds
        )

    def _sources(self, rebuild: Rebuild) -> str:
        """Description of what stores are rebuilt from."""
        if self.context.declared is None:
            return ""
        brokers = f"the brokers at {self.context.declared.bootstrap_servers}"
        repository = repository_for(rebuild, self.request.repository)
        return f"{brokers} or a snapshot in {repository}" if repository else brokers

    def _fingerprints(self) -> dict[str, str]:
        found = {}
        for task in self.directory.every_task():
            if self.request.tasks and task not in self.request.tasks:
                continue
            try:
                found[task] = fingerprint(self.directory.task_path(task))
            except PermissionError as error:
                raise permission_denied(self.directory, why_not_repairable(self.directory, [task])) from error
        return found
