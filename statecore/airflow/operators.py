"""The operator: one Spark job of statecore as one Airflow task.

Thin over ``SparkSubmitOperator``: it runs ``<application> --report <file> --request '<one JSON document>'``, shows
the job's progress while it runs, reads the report and returns it, and turns the job's error into a retry or a stop.
Everything the job does, it does the same without Airflow.

**Retries** are safe: the request id is made of the Dag, the run, the task and the map index, so every try (and a
cleared task) sends the same id, and the job goes on with the plan it froze at the first one. A new run makes a new
plan. **Concurrent runs** (a backfill ignores ``max_active_runs``) are kept apart by the lock that the job takes in
the state directory: the second one is refused.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException

from statecore.airflow import reports
from statecore.airflow.failures import RETRIED_KINDS, JobRefused, exception_for, refused
from statecore.airflow.hooks import ProgressHook, checked_master
from statecore.airflow.settings import Settings
from statecore.errors import Invalid, StatecoreError
from statecore.spark.jvm import quick_start_options
from statecore.spark.masters import is_local
from statecore.spark.session import log_configuration
from statecore.spec.spark_settings import ELSEWHERE

if TYPE_CHECKING:
    from airflow.sdk import Context

PROGRESS_KEY = "progress"
"""Key in the task state store under which the latest progress lies (task page, tab *Storage*; REST)."""

PART_KEY = "store_{store}"
"""XCom key of a store's part of the report."""

PROGRESS_INTERVAL = 1.0
"""Seconds between two writes of progress: each is a request to the API server."""

ARGUMENT_LIMIT = 120 * 1024
"""Bytes that Linux takes as one argument (MAX_ARG_STRLEN is 128 KiB)."""


class StatecoreSparkOperator(SparkSubmitOperator):
    """Runs a Spark job of statecore and returns its report.

    Returns (XCom ``return_value``) the report's summary: application, plan, totals, phases, names of the stores.
    Each store's own part is a XCom of its own, key ``store_<name>``, so that no single value grows with the
    application.

    Args:
        request: the job's request without ``request_id``: ``spec_path`` or ``spec``, ``stores``, ``partitions``,
            ``state_dir``, ``replace``, … (templated)
        application_id: the application it concerns; names the report and, with
            ``map_index_template="{{ task.application_id }}"``, the mapped task. (templated)
        retry_on: kinds of error worth another try; add ``"Fenced"`` where whoever holds the state directory will
            let go of it by itself.
        reports_dir: where the reports lie; default from ``STATECORE_REPORTS``.
        kwargs: everything ``SparkSubmitOperator`` takes: ``application`` (the job's file), ``conn_id``, ``conf``
            (wins over the site's, see ``statecore.airflow.settings``), ``name`` (default: the application's id),
            ``env_vars`` (the only place for secrets, as templates over connections), ``driver_memory``, …

    Raises:
        JobRefused: the job refused, or the Spark connection is not usable; no retry.
        JobUnavailable: something was not there in time, or there was no room; Airflow retries.
        AirflowException: the driver died without a word; Airflow retries.
    """

    application_args: list[Any] | None
    conf: dict[Any, Any] | None
    env_vars: dict[str, Any] | None

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "request", "application_id")
    template_fields_renderers = {"request": "json"}  # noqa: RUF012
    ui_color = "#dbeafe"

    def __init__(
        self,
        *,
        request: Mapping[str, Any],
        application_id: str,
        retry_on: Collection[str] = RETRIED_KINDS,
        reports_dir: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"name": f"statecore {application_id}", **kwargs})
        self.request = request
        self.application_id = application_id
        self.retry_on = tuple(retry_on)
        self.reports_dir = reports_dir

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the job, read its report, push the stores' parts, return the summary."""
        settings = Settings.from_environment()
        directory = Path(self.reports_dir) if self.reports_dir else settings.reports
        request_id = request_id_of(context)
        report_file = reports.report_path(directory, self.application_id, request_id)
        try:
            master = checked_master(self._conn_id)
            argument = request_argument(self.request, request_id)
            make_room_for(report_file)
        except StatecoreError as error:
            raise refused(error) from error
        # The report first: the provider masks whatever follows an argument with the word "password" in it.
        self.application_args = ["--report", str(report_file), "--request", argument, *(self.application_args or [])]
        if not is_local(master):
            # The job compares: to run elsewhere than on the cluster that is meant must not end green.
            self.application_args += ["--master", master]
        self._settle(master, settings.spark.to_conf())
        self._hook = self._get_hook()
        self._hook.on_progress = ProgressRecorder(context, self.log)
        self._run(context, report_file)
        return self._publish(context, report_file)

    def _run(self, context: Context, report_file: Path) -> None:
        try:
            super().execute(context)
        except AirflowException as failure:
            # spark-submit knows an exit code; the job itself knows why.
            try:
                report = reports.read_report(report_file)
            except reports.ReportError:
                raise failure from None
            if "error" in report:
                raise exception_for(report, self.retry_on) from None
            raise

    def _publish(self, context: Context, report_file: Path) -> dict[str, Any]:
        try:
            report = reports.read_report(report_file)
        except reports.ReportError as cause:
            raise JobRefused(
                f"{cause} The job itself succeeded.\nWhat to do: point STATECORE_REPORTS to a directory that the "
                "driver and this worker share, or run the driver here (deploy-mode client)."
            ) from cause
        if "error" in report:
            raise exception_for(report, self.retry_on)
        parts = reports.parts_by_store(report)
        for store, part in parts.items():
            context["ti"].xcom_push(key=PART_KEY.format(store=store), value=part)
        for note in report.get("notes") or ():
            self.log.warning("%s: %s", self.application_id, note)
        if report.get("placed", True):
            self.log.info("%s: restored %s; the whole report: %s", self.application_id, ", ".join(parts), report_file)
            if report.get("master"):
                self.log.info("%s: %s", self.application_id, ran_on(report))
        else:
            self.log.warning(
                "%s: nothing was done, %s stand as an earlier try of this very run placed them (the application may "
                "have used them since). Start a new run, with replace, to build them anew.",
                self.application_id,
                ", ".join(parts),
            )
        return {**reports.summary(report), "report": str(report_file), "map_index": context["ti"].map_index}

    def _settle(self, master: str, site: Mapping[str, str]) -> None:
        """Complete ``conf`` and ``env_vars``; what the caller set stays."""
        conf = {**site, **(self.conf or {})}
        conf.setdefault("spark.ui.showConsoleProgress", "false")
        env_vars = {name: str(value) for name, value in (self.env_vars or {}).items()}
        local = is_local(master)
        if local:
            conf = {name: value for name, value in conf.items() if name not in ELSEWHERE}
            # Nothing outside this machine takes part, so nothing listens on its other addresses.
            conf.setdefault("spark.ui.enabled", "false")
            conf.setdefault("spark.driver.host", "127.0.0.1")
            conf.setdefault("spark.driver.bindAddress", "127.0.0.1")
            # The job needs what is installed beside this interpreter, and its own spark-submit before any other.
            env_vars.setdefault("PYSPARK_PYTHON", sys.executable)
            own = str(Path(sys.executable).parent)
            env_vars.setdefault("PATH", os.pathsep.join([own, os.environ.get("PATH", os.defpath)]))
        if local or master.startswith("spark://"):
            # Only here these are the environment of the driver's own process. On YARN and Kubernetes the provider
            # makes --conf of them, for a driver on another machine.
            env_vars.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
            quiet = f"-Dlog4j2.configurationFile={log_configuration().as_uri()}"
            env_vars.setdefault("SPARK_SUBMIT_OPTS", " ".join([*quick_start_options(), quiet]))
        if "spark.pyspark.python" in conf and self._driver_is_here():
            # Spark would run the driver with the executors' interpreter, too.
            conf.setdefault("spark.pyspark.driver.python", sys.executable)
        self.conf = conf
        self.env_vars = env_vars

    def _driver_is_here(self) -> bool:
        """Whether spark-submit runs the driver in this very task, and not on the cluster."""
        mode = self._deploy_mode or BaseHook.get_connection(self._conn_id).extra_dejson.get("deploy-mode")
        return mode != "cluster"

    def _get_hook(self) -> ProgressHook:
        hook = super()._get_hook()
        # The parent builds its hook from thirty of its own fields. Repeating that list here would lose every field
        # a later version adds; the subclass adds behaviour and no state, so the built one is made to be one of them.
        hook.__class__ = ProgressHook
        return hook


class ProgressRecorder:
    """Writes a job's progress to the task state store and, where a step begins or ends, to the task's log.

    The store survives retries, so the page of a task that was retried shows the progress of the latest try. Progress
    is a courtesy: when it cannot be written, the job goes on, and the log says so once.

    Args:
        context: the task's context.
        log: the task's log.
        clock: seconds that never go back.
    """

    def __init__(self, context: Context, log: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = context.get("task_state_store")
        self._log = log
        self._clock = clock
        self._next = float("-inf")

    def __call__(self, progress: dict[str, Any]) -> None:
        """Record one progress line; an ``advance`` that comes too soon after the last one is passed over."""
        if progress.get("event") == "advance":
            if self._clock() < self._next:
                return
        else:
            self._log.info(sentence(progress))
        self._next = self._clock() + PROGRESS_INTERVAL
        if self._store is None:
            return
        try:
            self._store.set(PROGRESS_KEY, progress)
        except Exception as cause:
            self._store = None
            self._log.warning("Progress cannot be recorded, the job goes on: %s", cause)


def sentence(progress: Mapping[str, Any]) -> str:
    """A progress line for a reader: ``read: 1,200 of 4,800 records after 3.1 s (message)``."""
    count, total = progress.get("count") or 0, progress.get("total")
    amount = f"{count:,}" if total is None else f"{count:,} of {total:,}"
    words = [f"{progress.get('phase', 'progress')}:", amount]
    if unit := progress.get("unit"):
        words.append(str(unit))
    words.append(f"after {progress.get('seconds') or 0:.1f} s")
    if message := progress.get("message"):
        words.append(f"({message})")
    return " ".join(words)


def ran_on(report: Mapping[str, Any]) -> str:
    """Where a job ran, for a reader: ``ran on spark://m:7077 with 2 executors on a, b``."""
    hosts = ", ".join(report.get("hosts") or ())
    return f"ran on {report['master']} with {report.get('executors')} executors on {hosts}"


def request_id_of(context: Context) -> str:
    """``dag/run/task/map index``: the same for every try of a task, another for every run."""
    ti = context["ti"]
    return f"{ti.dag_id}/{ti.run_id}/{ti.task_id}/{ti.map_index}"


def request_argument(request: Mapping[str, Any], request_id: str) -> str:
    """The request as the one JSON string that the job takes. Raises ``Invalid`` when it does not fit an argument."""
    argument = json.dumps({**request, "request_id": request_id}, separators=(",", ":"))
    if len(argument.encode()) > ARGUMENT_LIMIT:
        raise Invalid(
            f"The request takes {len(argument.encode()):,} bytes; one argument holds {ARGUMENT_LIMIT:,}.",
            action="Put the spec in a file that the driver can read and pass its path.",
            request_id=request_id,
        )
    return argument


def make_room_for(report_file: Path) -> None:
    """Make the report's directory and remove the report of an earlier try. Raises ``Invalid`` when that is denied."""
    try:
        report_file.parent.mkdir(parents=True, exist_ok=True)
        report_file.unlink(missing_ok=True)
    except OSError as cause:
        raise Invalid(
            f"The report cannot be written to {report_file.parent}: {cause}.",
            action="Point STATECORE_REPORTS to a directory that Airflow's user can write.",
            report=str(report_file),
        ) from cause
