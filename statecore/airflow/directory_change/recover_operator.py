"""The operator of a recovery of global stores, and the approval of its plans.

They extend the operators of a migration (:mod:`~.migrate_operator`, :mod:`~.approval`) for another job, which always
runs as processes on the worker, without Spark.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from statecore.airflow.directory_change.approval import MigrationApproval, approved
from statecore.airflow.directory_change.migrate_operator import StatecoreMigrateOperator, Step
from statecore.airflow.directory_change.plans import table
from statecore.airflow.directory_change.recovery_runs import RecoveryPlan, body, recovery_path, short
from statecore.airflow.directory_change.xcom_values import ApprovedEntry, Plans
from statecore.airflow.failures import exception_for
from statecore.documents import DocumentType
from statecore.errors import Corrupted, Invalid
from statecore.jobs.repair.report import REPAIR_REPORT, Outcome, RepairReport

if TYPE_CHECKING:
    from airflow.sdk import Context

MODULE = "statecore.jobs.recover_global.program"

_LEFT = 20
"""Number of findings in the message of a failed task; the report has all of them."""


class StatecoreRecoverGlobalOperator(StatecoreMigrateOperator):
    """One step of the recovery of the global stores of one state directory; returns the short report.

    Arguments and errors are those of :class:`StatecoreMigrateOperator`; the request is a
    ``statecore.jobs.recover_global.request.RecoverGlobalRequest``.
    """

    document: ClassVar[DocumentType[Any]] = REPAIR_REPORT
    is_examined: ClassVar[bool] = False  # the job itself runs the doctor's checks

    def _module(self) -> str:
        return MODULE

    def _report_path(self, report_file: Path) -> Path:
        return recovery_path(report_file)

    def _short(self, report: RepairReport) -> RecoveryPlan:
        return short(report)

    def _check_outcome(self, step: Step, report: Any, report_file: Path) -> None:
        where = f"{self.application_id} in {self.request['state_dir']}"
        self._log_lines(f"{where}: {report.outcome}", table(short(report)))
        left = "".join(f"\n  {one['what']} [{one['code']}] What to do: {one['remedy']}" for one in report.left[:_LEFT])
        if step is Step.PLAN and report.outcome is Outcome.NOT_MENDED:
            error = Invalid(
                f"Global stores of {where} cannot be repaired: there is no repair for these findings.{left}",
                code="recovery-impossible",
                action="Do what each line says, then clear this task; nothing was changed.",
                report=str(report_file),
            )
            raise exception_for(error.to_json(), log=self.log)
        if step is Step.VERIFY and report.outcome is not Outcome.UNCHANGED:
            damaged = Corrupted(
                f"Global stores of {where} were recovered, but something is left to do.{left}",
                code="recovery-incomplete",
                action="See above what is left, and find out what has written to the directory since; then start a new "
                "run.",
                report=str(report_file),
            )
            raise exception_for(damaged.to_json(), log=self.log)


class RecoveryApproval(MigrationApproval):
    """Shows the plans of recoveries; see :class:`MigrationApproval`.

    Without approval, a plan that may remove rows is not applied: a person has to approve it.
    """

    question: ClassVar[str] = "Rebuild global stores?"

    def _sound(self, context: Context) -> str:  # noqa: ARG002
        return "the global stores are valid, or recover by themselves"

    def _shown(self, context: Context, plans: Plans, changed: int) -> tuple[str, str]:  # noqa: ARG002
        subject = f"Rebuild global stores of {changed} state director{'y' if changed == 1 else 'ies'}?"
        return subject, body(plans)

    def _unasked(self, plans: Plans) -> list[ApprovedEntry]:
        why = "A person has to approve it: it may remove rows."
        return [
            {**entry, "plan_id": "", "why": why} if plan is not None and plan.get("doubts") else entry
            for entry, (_, plan) in zip(approved(plans), plans, strict=True)
        ]
