"""Compaction after a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from statecore.faults import FaultInjected
from statecore.jobs.bases.base import Key
from statecore.jobs.checkpoint.damaged_stores import record_damaged
from statecore.jobs.checkpoint.job import CheckpointJob
from statecore.jobs.compact.planner import planned_merges
from statecore.jobs.compact.run import compact
from statecore.jobs.failures import as_statecore_error
from statecore.repository.manifest import TaskManifest
from statecore.repository.publication import Publication


@dataclass(frozen=True)
class CompactedAfter:
    """Result of a compaction after a checkpoint.

    Attributes:
        damaged: stores with damaged runs, which cannot be fetched.
    """

    notes: tuple[str, ...] = ()
    damaged: frozenset[Key] = frozenset()


def compact_after(job: CheckpointJob, publication: Publication, published: Iterable[TaskManifest]) -> CompactedAfter:
    """Compact databases that have many runs, if due; a failure does not fail the checkpoint."""
    if not job.request.compact:
        return CompactedAfter()
    with job.phase("compact"):
        manifests = {**publication.task_manifests(), **{one.task: one for one in published}}
        if not planned_merges(manifests.values(), job.spec):
            return CompactedAfter()
        try:
            report = compact(job.context, carries_digests=False)
        except FaultInjected:
            raise
        except Exception as error:
            failure = as_statecore_error(error, "runs were compacted")
            return CompactedAfter(
                (f"Runs were not compacted; the next checkpoint tries again: {failure.what} {failure.action}",)
            )
    record_damaged(job, report.damaged)
    done = () if report.snapshot is None else (f"{report.runs} runs were compacted: {report.snapshot}.",)
    return CompactedAfter((*report.findings, *done), report.damaged)
