"""The operator of a recovery of global stores, and a person's word on its plans.

Both are those of a migration (:mod:`~.migrate_operator`, :mod:`~.approval`) with another job. It rebuilds by processes
beside the task, so it wants no Spark.
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
"""Findings that a failed task says; the report has all of them."""


class StatecoreRecoverGlobalOperator(StatecoreMigrateOperator):
    """One step of the recovery of one state directory; returns the report in short.

    Its arguments and errors are those of :class:`StatecoreMigrateOperator`; the request is a
    ``statecore.jobs.recover_global.request.RecoverGlobalRequest``.
    """

    document: ClassVar[DocumentType[Any]] = REPAIR_REPORT
    is_examined: ClassVar[bool] = False  # the job looks with the doctor's eyes

    def _module(self) -> str:
        return MODULE

    def _place(self, report_file: Path) -> Path:
        return recovery_path(report_file)

    def _short(self, report: RepairReport) -> RecoveryPlan:
        return short(report)

    def _judge(self, step: Step, report: Any, report_file: Path) -> None:
        where = f"{self.application_id} in {self.request['state_dir']}"
        self._log_lines(f"{where}: {report.outcome}", table(short(report)))
        left = "".join(f"\n  {one['what']} [{one['code']}] What to do: {one['remedy']}" for one in report.left[:_LEFT])
        if step is Step.PLAN and report.outcome is Outcome.NOT_MENDED:
            error = Invalid(
                f"Global stores of {where} are not mended: no repair is known for what is wrong with them.{left}",
                code="recovery-impossible",
                action="Do what each line says, then clear this task; nothing was changed.",
                report=str(report_file),
            )
            raise exception_for(error.to_json(), log=self.log)
        if step is Step.VERIFY and report.outcome is not Outcome.UNCHANGED:
            damaged = Corrupted(
                f"Global stores of {where} were recovered, and something is left to be done.{left}",
                code="recovery-incomplete",
                action="See above what it is, and who has written there since; then start a new run.",
                report=str(report_file),
            )
            raise exception_for(damaged.to_json(), log=self.log)


class RecoveryApproval(MigrationApproval):
    """Shows the plans of recoveries; see :class:`MigrationApproval`.

    Where nobody is to be asked, a plan that takes rows away is not applied: a person has to look at it.
    """

    question: ClassVar[str] = "Rebuild global stores?"

    def _sound(self, context: Context) -> str:  # noqa: ARG002
        return "the global stores are sound, or recover by themselves"

    def _shown(self, context: Context, plans: Plans, changed: int) -> tuple[str, str]:  # noqa: ARG002
        subject = f"Rebuild global stores of {changed} state director{'y' if changed == 1 else 'ies'}?"
        return subject, body(plans)

    def _unasked(self, plans: Plans) -> list[ApprovedEntry]:
        why = "A person has to approve it: it may take rows away."
        return [
            {**entry, "plan_id": "", "why": why} if plan is not None and plan.get("doubts") else entry
            for entry, (_, plan) in zip(approved(plans), plans, strict=True)
        ]
