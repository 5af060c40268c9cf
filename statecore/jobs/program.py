"""Run a job as a program: a request as JSON in, a report or an error as JSON out."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from statecore.documents import encode_json, parse_json
from statecore.errors import Invalid, StatecoreError
from statecore.faults import FaultPoints, fault_points_from_environment
from statecore.filesystem import NotRegularFile, write_durably
from statecore.jobs.attempt import Attempt
from statecore.jobs.context import spec_of
from statecore.jobs.fields import Request
from statecore.jobs.report import Body, JobReport
from statecore.progress import MachineProgress, Progress
from statecore.system_errors import write_error
from statecore.telemetry import metered

RequestT = TypeVar("RequestT", bound=Request)


class Run(Protocol):
    """Runs the job of a request."""

    def __call__(self, request: Any, progress: Progress, faults: FaultPoints, /) -> Body:
        """Run it."""


def parser_of(description: str, request: str) -> argparse.ArgumentParser:
    """The arguments that all of these programs take. One may be run by ``spark-submit`` and as a module."""
    module = getattr(sys.modules["__main__"], "__spec__", None)
    program = Path(sys.argv[0]).name if module is None else f"python -m {module.name}"
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--request", required=True, help=f"a {request} as JSON")
    parser.add_argument("--report", required=True, type=Path, help="file for the report, or for the error")
    parser.add_argument("--master", help="the requested Spark master; running on another one is an error")
    return parser


def reporting(report: Path, work: Callable[[], int]) -> int:
    """Run a program that writes a report, after checking that the report can be written.

    Returns:
        The exit code of the work; if the report cannot be written, that of the error, which goes to stderr only.
    """
    try:
        _check_report(report)
        return work()
    except StatecoreError as error:
        say(f"statecore: [{error.code}] {error}")
        return error.exit_code


def write_report(path: Path, document: Mapping[str, Any]) -> None:
    """Write a report. Raises ``StatecoreError`` if the system refuses."""
    try:
        write_durably(path, encode_json(document))
    except OSError as error:
        raise write_error(path, error) from error


def _check_report(path: Path) -> None:
    """Create the directory of a report, and check that a file can be created there; an existing report stays."""
    partial = path.with_name(path.name + ".tmp")  # the temporary name of a durable write
    try:
        if path.exists() and not path.is_file():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) if path.is_dir() else NotRegularFile(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.open("wb").close()
        partial.unlink()
    except OSError as error:
        raise write_error(path, error) from error


def run_command(options: argparse.Namespace, kind: type[Request], run: Run) -> int:
    """Run a job.

    Returns:
        The exit code: 0, or that of the error's kind. Report or error is in the file named by ``--report``.
    """
    return reporting(options.report, lambda: _run(options, kind, run))


def _run(options: argparse.Namespace, kind: type[Request], run: Run) -> int:
    name = kind.__name__
    begun: JobReport[Body] = JobReport(name, Attempt.begin("", "", ""))
    try:
        request: Any = request_in(options, kind)
        begun = JobReport(name, Attempt.begin("", getattr(request, "state_dir", ""), request.request_id))
        # The request of a migration names it, and may have no spec.
        application_id = getattr(request, "application_id", None) or spec_of(request).application_id
        begun = JobReport(name, replace(begun.attempt, application_id=application_id))
        # Written first, so that a killed job leaves a report.
        write_report(options.report, begun.to_json())
        faults = fault_points_from_environment()
        with metered(MachineProgress(), {"application-id": application_id}, say) as progress:
            result = run(request, progress, faults)
    except StatecoreError as error:
        write_report(options.report, begun.failed(error).to_json())
        sys.stderr.write(f"{error}\n{error.context.get('trace', '')}")
        return error.exit_code
    write_report(options.report, JobReport.of(name, result, begun.attempt).to_json())
    return 0


def request_in(options: argparse.Namespace, kind: type[RequestT]) -> RequestT:
    """The request in ``--request``. Raises ``Invalid`` if it is not one of that kind."""
    return kind.from_json(_parsed(options.request))


def say(line: str) -> None:
    """Write a line to stderr for the operator."""
    sys.stderr.write(f"{line}\n")


def _parsed(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise Invalid(
            f"The request is not JSON: {error}.", code="request-not-json", action="Give one JSON object to --request."
        ) from error
