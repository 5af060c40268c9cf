"""The diagnosis as a program: a request as JSON in, a report or an error as JSON out.

It has no engine, so it never runs through ``spark-submit``; with ``--here`` it ends when its starter closes standard
input (:mod:`statecore.jobs.orphan_guard`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from statecore.jobs.attempt import Attempt
from statecore.jobs.diagnose.request import DiagnoseRequest
from statecore.jobs.diagnose.run import Examination, run_diagnose
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.orphan_guard import exit_with_parent_process
from statecore.jobs.program import parser_of, reporting, request_in, write_report
from statecore.jobs.report import JobReport
from statecore.progress import MachineProgress


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; report or error are written to the file named by ``--report``.

    Returns:
        The exit code: 0 whatever was found, or that of the error.
    """
    parser = parser_of("Examine state directories.", "DiagnoseRequest")
    parser.add_argument("--here", action="store_true", help="end with the process that started it")
    options = parser.parse_args(arguments)
    if options.here:
        exit_with_parent_process()
    return reporting(options.report, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    begun: JobReport[Examination] = JobReport("diagnose", Attempt.begin("", "", ""))
    try:
        request = request_in(options, DiagnoseRequest)
        attempt = replace(begun.attempt, application_id=request.application_id or "", state_dir=request.state_dir)
        begun = replace(begun, attempt=attempt)
        found = run_diagnose(request, MachineProgress())
    except Exception as cause:
        error = as_statecore_error(cause, f"{begun.attempt.state_dir} was examined")
        write_report(options.report, begun.failed(error).to_json())
        sys.stderr.write(f"{error}\n{error.context.get('trace', '')}")
        return error.exit_code
    write_report(options.report, found.to_json())
    return 0


if __name__ == "__main__":
    sys.exit(main())
