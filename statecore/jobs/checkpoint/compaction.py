"""Compaction after a checkpoint, and the second checkpoint that rebuilds stores found damaged by it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from statecore.documents import DocumentType
from statecore.errors import Reason, StatecoreError
from statecore.faults import FaultInjected
from statecore.jobs.bases.base import DAMAGED, Key
from statecore.jobs.checkpoint.job import CheckpointJob
from statecore.jobs.compact.plan import planned_merges
from statecore.jobs.compact.run import compact
from statecore.jobs.engine.processes import local_engine
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.planning.request_files import DAMAGED_SUFFIX
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


@dataclass(frozen=True)
class DamagedStores:
    """Stores that a checkpoint has still to rebuild: a retry finds its own snapshot published, and would stop there."""

    stores: tuple[Key, ...]


_DAMAGED_STORES = DocumentType(
    "list of damaged stores", 1, DamagedStores, "Make a checkpoint under another request id."
)


def damaged_stores(job: CheckpointJob) -> frozenset[Key]:
    """The stores that an earlier attempt of this request found damaged, and has not rebuilt."""
    content = job.home.read(DAMAGED_SUFFIX)
    return frozenset() if content is None else frozenset(_DAMAGED_STORES.decode(content).stores)


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
    if report.damaged:
        # Before they are rebuilt, which may fail. They are rebuilt at once even if they cannot be recorded.
        with suppress(StatecoreError):
            job.home.save(DAMAGED_SUFFIX, _DAMAGED_STORES.encode(DamagedStores(tuple(sorted(report.damaged)))))
    done = () if report.snapshot is None else (f"{report.runs} runs were compacted: {report.snapshot}.",)
    return CompactedAfter((*report.findings, *done), report.damaged)


def rebuilding_job(job: CheckpointJob, damaged: Collection[Key]) -> CheckpointJob:
    """A second checkpoint, on this machine, that refuses all snapshots as bases of damaged stores."""
    request = replace(job.request, request_id=f"{job.request.request_id}-healed", decided_upon=None, compact=False)
    why = Reason(f"{DAMAGED}, found by a compaction", "base-damaged")
    snapshots = [entry.snapshot for entry in job.repository.head().snapshots]
    return CheckpointJob(
        job.context.with_request(request),
        local_engine(job.engine),
        job.small_tail,
        refused={(key, snapshot): why for key in damaged for snapshot in snapshots},
    )
