"""Build the placement plan of a restore: its images, and the other declared stores of their tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from statecore.discover.contradicted_kinds import contradiction_error
from statecore.formats.kinds import StoreKind
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import Key
from statecore.jobs.context import JobContext
from statecore.jobs.pipeline import staging
from statecore.jobs.planning.plan import RestorePlan
from statecore.jobs.restore.planned_restore import PlannedRestore
from statecore.jobs.restore.request import RestoreRequest
from statecore.spec.model import UNKNOWN_CHANGELOG, ApplicationSpec, StoreSpec
from statecore.statedir.placement_plan import PlacementPlan, placement_notes, plan_placement
from statecore.statedir.placement_stores import SiblingStore, StoreImage
from statecore.statedir.state_directory import StateDirectory


def check_kinds(
    directory: StateDirectory, spec: ApplicationSpec, plan: RestorePlan, decided: Collection[Key] = ()
) -> None:
    """Refuse stores whose directories contradict their declared kinds, except those decided on by the caller."""
    if (refusal := contradiction_error(directory, spec, plan.tasks, decided)) is not None:
        raise refusal


def placement_of(
    planned: PlannedRestore, context: JobContext[RestoreRequest], staged: Path | None = None, *, resumes: bool
) -> PlacementPlan:
    """Plan the placement (or, without images yet, raise every reason not to begin)."""
    request, plan = context.request, planned.plan

    def built(image: StoreImage) -> StoreImage:
        if staged is None:
            return image
        path = staging.image_path(staged, image.task, image.store) / staging.DATABASE
        parts = plan.stores[image.task, image.store]
        return replace(image, path=path, offsets={part.topic_partition: part.committed_offset for part in parts})

    return plan_placement(
        context.directory,
        [built(image) for image in planned.images],
        siblings=_siblings(planned, context.spec),
        guarantee=plan.processing_guarantee,
        replace=request.replace,
        request_id=request.request_id,
        resumes=resumes,
    )


def placement_notes_of(planned: PlannedRestore, spec: ApplicationSpec, directory: StateDirectory) -> list[str]:
    """Notes for the operator on a placement that is only planned."""
    guarantee = planned.plan.processing_guarantee
    return placement_notes(directory, planned.images, siblings=_siblings(planned, spec), guarantee=guarantee)


def _siblings(planned: PlannedRestore, spec: ApplicationSpec) -> list[SiblingStore]:
    plan = planned.plan
    return siblings_of(spec, dict.fromkeys(part.task for part in plan.partitions), plan.stores)


def siblings_of(
    spec: ApplicationSpec, tasks: Iterable[str], restored: Collection[tuple[str, str]]
) -> list[SiblingStore]:
    """The declared stores of some tasks that are not restored, but share a task with those that are."""
    return [
        SiblingStore(task, store.name, store.kind, _changelog_of(store, task), logged=store.is_logged)
        for task in tasks
        for store in spec.stores_of(task)
        if store.kind is not StoreKind.IN_MEMORY and (task, store.name) not in restored
    ]


def _changelog_of(store: StoreSpec, task: str) -> TopicPartition | None:
    """Changelog partition of a store in a task; ``None`` if it has none, or none is decided."""
    if not store.is_logged or store.changelog == UNKNOWN_CHANGELOG:
        return None
    return TopicPartition(store.changelog, TaskId.parse(task).partition or 0)
