"""Place the stores of a fetch (:mod:`statecore.statedir.placement`), or check before the lock that this would work.

``resumes`` says whether an earlier attempt of the request began the same placement.
"""

from __future__ import annotations

from pathlib import Path

from statecore.discover.contradicted_kinds import contradiction_error
from statecore.errors import Invalid
from statecore.jobs.fetch.job import FetchJob
from statecore.jobs.fetch.plan import FetchPlan
from statecore.jobs.fetch.store_to_fetch import StoreToFetch
from statecore.jobs.pipeline import staging
from statecore.spec.model import ApplicationSpec
from statecore.statedir.placement import apply_placement
from statecore.statedir.placement_plan import PlacementPlan, plan_placement, unopenable_stores_error
from statecore.statedir.placement_stores import StoreImage, siblings_of


def planned_placement(job: FetchJob, plan: FetchPlan, *, resumes: bool) -> PlacementPlan:
    """The placement before its images are built. Raises ``Invalid``: it would be refused."""
    if refusal := _contradiction(job, plan):
        raise refusal
    return _placement(job, plan, [_image(store) for store in plan.stores], resumes=resumes)


def place(job: FetchJob, plan: FetchPlan, built: FetchPlan, work: Path, *, resumes: bool) -> None:
    """Place the stores of a plan, of which those in ``built`` have images in ``work``."""
    keys = {store.key for store in built.stores}
    images = [_image(store, work if store.key in keys else None) for store in plan.stores]
    placement = _placement(job, plan, images, resumes=resumes)
    for line in placement.lines:
        job.say(line)
    apply_placement(placement, job.faults, job.progress, staged=staging.staged_names(job.files.path, work))


def _image(store: StoreToFetch, work: Path | None = None) -> StoreImage:
    changelog = store.snapshot.changelogs[0].topic_partition
    if work is None:
        return StoreImage(*store.key, store.snapshot.kind, changelog)
    path = staging.image_path(work, *store.key) / staging.DATABASE
    return StoreImage(*store.key, store.snapshot.kind, changelog, path, store.offsets)


def _placement(job: FetchJob, plan: FetchPlan, images: list[StoreImage], *, resumes: bool) -> PlacementPlan:
    spec, tasks = _spec(job, plan), dict.fromkeys(store.task for store in plan.stores)
    return plan_placement(
        job.directory,
        images,
        siblings=siblings_of(spec, tasks, {store.key for store in plan.stores}),
        guarantee=spec.processing_guarantee,
        replace=job.request.replace,
        request_id=job.request.request_id,
        plan_id=plan.plan_id,
        resumes=resumes,
    )


def check_placement(job: FetchJob, plan: FetchPlan) -> tuple[str, ...]:
    """Without the lock: refuse a plan if a run would be refused for existing stores; otherwise return notes."""
    holder = job.directory.in_use_by()
    if holder is not None:  # its state after that process ends is unknown
        return (job.directory.use_note(holder),)
    images = [_image(store) for store in plan.stores]
    if refusal := _contradiction(job, plan) or unopenable_stores_error(job.directory, images):
        raise refusal
    return ()


def _contradiction(job: FetchJob, plan: FetchPlan) -> Invalid | None:
    """The error for stores on disk of other kinds than those of the plan's tasks are declared."""
    return contradiction_error(job.directory, _spec(job, plan), {store.task for store in plan.stores})


def _spec(job: FetchJob, plan: FetchPlan) -> ApplicationSpec:
    """The given spec, or else that of the snapshot."""
    return job.declared or plan.found.spec
