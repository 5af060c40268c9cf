"""A migration as a program: what ``spark_jobs/migrate_checkpoints.py`` runs, and what a worker runs without Spark.

With ``--here`` processes of this machine convert the tasks, and nothing of Spark is started; whoever started it then
holds its standard input (:mod:`statecore.jobs.starter`). Without it Spark's executors do, which have to see the
application's directory: each is asked before it is given a task.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from statecore.faults import FaultPoints
from statecore.jobs.migrate.report import MigrateReport
from statecore.jobs.migrate.request import MigrateRequest
from statecore.jobs.migrate.run import run_migrate
from statecore.jobs.processes import ProcessEngine
from statecore.jobs.program import parser_of, run_command, say
from statecore.jobs.starter import end_with_the_starter
from statecore.progress import Progress
from statecore.spark.engine import SparkEngine


def main(arguments: Sequence[str] | None = None, *, migrate: Callable[..., MigrateReport] = run_migrate) -> int:
    """Run the job.

    Args:
        arguments: of the command line; ``None`` for this process's.
        migrate: migrates.

    Returns:
        The exit code: 0, also of a plan that is refused, or that of the error's kind. Report or error lie in the file
        named by ``--report``.
    """
    parser = parser_of("migrate_checkpoints.py", "Make a state directory what another release opens.", "MigrateRequest")
    parser.add_argument("--here", action="store_true", help="convert with processes of this machine, without Spark")
    options = parser.parse_args(arguments)
    if options.here:
        end_with_the_starter()

    def run(request: MigrateRequest, progress: Progress, faults: FaultPoints) -> MigrateReport:
        engine = ProcessEngine() if options.here else SparkEngine(options.master)
        return migrate(request, engine, progress, faults=faults, say=say)

    return run_command(options, MigrateRequest, run)


if __name__ == "__main__":
    sys.exit(main())
