"""The operator of a checkpoint: short tails are read by a process on the worker, long tails by Spark.

The worker's process reads a short tail in less time than a JVM takes to start. It always plans and freezes the plan; if
the tails are long it exits with :data:`SPARK_NEEDED`, and ``spark-submit`` gets the same request, resumes that plan and
publishes the same snapshot. Only ``master`` of the report tells which of the two ran.

Checkpoints are frequent, so little is kept of each: the summary in XCom without the reports of the stores, and the last
:data:`KEPT_REPORTS` report files. The failure report of an application that could not be checked is that of the task
``decide`` (``ui/failing_applications.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statecore.airflow import reports
from statecore.airflow.failures import exception_for
from statecore.airflow.hooks import checked_master
from statecore.airflow.operators import ran_on
from statecore.airflow.reports import request_id_of
from statecore.airflow.settings import Settings
from statecore.airflow.worker_operator import StatecoreWorkerOperator
from statecore.errors import StatecoreError

if TYPE_CHECKING:
    from airflow.sdk import Context

SPARK_NEEDED = 64
"""Exit code for long tails (:data:`statecore.jobs.program.SPARK_NEEDED`)."""

KEPT_REPORTS = 400
"""Reports of checkpoints that are kept for an application: 33 hours of them at one every five minutes."""


class StatecoreCheckpointOperator(StatecoreWorkerOperator):
    """Makes a checkpoint of an application and returns the summary of its report.

    Args:
        refusal: the error with which the task fails at once, because the application could not be checked for a due
            checkpoint (``StatecoreError.to_json()``); ``None`` for none.
        kwargs: see :class:`statecore.airflow.operators.StatecoreSparkOperator`; the request is a
            ``statecore.jobs.checkpoint.request.CheckpointRequest``.

    Raises:
        JobRefused, JobUnavailable, AirflowException: as :class:`~statecore.airflow.operators.StatecoreSparkOperator`.
    """

    def __init__(self, *, refusal: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.refusal = refusal

    def execute(self, context: Context) -> dict[str, Any]:
        """Make the checkpoint and return the summary of its report."""
        if self.refusal:
            # No retry: the next run checks the application again, in a minute. decide has reported the error.
            raise exception_for(self.refusal, self.log, retried=False)
        directory = Path(self.reports_dir) if self.reports_dir else Settings.from_environment().reports
        try:
            return super().execute(context)
        finally:
            file = reports.report_path(directory, self.application_id, request_id_of(context))
            delete_old_reports(file, f"{context['ti'].dag_id}_", KEPT_REPORTS)

    def _work(self, context: Context, settings: Settings, report_file: Path, argument: str) -> None:
        threshold = [] if settings.spark_from is None else ["--small-tail", str(settings.spark_from)]
        if self._ran_on_worker(context, report_file, ["--request", argument, *threshold]):
            return
        self.log.info("%s: the tails are long; Spark resumes the plan of this task", self.application_id)
        self.application_args = [*(self.application_args or []), *threshold, "--continues-own-plan"]
        self._submit(context, settings, report_file, argument)

    def _ran_on_worker(self, context: Context, report_file: Path, arguments: Sequence[str]) -> bool:
        """Whether the worker's process made the checkpoint, without Spark."""
        code = self._run_on_worker(
            context, "checkpoint", [*arguments, *self._master()], report_file, known=(SPARK_NEEDED,)
        )
        return code == 0

    def _master(self) -> list[str]:
        """The option that names the Spark master; none where the connection is not usable."""
        try:
            return ["--master", checked_master(self._conn_id)]
        except StatecoreError:
            return []

    def _publish(self, context: Context, report: Mapping[str, Any], report_file: Path) -> dict[str, Any]:
        changed = {**report, "stores": [entry for entry in report.get("stores", ()) if entry.get("records")]}
        for store, part in reports.reports_by_store(changed).items():
            self._log_lines(f"{store} of {self.application_id}", reports.table(part))
        self._log_notes(report)
        if report.get("master"):
            self.log.info("%s: %s", self.application_id, ran_on(report))
        outcome = reports.published(report) if report.get("published") else "no new records, nothing was published"
        self.log.info("%s: %s; full report: %s", self.application_id, outcome, report_file)
        self._add_events(context, report, {})
        return {**reports.summary(report), "report": str(report_file), "map_index": context["ti"].map_index}


def delete_old_reports(file: Path, prefix: str, keep: int) -> None:
    """Delete the oldest reports of a Dag; errors of the file system are ignored."""
    with suppress(OSError):
        found = [(one.stat().st_mtime, one) for one in file.parent.glob("*.json") if one.name.startswith(prefix)]
        for _, one in sorted(found)[: max(len(found) - keep, 0)]:
            one.unlink(missing_ok=True)
