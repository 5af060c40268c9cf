"""A checkpoint as a program: what ``spark_jobs/checkpoint.py`` runs, and what a worker runs before it asks for Spark.

With ``--here`` nothing of Spark is started: this process plans, freezes the plan, and makes the checkpoint where the
tails are little. Where they are not it leaves with :data:`SPARK_WANTED`; the same request under ``spark-submit`` takes
up the plan that is frozen, so both read the same offsets, and what is published is the same::

    python -m statecore.spark.checkpoint_job --here ──▶ plan ──▶ little  ──▶ read, publish, report
                                                            └──▶ long    ──▶ exit code SPARK_WANTED
    spark-submit spark_jobs/checkpoint.py --go-on    ──▶ the same plan   ──▶ read on executors, publish, report

Whoever started it with ``--here`` holds its standard input. When that ends the starter is gone, however it went, and
so is this process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from statecore.faults import FaultPoints
from statecore.jobs.bases.planned_tails import TAKEN_UP
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.checkpoint.run import LITTLE, run_checkpoint
from statecore.jobs.engine import Engine, HandedOver, Workers
from statecore.jobs.planning.plan import RestorePlan
from statecore.jobs.program import parser_of, run_command, say
from statecore.jobs.restore.report import RestoreReport
from statecore.jobs.starter import end_with_the_starter
from statecore.progress import Progress
from statecore.spark.engine import SparkEngine
from statecore.spec.model import ApplicationSpec

SPARK_WANTED = 64
"""Exit code with ``--here`` where the tails are long. No kind of error has it."""


@dataclass(frozen=True)
class NotHere:
    """Plans as an engine would, and starts none.

    Attributes:
        engine: the engine that is meant.
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
        checkpoint: takes the checkpoint.

    Returns:
        The exit code: 0, that of the error's kind, or :data:`SPARK_WANTED`. Report or error lie in the file named by
        ``--report``.
    """
    parser = parser_of("checkpoint.py", "Advance the newest snapshot of one application.", "CheckpointRequest")
    parser.add_argument(
        "--little", type=int, default=LITTLE, help="offsets of all tails below which no engine is started"
    )
    parser.add_argument("--here", action="store_true", help="start no engine; where one is wanted, leave and say so")
    parser.add_argument("--go-on", action="store_true", help="go on with what --here has planned, and do not note it")
    options = parser.parse_args(arguments)
    engine: Engine = SparkEngine(options.master)
    if options.here:
        engine = NotHere(engine)
        end_with_the_starter()

    def run(request: CheckpointRequest, progress: Progress, faults: FaultPoints) -> RestoreReport | RestorePlan:
        result = checkpoint(request, engine, progress, faults=faults, say=say, little=options.little)
        if options.go_on and isinstance(result, RestoreReport):
            # The plan is that of this very attempt: nothing has failed before.
            return replace(result, notes=tuple(note for note in result.notes if note != TAKEN_UP))
        return result

    try:
        return run_command(options, CheckpointRequest, run)
    except HandedOver:
        return SPARK_WANTED


if __name__ == "__main__":
    sys.exit(main())
