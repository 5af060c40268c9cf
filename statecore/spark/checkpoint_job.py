"""A checkpoint as a program, for ``spark_jobs/checkpoint.py`` and for a worker that tries it without Spark.

With ``--here`` Spark is not started: this process plans, freezes the plan, and makes the checkpoint if the tails are
short. If they are long it exits with :data:`SPARK_NEEDED`; the same request under ``spark-submit`` resumes the frozen
plan, so both read the same offsets and publish the same::

    python -m statecore.spark.checkpoint_job --here ──▶ plan ──▶ short   ──▶ read, publish, report
                                                            └──▶ long    ──▶ exit code SPARK_NEEDED
    spark-submit spark_jobs/checkpoint.py --go-on    ──▶ the same plan   ──▶ read on executors, publish, report

With ``--here`` the parent process holds this process's standard input; when that is closed, this process exits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from statecore.faults import FaultPoints
from statecore.jobs.bases.planned_tails import RESUMED_NOTE
from statecore.jobs.checkpoint.read_tails import SMALL_TAIL
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.checkpoint.run import run_checkpoint
from statecore.jobs.engine import Engine, HandedOver, Workers
from statecore.jobs.orphan_guard import exit_with_parent_process
from statecore.jobs.planning.plan import RestorePlan
from statecore.jobs.program import parser_of, run_command, say
from statecore.jobs.restore.report import RestoreReport
from statecore.progress import Progress
from statecore.spark.engine import SparkEngine
from statecore.spec.model import ApplicationSpec

SPARK_NEEDED = 64
"""Exit code with ``--here`` if the tails are long; no kind of error has it."""


@dataclass(frozen=True)
class PlanOnlyEngine:
    """An engine for planning that refuses to start.

    Attributes:
        engine: the engine that will run the job.
    """

    engine: Engine

    def expected(self, spec: ApplicationSpec) -> int:
        """See :class:`statecore.jobs.engine.Engine`."""
        return self.engine.expected(spec)

    def start(self, job: str, spec: ApplicationSpec) -> AbstractContextManager[Workers]:  # noqa: ARG002
        """Raises ``HandedOver``: the tails are long."""
        raise HandedOver


def main(arguments: Sequence[str] | None = None, *, checkpoint: Callable[..., Any] = run_checkpoint) -> int:
    """Run the job.

    Args:
        arguments: of the command line; ``None`` for this process's.
        checkpoint: makes the checkpoint.

    Returns:
        The exit code: 0, that of the error's kind, or :data:`SPARK_NEEDED`. The report or the error is in the file of
        ``--report``.
    """
    parser = parser_of("Advance the newest snapshot of one application.", "CheckpointRequest")
    parser.add_argument(
        "--small-tail",
        type=int,
        default=SMALL_TAIL,
        help="number of offsets in all tails below which no engine is started",
    )
    parser.add_argument("--here", action="store_true", help="start no engine; if one is needed, exit with 64")
    parser.add_argument("--go-on", action="store_true", help="resume the plan of --here, without a note about it")
    options = parser.parse_args(arguments)
    engine: Engine = SparkEngine(options.master)
    if options.here:
        engine = PlanOnlyEngine(engine)
        exit_with_parent_process()

    def run(request: CheckpointRequest, progress: Progress, faults: FaultPoints) -> RestoreReport | RestorePlan:
        result = checkpoint(request, engine, progress, faults=faults, say=say, small_tail=options.small_tail)
        if options.go_on and isinstance(result, RestoreReport):
            # The resumed plan belongs to this attempt: no earlier one has failed.
            return replace(result, notes=tuple(note for note in result.notes if note != RESUMED_NOTE))
        return result

    try:
        return run_command(options, CheckpointRequest, run)
    except HandedOver:
        return SPARK_NEEDED


if __name__ == "__main__":
    sys.exit(main())
