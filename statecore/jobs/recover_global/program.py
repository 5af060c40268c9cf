"""The recovery of global stores as a program: a request as JSON in, a report or an error as JSON out.

Local processes rebuild the stores; with ``--here`` it ends when its starter closes standard input
(:mod:`statecore.jobs.orphan_guard`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from statecore.faults import FaultPoints
from statecore.jobs.orphan_guard import exit_with_parent_process
from statecore.jobs.processes import ProcessEngine
from statecore.jobs.program import parser_of, run_command, say
from statecore.jobs.recover_global.request import RecoverGlobalRequest
from statecore.jobs.recover_global.run import run_recover_global
from statecore.jobs.repair.report import RepairReport
from statecore.progress import Progress


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; report or error are written to the file named by ``--report``.

    Returns:
        The exit code: 0 whatever remains to be done, or that of the error.
    """
    parser = parser_of("Recover the global stores of a directory.", "RecoverGlobalRequest")
    parser.add_argument("--here", action="store_true", help="end with the process that started it")
    options = parser.parse_args(arguments)
    if options.here:
        exit_with_parent_process()

    def run(request: RecoverGlobalRequest, progress: Progress, faults: FaultPoints) -> RepairReport:
        return run_recover_global(request, ProcessEngine(), progress, faults=faults, say=say)

    return run_command(options, RecoverGlobalRequest, run)


if __name__ == "__main__":
    sys.exit(main())
