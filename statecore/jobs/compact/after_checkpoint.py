"""Compaction after a checkpoint, if due; its failure does not fail the checkpoint."""

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
    """Result of a compaction after a checkpoint.

    Attributes:
        notes: for the report.
        damaged: stores with damaged runs, which cannot be fetched.
    """

    notes: tuple[str, ...] = ()
    damaged: frozenset[Key] = frozenset()


def compact_after(
    repository: ApplicationRepository,
    spec: ApplicationSpec,
    parts: Iterable[TaskManifest],
    progress: Progress,
    say: Callable[[str], None],
    faults: FaultPoints,
) -> CompactedAfter:
    """Compact databases that have many runs, if due. A failure is only noted."""
    if not planned_merges(parts, spec):
        return CompactedAfter()
    try:
        report = run_compact(repository, spec, asks_contents=False, progress=progress, say=say, faults=faults)
    except FaultInjected:
        raise
    except Exception as error:
        failure = as_statecore_error(error, "runs were compacted")
        return CompactedAfter(
            (f"Runs were not compacted; the next checkpoint tries again: {failure.what} {failure.action}",)
        )
    done = () if report.snapshot is None else (f"{report.runs} runs were compacted: {report.snapshot}.",)
    return CompactedAfter((*report.findings, *done), report.damaged)
