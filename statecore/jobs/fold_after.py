"""The fold after a checkpoint: made where it is due, by whoever has just published, and never at its cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from statecore.faults import FaultInjected, FaultPoints
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.fold import run_fold
from statecore.jobs.fold_plan import planned_merges
from statecore.progress import Progress
from statecore.repository.manifest import TaskPart
from statecore.repository.shelf import Shelf
from statecore.spec.model import ApplicationSpec


def fold_after(
    shelf: Shelf,
    spec: ApplicationSpec,
    parts: Iterable[TaskPart],
    progress: Progress,
    say: Callable[[str], None],
    faults: FaultPoints,
) -> tuple[str, ...]:
    """Merge what has become many runs, where it has; what to say of it. A failure is said, and no more than that.

    Args:
        shelf: where the snapshots are.
        spec: the application.
        parts: what was published a moment ago: where nothing of it is due, nothing is read.
        progress: told how far it is.
        say: told what an operator should read at once.
        faults: points at which tests let the process die.
    """
    if not planned_merges(parts, spec):
        return ()
    try:
        report = run_fold(shelf, spec, asks_contents=False, progress=progress, say=say, faults=faults)
    except FaultInjected:
        raise
    except Exception as error:
        said = as_statecore_error(error, "runs were folded")
        return (f"Runs were not folded, which the next checkpoint tries again: {said.what} {said.action}",)
    done = () if report.snapshot is None else (f"{report.runs} runs were folded: {report.snapshot}.",)
    return (*report.findings, *done)
