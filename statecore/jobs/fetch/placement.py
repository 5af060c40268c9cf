"""Plan the placement of fetched stores."""

from __future__ import annotations

from pathlib import Path

from statecore.discover.contradicted_kinds import contradiction_error
from statecore.jobs.fetch.plan import FetchPlan
from statecore.jobs.fetch.store_to_fetch import StoreToFetch
from statecore.jobs.job import Job
from statecore.jobs.pipeline import staging
from statecore.jobs.restore.placement_request import siblings_of
from statecore.statedir.apply import PlacementPlan, StoreImage, plan_placement
from statecore.statedir.placement_plan import unopenable_stores_error


def placement_of(job: Job, todo: FetchPlan, work: Path | None, built: FetchPlan, *, resumes: bool) -> PlacementPlan:
    keys = {store.key for store in built.stores}

    def image_of(store: StoreToFetch) -> StoreImage:
        first = store.snapshot.changelogs[0].topic_partition
        sibling = (*store.key, store.snapshot.kind, first)
        if work is None or store.key not in keys:
            return StoreImage(*sibling, None, None)
        path = staging.image_path(work, *store.key) / staging.DATABASE
        return StoreImage(*sibling, path, store.offsets)

    spec = job.context.declared or todo.found.spec
    if work is None and (
        refusal := contradiction_error(job.context.directory, spec, {store.task for store in todo.stores})
    ):
        raise refusal
    return plan_placement(
        job.context.directory,
        [image_of(store) for store in todo.stores],
        siblings=siblings_of(
            spec, dict.fromkeys(store.task for store in todo.stores), {store.key for store in todo.stores}
        ),
        guarantee=spec.processing_guarantee,
        replace=job.context.request.replace,
        request_id=job.context.request.request_id,
        resumes=resumes,
    )


def refuse_like_a_run(job: Job, todo: FetchPlan) -> tuple[str, ...]:
    """Refuse a plan if a run would be refused for existing stores; otherwise return notes."""
    holder = job.context.directory.in_use_by()
    if holder is not None:  # its state after that process ends is unknown
        return (job.context.directory.use_note(holder),)
    spec, tasks = job.context.declared or todo.found.spec, {store.task for store in todo.stores}
    images = [
        StoreImage(*store.key, store.snapshot.kind, store.snapshot.changelogs[0].topic_partition)
        for store in todo.stores
    ]
    refusal = contradiction_error(job.context.directory, spec, tasks) or unopenable_stores_error(
        job.context.directory, images
    )
    if refusal is not None:
        raise refusal
    return ()
