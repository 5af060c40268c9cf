"""Publish what a checkpoint has read."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from statecore.jobs.bases.base import Key
from statecore.jobs.checkpoint.changed_tasks import changed_tasks
from statecore.jobs.checkpoint.plan import CheckpointPlan
from statecore.jobs.checkpoint.reconcile import Reconciled, rebased
from statecore.jobs.job import Job
from statecore.jobs.pipeline.read_stage import ReadResult
from statecore.jobs.pipeline.task_manifests import task_manifests
from statecore.jobs.planning.request_files import request_name
from statecore.repository.manifest import TaskManifest
from statecore.repository.publication import Publication, Published
from statecore.spec.writer import spec_hash

ORIGIN = "checkpoint"


def publication_of(job: Job) -> Publication:
    """The publication of a checkpoint, which finds that of an earlier attempt."""
    context = job.context
    return Publication(
        context.repository,
        job.spec,
        request=request_name(context.request.request_id),
        origin=ORIGIN,
        clock=time.time,
        faults=job.faults,
    )


def publish_tails(
    job: Job,
    publication: Publication,
    planned: CheckpointPlan,
    read: ReadResult,
    reconciled: Mapping[Key, Reconciled],
) -> tuple[Sequence[TaskManifest], Published | None]:
    """Publish what is new.

    Returns:
        The new task manifests, and the snapshot; ``None`` if nothing is new.
    """
    request, spec = job.context.request, job.spec
    is_whole = not request.stores and not request.partitions
    changes = changed_tasks(
        planned, publication, reconciled.keys(), lambda store: is_whole and spec.store(store) is None
    )
    read_positions = changes.read_positions if changes.tasks or changes.is_aged(planned.delete_retention_ms) else {}
    if not changes.tasks and not read_positions:
        return (), None
    with job.phase("publish"):
        job.progress.phase("publish")
        manifests = task_manifests(
            planned.plan.of_tasks(changes.tasks),
            read,
            {},
            bases=planned.bases,
            read_at_ms=planned.made_ms,
            spec_digest=spec_hash(spec),
        )
        published = publication.publish(
            manifests,
            whole=False,
            tasks=planned.plan.tasks if is_whole else None,
            rebase=lambda mine, theirs: rebased(mine, theirs, planned.below(mine.task), reconciled),
            refused=planned.not_newest,
            read_positions=read_positions,
            hourly=True,
        )
        job.progress.done("" if published is None else published.snapshot)
    return manifests, published
