"""Plans a migration: the conversion of every task, and why a directory is refused."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from statecore.conversion import StoreConversion, TaskConversion, plan_conversion
from statecore.errors import NotFound, Reason
from statecore.formats.releases import CHECKPOINT_FILE, RELEASES
from statecore.formats.topic_partition import TopicPartition, offsets_by_name
from statecore.jobs.context import JobContext
from statecore.jobs.directory_change import plan_id_of
from statecore.jobs.migrate.plan import MigrationPlan
from statecore.jobs.migrate.report import MigratedStep, MigratedStore, MigratedTask
from statecore.jobs.migrate.request import MigrateRequest
from statecore.spec.model import ApplicationSpec, undecided_note
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import changelog_owner, guarantee_of, store_places
from statecore.stores.legacy_offsets import read_offsets


def plan_migration(context: JobContext[MigrateRequest], directory: StateDirectory) -> MigrationPlan:
    """Plan the conversion of the selected tasks, from the directory as it is now."""
    request, progress = context.request, context.progress
    tasks = _selected_tasks(request, directory)
    progress.phase("inspect", len(tasks), "tasks")
    stores = {place.store for place in store_places(directory)}
    conversions, fingerprints = [], {}
    for task in tasks:
        before = fingerprint(directory.task_path(task))
        conversions.append(conversion := _plan_task(context, directory, task, stores))
        if not conversion.is_empty:
            fingerprints[task] = before
        progress.advance()
    progress.done()
    undecided = "" if context.declared is None else undecided_note(context.declared)
    notes = (f"{undecided}. Their kinds are detected in the directory; declare them in the spec.",) if undecided else ()
    return MigrationPlan(conversions, _plan_id(request, conversions, fingerprints), notes)


def empty_plan(request: MigrateRequest) -> MigrationPlan:
    """The plan for an application that has no state directory yet."""
    return MigrationPlan((), _plan_id(request, (), {}))


def _plan_id(request: MigrateRequest, tasks: Sequence[TaskConversion], fingerprints: Mapping[str, str]) -> str:
    reported = [asdict(migrated_task(task)) for task in tasks]
    return plan_id_of({"to": request.to, "tasks": reported, "fingerprints": fingerprints})


def _selected_tasks(request: MigrateRequest, directory: StateDirectory) -> list[str]:
    existing = directory.every_task()
    missing = [task for task in request.tasks if task not in existing]
    if missing or not (existing or request.if_there):
        raise NotFound(
            f"{directory.path} has no task{f' {missing[0]}' if missing else ''}; "
            f"it has: {', '.join(existing) or 'none'}.",
            code="task-not-found",
            action="Check state_dir, the application id and the names of the tasks.",
            state_dir=str(directory.state_dir),
            tasks=missing,
        )
    return [task for task in existing if not request.tasks or task in request.tasks]


def _plan_task(
    context: JobContext[MigrateRequest], directory: StateDirectory, task: str, stores: Collection[str]
) -> TaskConversion:
    request, spec = context.request, context.declared
    guarantee = guarantee_of(spec, request.processing_guarantee)
    plan = plan_conversion(
        task,
        directory.task_path(task),
        RELEASES[request.to],
        application_id=request.application_id,
        spec=spec,
        exactly_once=None if guarantee is None else guarantee.is_exactly_once,
        lose_headers=request.lose_headers,
    )
    if plan.refused:
        return plan
    offsets = [*read_offsets(directory.task_path(task) / CHECKPOINT_FILE)]
    for store in plan.stores:
        offsets.extend(store.offsets)
    foreign = foreign_offsets(request.application_id, stores, offsets, spec)
    return TaskConversion(task, plan.seen, plan.release_to, (), refused=foreign) if foreign else plan


def foreign_offsets(
    application_id: str, stores: Iterable[str], offsets: Iterable[TopicPartition], spec: ApplicationSpec | None
) -> tuple[Reason, ...]:
    """Reasons why a task's directory belongs to another application: its offsets are of that one's changelogs.

    Under the wrong name those offsets would not be found: Kafka Streams drops them, and restores its own changelogs
    over the rows of the other application.
    """
    known = (*spec.stores, *spec.global_stores) if spec is not None else ()
    declared = {store.changelog for store in known}
    names = {*stores, *(store.name for store in known)}
    found: dict[str, str] = {}
    for topic in sorted({partition.topic for partition in offsets} - declared):
        if other := changelog_owner(topic, application_id, names):
            found.setdefault(other[0], topic)
    return tuple(
        Reason(
            f"it has offsets of {topic}: this is the state of {owner}, not of {application_id}. Give the id of the "
            "owning application; or declare the stores in a spec, if that is their changelog.",
            "task-directory-foreign",
            topic=topic,
            application_id=owner,
        )
        for owner, topic in sorted(found.items())
    )


def migrated_task(plan: TaskConversion) -> MigratedTask:
    """A plan as part of the report."""
    return MigratedTask(
        task=plan.task,
        seen=plan.seen,
        stores=tuple(_migrated_store(store) for store in plan.stores),
        steps=plan.steps,
        left=plan.left,
        refused=tuple(map(str, plan.refused)),
        problems=problems(plan),
        notes=plan.notes,
    )


def problems(plan: TaskConversion) -> tuple[dict[str, Any], ...]:
    """Why a task is refused, with codes and values."""
    return tuple({"store": "", **why.to_json(), "task": plan.task} for why in plan.refused)


def _migrated_store(store: StoreConversion) -> MigratedStore:
    return MigratedStore(
        store=store.store,
        kind="?" if store.kind is None else str(store.kind),
        steps=tuple(MigratedStep(step.text, step.rows, offsets_by_name(step.offsets)) for step in store.steps),
        offsets=offsets_by_name(store.offsets),
        rewritten_bytes=store.rewritten_bytes,
    )
