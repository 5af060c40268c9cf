"""A kind of directory change: its job, the parameters and entries of its runs, and what a person reads of its plans.

:mod:`~.migration` and :mod:`~.recovery` define the kinds; operators, approval and Dag are the same for all. An entry
(:class:`~.xcom_values.Entry`) has the arguments of the mapped tasks of one state directory. Directories are not read
here: one that cannot be changed is refused by its own task.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from airflow.sdk import Param

from statecore.airflow.directory_change.xcom_values import Entry, ShortReport
from statecore.airflow.form import DIRECTORIES, PLACE, fields_of, object_schema, params_of, required
from statecore.airflow.requests import check_names, check_paths
from statecore.documents import DocumentType
from statecore.errors import Invalid, StatecoreError
from statecore.jobs.fields.declaration import Request
from statecore.spec.model import ApplicationSpec
from statecore.spec.spark_settings import settings_from_params
from statecore.spec.units import DURATION_EXPECTED, parse_duration

OF_A_DIRECTORY = ("application_id", "state_dir", "spec_path")
WITHOUT = frozenset({*OF_A_DIRECTORY, "apply", "approved"})
"""Fields of a request that are no parameters of their own: those of a directory and of a step."""

PROCESSES, SPARK = "processes", "spark"
"""The engines."""

ASK, NONE = "ask", "none"
"""Values of the parameter ``approve``: a person approves the plans, or no approval is needed."""


class Step(StrEnum):
    """What a task does to its directory."""

    PLAN = "plan"
    APPLY = "apply"
    VERIFY = "verify"


RunJob = Callable[[str, Request, Path, str], Mapping[str, Any]]
"""Runs a job in a process beside the task; takes verb, request, path of the report and name, and returns the report."""

LogLines = Callable[..., None]
"""Logs each line of some texts."""


class Change(ABC):
    """One kind of directory change.

    Attributes:
        name: name of the kind, and of the task group that applies and verifies.
        done: past participle for a directory that was changed.
        dag_id: the Dag.
        command: the command of ``statecore`` that does the same, and the verb of its job.
        request, document: the job's request, and the document type of its report.
        folder: directory of the reports, apart from those of restores, which the UI shows.
        needed: fields of a directory that are required besides ``application_id`` and ``state_dir``.
        subject: the question to a person, with ``{directories}`` and ``{to}``.
        introduction: what happens after an approval, as Markdown, with ``{to}``.
        nothing: why there is nothing to do, with ``{to}``.
        headings: of the table of directories, between the state directory and the plan.
    """

    name: ClassVar[str]
    done: ClassVar[str]
    dag_id: ClassVar[str]
    command: ClassVar[str]
    request: ClassVar[type[Request]]
    document: ClassVar[DocumentType[Any]]
    folder: ClassVar[str]
    needed: ClassVar[Sequence[str]] = ()
    subject: ClassVar[str]
    introduction: ClassVar[str]
    nothing: ClassVar[str]
    headings: ClassVar[Sequence[str]]

    @abstractmethod
    def short(self, report: Any) -> ShortReport:
        """A report for XCom, of bounded size."""

    @abstractmethod
    def cells(self, plan: Any) -> Sequence[str]:
        """The Markdown below ``headings`` for a directory that changes."""

    def why_nothing(self, plan: Any) -> str:
        """Why there is nothing to do in a directory."""
        return self.nothing.format(to=plan["to"])

    @abstractmethod
    def problem(self, step: Step, report: Any, where: str, report_file: Path) -> StatecoreError | None:
        """The error of a step after which the directory is not in the required state; ``where`` names it."""

    def nothing_planned(
        self,
        spec: ApplicationSpec,  # noqa: ARG002
        request: Mapping[str, Any],  # noqa: ARG002
    ) -> ShortReport | None:
        """The short plan of a directory in which there is nothing to do by its spec; ``None`` if a job has to look."""
        return None

    def verify_further(
        self,
        report: Any,  # noqa: ARG002
        request: Mapping[str, Any],  # noqa: ARG002
        where: str,  # noqa: ARG002
        report_file: Path,  # noqa: ARG002
        run: RunJob,  # noqa: ARG002
        log: LogLines,  # noqa: ARG002
    ) -> dict[str, int] | None:
        """Verify a changed directory by another job: number of its findings by severity, ``None`` without such a job.

        Raises:
            Corrupted: the directory is not sound.
        """
        return None

    def report_path(self, report_file: Path) -> Path:
        """Path of a report for the report path of a restore."""
        return report_file.parent / self.folder / report_file.name

    def params(self, state_dir: str | None) -> dict[str, Param]:
        """The Params of the form; ``state_dir`` is the default of a directory."""
        return {
            DIRECTORIES: _directories_param(self.request, state_dir, self.needed),
            **params_of(self.request, needed=("to",), without=WITHOUT),
            **_approval_params(),
        }

    def entries(self, params: Mapping[str, Any], state_dir: str | None = None) -> list[Entry]:
        """One entry for each state directory, in the order of the parameter.

        Args:
            params: the parameters of the run.
            state_dir: default of a directory's ``state_dir``.

        Raises:
            Invalid: a parameter is unknown or not well-formed, a path is relative, or a directory is named twice.
        """
        check_names(params, self.request, WITHOUT, self.params(state_dir), of=DIRECTORIES)
        approved_within(params)
        fields = fields_of(self.request, {name: params.get(name) for name in params if name not in WITHOUT})
        entries = [self._entry(named, fields, params, state_dir) for named in params[DIRECTORIES]]
        _check_once(entries)
        ids = Counter(entry["application_id"] for entry in entries)
        for entry in entries:
            if ids[entry["application_id"]] > 1:
                host = f" on {entry['host']}" if entry["host"] else ""
                entry["title"] = f"{entry['application_id']} in {entry['request']['state_dir']}{host}"
        return entries

    def _entry(
        self, named: Mapping[str, Any], fields: Mapping[str, Any], params: Mapping[str, Any], state_dir: str | None
    ) -> Entry:
        of_directory = {name: named.get(name) for name in OF_A_DIRECTORY if named.get(name)}
        request: dict[str, Any] = {"state_dir": state_dir, **of_directory, **fields}
        check_paths(request)
        self.request.from_json(request)
        application_id = str(request["application_id"])
        if application_id in (os.curdir, os.pardir) or os.sep in application_id:
            raise Invalid(
                f"{application_id!r} is not an application id.",
                code="application-id-invalid",
                action="Give Kafka Streams' application.id, not a path.",
                application_id=application_id,
            )
        return {
            "title": application_id,
            "name": f"statecore {self.command} {application_id}",
            "application_id": application_id,
            "host": named.get("host"),
            "engine": params.get("engine") or PROCESSES,
            "conf": settings_from_params(params).to_conf() or None,
            "request": request,
        }


def _directories_param(request: type[Request], state_dir: str | None, needed: Sequence[str]) -> Param:
    each = object_schema(request, OF_A_DIRECTORY, ("application_id", *(() if state_dir else ("state_dir",)), *needed))
    each["properties"] |= PLACE
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


def _approval_params() -> dict[str, Param]:
    return {
        "approve": Param(
            ASK,
            type="string",
            enum=[ASK, NONE],
            title="Approval",
            description="ask: a person approves the plans first. none: plans are applied without approval, for "
            "unattended runs; one that may remove rows is not applied, and the run fails.",
            section="Approval",
        ),
        "approve_within": Param(
            "24h",
            type="string",
            pattern="^[0-9]+(s|m|h|d)$",
            title="Time to answer",
            description="Plans without an answer by then are rejected. Such as 30m, 24h or 7d.",
            section="Approval",
        ),
    }


def approved_within(params: Mapping[str, Any]) -> timedelta:
    """How long a person has to answer. Raises ``Invalid``."""
    found = parse_duration(str(params["approve_within"]))
    if not found:
        raise Invalid(
            f"The parameter approve_within is invalid: {params['approve_within']!r} is not {DURATION_EXPECTED}.",
            code="parameter-invalid",
            action="Write a time such as 24h.",
            parameter="approve_within",
        )
    return timedelta(milliseconds=found)


def _check_once(entries: list[Entry]) -> None:
    known: set[tuple[str, str, str | None]] = set()
    for entry in entries:
        directory = os.path.normpath(entry["request"]["state_dir"])
        one = (directory, entry["application_id"], entry["host"])
        if one in known:
            raise Invalid(
                f"The directory of {entry['application_id']} in {directory} is named twice.",
                code="state-directory-duplicated",
                action="Name each directory once; for directories on several machines give the host.",
                state_dir=directory,
                application_id=entry["application_id"],
            )
        known.add(one)
