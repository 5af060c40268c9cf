"""A migration as a program, for ``spark_jobs/migrate_checkpoints.py`` and for a worker that needs no Spark.

With ``--here`` processes of this machine convert the tasks and Spark is not started; the parent process then holds this
process's standard input (:mod:`statecore.jobs.orphan_guard`). Otherwise Spark's executors convert them; they need
access to the application's directory, which is checked first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from statecore.faults import FaultPoints
from statecore.jobs.migrate.report import MigrateReport
from statecore.jobs.migrate.request import MigrateRequest
from statecore.jobs.migrate.run import run_migrate
from statecore.jobs.orphan_guard import exit_with_parent_process
from statecore.jobs.processes import ProcessEngine
from statecore.jobs.program import parser_of, run_command, say
from statecore.progress import Progress
from statecore.spark.engine import SparkEngine


def main(arguments: Sequence[str] | None = None, *, migrate: Callable[..., MigrateReport] = run_migrate) -> int:
    """Run the job.

    Args:
        arguments: of the command line; ``None`` for this process's.
        migrate: runs the migration.

    Returns:
        The exit code: 0, also if the plan is refused, or that of the error's kind. The report or the error is in the
        file of ``--report``.
    """
    parser = parser_of("Convert a state directory for another release.", "MigrateRequest")
    parser.add_argument("--here", action="store_true", help="convert with processes of this machine, without Spark")
    options = parser.parse_args(arguments)
    if options.here:
        exit_with_parent_process()

    def run(request: MigrateRequest, progress: Progress, faults: FaultPoints) -> MigrateReport:
        engine = ProcessEngine() if options.here else SparkEngine(options.master)
        return migrate(request, engine, progress, faults=faults, say=say)

    return run_command(options, MigrateRequest, run)


if __name__ == "__main__":
    sys.exit(main())
