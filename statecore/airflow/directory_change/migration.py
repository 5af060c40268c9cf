"""Migrations: the directory changes of ``migrate_checkpoints``, and ``statecore doctor`` as an independent check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from airflow.sdk import Param

from statecore.airflow.directory_change.change import PROCESSES, SPARK, Change, LogLines, RunJob, Step
from statecore.airflow.directory_change.plans import bounded, cell, named_tasks, row_of
from statecore.airflow.directory_change.xcom_values import ShortMigrationPlan
from statecore.airflow.form import spark_params
from statecore.errors import Corrupted, Invalid, StatecoreError
from statecore.jobs.diagnose.request import DiagnoseRequest
from statecore.jobs.migrate import summary
from statecore.jobs.migrate.report import MIGRATE_REPORT, MigrateReport, MigrationOutcome
from statecore.jobs.migrate.request import MigrateRequest
from statecore.jobs.migrate.summary import CombinedChange
from statecore.words import format_bytes

_REASONS = 50
"""Number of reasons in the message of a failed task; the report has all of them."""

_LOGGED = 50
"""Number of findings of ``statecore doctor`` in the log; its report has all of them."""

_BAD = ("error", "loss")
_SHOWN = 20


class Migration(Change):
    """Conversion of a state directory for another release of Kafka Streams, by processes or by Spark."""

    name, done, dag_id, command = "migrate", "migrated", "migrate_checkpoints", "migrate"
    request, document, folder = MigrateRequest, MIGRATE_REPORT, "migrations"
    subject = "Migrate {directories} to Kafka Streams {to}?"
    introduction = "these state directories are migrated to Kafka Streams **{to}**."
    nothing = "Kafka Streams {to} can open every store as it is"
    headings = ("from", "tasks that change")

    def params(self, state_dir: str | None) -> dict[str, Param]:
        """See :class:`Change`; also the engine and the settings of Spark."""
        engine = Param(
            PROCESSES,
            type="string",
            enum=[PROCESSES, SPARK],
            title="Engine",
            description="What converts the tasks: processes on the worker, or Spark's executors, which need access to "
            "the directories.",
            section="Spark",
        )
        return {**super().params(state_dir), "engine": engine, **spark_params()}

    def short(self, report: MigrateReport) -> ShortMigrationPlan:
        return {
            "application_id": report.application_id,
            "state_dir": report.state_dir,
            "host": report.host,
            "to": report.to,
            "outcome": str(report.outcome),
            "plan_id": report.plan_id,
            "kept": report.kept,
            "seen": sorted({task.seen for task in report.tasks}),
            "tasks": len(report.tasks),
            "changed": report.changed,
            "rewritten_bytes": sum(store.rewritten_bytes for task in report.tasks for store in task.stores),
            "done": bounded([one for one in summary.done(report) if one.what]),
            "left": bounded(summary.left(report)),
            "notes": bounded([*(CombinedChange(("all",), note) for note in report.notes), *summary.notes(report)]),
        }

    def cells(self, plan: ShortMigrationPlan) -> Sequence[str]:
        rewritten = f"; {format_bytes(plan['rewritten_bytes'])} are rewritten" if plan["rewritten_bytes"] else ""
        return cell(", ".join(plan["seen"])), f"{plan['changed']:,} of {plan['tasks']:,}{rewritten}"

    def problem(self, step: Step, report: MigrateReport, where: str, report_file: Path) -> StatecoreError | None:
        if report.outcome is MigrationOutcome.REFUSED:
            why = reasons(report)
            more = [f"and {len(why) - _REASONS:,} more"] if len(why) > _REASONS else []
            lines = "\n".join(f"  {line}" for line in [*why[:_REASONS], *more])
            return Invalid(
                f"{where} cannot be migrated to Kafka Streams {report.to}:\n{lines}",
                code="migration-impossible",
                action="Do what each line says, then clear this task; nothing was changed.",
                report=str(report_file),
            )
        if step is Step.VERIFY and report.outcome is not MigrationOutcome.UNCHANGED:
            return Corrupted(
                f"{where} was migrated to Kafka Streams {report.to}, but something is left to do.",
                code="migration-incomplete",
                action="See above what is left, and find out what has written to the directory since; then start a new "
                "run.",
                report=str(report_file),
            )
        return None

    def verify_further(
        self,
        report: MigrateReport,
        request: Mapping[str, Any],
        where: str,
        report_file: Path,
        run: RunJob,
        log: LogLines,
    ) -> dict[str, int]:
        """Run ``statecore doctor``."""
        asked, doctor_report = doctor_request(request), doctor_report_path(report_file)
        found = findings_of(run("diagnose", asked, doctor_report, "statecore doctor"))
        log(f"statecore doctor: {len(found)} findings", *map(finding_in_words, found[:_LOGGED]))
        check_findings(found, {task.task for task in report.tasks if task.left}, where)
        return dict(Counter(one["severity"] for one in found))


def reasons(report: MigrateReport) -> list[str]:
    """The reasons why a directory is refused, each with its tasks."""
    return [f"{named_tasks(row)}: {row['what']}" for row in map(row_of, summary.refused(report))]


class Found(TypedDict):
    """The fields of a finding (:mod:`statecore.doctor.findings`) that are used here."""

    code: str
    severity: str
    task: str | None
    store: str | None
    what: str


def doctor_request(migration: Mapping[str, Any]) -> DiagnoseRequest:
    """The doctor's request for the directory of a migration's request (as JSON), without brokers."""
    same = ("application_id", "state_dir", "tasks", "spec_path", "processing_guarantee")
    fields = {name: migration[name] for name in same if name in migration}
    return DiagnoseRequest.from_json({**fields, "release": migration["to"], "offline": True})


def doctor_report_path(migration: Path) -> Path:
    """Path of the doctor's report for the path of a migration's report."""
    return migration.with_suffix(".doctor.json")


def findings_of(report: Mapping[str, Any]) -> list[Found]:
    """The findings of a doctor's report."""
    return [finding for one in report["applications"] for finding in one["findings"]]


def finding_in_words(finding: Found) -> str:
    where = " of ".join(name for name in (finding["store"], finding["task"]) if name)
    return f"{finding['severity']} {finding['code']}{f' ({where})' if where else ''}: {finding['what']}"


def check_findings(found: Sequence[Found], left: Collection[str], where: str) -> None:
    """Refuse findings of severity error or loss, unless in a task that the approved plan left unchanged."""
    bad = [one for one in found if one["severity"] in _BAD and one["task"] not in left]
    if bad:
        lines = "\n".join(f"  {finding_in_words(one)}" for one in bad[:_SHOWN])
        more = f"\n  and {len(bad) - _SHOWN:,} more" if len(bad) > _SHOWN else ""
        raise Corrupted(
            f"{where} was migrated, but statecore doctor has {len(bad)} findings of severity error or loss:\n"
            f"{lines}{more}",
            code="migrated-state-unsound",
            action="See docs/findings for each of them before you start the application.",
            problems=[{name: one[name] for name in ("code", "what", "task", "store")} for one in bad],
        )
