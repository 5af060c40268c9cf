"""The tasks of ``prune_snapshots``: plan the collection of each application, ask a person above a bound, collect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Param

from statecore.airflow.credentials import aws_environment, environment
from statecore.airflow.failures import JobRefused, describe, log_error, short_reason
from statecore.airflow.form import repository_params
from statecore.airflow.requests import check_known
from statecore.airflow.settings import Settings
from statecore.errors import Invalid, StatecoreError
from statecore.spec.units import DURATION_EXPECTED, parse_duration, parse_size
from statecore.words import format_bytes, number_of

if TYPE_CHECKING:
    import logging

    from airflow.sdk import Context

    from statecore.repository.maintenance.collection import CollectionReport, Collector
    from statecore.repository.repository import Repository


class PlannedCollection(TypedDict):
    """What a collection of one application would delete now."""

    application_id: str
    deleted_blobs: int
    deleted_bytes: int
    lists: list[str]  # names of the lists of this garbage
    error: dict[str, Any] | None  # why it could not be planned; nothing is deleted of it then


class ApprovedCollection(TypedDict):
    """The arguments of the task that collects an application: what was planned, and approved if that was needed."""

    application_id: str
    lists: list[str]


def params(repository: str | None) -> dict[str, Param]:
    """The form of ``prune_snapshots``."""
    return {
        **repository_params(repository),
        "min_age": Param(
            "24h",
            type="string",
            title="Minimum age",
            description="How long garbage stays after it was listed, and at least the time between two collections. "
            "The longest job that uploads has to end within it.",
        ),
        "approve_above": Param(
            "100g",
            type=["null", "string"],
            title="Ask above",
            description="If a run would delete more than this of all applications together, a person has to approve "
            "it: Required Actions. Empty: nobody is asked.",
        ),
    }


def planned_collections(values: Mapping[str, Any], log: logging.Logger) -> list[PlannedCollection]:
    """What a run would delete, by application. Raises ``StatecoreError``."""
    from statecore.repository.application_repository import published_in
    from statecore.repository.repository import open_repository

    check_known(values, params(None))
    _min_age_ms(values), _bound(values)  # a wrong one is refused before anything is read
    with _credentials(str(values["repository"])):
        repository = open_repository(str(values["repository"]))
        chosen = values["application_ids"] or published_in(repository)
        found = []
        for application_id in chosen:
            planned = PlannedCollection(
                application_id=application_id, deleted_blobs=0, deleted_bytes=0, lists=[], error=None
            )
            try:
                report = _collector(values, repository, application_id).plan()
            except StatecoreError as error:  # check_plans fails by it; the others are collected
                planned["error"] = why = error.to_json()
                log.warning("%s", describe(why))
            else:
                log_report(report, log)
                planned |= {
                    "deleted_blobs": report.deleted.blobs,
                    "deleted_bytes": report.deleted.bytes,
                    "lists": report.lists,
                }
            found.append(planned)
    return found


def check_plans(planned: Sequence[PlannedCollection], log: logging.Logger) -> None:
    """Fail if an application could not be planned, whatever is answered for the others. Raises ``JobRefused``."""
    failed = [(one["application_id"], one["error"]) for one in planned if one["error"] is not None]
    for application_id, error in failed:
        log.error("%s could not be planned, and nothing of it is deleted:", application_id)
        log_error(error, log)
    if failed:
        reasons = "; ".join(f"{application_id}: {short_reason(error)}" for application_id, error in failed)
        raise JobRefused(f"{number_of(len(failed), 'application')} could not be planned. {reasons}")


def collect(
    values: Mapping[str, Any], application_id: str, lists: Sequence[str], log: logging.Logger
) -> dict[str, Any]:
    """Collect the garbage of an application; deletes what these lists name alone. Raises ``StatecoreError``."""
    from dataclasses import asdict

    from statecore.repository.application_repository import ApplicationRepository
    from statecore.repository.maintenance.repack import Repacker
    from statecore.repository.repository import open_repository

    with _credentials(url := str(values["repository"])):
        repository = open_repository(url)
        report = _collector(values, repository, application_id, lists).run()
        repacked = Repacker(ApplicationRepository(repository, application_id)).run()
    log_report(report, log)
    if repacked.packs:
        log.info(
            "%s: rewrote %s of %s", application_id, number_of(repacked.packs, "pack"), format_bytes(repacked.bytes)
        )
    for warning in repacked.warnings:
        log.warning("%s: %s", application_id, warning)
    return {**asdict(report), "repacked": asdict(repacked)}


def log_report(report: CollectionReport, log: logging.Logger) -> None:
    """Tell the operator what was deleted, or would be."""
    from statecore.repository.maintenance.collection import VERSIONS_STAY

    would = "" if report.applied else "would be "
    amounts = (
        (report.deleted, f"{would}deleted"),
        (report.listed, f"{would}listed"),
        (report.waiting, "listed before"),
    )
    text = ", ".join(f"{number_of(one.blobs, 'blob')} of {format_bytes(one.bytes)} {what}" for one, what in amounts)
    log.info("%s%s: %s", report.application_id, "" if report.applied else " (plan)", text)
    if report.keeps_versions:
        log.warning("%s: %s", report.application_id, VERSIONS_STAY)


def _collector(
    values: Mapping[str, Any], repository: Repository, application_id: str, lists: Sequence[str] | None = None
) -> Collector:
    from statecore.repository.application_repository import ApplicationRepository
    from statecore.repository.maintenance.collection import Collector

    return Collector(ApplicationRepository(repository, application_id), min_age_ms=_min_age_ms(values), lists=lists)


def _credentials(url: str) -> Any:
    settings = Settings.from_environment()
    return environment(aws_environment(settings.aws_conn_id, "all applications") if url.startswith("s3:") else {})


def _min_age_ms(values: Mapping[str, Any]) -> int:
    found = parse_duration(str(values["min_age"]))
    if found is None:
        raise Invalid(
            f"The minimum age {values['min_age']!r} is not a time; expected {DURATION_EXPECTED}.",
            code="parameter-invalid",
            action="Correct it in the form; nothing was changed.",
            parameter="min_age",
        )
    return found


def _bound(values: Mapping[str, Any]) -> int | None:
    text = values["approve_above"]
    found = parse_size(text) if text else None
    if text and found is None:
        raise Invalid(
            f"{text!r} is not a number of bytes; expected a number with k, m or g, such as 100g.",
            code="parameter-invalid",
            action="Correct it in the form; nothing was changed.",
            parameter="approve_above",
        )
    return found


class CollectionApproval(ApprovalOperator):
    """Asks a person if a run would delete more than the bound; returns what is to be collected, and nothing else is.

    It is deferred while it waits, so it uses no worker. Without an answer nothing is deleted in this run.
    """

    template_fields: Sequence[str] = (*ApprovalOperator.template_fields, "planned")

    def __init__(self, *, planned: Any, **kwargs: Any) -> None:
        super().__init__(subject="Delete garbage of the repository?", defaults=ApprovalOperator.REJECT, **kwargs)
        self.planned = planned

    def execute(self, context: Context) -> Any:
        """Wait for an answer if one is needed."""
        values, size = context["params"], sum(one["deleted_bytes"] for one in self.planned)
        bound = _bound(values)
        if bound is None or size <= bound:
            self.log.info("%s would be deleted; nobody has to approve that", format_bytes(size))
            return self._approved()
        rows = [_row(one) for one in self.planned]
        self.subject = f"Delete {format_bytes(size)} of garbage?"
        self.body = "\n".join(
            [
                f"No snapshot of {values['repository']} needs these blobs, and no job can publish them any more.",
                "",
                "| application | blobs | bytes |",
                "| --- | ---: | ---: |",
                *rows,
            ]
        )
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Go on with the answer; after a rejection the following tasks are skipped."""
        super().execute_complete(context, event)
        return self._approved()

    def _approved(self) -> list[ApprovedCollection]:
        """What was planned: nobody has approved what could not be shown, or was not due yet."""
        return [
            ApprovedCollection(application_id=one["application_id"], lists=one["lists"])
            for one in self.planned
            if one["error"] is None
        ]


def _row(planned: PlannedCollection) -> str:
    if planned["error"] is not None:
        why = short_reason(planned["error"]).replace("|", "\\|")
        return f"| {planned['application_id']} | not planned, nothing is deleted: {why} | |"
    return f"| {planned['application_id']} | {planned['deleted_blobs']:,} | {format_bytes(planned['deleted_bytes'])} |"
