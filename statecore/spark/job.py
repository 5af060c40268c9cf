"""What ``spark_jobs/restore.py`` runs: a request as JSON in, a report or an error as JSON out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from statecore.documents import encoded, parsed
from statecore.errors import Invalid, StatecoreError
from statecore.faults import fault_points_from_environment
from statecore.filesystem import write_durably
from statecore.jobs.attempt import Attempt, utc_now
from statecore.jobs.job import spec_of
from statecore.jobs.plan import RestorePlan
from statecore.jobs.request import RestoreRequest
from statecore.jobs.restore import run_restore
from statecore.progress import MachineProgress
from statecore.spark.engine import SparkEngine
from statecore.telemetry import metered


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job.

    Returns:
        The exit code: 0, or that of the error's kind. Report or error lie in the file named by ``--report``.
    """
    parser = argparse.ArgumentParser(prog="restore.py", description="Rebuild stores of one application.")
    parser.add_argument("--request", required=True, help="a RestoreRequest as JSON")
    parser.add_argument("--report", required=True, type=Path, help="file for the report, or for the error")
    parser.add_argument("--master", help="the Spark master that is asked for; to run on another one is an error")
    options = parser.parse_args(arguments)
    attempt = Attempt.begin("", "", "")
    try:
        request = RestoreRequest.from_json(_parsed(options.request))
        attempt = Attempt.begin("", request.state_dir, request.request_id)
        application_id = spec_of(request).application_id
        attempt = replace(attempt, application_id=application_id)
        # A job that is killed leaves this word, rather than none.
        _write(options.report, attempt.begun())
        faults = fault_points_from_environment()
        with metered(MachineProgress(), {"application-id": application_id}, _say) as progress:
            result = run_restore(request, SparkEngine(options.master), progress, faults=faults, say=_say)
    except StatecoreError as error:
        _write(options.report, attempt.failed(error.to_json()))
        sys.stderr.write(f"{error}\n{error.context.get('trace', '')}")
        return error.exit_code
    if isinstance(result, RestorePlan):
        _write(options.report, {**attempt.begun(), **result.to_json(), "finished": utc_now()})
    else:
        _write(options.report, result.to_json())
    return 0


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _parsed(text: str) -> Any:
    try:
        return parsed(text)
    except ValueError as error:
        raise Invalid(f"The request is no JSON: {error}.", action="Give one JSON object to --request.") from error


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, encoded(document))
