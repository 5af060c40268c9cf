"""The fold after a checkpoint: made where it is due, by whoever has just published, and never at its cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from statecore.faults import FaultInjected, FaultPoints
from statecore.jobs.bases.base import Key
from statecore.jobs.compact.plan import planned_merges
from statecore.jobs.compact.run import run_compact
from statecore.jobs.failures import as_statecore_error
from statecore.progress import Progress
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import TaskManifest
from statecore.spec.model import ApplicationSpec


@dataclass(frozen=True)
class CompactedAfter:
    """What a fold after a checkpoint came to.

    Attributes:
        notes: what to say of it.
        damaged: stores of which runs could not be brought as they were put: nobody can fetch them.
    """

    notes: tuple[str, ...] = ()
    damaged: frozenset[Key] = frozenset()


def compact_after(
    shelf: ApplicationRepository,
    spec: ApplicationSpec,
    parts: Iterable[TaskManifest],
    progress: Progress,
    say: Callable[[str], None],
    faults: FaultPoints,
) -> CompactedAfter:
    """Merge what has become many runs, where it has. That the fold failed is said, and no more than that.

    Args:
        shelf: where the snapshots are.
        spec: the application.
        parts: what was published a moment ago: where nothing of it is due, nothing is read.
        progress: told how far it is.
        say: told what an operator should read at once.
        faults: points at which tests let the process die.
    """
    if not planned_merges(parts, spec):
        return CompactedAfter()
    try:
        report = run_compact(shelf, spec, asks_contents=False, progress=progress, say=say, faults=faults)
    except FaultInjected:
        raise
    except Exception as error:
        said = as_statecore_error(error, "runs were folded")
        return CompactedAfter(
            (f"Runs were not folded, which the next checkpoint tries again: {said.what} {said.action}",)
        )
    done = () if report.snapshot is None else (f"{report.runs} runs were folded: {report.snapshot}.",)
    return CompactedAfter((*report.findings, *done), report.damaged)
