"""The operator that verifies the snapshots of one application, and the list of the applications of a run.

The task itself reads the repository: no Spark, no brokers, no state directory. Damage fails the task with the words of
the error, without a retry; a repository that could not be read is tried again.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from statecore.airflow.credentials import aws_environment, environment
from statecore.airflow.failures import refused
from statecore.airflow.job_progress import ProgressRecorder
from statecore.airflow.reports import request_id_of
from statecore.airflow.requests import check_known
from statecore.airflow.settings import Settings
from statecore.airflow.ui import failing_applications
from statecore.errors import Invalid, StatecoreError
from statecore.metrics import VerificationMetrics
from statecore.progress import MachineProgress, parse_machine_line
from statecore.repository.application_repository import published_in
from statecore.repository.maintenance.verification_record import Level
from statecore.repository.maintenance.verify import ALL, Subset, VerificationReport, verify_applications
from statecore.repository.repository import Repository, open_repository
from statecore.telemetry import metrics_from_environment

if TYPE_CHECKING:
    from airflow.sdk import Context

NO_SNAPSHOTS = "snapshots-not-found"
"""The code for an application that the repository does not have: a run named it, and no page is about it."""


def verification_requests(params: Mapping[str, Any], known: Collection[str]) -> list[dict[str, Any]]:
    """The arguments of the mapped tasks of a run, one for each application; ``known`` are the Dag's parameters.

    Raises:
        Invalid: a parameter is unknown, or the subset is malformed.
        NotFound, Corrupted, Retryable: the repository cannot be used.
    """
    check_known(params, known)
    request = {name: params[name] for name in ("repository", "level", "subset")}
    _subset(request["level"], request["subset"])
    with _credentials(request["repository"], "all applications"):
        there = published_in(open_repository(request["repository"]))
    return [{"application_id": name, **request} for name in params.get("application_ids") or there]


def _subset(level: str, text: str | None) -> Subset:
    """The subset of a run; below the level bytes none."""
    found = Subset.parse(text) if text and level == Level.BYTES else ALL
    if found is None:
        raise Invalid(
            f"The subset {text!r} is neither K/N nor /N.",
            code="parameter-invalid",
            action="Give such as 2/7, or /7 for the part whose turn it is.",
            parameter="subset",
        )
    return found


def _credentials(repository: str, application_id: str) -> AbstractContextManager[None]:
    is_s3 = repository.startswith("s3:")
    return environment(aws_environment(Settings.from_environment().aws_conn_id, application_id) if is_s3 else {})


class _Lines(io.StringIO):
    """A stream of machine lines that records them."""

    def __init__(self, record: ProgressRecorder) -> None:
        super().__init__()
        self._record = record

    def write(self, text: str) -> int:
        if (progress := parse_machine_line(text)) is not None:
            self._record(progress)
        return len(text)


class StatecoreVerifyOperator(BaseOperator):
    """Verifies the snapshots of one application and returns the report.

    Args:
        application_id: names the mapped task with ``map_index_template="{{ task.application_id }}"``. (templated)
        repository: the URL. (templated)
        level: ``documents``, ``files`` or ``bytes``.
        subset: with the level ``bytes`` the part of the blobs to be read, ``K/N`` or ``/N``; ``None`` for all.

    Raises:
        JobRefused: something is damaged, or of another release, or there are no snapshots; no retry.
        JobUnavailable: the repository could not be read in time; Airflow retries.
    """

    template_fields: Sequence[str] = ("application_id", "repository")
    ui_color = "#dbeafe"

    def __init__(
        self, *, application_id: str, repository: str, level: str = "bytes", subset: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.application_id, self.repository, self.level, self.subset = application_id, repository, level, subset

    def execute(self, context: Context) -> dict[str, Any]:
        """Verify, export metrics, and raise what is damaged."""
        settings, dag = Settings.from_environment(), context["ti"].dag_id
        reports, is_elsewhere = settings.reports, settings.is_elsewhere(self.repository)
        if is_elsewhere:
            self.log.info("The page and the metrics are of %s: they do not get what is found here", settings.repository)
        try:
            with _credentials(self.repository, self.application_id):
                report = self._verify(open_repository(self.repository), context)
            if not is_elsewhere:
                self._export(report)
            report.check()
        except StatecoreError as error:
            if not is_elsewhere and error.code != NO_SNAPSHOTS:
                failing_applications.record(
                    reports, self.application_id, request_id_of(context), error.to_json(), dag=dag
                )
            raise refused(error, self.log) from error
        if not is_elsewhere and not any(damaged for _, damaged in report.known.values()):  # of other parts, too
            failing_applications.delete(reports, [self.application_id], dag=dag)
        return report.to_json()

    def _verify(self, repository: Repository, context: Context) -> VerificationReport:
        progress = MachineProgress(_Lines(ProgressRecorder(context, self.log)))
        subset = _subset(self.level, self.subset)
        (report,) = verify_applications(repository, self.application_id, Level(self.level), subset, progress)
        if report.not_recorded:
            self.log.warning("%s: the verification is not recorded: %s", self.application_id, report.not_recorded)
        return report

    def _export(self, report: VerificationReport) -> None:
        with metrics_from_environment(lambda line: self.log.warning("%s", line)) as metrics:
            exported = VerificationMetrics(metrics, self.application_id, report.known)
        exported.close()
