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

import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from statecore.airflow import examination, reports
from statecore.airflow.credentials import environment
from statecore.airflow.failures import JobRefused, exception_for
from statecore.airflow.hooks import checked_master
from statecore.airflow.migration_plans import migration_path, reasons, short, table
from statecore.airflow.migrations import SPARK
from statecore.airflow.operators import ended_without_a_word, request_id_of
from statecore.airflow.requests import spec_of_named
from statecore.airflow.settings import Settings
from statecore.airflow.worker_operator import StatecoreWorkerOperator
from statecore.errors import Corrupted, Fenced, Invalid
from statecore.jobs.migrate_report import MIGRATE_REPORT, Outcome

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

    Args:
        entry: the directory (``statecore.airflow.migrations``). To apply, it has the ``plan_id`` that was approved;
            without one the task is skipped, with what is said as ``why``. (templated)
        step: the step.
        kwargs: see :class:`statecore.airflow.operators.StatecoreSparkOperator`.

    Raises:
        AirflowSkipException: nothing is to be applied.
        JobRefused: the directory cannot be migrated, is in use, is not on this machine, or is not what was approved.
        JobUnavailable: something was not there in time, or there was no room; Airflow retries.
    """

    template_fields: Sequence[str] = (*StatecoreWorkerOperator.template_fields, "entry")
    template_fields_renderers = {"request": "json", "entry": "json"}  # noqa: RUF012

    def __init__(self, *, entry: Mapping[str, Any], step: str, **kwargs: Any) -> None:
        super().__init__(request={}, application_id="", **kwargs)
        self.entry = entry
        self.step = step

    def execute(self, context: Context) -> dict[str, Any]:
        """Do the step, read its report, return it in short."""
        step, entry = Step(self.step), self.entry
        if step is Step.APPLY and not entry["plan_id"]:
            self.log.info("%s", entry["why"])  # Airflow's own line does not say it
            raise AirflowSkipException(entry["why"])
        self.application_id, self.name = entry["application_id"], f"statecore migrate {entry['application_id']}"
        self.conf = entry.get("conf")
        self.request = dict(entry["request"])
        if step is Step.APPLY:
            self.request |= {"apply": True, "approved": entry["plan_id"]}
        settings, request_id = Settings.from_environment(), request_id_of(context)
        directory = Path(self.reports_dir) if self.reports_dir else settings.reports
        report_file = migration_path(reports.report_path(directory, self.application_id, request_id))
        with self._refusing(report_file, request_id):
            self._check_host()
            if self.request.get("spec_path"):
                self.kafka_conn_id = spec_of_named(self.request["spec_path"]).kafka_connection
            if entry["engine"] == SPARK:
                checked_master(self._conn_id)
        argument, secrets = self._prepare(settings, report_file, request_id)
        try:
            with environment(secrets):
                self._work(context, settings, report_file, argument)
        except JobRefused:
            if step is Step.VERIFY and self._is_in_use(report_file):
                self.log.warning("%s works again: what it has is not looked at once more", self.application_id)
                return {"looked": False, "map_index": context["ti"].map_index}
            raise
        report = self._report(report_file)
        self._judge(step, report, report_file)
        found = self._examined(report, secrets) if step is Step.VERIFY else {}
        return {**short(report), **found, "report": str(report_file), "map_index": context["ti"].map_index}

    def _examined(self, report: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, Any]:
        """Have ``statecore doctor`` look, where the directory is seen from here; how much it found, by severity."""
        if self.entry["engine"] == SPARK and not self._driver_is_here():
            return {}
        lines: list[str] = []
        with environment(secrets):
            code = self._wait_for(examination.MODULE, examination.arguments(self.request), lambda _: None, lines.append)
        found = examination.findings(lines)
        if found is None:
            self._log_lines(*lines)
            died = ended_without_a_word("statecore doctor", f"exit code {code}")
            raise exception_for(died.to_json(), self.retry_on, self.log)
        self._log_lines(f"statecore doctor: {len(found)} findings", *map(examination.in_words, found[:_REASONS]))
        left = {task["task"] for task in report["tasks"] if task["left"]}
        try:
            examination.check(found, left, f"{self.application_id} in {self.request['state_dir']}")
        except Corrupted as error:
            raise exception_for(error.to_json(), log=self.log) from error
        return {"findings": dict(Counter(one["severity"] for one in found))}

    def _check_host(self) -> None:
        wanted, names = self.entry.get("host"), {socket.gethostname(), socket.getfqdn()}
        if wanted and wanted not in names and wanted not in {name.partition(".")[0] for name in names}:
            raise Invalid(
                f"The directory of {self.application_id} is on {wanted}, and this task runs on {socket.gethostname()}.",
                action="Have a worker of that machine do it, by a queue of its own.",
                application_id=self.application_id,
                host=wanted,
            )

    def _work(self, context: Context, settings: Settings, report_file: Path, argument: str) -> None:
        looks = self.step != Step.APPLY
        if self.entry["engine"] == SPARK and not (looks and self._driver_is_here()):
            self._submit(context, settings, report_file, argument)
        else:
            self._run_here(context, MODULE, ["--request", argument], report_file)

    def _check_report(self, report: Mapping[str, Any]) -> None:
        try:
            MIGRATE_REPORT.check_version(report)
        except Invalid as refused:
            raise reports.ReportError(str(refused)) from refused

    def _is_in_use(self, report_file: Path) -> bool:
        try:
            return reports.read_report(report_file).get("error") == Fenced.__name__
        except reports.ReportError:
            return False

    def _judge(self, step: Step, report: Mapping[str, Any], report_file: Path) -> None:
        """Say what the report says, and fail where the directory is not as it has to be."""
        outcome, where = report["outcome"], f"{self.application_id} in {self.request['state_dir']}"
        if outcome == Outcome.REFUSED:
            why = reasons(report)
            more = [f"and {len(why) - _REASONS:,} more"] if len(why) > _REASONS else []
            said = "\n".join(f"  {line}" for line in [*why[:_REASONS], *more])
            error = Invalid(
                f"{where} cannot be migrated to Kafka Streams {report['to']}:\n{said}",
                action="Do what each line says, then clear this task; nothing was changed.",
                report=str(report_file),
            )
            raise exception_for(error.to_json(), log=self.log)
        self._log_lines(f"{where}, for Kafka Streams {report['to']}: {outcome}", table(short(report)))
        if step is Step.VERIFY and outcome != Outcome.UNCHANGED:
            damaged = Corrupted(
                f"{where} was migrated to Kafka Streams {report['to']}, and something is left to be done.",
                action="See above what it is, and who has written there since; then start a new run.",
                report=str(report_file),
            )
            raise exception_for(damaged.to_json(), log=self.log)
