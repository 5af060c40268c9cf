"""The task ``decide`` of ``checkpoint_stores``: finds the applications for which a checkpoint is due.

One task checks all applications, because starting an Airflow task costs more than checking fifty of them. An
application that cannot be checked gets a mapped task that fails at once with the error, so the failure is shown with
that application's checkpoints and does not delay the others; the page *State stores* shows it at once, and until a
later run can check the application. An error that concerns all of them, such as an unavailable repository, fails
``decide`` itself, and is shown with each of them. What was found is kept for the page (``ui/freshness.py``) and
exported as metrics.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from statecore.airflow.credentials import aws_environment, environment, kafka_environment
from statecore.airflow.failures import Log, describe
from statecore.airflow.form import fields_of
from statecore.airflow.reports import request_id_of
from statecore.airflow.requests import check_names, is_inline, no_application_named, request_of_named, spec_of_named
from statecore.airflow.settings import Settings
from statecore.airflow.ui import failing_applications
from statecore.airflow.ui.freshness import Freshness, read_checks, record_checks
from statecore.errors import Invalid, Reason, StatecoreError
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.checkpoint.schedule import DEFAULT_TICK_MS, DueVerdict, check_all, check_due
from statecore.jobs.in_progress_marker import LOST
from statecore.metrics import CheckpointMetrics
from statecore.objectstore.base import SHORT_RETRIES
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.maintenance.verification_record import verified_before
from statecore.repository.repository import Repository, open_repository
from statecore.spec.model import ApplicationSpec
from statecore.spec.spark_settings import settings_from_params
from statecore.telemetry import metrics_from_environment

NOT_OF_CHECKPOINTS = frozenset({"stores", "partitions"})
"""Fields of a request that the form does not have: a scheduled checkpoint covers the whole application."""

TASK = "checkpoint"
"""The id of the mapped task."""

FORCE = "force"
"""The parameter that makes a checkpoint of every application, due or not."""


class DecidingLog(Log):
    """The methods of a logger that are used here."""

    def info(self, text: str, *values: Any) -> None:
        """Log at level INFO."""

    def warning(self, text: str, *values: Any) -> None:
        """Log at level WARNING."""


@dataclass(frozen=True)
class _Application:
    """An application that a run names.

    Attributes:
        name: its id; if its spec cannot be read, the item of the parameter. Unique within a run.
        entry: the arguments of its mapped task.
        spec: its spec with the credentials that the job will have; ``None`` if it cannot be read.
    """

    name: str
    entry: dict[str, Any]
    spec: ApplicationSpec | None
    error: StatecoreError | None = None


def due_requests(params: Mapping[str, Any], log: DecidingLog, ti: Any) -> list[dict[str, Any]]:
    """The arguments of the mapped tasks of a run: an entry for each application for which a checkpoint is due.

    An entry has ``application_id``, ``kafka_conn_id``, the ``request`` of the job, and ``conf`` if Spark properties are
    set. An application that could not be checked has the error as ``refusal``.

    Args:
        params: the parameters of ``checkpoint_stores``.
        log: gets each decision and its reason.
        ti: this task, which asks Airflow for the states of earlier checkpoints.

    Raises:
        Invalid: a parameter is unknown or not well-formed, or no application was named.
        NotFound, Corrupted, Retryable: the repository cannot be used.
    """
    settings = Settings.from_environment()
    check_names(params, CheckpointRequest, NOT_OF_CHECKPOINTS, others=(FORCE,))
    applications = list(_applications(params, settings))
    if not applications:
        raise no_application_named()
    is_elsewhere = settings.is_elsewhere(params["repository"])
    began_ms, known = int(time.time() * 1000), read_checks(settings.reports)
    # Asked before the heads are read: a checkpoint that publishes in between is seen in its application's head.
    unfinished = {} if params.get(FORCE) or is_elsewhere else _unfinished(known, began_ms, ti, log)
    try:
        verdicts, url = _verdicts(applications, params, settings)
    except StatecoreError as error:
        # Of two specs of one application the one that could be read speaks for it.
        for one in () if is_elsewhere else sorted(applications, key=lambda one: one.spec is not None):
            shown = one.error or error
            name = str(one.entry["application_id"])
            failing_applications.record(settings.reports, name, request_id_of({"ti": ti}), shown.to_json())
        raise
    mapped: dict[str, int] = {}
    checked = {one.name for one in applications if verdicts[one.name].error is None}
    entries, recovered = [], set(checked)
    for one in applications:
        verdict = verdicts[one.name]
        # If another spec of the same application could be checked, the failure is of this spec and not of the
        # application.
        is_other_spec = one.name not in checked and one.entry["application_id"] in checked
        name = one.name if is_other_spec else one.entry["application_id"]
        if (path := one.entry["request"].get("spec_path")) not in (None, name):
            recovered.add(path)
        if verdict.error is not None:
            log.warning("%s: %s", one.name, describe(verdict.error.to_json()))
            entries.append({**one.entry, "application_id": name, "refusal": verdict.error.to_json()})
            if not is_elsewhere:  # now: its task may wait for a slot until the cause is gone
                failing_applications.record(settings.reports, name, request_id_of({"ti": ti}), verdict.error.to_json())
            continue
        if verdict.is_due and one.name in unfinished:
            log.info("%s: not due: its checkpoint is %s", one.name, unfinished[one.name])
            continue
        log.info("%s: %s: %s", one.name, "due" if verdict.is_due else "not due", verdict.why)
        if verdict.is_due:
            mapped[one.name] = len(entries)
            base = {} if verdict.last_snapshot is None else {"decided_upon": verdict.last_snapshot}
            entries.append({**one.entry, "request": {**one.entry["request"], **base}})
    runs = {name: (str(ti.run_id), index, began_ms) for name, index in mapped.items()}
    if is_elsewhere:
        log.info("The page and the metrics are of %s: they do not get what was found here", settings.repository)
    else:
        _keep(_found(applications, verdicts, known, runs, began_ms, url), applications, verdicts, settings, log)
        failing_applications.delete(settings.reports, recovered)
    readable = [one.entry for one in applications if one.spec is not None]
    failing_applications.delete_unreadable(
        settings.reports,
        {name for one in readable for name in (one["application_id"], one["request"].get("spec_path"))},
    )
    failed = sum("refusal" in entry for entry in entries)
    log.info("%d of %d applications are due, %d could not be checked", len(entries) - failed, len(applications), failed)
    return entries


def _unfinished(known: Mapping[str, Freshness], now_ms: int, ti: Any, log: DecidingLog) -> dict[str, str]:
    """The applications with a checkpoint that waits for a slot or runs, each with its state and run.

    One that runs has no in-progress marker in its first seconds. It counts no longer than a marker does: where its
    worker has died, Airflow may take it for running for minutes.
    """
    runs = sorted({one.run_id for one in known.values() if one.run_id})
    if not runs:
        return {}
    try:
        states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[TASK], run_ids=runs)
    except Exception as cause:  # a second checkpoint does no harm, and none would
        log.warning("Airflow does not tell which checkpoints wait or run: %s", cause)
        return {}
    found = {name: states.get(one.run_id, {}).get(f"{TASK}_{one.map_index}") for name, one in known.items()}
    young = {name for name, one in known.items() if now_ms - one.mapped_ms < LOST * 1000}
    return {
        name: f"{state} in the run {known[name].run_id}"
        for name, state in found.items()
        if state in ("scheduled", "queued") or (state == "running" and name in young)
    }


def _found(
    applications: list[_Application],
    verdicts: Mapping[str, DueVerdict],
    known: Mapping[str, Freshness],
    mapped: Mapping[str, tuple[str, int, int]],
    began_ms: int,
    url: str,
) -> dict[str, Freshness]:
    """What the check found of each application that it could check."""
    found = {}
    for one in applications:
        verdict = verdicts[one.name]
        if one.spec is not None and verdict.error is None and verdict.why.code != "forced":
            newest, before = verdict.newest, known.get(one.spec.application_id, Freshness(0, 0))
            checked = Freshness(
                began_ms,
                one.spec.checkpoint_interval_ms,
                verdict.current_ms,
                "" if newest is None else newest.snapshot,
                "" if newest is None else newest.created_at,
                *mapped.get(one.spec.application_id, (before.run_id, before.map_index, before.mapped_ms)),
                url,
                verdict.verified,
                *(("", "") if verdict.kept is None else (verdict.kept.snapshot, verdict.kept.note)),
            )
            found[one.spec.application_id] = checked.not_before(before)
    return found


def _keep(
    found: Mapping[str, Freshness],
    applications: list[_Application],
    verdicts: Mapping[str, DueVerdict],
    settings: Settings,
    log: DecidingLog,
) -> None:
    """Keep what the check found for the page, and export it; neither fails the task."""
    try:
        record_checks(settings.reports, found, _scheduled(applications, settings))
    except OSError as cause:
        log.warning("The page State stores does not get this check: %s", cause)
    with ExitStack() as afterwards, metrics_from_environment(lambda line: log.warning("%s", line)) as metrics:
        for name, freshness in found.items():
            newest = verdicts[name].newest
            exported = CheckpointMetrics(metrics, {"application-id": name})
            afterwards.callback(exported.close)  # after the export, at the end of the block
            exported.record_check(
                freshness.checked_ms / 1000,
                None if freshness.current_ms is None else freshness.current_ms / 1000,
                freshness.interval_ms / 1000,
                None if newest is None or newest.read_at_ms is None else newest.read_at_ms / 1000,
            )


def _scheduled(applications: list[_Application], settings: Settings) -> set[str] | None:
    """The applications of the site, if these are all of them: entries of others are out of date; else ``None``."""
    names = {str(one.entry["application_id"]) for one in applications}
    paths = {one.entry["request"].get("spec_path") for one in applications}
    # A spec without an id to read, such as one whose file is gone, is of an application that has entries all the same.
    are_known = names.isdisjoint(paths)
    return names if settings.specs and paths >= set(settings.specs) and are_known else None


def _applications(params: Mapping[str, Any], settings: Settings) -> Iterator[_Application]:
    fields = fields_of(CheckpointRequest, params)
    CheckpointRequest.from_json({**fields, "spec_path": "/any"})  # an invalid field fails the whole run
    spark = settings_from_params(params).to_conf()
    seen: set[str] = set()
    for number, named in enumerate(params["applications"], 1):
        name = f"inline spec {number}" if is_inline(named) else str(named)
        entry: dict[str, Any] = {"application_id": name, "request": dict(fields), "kafka_conn_id": None}
        try:
            entry["request"] |= request_of_named(named)
            spec = spec_of_named(named)
            entry |= {"application_id": spec.application_id, "kafka_conn_id": spec.kafka_connection}
            if conf := {**spec.spark.to_conf(), **spark}:
                entry["conf"] = conf
            if spec.application_id in seen:
                raise Invalid(
                    f"The application {spec.application_id} is named twice, the second time by {name}.",
                    code="application-duplicated",
                    action="Name each application once.",
                    application_id=spec.application_id,
                )
            secrets = kafka_environment(spec.application_id, spec.kafka_connection, settings.kafka_conn_id)
            whole = spec_of_named(named, {**os.environ, **secrets})
        except StatecoreError as error:
            if entry["application_id"] == name:
                entry["application_id"] = failing_applications.declared_application(named) or name
            yield _Application(name, entry, None, error)
            continue
        seen.add(spec.application_id)
        yield _Application(spec.application_id, entry, whole)


def _verdicts(
    applications: list[_Application], params: Mapping[str, Any], settings: Settings
) -> tuple[dict[str, DueVerdict], str]:
    """The verdict for each application, and the URL of the repository as reports have it; empty if it was not asked."""
    found = {
        one.name: DueVerdict(True, Reason(one.error.what, one.error.code), one.error)
        for one in applications
        if one.error is not None
    }
    readable = {one.name: one for one in applications if one.spec is not None}
    if params.get(FORCE):
        return found | dict.fromkeys(readable, DueVerdict(True, Reason("it was asked for", "forced"))), ""
    if not readable:
        return found, ""
    url = str(params["repository"])
    with environment(aws_environment(settings.aws_conn_id, "all applications") if url.startswith("s3:") else {}):
        repository = open_repository(url, SHORT_RETRIES)  # the page has the cause soon, and the next tick asks again
        checks = {name: _check(repository, one, settings) for name, one in readable.items()}
        with _quiet("kafka"):
            return found | check_all(checks), repository.object_store.url


@contextmanager
def _quiet(library: str) -> Iterator[None]:
    """Keep a library's own log lines out of the task's log; the verdict already says what went wrong."""
    # Setting its level would not do: some of its loggers have a level of their own (statecore.changelog.sockets).
    logger = logging.getLogger(library)
    before, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = before


def _check(repository: Repository, one: _Application, settings: Settings) -> Callable[[], DueVerdict]:
    spec, tick_ms = one.spec, settings.checkpoint_tick_ms or DEFAULT_TICK_MS
    request = CheckpointRequest.from_json(one.entry["request"])
    assert spec is not None
    app_repository = ApplicationRepository(repository, spec.application_id)

    def check() -> DueVerdict:
        verdict = check_due(
            app_repository,
            spec,
            tick_ms=tick_ms,
            versioned=request.versioned,
            versioned_ms=request.versioned_interval,
        )
        with suppress(StatecoreError):  # the page alone needs it
            return replace(verdict, verified=tuple(verified_before(app_repository).levels(int(time.time() * 1000))))
        return verdict

    return check
