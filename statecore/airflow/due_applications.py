"""What the deciding task of ``checkpoint_stores`` does: it finds the applications that a checkpoint is due for.

One task looks at all of them, because to start a task of Airflow's costs more than to look at fifty applications. What
is wrong with one application is told by a mapped task of its own, which fails with it at once: so it is seen where that
application's checkpoints are seen, and the others are decided and made as ever. The page *State stores* shows it until
a later run can look at the application again. What is wrong with all of them, such as a repository that is away, is
told by the deciding task itself.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from statecore.airflow.credentials import aws_environment, environment, kafka_environment
from statecore.airflow.failures import Log, describe
from statecore.airflow.form import fields_of
from statecore.airflow.requests import check_names, is_inline, request_of_named, spec_of_named
from statecore.airflow.settings import Settings
from statecore.airflow.ui import failing_applications as refusals
from statecore.errors import Invalid, Reason, StatecoreError
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.checkpoint.schedule import DEFAULT_TICK_MS, Verdict, beside_each_other, look
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.repository import Repository, open_repository
from statecore.spec.model import ApplicationSpec
from statecore.spec.spark_settings import settings_of

NOT_OF_CHECKPOINTS = frozenset({"stores", "partitions"})
"""Fields of a request that its form does not have: a checkpoint by schedule is of the whole application."""

FORCE = "force"
"""The parameter by which applications get a checkpoint although none is due."""


class DecidingLog(Log):
    """As much of a logger as is used here."""

    def info(self, text: str, *values: Any) -> None:
        """Write a line."""

    def warning(self, text: str, *values: Any) -> None:
        """Write a line that stands out."""


@dataclass(frozen=True)
class _Asked:
    """An application that a run is asked for.

    Attributes:
        name: its id; where something is wrong with its spec, how it was named. No other has it.
        entry: what its mapped task is given.
        spec: it, as the job would read it; ``None`` where it cannot be read.
        error: what is wrong with it.
    """

    name: str
    entry: dict[str, Any]
    spec: ApplicationSpec | None
    error: StatecoreError | None = None


def due_requests(params: Mapping[str, Any], log: DecidingLog) -> list[dict[str, Any]]:
    """What the mapped tasks of a run are given: an entry for each application that a checkpoint is due for.

    An entry has ``application_id``, ``kafka_conn_id``, the ``request`` of the job, and ``conf`` where Spark properties
    are asked for. One of which nobody could find out whether it is due has the error as ``refusal``.

    Args:
        params: the parameters of ``checkpoint_stores``.
        log: told of each application what was decided, and why.

    Raises:
        Invalid: there is no parameter of some name, one is not well-formed, or no application was named.
        NotFound, Corrupted, Retryable: the repository cannot be used.
    """
    settings = Settings.from_environment()
    check_names(params, CheckpointRequest, NOT_OF_CHECKPOINTS, others=(FORCE,))
    asked = list(_asked(params, settings))
    if not asked:
        raise Invalid(
            "No application was named.",
            code="applications-missing",
            action="Give the parameter applications at least one spec, or set STATECORE_SPECS for all runs.",
        )
    verdicts = _verdicts(asked, params, settings)
    seen = {one.name for one in asked if verdicts[one.name].error is None}
    entries, gone = [], set(seen)
    for one in asked:
        verdict = verdicts[one.name]
        # An application that others can look at is not the one that has failed, whatever a second spec says.
        name = one.name if one.name not in seen and one.entry["application_id"] in seen else one.entry["application_id"]
        if (path := one.entry["request"].get("spec_path")) not in (None, name):
            gone.add(path)
        if verdict.error is not None:
            log.warning("%s: %s", one.name, describe(verdict.error.to_json()))
            entries.append({**one.entry, "application_id": name, "refusal": verdict.error.to_json()})
            continue
        log.info("%s: %s: %s", one.name, "due" if verdict.is_due else "not due", verdict.why)
        if verdict.is_due:
            upon = {} if verdict.upon is None else {"decided_upon": verdict.upon}
            entries.append({**one.entry, "request": {**one.entry["request"], **upon}})
    refusals.forget(settings.reports, gone)
    unseen = sum("refusal" in entry for entry in entries)
    log.info("%d of %d applications are due, %d nobody could look at", len(entries) - unseen, len(asked), unseen)
    return entries


def _asked(params: Mapping[str, Any], settings: Settings) -> Iterator[_Asked]:
    said = fields_of(CheckpointRequest, params)
    CheckpointRequest.from_json({**said, "spec_path": "/any"})  # what it refuses is wrong for all of them
    spark = settings_of(params).to_conf()
    seen: set[str] = set()
    for number, named in enumerate(params["applications"], 1):
        name = f"inline spec {number}" if is_inline(named) else str(named)
        entry: dict[str, Any] = {"application_id": name, "request": dict(said), "kafka_conn_id": None}
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
                entry["application_id"] = refusals.said_application(named) or name
            yield _Asked(name, entry, None, error)
            continue
        seen.add(spec.application_id)
        yield _Asked(spec.application_id, entry, whole)


def _verdicts(asked: list[_Asked], params: Mapping[str, Any], settings: Settings) -> dict[str, Verdict]:
    found = {
        one.name: Verdict(True, Reason(one.error.what, one.error.code), one.error)
        for one in asked
        if one.error is not None
    }
    sound = {one.name: one for one in asked if one.spec is not None}
    if params.get(FORCE):
        return found | dict.fromkeys(sound, Verdict(True, Reason("it was asked for", "forced")))
    if not sound:
        return found
    url = str(params["repository"])
    with environment(aws_environment(settings.aws_conn_id, "all applications") if url.startswith("s3:") else {}):
        repository = open_repository(url)
        looks = {name: _look(repository, one, settings) for name, one in sound.items()}
        with _quiet("kafka"):
            return found | beside_each_other(looks)


@contextmanager
def _quiet(library: str) -> Iterator[None]:
    """Keep a library's own lines out of the log: what has become of a look is said in one line of the verdict."""
    # By its level it would not be: some of its loggers have one of their own (statecore.changelog.sockets).
    logger = logging.getLogger(library)
    before, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = before


def _look(repository: Repository, one: _Asked, settings: Settings) -> Callable[[], Verdict]:
    spec, tick_ms = one.spec, settings.checkpoint_tick_ms or DEFAULT_TICK_MS
    asked = CheckpointRequest.from_json(one.entry["request"])
    assert spec is not None
    return lambda: look(
        ApplicationRepository(repository, spec.application_id),
        spec,
        tick_ms=tick_ms,
        versioned=asked.versioned,
        versioned_ms=asked.versioned_interval,
    )
