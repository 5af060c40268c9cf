"""Compaction after a checkpoint, and the second checkpoint that rebuilds the stores which it found damaged.

They are recorded beside the plan before the second checkpoint begins. A retry finds the first one's snapshot published,
and would stop there without the record. Where the request does not allow to rebuild stores, they are only reported: the
snapshot with them is published by then, and is no worse than the one before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from statecore.documents import DocumentType
from statecore.errors import Reason, StatecoreError
from statecore.faults import FaultInjected
from statecore.jobs.bases.base import Key
from statecore.jobs.checkpoint.job import CheckpointJob
from statecore.jobs.compact.planner import planned_merges
from statecore.jobs.compact.run import compact
from statecore.jobs.engine.processes import local_engine
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.planning.frozen_plan import DAMAGED_SUFFIX
from statecore.repository.manifest import TaskManifest
from statecore.repository.publish.publication import Publication
from statecore.words import shortened_list


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


@dataclass(frozen=True)
class DamagedStores:
    """Stores that a checkpoint has still to rebuild."""

    stores: tuple[Key, ...]


_DAMAGED_STORES = DocumentType(
    "list of damaged stores", 1, DamagedStores, "Make a checkpoint under another request id."
)


def record_damaged(job: CheckpointJob, damaged: Collection[Key]) -> None:
    """Record damaged stores, if possible: the job itself rebuilds them even if it cannot record them."""
    if damaged:
        with suppress(StatecoreError):
            job.home.save(DAMAGED_SUFFIX, _DAMAGED_STORES.encode(DamagedStores(tuple(sorted(damaged)))))


def recorded_damaged(job: CheckpointJob) -> frozenset[Key]:
    """The stores that an earlier attempt of this request found damaged, and has not rebuilt."""
    content = job.home.read(DAMAGED_SUFFIX)
    return frozenset() if content is None else frozenset(_DAMAGED_STORES.decode(content).stores)


def forget_damaged(job: CheckpointJob) -> None:
    """Delete the record, once the stores are rebuilt."""
    job.home.forget(DAMAGED_SUFFIX)


def not_rebuilt_note(damaged: Collection[Key]) -> str:
    """Note on damaged stores where the request does not allow to rebuild them."""
    named = shortened_list([f"{store} of task {task}" for task, store in sorted(damaged)])
    return (
        f"Damaged in the snapshot, and not rebuilt because that was not allowed: {named}. Let the next checkpoint "
        "rebuild them (--when-refused rebuild), or restore them (statecore restore --repository)."
    )


def rebuilding_job(job: CheckpointJob, damaged: Collection[Key]) -> CheckpointJob:
    """A second checkpoint, on this machine, that refuses all snapshots as bases of damaged stores."""
    request = replace(job.request, request_id=f"{job.request.request_id}-rebuilt", decided_upon=None, compact=False)
    why = Reason("some of its files are damaged or missing, found by a compaction", "base-damaged")
    return CheckpointJob(
        job.context.with_request(request),
        local_engine(job.engine),
        job.small_tail,
        damaged=dict.fromkeys(damaged, why),
    )
