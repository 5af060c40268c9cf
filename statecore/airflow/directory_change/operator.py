"""The operator of a directory change: one step (plan, apply or verify) for one state directory.

Each step is one job in a process on the worker; ``verify`` may run a further one
(:meth:`~.change.Change.verify_further`). With the engine Spark, ``apply`` runs by ``spark-submit``; the steps that only
read need no executors, and run there only if the driver is on another machine.

Retries are safe. ``plan`` and ``verify`` change nothing. If a try of ``apply`` dies, each Kafka Streams task is in its
old or its new state, and the next try resumes from there. The approval is of the plan's id: a directory that was
changed since has another plan, and is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from statecore.airflow import reports
from statecore.airflow.credentials import environment
from statecore.airflow.directory_change.change import SPARK, Change, Step
from statecore.airflow.directory_change.migration import Migration
from statecore.airflow.directory_change.plans import table
from statecore.airflow.directory_change.recovery import Recovery
from statecore.airflow.directory_change.xcom_values import REFUSED_KEY, NotVerified, StepResult
from statecore.airflow.failures import JobRefused, JobUnavailable, exception_for
from statecore.airflow.hooks import checked_master
from statecore.airflow.operators import clear_report_path
from statecore.airflow.reports import request_id_of
from statecore.airflow.requests import spec_of_named
from statecore.airflow.settings import Settings
from statecore.airflow.worker_operator import StatecoreWorkerOperator
from statecore.errors import Corrupted, Fenced, Invalid
from statecore.jobs.fields.declaration import Request

if TYPE_CHECKING:
    from airflow.sdk import Context

CHANGES: Mapping[str, Change] = {one.name: one for one in (Migration(), Recovery())}
"""The kinds of directory changes; operators have the name only, because Airflow stores their arguments as JSON."""


class StatecoreDirectoryChangeOperator(StatecoreWorkerOperator):
    """One step of the change of one state directory; returns the short report.

    The arguments of a directory come from its entry (:class:`~.xcom_values.ApprovedEntry`): a Dag expands it over them.

    Args:
        change: ``migrate`` (the request is a ``statecore.jobs.migrate.request.MigrateRequest``) or ``recover`` (a
            ``statecore.jobs.recover_global.request.RecoverGlobalRequest``).
        step: ``plan``, ``apply`` or ``verify``.
        title: the directory's name in the grid. (templated)
        engine: ``processes`` or ``spark``. (templated)
        plan_id: the approved plan to apply; if empty, ``apply`` is skipped. (templated)
        why: why ``plan_id`` is empty. (templated)
        kwargs: see :class:`statecore.airflow.operators.StatecoreSparkOperator`.

    Raises:
        AirflowSkipException: there is nothing to apply.
        JobRefused: the directory cannot be changed, is in use, is not on this machine, or has another plan than the
            approved one.
        JobUnavailable: something was not available in time, or there was not enough space; Airflow retries.
    """

    template_fields: Sequence[str] = (
        *StatecoreWorkerOperator.template_fields,
        *("title", "engine", "plan_id", "why"),
    )

    def __init__(
        self,
        *,
        change: str,
        step: str,
        title: str,
        engine: str,
        plan_id: str = "",
        why: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.change = change
        self.step = step
        self.title = title
        self.engine = engine
        self.plan_id = plan_id
        self.why = why

    def execute(self, context: Context) -> Any:
        """Run the step and return its short report; a failure's reason is pushed as the XCom ``refused``."""
        try:
            return self._run_step(context, Step(self.step))
        except (JobRefused, JobUnavailable) as error:
            context["ti"].xcom_push(key=REFUSED_KEY, value=error.reason)
            raise

    def _run_step(self, context: Context, step: Step) -> Any:
        if step is Step.APPLY and not self.plan_id:
            self.log.info("%s", self.why)  # Airflow does not log the reason of a skip
            raise AirflowSkipException(self.why)
        settings, request_id = Settings.from_environment(), request_id_of(context)
        directory = Path(self.reports_dir) if self.reports_dir else settings.reports
        report_file = self._kind.report_path(reports.report_path(directory, self.application_id, request_id))
        with self._refusing(report_file, request_id):
            self._check_host()
            if self.request.get("spec_path"):
                spec = spec_of_named(self.request["spec_path"])
                self.kafka_conn_id = spec.kafka_connection
                if step is Step.PLAN and (plan := self._kind.nothing_planned(spec, self.request)) is not None:
                    self.log.info("%s: nothing to do: %s", self._where(), self._kind.why_nothing(plan))
                    planned: StepResult = {**plan, "report": "", "findings": None}
                    return planned
            if self.engine == SPARK:
                checked_master(self._conn_id)
        argument, secrets = self._prepare(settings, report_file, request_id)
        try:
            with environment(secrets):
                self._work(context, settings, report_file, argument)
        except JobRefused:
            if step is Step.VERIFY and self._is_in_use(report_file):
                self.log.warning("%s is running again: the directory is not verified", self.application_id)
                not_verified: NotVerified = {"verified": False}
                return not_verified
            raise
        report = self._kind.document.from_json(self._report(report_file))
        short = self._kind.short(report)
        self._log_lines(f"{self._where()}: {short['outcome']}", table(short))
        if problem := self._kind.problem(step, report, self._where(), report_file):
            raise exception_for(problem.to_json(), log=self.log)
        findings = None
        if step is Step.VERIFY and self._has_directory():
            run = partial(self._run_and_read, context)
            try:
                with environment(secrets):
                    findings = self._kind.verify_further(
                        report, self.request, self._where(), report_file, run, self._log_lines
                    )
            except Corrupted as error:
                raise exception_for(error.to_json(), log=self.log) from error
        result: StepResult = {**short, "report": str(report_file), "findings": findings}
        return result

    @property
    def _kind(self) -> Change:
        return CHANGES[self.change]

    def _where(self) -> str:
        return f"{self.application_id} in {self.request['state_dir']}"

    def _job_request(self) -> Mapping[str, Any]:
        approved = {"apply": True, "approved": self.plan_id} if self.step == Step.APPLY else {}
        return {**self.request, **approved}

    def _has_directory(self) -> bool:
        return self.engine != SPARK or self._driver_is_here()

    def _run_and_read(
        self, context: Context, verb: str, request: Request, report_file: Path, who: str
    ) -> Mapping[str, Any]:
        """Run a further job on the worker; returns its report."""
        with self._refusing(report_file, request_id_of(context)):
            clear_report_path(report_file)
        self._run_on_worker(context, verb, ["--request", json.dumps(request.to_json())], report_file, who=who)
        return reports.read_report(report_file)

    def _work(self, context: Context, settings: Settings, report_file: Path, argument: str) -> None:
        reads_only = self.step != Step.APPLY
        if self.engine == SPARK and not (reads_only and self._driver_is_here()):
            self._submit(context, settings, report_file, argument)
        else:
            self._run_on_worker(context, self._kind.command, ["--request", argument], report_file)

    def _check_report(self, report: Mapping[str, Any]) -> None:
        try:
            self._kind.document.from_json(report)
        except Invalid as refused:
            raise reports.ReportError(str(refused)) from refused

    def _is_in_use(self, report_file: Path) -> bool:
        try:
            return reports.read_report(report_file).get("error") == Fenced.__name__
        except reports.ReportError:
            return False
