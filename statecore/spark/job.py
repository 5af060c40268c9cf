"""The program of ``spark_jobs/restore.py``: a request as JSON in, a report or an error as JSON out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from statecore.faults import FaultPoints
from statecore.jobs.planning.plan import RestorePlan
from statecore.jobs.program import parser_of, run_command, say
from statecore.jobs.restore.report import RestoreReport
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.progress import Progress
from statecore.spark.engine import SparkEngine


def main(
    arguments: Sequence[str] | None = None,
    *,
    restore: Callable[..., RestoreReport | RestorePlan] = run_restore,
) -> int:
    """Run the job.

    Args:
        arguments: of the command line; ``None`` for this process's.
        restore: runs the restore.

    Returns:
        The exit code: 0, or that of the error's kind. The report or the error is in the file of ``--report``.
    """
    options = parser_of("Rebuild stores of one application.", "RestoreRequest").parse_args(arguments)

    def run(request: RestoreRequest, progress: Progress, faults: FaultPoints) -> RestoreReport | RestorePlan:
        return restore(request, SparkEngine(options.master), progress, faults=faults, say=say)

    return run_command(options, RestoreRequest, run)
