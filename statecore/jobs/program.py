"""A job as a program that another one starts: a request as JSON in, a report or an error as JSON out."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from statecore.documents import encoded, parsed
from statecore.errors import Invalid, StatecoreError
from statecore.faults import FaultPoints, fault_points_from_environment
from statecore.filesystem import NotRegularFile, write_durably
from statecore.jobs.attempt import Attempt, utc_now
from statecore.jobs.fields import Request
from statecore.jobs.job import spec_of
from statecore.jobs.migrate.report import MigrateReport
from statecore.jobs.planning.plan import RestorePlan
from statecore.jobs.repair.report import RepairReport
from statecore.jobs.restore.report import RestoreReport
from statecore.progress import MachineProgress, Progress
from statecore.system_errors import write_error
from statecore.telemetry import metered

RequestT = TypeVar("RequestT", bound=Request)


class Run(Protocol):
    """Runs the job of a request."""

    def __call__(
        self, request: Any, progress: Progress, faults: FaultPoints, /
    ) -> RestoreReport | RestorePlan | MigrateReport | RepairReport:
        """Run it."""


def parser_of(program: str, description: str, request: str) -> argparse.ArgumentParser:
    """The arguments that all of these programs take.

    Args:
        program: its name.
        description: what it does.
        request: the name of its request's class.
    """
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--request", required=True, help=f"a {request} as JSON")
    parser.add_argument("--report", required=True, type=Path, help="file for the report, or for the error")
    parser.add_argument("--master", help="the Spark master that is asked for; to run on another one is an error")
    return parser


def reporting(report: Path, work: Callable[[], int]) -> int:
    """Do the work of a program that leaves a report, once it is known that the report can be written.

    Args:
        report: the file.
        work: does it, and writes the report by :func:`write_report`.

    Returns:
        The exit code of the work; where the report cannot be written, that of the error, which is told on stderr alone.
    """
    try:
        _check_report(report)
        return work()
    except StatecoreError as error:
        say(f"statecore: [{error.code}] {error}")
        return error.exit_code


def write_report(path: Path, document: Mapping[str, Any]) -> None:
    """Write a report. Raises ``StatecoreError`` where the system refuses that."""
    try:
        write_durably(path, encoded(document))
    except OSError as error:
        raise write_error(path, error) from error


def _check_report(path: Path) -> None:
    """Make the directory of a report, and see that a file can be made there; a report that is there stays."""
    partial = path.with_name(path.name + ".tmp")  # where it will be written first
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

    Args:
        options: what :func:`parser_of` has parsed.
        kind: the request's class.
        run: given the request, who is told the progress, and the fault points.

    Returns:
        The exit code: 0, or that of the error's kind. Report or error lie in the file named by ``--report``.
    """
    return reporting(options.report, lambda: _run(options, kind, run))


def _run(options: argparse.Namespace, kind: type[Request], run: Run) -> int:
    attempt = Attempt.begin("", "", "")
    try:
        request: Any = request_in(options, kind)
        attempt = Attempt.begin("", getattr(request, "state_dir", ""), request.request_id)
        # The request of a migration says it, and may go without a spec.
        application_id = getattr(request, "application_id", None) or spec_of(request).application_id
        attempt = replace(attempt, application_id=application_id)
        # A job that is killed leaves this word, rather than none.
        write_report(options.report, attempt.begun())
        faults = fault_points_from_environment()
        with metered(MachineProgress(), {"application-id": application_id}, say) as progress:
            result = run(request, progress, faults)
    except StatecoreError as error:
        write_report(options.report, attempt.failed(error.to_json()))
        sys.stderr.write(f"{error}\n{error.context.get('trace', '')}")
        return error.exit_code
    if isinstance(result, RestorePlan):
        write_report(options.report, {**attempt.begun(), **result.to_json(), "finished": utc_now()})
    else:
        write_report(options.report, result.to_json())
    return 0


def request_in(options: argparse.Namespace, kind: type[RequestT]) -> RequestT:
    """The request that ``--request`` has. Raises ``Invalid`` where it has none of that kind."""
    return kind.from_json(_parsed(options.request))


def say(line: str) -> None:
    """Tell an operator something at once."""
    sys.stderr.write(f"{line}\n")


def _parsed(text: str) -> Any:
    try:
        return parsed(text)
    except ValueError as error:
        raise Invalid(
            f"The request is no JSON: {error}.", code="request-not-json", action="Give one JSON object to --request."
        ) from error
