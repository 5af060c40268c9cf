"""The program of ``spark_jobs/diff.py``: a request as JSON in, a report or an error as JSON out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from statecore.errors import StatecoreError
from statecore.jobs.diff.request import DiffRequest
from statecore.jobs.diff.run import run_diff
from statecore.jobs.program import parser_of, reporting, request_in, say, write_report
from statecore.progress import MachineProgress
from statecore.spark.engine import SparkEngine


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job.

    Returns:
        The exit code: that of the verdict, or of the error's kind. The report or the error is in the file of
        ``--report``.
    """
    options = parser_of("Compare a state directory.", "DiffRequest").parse_args(arguments)
    return reporting(options.report, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    try:
        request = request_in(options, DiffRequest)
        report = run_diff(request, SparkEngine(options.master), MachineProgress(), say=say)
    except StatecoreError as error:
        write_report(options.report, error.to_json())
        sys.stderr.write(f"{error}\n{error.context.get('trace', '')}")
        return error.exit_code
    write_report(options.report, report.to_json())
    return report.verdict.exit_code
