"""The operator of a checkpoint: in a process on the worker where the tails are little, by Spark where they are long.

A worker's process is done with a little tail before a JVM has started. It plans in any case, and freezes the plan;
where the tails turn out to be long it leaves, and ``spark-submit`` gets the same request, takes up that plan, and
publishes what the process would have. Only ``master`` of the report tells which of them it was.

There is a checkpoint every few minutes, so little is left of each: the summary in XCom without the parts of the stores,
and the reports of a day and more (:data:`KEPT_REPORTS`). An application that nobody can look at has one besides, which
says so (``refusals.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statecore.airflow import reports
from statecore.airflow.failures import exception_for
from statecore.airflow.hooks import checked_master
from statecore.airflow.operators import ran_on, request_id_of
from statecore.airflow.settings import Settings
from statecore.airflow.ui import failing_applications as refusals
from statecore.airflow.worker_operator import StatecoreWorkerOperator
from statecore.errors import StatecoreError
from statecore.jobs.history.report_index import directory_name

if TYPE_CHECKING:
    from airflow.sdk import Context

MODULE = "statecore.spark.checkpoint_job"

SPARK_WANTED = 64
"""The exit code by which it says that the tails are long (:data:`statecore.spark.checkpoint_job.SPARK_WANTED`)."""

KEPT_REPORTS = 400
"""Reports of checkpoints of an application that stay: at one every five minutes those of 33 hours."""


class StatecoreCheckpointOperator(StatecoreWorkerOperator):
    """Makes a checkpoint of an application and returns the summary of its report.

    Args:
        refusal: what is wrong with the application, as whoever looked whether a checkpoint is due found it
            (``StatecoreError.to_json()``); the task reports it, fails with it, and does nothing else. ``None`` where
            nothing is.
        kwargs: see :class:`statecore.airflow.operators.StatecoreSparkOperator`; the request is a
            ``statecore.jobs.checkpoint.request.CheckpointRequest``.

    Raises:
        JobRefused, JobUnavailable, AirflowException: see there.
    """

    def __init__(self, *, refusal: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.refusal = refusal

    def execute(self, context: Context) -> dict[str, Any]:
        """Make the checkpoint, read its report, return the summary."""
        directory = Path(self.reports_dir) if self.reports_dir else Settings.from_environment().reports
        if self.refusal:
            refusals.record(directory, self.application_id, request_id_of(context), self.refusal)
            self._keep_index(directory, directory_name(self.application_id))
            # Another try would say the same: the next run looks again, in a minute.
            raise exception_for(self.refusal, (), self.log)
        try:
            return super().execute(context)
        finally:
            file = reports.report_path(directory, self.application_id, request_id_of(context))
            forget_old(file, f"{context['ti'].dag_id}_", KEPT_REPORTS)

    def _work(self, context: Context, settings: Settings, report_file: Path, argument: str) -> None:
        little = [] if settings.spark_from is None else ["--little", str(settings.spark_from)]
        if self._done_here(context, report_file, ["--request", argument, *little]):
            return
        self.log.info("%s: the tails are long; Spark goes on by the plan of this task", self.application_id)
        self.application_args = [*(self.application_args or []), *little, "--go-on"]
        self._submit(context, settings, report_file, argument)

    def _done_here(self, context: Context, report_file: Path, arguments: Sequence[str]) -> bool:
        """Whether the job could be done without Spark, and was."""
        code = self._run_here(context, MODULE, [*arguments, *self._master()], report_file, known=(SPARK_WANTED,))
        return code == 0

    def _master(self) -> list[str]:
        """Tells the job for which engine it plans; where nobody knows it is not asked for, as a rule."""
        try:
            return ["--master", checked_master(self._conn_id)]
        except StatecoreError:
            return []

    def _publish(self, context: Context, report: Mapping[str, Any], report_file: Path) -> dict[str, Any]:
        news = {**report, "stores": [entry for entry in report.get("stores", ()) if entry.get("records")]}
        for store, part in reports.parts_by_store(news).items():
            self._log_lines(f"{store} of {self.application_id}", reports.table(part))
        for note in report.get("notes") or ():
            self.log.warning("%s: %s", self.application_id, note)
        if report.get("master"):
            self.log.info("%s: %s", self.application_id, ran_on(report))
        said = reports.published(report) if report.get("published") else "nothing is new, and nothing was published"
        self.log.info("%s: %s; the whole report: %s", self.application_id, said, report_file)
        self._announce(context, report, {})
        return {**reports.summary(report), "report": str(report_file), "map_index": context["ti"].map_index}


def forget_old(file: Path, prefix: str, kept: int) -> None:
    """Delete the oldest reports of one Dag, as far as that goes.

    Args:
        file: one of them.
        prefix: what their names begin with.
        kept: how many stay.
    """
    with suppress(OSError):
        found = [(one.stat().st_mtime, one) for one in file.parent.glob("*.json") if one.name.startswith(prefix)]
        for _, one in sorted(found)[: max(len(found) - kept, 0)]:
            one.unlink(missing_ok=True)
