"""Build the placement plan of a restore: its images, and the other declared stores of their tasks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from statecore.discover.contradicted_kinds import contradiction_error
from statecore.formats.kinds import StoreKind
from statecore.formats.task_id import TaskId
from statecore.jobs.bases.base import Key
from statecore.jobs.context import JobContext
from statecore.jobs.pipeline import staging
from statecore.jobs.planning.plan import ReadPlan
from statecore.jobs.restore.planned_restore import PlannedRestore
from statecore.jobs.restore.request import RestoreRequest
from statecore.spec.model import ApplicationSpec
from statecore.statedir.placement_plan import PlacementPlan, placement_notes, plan_placement
from statecore.statedir.placement_stores import SiblingStore, StoreImage, siblings_of
from statecore.statedir.state_directory import StateDirectory
from statecore.words import WARNING, shortened_list


def check_kinds(directory: StateDirectory, spec: ApplicationSpec, plan: ReadPlan, *, repairs: bool) -> None:
    """Refuse stores whose directories contradict their declared kinds.

    A repair replaces stores of the wrong kind, and leaves the directory of one that is in memory: Kafka Streams ignores
    it.
    """
    decided: set[Key] = set()
    if repairs:
        in_memory = [store.name for store in spec.stores if store.kind is StoreKind.IN_MEMORY]
        decided = {*plan.stores, *((task, store) for task in plan.tasks for store in in_memory)}
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
        plan_id=plan.plan_id,
        resumes=resumes,
    )


def renumbered_notes(planned: PlannedRestore, spec: ApplicationSpec, directory: StateDirectory) -> list[str]:
    """Warnings about stores that the directory has in a subtopology for which the spec does not declare them."""
    declared = {
        part.store: TaskId.parse(part.task).subtopology for part in planned.plan.partitions if not part.is_global
    }
    elsewhere: dict[str, list[str]] = {}
    for task in directory.task_directories():
        for found in directory.stores(task):
            if found.databases and declared.get(found.store, at := TaskId.parse(task).subtopology) != at:
                elsewhere.setdefault(found.store, []).append(task)
    return [
        f"{WARNING}Store {store} exists in {shortened_list(tasks, 5)}, and {spec.source} declares it in subtopology "
        f"{declared[store]}. Unless the topology has changed, correct the spec: Kafka Streams would not use the tasks "
        "of this restore."
        for store, tasks in elsewhere.items()
    ]


def placement_notes_of(planned: PlannedRestore, spec: ApplicationSpec, directory: StateDirectory) -> list[str]:
    """Notes for the operator on a placement that is only planned."""
    guarantee = planned.plan.processing_guarantee
    return placement_notes(directory, planned.images, siblings=_siblings(planned, spec), guarantee=guarantee)


def _siblings(planned: PlannedRestore, spec: ApplicationSpec) -> list[SiblingStore]:
    plan = planned.plan
    return siblings_of(spec, dict.fromkeys(part.task for part in plan.partitions), plan.stores)
