"""The operator that runs one Spark job of statecore as one Airflow task.

It is a ``SparkSubmitOperator`` that runs ``<application> --report <file> --request '<one JSON document>'``, shows the
job's progress, reads and returns the report, and maps the job's error to a retry or a failure. The job does the same
without Airflow.

**Retries** are safe: the request id consists of Dag, run, task and map index, so every try (and a cleared task) sends
the same id, and the job resumes the plan that it froze in the first try. A new run makes a new plan. The events of the
stores' assets and of a published snapshot are sent with the task's success, once for each placement and snapshot
(``assets.py``).
**Concurrent runs** (a backfill ignores ``max_active_runs``) are serialised by the lock that the job takes in the state
directory, or by the head of the repository: the second one is refused.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException

from statecore.airflow import reports
from statecore.airflow.assets import SNAPSHOTS, STORES, add_snapshot_event, add_store_events
from statecore.airflow.credentials import aws_environment, environment, kafka_environment
from statecore.airflow.failures import exception_for, log_error, refused
from statecore.airflow.hooks import ProgressHook, checked_master
from statecore.airflow.job_progress import STARTING, ProgressRecorder
from statecore.airflow.reports import request_id_of
from statecore.airflow.requests import check_paths
from statecore.airflow.settings import Settings
from statecore.errors import Invalid, Retryable, StatecoreError
from statecore.jobs.attempt import Attempt
from statecore.jobs.history.report_index import ReportIndex
from statecore.spark.jvm import quick_start_options
from statecore.spark.masters import is_local
from statecore.spark.session import log_configuration
from statecore.spec.spark_settings import REMOTE_PYTHON_PROPERTIES
from statecore.system_errors import system_error
from statecore.words import WARNING, number_of

if TYPE_CHECKING:
    from airflow.sdk import Context

STORE_KEY = "store_{store}"
"""XCom key of a store's report."""

PLAN_KEY = "plan"
"""XCom key of the plan of a ``plan_only`` run."""

ARGUMENT_LIMIT = 120 * 1024
"""Maximum size of one argument in bytes; Linux's MAX_ARG_STRLEN is 128 KiB."""


class StatecoreSparkOperator(SparkSubmitOperator):
    """Runs a Spark job of statecore and returns its report.

    XCom ``return_value`` is the report's summary: application, plan, totals, phases, names of the stores. Each store's
    report is an XCom of its own, key ``store_<name>``, so that no value grows with the application. A request with
    ``plan_only`` leaves the plan as the XCom ``plan`` instead, and sends no events. A task that is killed ends
    ``spark-submit`` (the provider's ``on_kill``), and with it a driver in client mode.

    Args:
        request: the job's request as JSON (``statecore.jobs.restore.request.RestoreRequest``) without ``request_id``.
            (templated)
        application_id: the application; names the report and, with
            ``map_index_template="{{ task.application_id }}"``, the mapped task. (templated)
        kafka_conn_id: the connection with the application's Kafka credentials that its spec names; ``None`` for
            ``kafka_<application id>`` or the site's (``credentials.py``). (templated)
        host: the machine that has the state directory; a task that runs elsewhere is refused. ``None`` for any.
            (templated)
        reports_dir: directory of the reports; default from ``STATECORE_REPORTS``.
        kwargs: everything ``SparkSubmitOperator`` takes: ``application`` (the job's file), ``conn_id``, ``conf``
            (overrides the site's, see ``statecore.airflow.settings``), ``name`` (default: the application's id),
            ``env_vars`` (the only place for secrets, as templates over connections), ``driver_memory``, … With
            ``STORES`` among ``outlets`` (and ``inlets``, to look up events that were sent) the stores' events are sent,
            with ``SNAPSHOTS`` those of snapshots.

    Raises:
        JobRefused: the job refused, or the Spark connection is not usable; no retry.
        JobUnavailable: something was not available in time, or there was not enough space; Airflow retries.
        AirflowException: the driver died without a report; Airflow retries.
    """

    application_args: list[Any] | None
    conf: dict[Any, Any] | None
    env_vars: dict[str, Any] | None

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "request",
        "application_id",
        "kafka_conn_id",
        "host",
    )
    template_fields_renderers = {"request": "json"}  # noqa: RUF012
    ui_color = "#dbeafe"

    def __init__(
        self,
        *,
        request: Mapping[str, Any],
        application_id: str,
        kafka_conn_id: str | None = None,
        host: str | None = None,
        reports_dir: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"name": f"statecore {application_id}", **kwargs})
        self.request = request
        self.application_id = application_id
        self.kafka_conn_id = kafka_conn_id
        self.host = host
        self.reports_dir = reports_dir
        for name, alias in (("STORES", STORES), ("SNAPSHOTS", SNAPSHOTS)):
            if alias in self.outlets and alias not in self.inlets:
                raise ValueError(
                    f"With {name} as outlet the task needs it as inlet too, to look up events it has sent."
                )

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the job, push the stores' reports, and return the summary."""
        settings = Settings.from_environment()
        directory = Path(self.reports_dir) if self.reports_dir else settings.reports
        request_id = request_id_of(context)
        report_file = reports.report_path(directory, self.application_id, request_id)
        if self.plan_only:
            report_file = reports.plan_path(report_file)
        try:
            argument, secrets = self._prepare(settings, report_file, request_id)
            with environment(secrets):
                self._work(context, settings, report_file, argument)
            report = self._report(report_file)
            with suppress(OSError):
                reports.earlier_path(report_file).unlink(missing_ok=True)
            return self._show_plan(context, report) if self.plan_only else self._publish(context, report, report_file)
        finally:
            if not self.plan_only:
                self._update_index(directory, report_file.parent.name)

    def _update_index(self, directory: Path, name: str) -> None:
        """Update the index of the reports for the UI page; a failure does not fail the task."""
        try:
            ReportIndex(directory).application(name)
        except Exception as cause:
            self.log.warning("The index of the reports in %s cannot be updated: %s", directory, cause)

    def _prepare(self, settings: Settings, report_file: Path, request_id: str) -> tuple[str, dict[str, str]]:
        """Check what can be checked before the job starts; returns the job's request and its secrets."""
        with self._refusing(report_file, request_id):
            self._check_host()
            if not self.runs_without_spark:
                checked_master(self._conn_id)
            check_paths(self.request)
            argument = request_argument(self._job_request(), request_id)
            secrets = kafka_environment(self.application_id, self.kafka_conn_id, settings.kafka_conn_id)
            if urlsplit(str(self.request.get("repository") or "")).scheme == "s3":
                secrets |= aws_environment(settings.aws_conn_id, self.application_id)
            clear_report_path(report_file)
        return argument, secrets

    def _check_host(self) -> None:
        names = {socket.gethostname(), socket.getfqdn()}
        if self.host and self.host not in names and self.host not in {name.partition(".")[0] for name in names}:
            raise Invalid(
                f"The directory of {self.application_id} is on {self.host}, and this task runs on "
                f"{socket.gethostname()}.",
                code="host-mismatch",
                action="Run the task on a worker of that machine, with a queue for that machine.",
                application_id=self.application_id,
                host=self.host,
            )

    def _job_request(self) -> Mapping[str, Any]:
        """The request as the job gets it, without its id."""
        return self.request

    runs_without_spark: ClassVar[bool] = False
    """Whether the Spark connection is checked only when Spark is used."""

    @contextmanager
    def _refusing(self, report_file: Path, request_id: str) -> Iterator[None]:
        """Report an error of the checks inside, and fail without a retry."""
        try:
            yield
        except StatecoreError as error:
            self._record_failure(report_file, request_id, error)
            raise refused(error, self.log) from error

    def _work(self, context: Context, settings: Settings, report_file: Path, argument: str) -> None:
        self._submit(context, settings, report_file, argument)

    def _submit(self, context: Context, settings: Settings, report_file: Path, argument: str) -> None:
        """Run the job with ``spark-submit`` to its end."""
        request_id = request_id_of(context)
        with self._refusing(report_file, request_id):
            master = checked_master(self._conn_id)
        # The report first, because the provider masks everything after an argument that contains "password".
        self.application_args = ["--report", str(report_file), "--request", argument, *(self.application_args or [])]
        if not is_local(master):
            # The job refuses to run on another master than this one.
            self.application_args += ["--master", master]
        self._set_defaults(master, settings.spark.to_conf())
        self._hook = self._get_hook()
        recorder = ProgressRecorder(context, self.log)
        recorder(STARTING)
        self._hook.on_progress = recorder
        self._run(context, report_file, request_id)

    @property
    def plan_only(self) -> bool:
        """Whether the job only plans: nothing is restored, and no event is sent."""
        return bool(self.request.get("plan_only"))

    def _run(self, context: Context, report_file: Path, request_id: str) -> None:
        try:
            super().execute(context)
        except AirflowException as failure:
            # The provider's exception has an exit code only; the job's report says why.
            self._raise_reported(report_file)
            died = ended_without_report("The driver", _exit_of(failure))
            self._record_failure(report_file, request_id, died)
            log_error(died.to_json(), self.log)
            raise failure from None

    def _raise_reported(self, report_file: Path) -> None:
        """Raise the error that the job has reported, if any."""
        try:
            report = reports.read_report(report_file)
        except reports.ReportError:
            return
        if "error" in report:
            raise exception_for(report, log=self.log) from None

    def _record_failure(self, report_file: Path, request_id: str, error: StatecoreError) -> None:
        attempt = Attempt.begin(self.application_id, str(self.request.get("state_dir") or ""), request_id)
        reports.record_failure(report_file, attempt, error.to_json())

    def _report(self, report_file: Path) -> dict[str, Any]:
        try:
            report = reports.read_report(report_file)
        except reports.ReportError as cause:
            error = Invalid(
                f"{cause} The job itself succeeded.",
                code="job-report-not-shared",
                action="Set STATECORE_REPORTS to a directory that the driver and this worker share, or run the driver "
                "on the worker (deploy-mode client).",
                report=str(report_file),
            )
            raise refused(error, self.log) from cause
        if "error" in report:
            raise exception_for(report, log=self.log)
        try:
            self._check_report(report)
        except reports.ReportError as cause:
            error = Invalid(
                f"{cause} The job itself succeeded.",
                code="job-report-unsupported",
                action="Use the same release of statecore for the jobs and for Airflow.",
                report=str(report_file),
            )
            raise refused(error, self.log) from cause
        return report

    def _check_report(self, report: Mapping[str, Any]) -> None:
        """Check that this release can read the report. Raises ``ReportError``."""
        reports.check_report(report)

    def _log_notes(self, report: Mapping[str, Any]) -> None:
        """Log the notes of a report: as warnings those that ask for something to be done."""
        for note in report.get("notes") or ():
            (self.log.warning if note.startswith(WARNING) else self.log.info)("%s: %s", self.application_id, note)

    def _publish(self, context: Context, report: Mapping[str, Any], report_file: Path) -> dict[str, Any]:
        by_store = reports.reports_by_store(report)
        for store, of_store in by_store.items():
            context["ti"].xcom_push(key=STORE_KEY.format(store=store), value=of_store)
            self._log_lines(f"{store} of {self.application_id}", reports.table(of_store))
        self._log_notes(report)
        if not by_store:
            self.log.info("%s: nothing to do; full report: %s", self.application_id, report_file)
        elif report.get("placed", True):
            done = "restored" if report.get("state_dir") else "read"
            self.log.info("%s: %s %s; full report: %s", self.application_id, done, ", ".join(by_store), report_file)
            if report.get("master"):
                self.log.info("%s: %s", self.application_id, ran_on(report))
        else:
            self.log.warning(
                "%s: nothing was changed: an earlier try of this run has placed %s (the application may have used them "
                "since). To rebuild them, start a new run with replace.",
                self.application_id,
                ", ".join(by_store),
            )
        if report.get("published"):
            self.log.info("%s: %s", self.application_id, reports.published(report))
        self._add_events(context, report, by_store)
        return {**reports.summary(report), "report": str(report_file), "map_index": context["ti"].map_index}

    def _add_events(
        self, context: Context, report: Mapping[str, Any], by_store: Mapping[str, Mapping[str, Any]]
    ) -> None:
        if STORES in self.outlets and report.get("state_dir"):
            added = add_store_events(context, report, by_store)
            names = ", ".join(added) or "no stores, an earlier try has sent them"
            if by_store:
                self.log.info("%s: asset events of %s", self.application_id, names)
        if SNAPSHOTS in self.outlets and report.get("published"):
            new = add_snapshot_event(context, report)
            event = "asset event of the snapshot" if new else "no asset event of the snapshot, an earlier try sent it"
            self.log.info("%s: %s", self.application_id, event)

    def _show_plan(self, context: Context, report: Mapping[str, Any]) -> dict[str, Any]:
        plan = reports.bounded_plan(report)
        context["ti"].xcom_push(key=PLAN_KEY, value=plan)
        self._log_lines(f"plan for {self.application_id}; nothing was changed", reports.plan_table(plan))
        return {**reports.plan_summary(plan), "map_index": context["ti"].map_index}

    def _log_lines(self, *texts: str) -> None:
        """Log each line as an event of its own, so that tables keep their lines."""
        for line in "\n".join(texts).splitlines():
            self.log.info("%s", line)

    def _set_defaults(self, master: str, site: Mapping[str, str]) -> None:
        """Fill in defaults of ``conf`` and ``env_vars``; values of the caller stay."""
        conf = {**site, **(self.conf or {})}
        conf.setdefault("spark.ui.showConsoleProgress", "false")
        env_vars = {name: str(value) for name, value in (self.env_vars or {}).items()}
        local = is_local(master)
        if local:
            conf = {name: value for name, value in conf.items() if name not in REMOTE_PYTHON_PROPERTIES}
            # Only this machine takes part, so Spark listens on loopback only.
            conf.setdefault("spark.ui.enabled", "false")
            conf.setdefault("spark.driver.host", "127.0.0.1")
            conf.setdefault("spark.driver.bindAddress", "127.0.0.1")
            # The job needs the packages of this interpreter, and its spark-submit before any other.
            env_vars.setdefault("PYSPARK_PYTHON", sys.executable)
            own = str(Path(sys.executable).parent)
            env_vars.setdefault("PATH", os.pathsep.join([own, os.environ.get("PATH", os.defpath)]))
        if local or master.startswith("spark://"):
            # Only with these masters env_vars become the environment of the driver's process. On YARN and Kubernetes
            # the provider turns them into --conf, for a driver on another machine.
            env_vars.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
            quiet = f"-Dlog4j2.configurationFile={log_configuration().as_uri()}"
            env_vars.setdefault("SPARK_SUBMIT_OPTS", " ".join([*quick_start_options(), quiet]))
        if "spark.pyspark.python" in conf and self._driver_is_here():
            # Else Spark would also run the driver with the executors' interpreter.
            conf.setdefault("spark.pyspark.driver.python", sys.executable)
        self.conf = conf
        self.env_vars = env_vars

    def _driver_is_here(self) -> bool:
        """Whether spark-submit runs the driver in this task, and not on the cluster."""
        mode = self._deploy_mode or BaseHook.get_connection(self._conn_id).extra_dejson.get("deploy-mode")
        return mode != "cluster"

    def _get_hook(self) -> ProgressHook:
        hook = super()._get_hook()
        # The base class builds its hook from thirty fields; repeating that list here would lose the fields of later
        # versions. The subclass has no state of its own, so changing the class of the built hook is enough.
        hook.__class__ = ProgressHook
        return hook


def ran_on(report: Mapping[str, Any]) -> str:
    """Where a job ran, for a reader: ``ran on spark://m:7077 with 2 executors on a, b``."""
    from statecore.jobs.engine.protocol import PROCESSES

    hosts, count = ", ".join(report.get("hosts") or ()), int(report.get("executors") or 0)
    if report["master"] == PROCESSES:
        return f"ran in {count} process{'' if count == 1 else 'es'} on {hosts}"
    return f"ran on {report['master']} with {number_of(count, 'executor')} on {hosts}"


def _exit_of(failure: AirflowException) -> str:
    """How spark-submit ended; the provider's message has the whole command before that."""
    found = re.search(r"Error code is: (-?\d+)", str(failure))
    return str(failure) if found is None else exit_in_words(int(found[1]))


def exit_in_words(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def ended_without_report(who: str, how: str) -> Retryable:
    """The error of a job that ended without a report."""
    return Retryable(
        f"{who} ended without a report: {how}",
        code="job-report-missing",
        action="See the task's log; usually the process was killed or ran out of memory. A retry resumes the job.",
    )


def request_argument(request: Mapping[str, Any], request_id: str) -> str:
    """The request as the JSON argument of the job. Raises ``Invalid`` if it is too large for an argument."""
    argument = json.dumps({**request, "request_id": request_id}, separators=(",", ":"))
    if len(argument.encode()) > ARGUMENT_LIMIT:
        raise Invalid(
            f"The request takes {len(argument.encode()):,} bytes; one argument holds {ARGUMENT_LIMIT:,}.",
            code="request-too-large",
            action="Put the spec in a file that the driver can read and pass its path.",
            request_id=request_id,
        )
    return argument


def clear_report_path(report_file: Path) -> None:
    """Create the report's directory and move the report of an earlier try aside; see :func:`reports.clear`."""
    try:
        report_file.parent.mkdir(parents=True, exist_ok=True)
        reports.clear(report_file)
    except OSError as cause:
        raise system_error(
            cause,
            f"The report cannot be written to {report_file.parent}",
            action="Set STATECORE_REPORTS to a directory that Airflow's user can write.",
            report=str(report_file),
        ) from cause
