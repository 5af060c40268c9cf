"""The operator of a migration: one step (plan, apply or verify) for one state directory.

All three are one job of ``statecore.spark.migrate_job``, in a process beside the task; who verifies asks ``statecore
doctor`` as well. With the engine Spark
``spark-submit`` runs the step that changes something; the two that only look need no executor, and go there only where
the driver is on another machine.

Retries are safe. A plan and a look change nothing. A try to apply that died has left each task wholly old or wholly
new, and the next one goes on from there; what was approved is the plan's id, and a directory that somebody else has
changed since has another one, and is refused.
"""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowSkipException

from statecore.airflow import reports
from statecore.airflow.credentials import environment
from statecore.airflow.directory_change import verify as examination
from statecore.airflow.directory_change.migration_runs import SPARK
from statecore.airflow.directory_change.plans import migration_path, reasons, short, table
from statecore.airflow.directory_change.xcom_values import REFUSED_KEY, NotLooked, ShortPlan, StepResult
from statecore.airflow.failures import JobRefused, JobUnavailable, exception_for
from statecore.airflow.hooks import checked_master
from statecore.airflow.operators import make_room_for, request_id_of
from statecore.airflow.requests import spec_of_named
from statecore.airflow.settings import Settings
from statecore.airflow.worker_operator import StatecoreWorkerOperator
from statecore.documents import DocumentType
from statecore.errors import Corrupted, Fenced, Invalid
from statecore.jobs.migrate.report import MIGRATE_REPORT, MigrateReport, Outcome

if TYPE_CHECKING:
    from airflow.sdk import Context

MODULE = "statecore.spark.migrate_job"

_REASONS = 50
"""Reasons that a failed task says; the report has all of them."""


class Step(StrEnum):
    """What a task does to its directory."""

    PLAN = "plan"
    APPLY = "apply"
    VERIFY = "verify"


class StatecoreMigrateOperator(StatecoreWorkerOperator):
    """One step of the migration of one state directory; returns the report in short.

    What is of the directory comes from its entry (:class:`~.migration_values.ApprovedEntry`), so a Dag expands it.

    Args:
        step: the step.
        title: the directory's name in the grid. (templated)
        engine: who converts. (templated)
        host: the machine that has the directory; ``None`` for any. (templated)
        plan_id: to apply, the plan that was approved; without one the task is skipped. (templated)
        why: why there is none. (templated)
        kwargs: see :class:`statecore.airflow.operators.StatecoreSparkOperator`; the request is a
            ``statecore.jobs.migrate.request.MigrateRequest``.

    Raises:
        AirflowSkipException: nothing is to be applied.
        JobRefused: the directory cannot be migrated, is in use, is not on this machine, or is not what was approved.
        JobUnavailable: something was not there in time, or there was no room; Airflow retries.
    """

    template_fields: Sequence[str] = (
        *StatecoreWorkerOperator.template_fields,
        *("title", "engine", "host", "plan_id", "why"),
    )

    def __init__(
        self,
        *,
        step: str,
        title: str,
        engine: str,
        host: str | None = None,
        plan_id: str = "",
        why: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.step = step
        self.title = title
        self.engine = engine
        self.host = host
        self.plan_id = plan_id
        self.why = why

    def execute(self, context: Context) -> Any:
        """Do the step, read its report, return it in short (:class:`~.migration_values.StepResult`).

        Of a step that fails kind and code are left in the XCom ``refused``, for the last word of the run.
        """
        try:
            return self._do(context, Step(self.step))
        except (JobRefused, JobUnavailable) as error:
            context["ti"].xcom_push(key=REFUSED_KEY, value=error.reason)
            raise

    def _do(self, context: Context, step: Step) -> Any:
        if step is Step.APPLY and not self.plan_id:
            self.log.info("%s", self.why)  # Airflow's own line does not say it
            raise AirflowSkipException(self.why)
        settings, request_id = Settings.from_environment(), request_id_of(context)
        directory = Path(self.reports_dir) if self.reports_dir else settings.reports
        report_file = self._place(reports.report_path(directory, self.application_id, request_id))
        with self._refusing(report_file, request_id):
            self._check_host()
            if self.request.get("spec_path"):
                self.kafka_conn_id = spec_of_named(self.request["spec_path"]).kafka_connection
            if self.engine == SPARK:
                checked_master(self._conn_id)
        argument, secrets = self._prepare(settings, report_file, request_id)
        try:
            with environment(secrets):
                self._work(context, settings, report_file, argument)
        except JobRefused:
            if step is Step.VERIFY and self._is_in_use(report_file):
                self.log.warning("%s works again: what it has is not looked at once more", self.application_id)
                nobody: NotLooked = {"looked": False, "map_index": context["ti"].map_index}
                return nobody
            raise
        report: Any = self.document.from_json(self._report(report_file))
        self._judge(step, report, report_file)
        findings = None
        if step is Step.VERIFY and self.is_examined and self._sees_the_directory():
            with environment(secrets):
                findings = self._examined(context, report, report_file)
        result: StepResult = {
            **self._short(report),
            "report": str(report_file),
            "map_index": context["ti"].map_index,
            "findings": findings,
        }
        return result

    document: ClassVar[DocumentType[Any]] = MIGRATE_REPORT
    """What a step reports."""

    is_examined: ClassVar[bool] = True
    """Whether ``statecore doctor`` is asked when a directory is looked at again."""

    def _module(self) -> str:
        return MODULE

    def _place(self, report_file: Path) -> Path:
        return migration_path(report_file)

    def _short(self, report: Any) -> ShortPlan:
        return short(report)

    def _asked(self) -> Mapping[str, Any]:
        approved = {"apply": True, "approved": self.plan_id} if self.step == Step.APPLY else {}
        return {**self.request, **approved}

    def _sees_the_directory(self) -> bool:
        return self.engine != SPARK or self._driver_is_here()

    def _examined(self, context: Context, report: MigrateReport, report_file: Path) -> dict[str, int]:
        """Have ``statecore doctor`` look; how much it found, by severity."""
        examined = examination.report_path(report_file)
        with self._refusing(examined, request_id_of(context)):
            make_room_for(examined)
        asked = json.dumps(examination.request_for(self.request).to_json())
        self._run_here(context, examination.MODULE, ["--request", asked], examined, who="statecore doctor")
        found = examination.findings(reports.read_report(examined))
        self._log_lines(f"statecore doctor: {len(found)} findings", *map(examination.in_words, found[:_REASONS]))
        left = {task.task for task in report.tasks if task.left}
        try:
            examination.check(found, left, f"{self.application_id} in {self.request['state_dir']}")
        except Corrupted as error:
            raise exception_for(error.to_json(), log=self.log) from error
        return dict(Counter(one["severity"] for one in found))

    def _check_host(self) -> None:
        names = {socket.gethostname(), socket.getfqdn()}
        if self.host and self.host not in names and self.host not in {name.partition(".")[0] for name in names}:
            raise Invalid(
                f"The directory of {self.application_id} is on {self.host}, and this task runs on "
                f"{socket.gethostname()}.",
                code="host-mismatch",
                action="Have a worker of that machine do it, by a queue of its own.",
                application_id=self.application_id,
                host=self.host,
            )

    def _work(self, context: Context, settings: Settings, report_file: Path, argument: str) -> None:
        looks = self.step != Step.APPLY
        if self.engine == SPARK and not (looks and self._driver_is_here()):
            self._submit(context, settings, report_file, argument)
        else:
            self._run_here(context, self._module(), ["--request", argument], report_file)

    def _check_report(self, report: Mapping[str, Any]) -> None:
        try:
            self.document.from_json(report)
        except Invalid as refused:
            raise reports.ReportError(str(refused)) from refused

    def _is_in_use(self, report_file: Path) -> bool:
        try:
            return reports.read_report(report_file).get("error") == Fenced.__name__
        except reports.ReportError:
            return False

    def _judge(self, step: Step, report: MigrateReport, report_file: Path) -> None:
        """Say what the report says, and fail where the directory is not as it has to be."""
        where = f"{self.application_id} in {self.request['state_dir']}"
        if report.outcome is Outcome.REFUSED:
            why = reasons(report)
            more = [f"and {len(why) - _REASONS:,} more"] if len(why) > _REASONS else []
            said = "\n".join(f"  {line}" for line in [*why[:_REASONS], *more])
            error = Invalid(
                f"{where} cannot be migrated to Kafka Streams {report.to}:\n{said}",
                code="migration-impossible",
                action="Do what each line says, then clear this task; nothing was changed.",
                report=str(report_file),
            )
            raise exception_for(error.to_json(), log=self.log)
        self._log_lines(f"{where}, for Kafka Streams {report.to}: {report.outcome}", table(short(report)))
        if step is Step.VERIFY and report.outcome is not Outcome.UNCHANGED:
            damaged = Corrupted(
                f"{where} was migrated to Kafka Streams {report.to}, and something is left to be done.",
                code="migration-incomplete",
                action="See above what it is, and who has written there since; then start a new run.",
                report=str(report_file),
            )
            raise exception_for(damaged.to_json(), log=self.log)
