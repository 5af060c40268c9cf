"""A recovery of global stores as a program, for who runs it beside itself: a request as JSON in, a report out.

Processes of this machine rebuild the stores; whoever started it with ``--here`` holds its standard input
(:mod:`statecore.jobs.starter`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from statecore.faults import FaultPoints
from statecore.jobs.processes import ProcessEngine
from statecore.jobs.program import parser_of, run_command, say
from statecore.jobs.recover_global.request import RecoverGlobalRequest
from statecore.jobs.recover_global.run import run_recover_global
from statecore.jobs.repair.report import RepairReport
from statecore.jobs.starter import end_with_the_starter
from statecore.progress import Progress


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job.

    Returns:
        The exit code: 0, whatever is left, or that of the error's kind. Report or error lie in the file named by
        ``--report``.
    """
    parser = parser_of("recover_global_job.py", "Recover the global stores of a directory.", "RecoverGlobalRequest")
    parser.add_argument("--here", action="store_true", help="end with whoever started it")
    options = parser.parse_args(arguments)
    if options.here:
        end_with_the_starter()

    def run(request: RecoverGlobalRequest, progress: Progress, faults: FaultPoints) -> RepairReport:
        return run_recover_global(request, ProcessEngine(), progress, faults=faults, say=say)

    return run_command(options, RecoverGlobalRequest, run)


if __name__ == "__main__":
    sys.exit(main())
