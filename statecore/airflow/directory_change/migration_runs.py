"""Parameters of a run of ``migrate_checkpoints``, and its entries: one for each state directory.

An entry (:class:`~.xcom_values.Entry`) has the arguments of the mapped tasks. Directories are not read here: one that
cannot be migrated is refused by its own task.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import Param

from statecore.airflow.directory_change.xcom_values import Entry
from statecore.airflow.form import fields_of, object_schema, params_of, required
from statecore.airflow.requests import check_names, check_paths
from statecore.errors import Invalid
from statecore.jobs.fields import Request
from statecore.jobs.migrate.request import MigrateRequest
from statecore.jobs.recover_global.request import RecoverGlobalRequest
from statecore.spec.duration import EXPECTED, parse_duration
from statecore.spec.spark_settings import settings_of

DIRECTORIES = "directories"
"""The parameter with the state directories."""

OF_A_DIRECTORY = ("application_id", "state_dir", "spec_path")
_OF_A_STEP = ("apply", "approved")
WITHOUT = frozenset({*OF_A_DIRECTORY, *_OF_A_STEP})

PROCESSES, SPARK = "processes", "spark"
"""The engines."""

ASK, NONE = "ask", "none"
"""Values of the parameter ``approve``: a person approves the plans, or no approval is needed."""


def migration_params(state_dir: str | None) -> dict[str, Param]:
    """The Params of the form, without those of Spark; ``state_dir`` is the default of a directory."""
    return {
        DIRECTORIES: directories_param(MigrateRequest, state_dir),
        **params_of(MigrateRequest, needed=("to",), without=WITHOUT),
        **approval_params(),
        "engine": Param(
            PROCESSES,
            type="string",
            enum=[PROCESSES, SPARK],
            title="Engine",
            description="What converts the tasks: processes on the worker, or Spark's executors, which need access to "
            "the directories.",
            section="Spark",
        ),
    }


def directories_param(request: type[Request], state_dir: str | None, needed: Sequence[str] = ()) -> Param:
    asked = ("application_id", *(() if state_dir else ("state_dir",)), *needed)
    each = object_schema(request, OF_A_DIRECTORY, asked)
    each["properties"]["host"] = {
        "type": "string",
        "minLength": 1,
        "description": "The host name of the machine that has the directory; a task on another machine fails.",
    }
    each["properties"]["queue"] = {
        "type": "string",
        "minLength": 1,
        "description": "The queue of that machine's worker, if the site uses statecore.airflow.queues.",
    }
    return required(
        None,
        type="array",
        items=each,
        minItems=1,
        title="State directories",
        description='A JSON list, such as [{"application_id": "orders", "state_dir": "/var/lib/kafka-streams"}]; '
        "each may also have spec_path, host and queue."
        + (f" Without state_dir it is {state_dir}." if state_dir else ""),
    )


def approval_params() -> dict[str, Param]:
    """The Params for approval and its timeout."""
    return {
        "approve": Param(
            ASK,
            type="string",
            enum=[ASK, NONE],
            title="Approval",
            description="ask: a person approves the plans first. none: plans are applied without approval, for "
            "unattended runs.",
            section="Approval",
        ),
        "approve_within": Param(
            "24h",
            type="string",
            pattern="^[0-9]+(s|m|h|d)$",
            title="Answer within",
            description="Plans without an answer by then are rejected. Such as 30m, 24h or 7d.",
            section="Approval",
        ),
    }


def approved_within(params: Mapping[str, Any]) -> timedelta:
    """How long a person has to answer. Raises ``Invalid``."""
    found = parse_duration(str(params["approve_within"]))
    if not found:
        raise Invalid(
            f"The parameter approve_within is not well-formed: {params['approve_within']!r} is not {EXPECTED}.",
            code="parameter-invalid",
            action="Write a time such as 24h.",
            parameter="approve_within",
        )
    return timedelta(milliseconds=found)


def migrate_entries(params: Mapping[str, Any], state_dir: str | None = None) -> list[Entry]:
    """One entry for each state directory, in the order of the parameter.

    Args:
        params: the parameters of the run.
        state_dir: default of a directory's ``state_dir``.

    Raises:
        Invalid: a parameter is unknown or not well-formed, a path is relative, or a directory is named twice.
    """
    check_names(params, MigrateRequest, WITHOUT, ("approve", "approve_within", "engine"), of=DIRECTORIES)
    conf = settings_of(params).to_conf()
    return entries_of(MigrateRequest, params, "migrate", params["engine"], conf or None, state_dir)


def entries_of(
    request: type[MigrateRequest] | type[RecoverGlobalRequest],
    params: Mapping[str, Any],
    what: str,
    engine: str = PROCESSES,
    conf: dict[str, str] | None = None,
    state_dir: str | None = None,
) -> list[Entry]:
    """The entries of the directories of a run, each with the request of a job."""
    approved_within(params)
    fields = fields_of(request, {name: params.get(name) for name in params if name not in WITHOUT})
    entries = [_entry(request, what, named, fields, engine, conf, state_dir) for named in params[DIRECTORIES]]
    _check_once(entries)
    ids = Counter(entry["application_id"] for entry in entries)
    for entry in entries:
        if ids[entry["application_id"]] > 1:
            host = f" on {entry['host']}" if entry["host"] else ""
            entry["title"] = f"{entry['application_id']} in {entry['request']['state_dir']}{host}"
    return entries


def _entry(
    request_type: type[MigrateRequest] | type[RecoverGlobalRequest],
    what: str,
    named: Mapping[str, Any],
    fields: Mapping[str, Any],
    engine: str,
    conf: dict[str, str] | None,
    state_dir: str | None,
) -> Entry:
    of_directory = {name: named.get(name) for name in OF_A_DIRECTORY if named.get(name)}
    request = {"state_dir": state_dir, **of_directory, **fields}
    check_paths(request)
    application_id = request_type.from_json(request).application_id or ""
    if application_id in (os.curdir, os.pardir) or os.sep in application_id:
        raise Invalid(
            f"{application_id!r} is not an application id.",
            code="application-id-invalid",
            action="Give Kafka Streams' application.id, not a path.",
            application_id=application_id,
        )
    return {
        "title": application_id,
        "name": f"statecore {what} {application_id}",
        "application_id": application_id,
        "host": named.get("host"),
        "engine": engine,
        "conf": conf,
        "request": request,
    }


def _check_once(entries: list[Entry]) -> None:
    seen: set[tuple[str, str, str | None]] = set()
    for entry in entries:
        directory = os.path.normpath(entry["request"]["state_dir"])
        one = (directory, entry["application_id"], entry["host"])
        if one in seen:
            raise Invalid(
                f"The directory of {entry['application_id']} in {directory} is named twice.",
                code="state-directory-duplicated",
                action="Name each directory once; for directories on several machines give the host.",
                state_dir=directory,
                application_id=entry["application_id"],
            )
        seen.add(one)
