"""Recoveries of global stores: the directory changes of ``recover_global_stores``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from statecore.airflow.directory_change.change import Change, Step
from statecore.airflow.directory_change.plans import bounded, cell
from statecore.airflow.directory_change.xcom_values import DoubtfulPlan, ShortReport
from statecore.errors import Corrupted, Invalid, StatecoreError
from statecore.formats.releases import CURRENT, GLOBAL
from statecore.jobs.attempt import Attempt, utc_now
from statecore.jobs.migrate.summary import CombinedChange
from statecore.jobs.recover_global.request import RecoverGlobalRequest
from statecore.jobs.repair.report import REPAIR_REPORT, RepairOutcome, RepairReport
from statecore.spec.model import ApplicationSpec
from statecore.words import shortened_list

_FINDINGS = 20
"""Number of findings in the message of a failed task; the report has all of them."""


class Recovery(Change):
    """Rebuild of global stores from their topics, always by processes on the worker."""

    name, done, dag_id, command = "recover", "recovered", "recover_global_stores", "recover-global"
    request, document, folder = RecoverGlobalRequest, REPAIR_REPORT, "recoveries"
    needed = ("spec_path",)
    subject = "Rebuild global stores of {directories}?"
    introduction = (
        "global stores of these state directories are rebuilt from their topics, and the replaced files are kept for a "
        "week."
    )
    nothing = "its global stores are valid, or recover by themselves"
    headings = ("stores",)

    def short(self, report: RepairReport) -> DoubtfulPlan:
        rebuilt = [
            CombinedChange(one.tasks, f"rebuilt from {one.sources}" + _rows(one.rows), store)
            for one in report.rebuilt
            for store in one.stores
        ]
        repaired = [CombinedChange((task.task,), step) for task in report.repaired for step in task.steps]
        doubts = [
            CombinedChange(one.tasks, f"To be reviewed: {doubt}") for one in report.rebuilt for doubt in one.doubts
        ]
        starts = [
            CombinedChange(
                (GLOBAL,), f"{one.store}: next start without recovery: {one.start}. {' '.join(one.why)}".rstrip()
            )
            for one in report.next_starts
        ]
        left = [CombinedChange((str(one.get("task") or GLOBAL),), str(one["what"])) for one in report.remaining]
        return {
            "application_id": report.application_id,
            "state_dir": report.state_dir,
            "host": report.host,
            "to": CURRENT.name,
            "outcome": str(report.outcome),
            "plan_id": report.plan_id,
            "kept": ", ".join(filter(None, [report.kept, *(one.kept for one in report.rebuilt)])),
            "changed": int(bool(rebuilt or repaired)),
            "done": bounded([*repaired, *rebuilt]),
            "left": bounded(left),
            "notes": bounded([*doubts, *starts, *(CombinedChange((GLOBAL,), note) for note in report.notes)]),
            "doubts": len(doubts),
            "unknown": shortened_list([one.store for one in report.next_starts if one.is_unknown]),
            "nothing": "",
        }

    def nothing_planned(self, spec: ApplicationSpec, request: Mapping[str, Any]) -> DoubtfulPlan | None:
        """Of an application without global stores, unless some were asked for by name, which the job refuses."""
        if spec.global_stores or request.get("stores") or spec.application_id != request["application_id"]:
            return None
        attempt = Attempt.begin(spec.application_id, str(request["state_dir"]), "")
        report = RepairReport(
            **vars(attempt), finished=utc_now(), outcome=RepairOutcome.UNCHANGED, plan_id="", exit_code=0
        )
        return {**self.short(report), "nothing": "its spec declares no global store"}

    def cells(self, plan: ShortReport) -> Sequence[str]:
        return (cell(", ".join(dict.fromkeys(row["store"] or "files of global" for row in plan["done"]["rows"]))),)

    def why_nothing(self, plan: DoubtfulPlan) -> str:
        unknown = plan["unknown"]
        if not unknown:
            return plan["nothing"] or self.nothing
        others = "every other global store is valid, or recovers by itself"
        return f"the outcome of the next start is unknown for {unknown}, which cannot be read here; {others}"

    def problem(self, step: Step, report: RepairReport, where: str, report_file: Path) -> StatecoreError | None:
        left = "".join(
            f"\n  {one['what']} [{one['code']}] What to do: {one['remedy']}" for one in report.remaining[:_FINDINGS]
        )
        if step is Step.PLAN and report.outcome is RepairOutcome.NOT_REPAIRED:
            return Invalid(
                f"Global stores of {where} cannot be repaired: there is no repair for these findings.{left}",
                code="recovery-impossible",
                action="Do what each line says, then clear this task; nothing was changed.",
                report=str(report_file),
            )
        if step is Step.VERIFY and report.outcome is not RepairOutcome.UNCHANGED:
            return Corrupted(
                f"Global stores of {where} were recovered, but something is left to do.{left}",
                code="recovery-incomplete",
                action="See above what is left, and find out what has written to the directory since; then start a new "
                "run.",
                report=str(report_file),
            )
        return None


def _rows(rows: int | None) -> str:
    return "" if rows is None else f": {rows:,} rows"
