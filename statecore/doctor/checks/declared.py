"""Checks of the directory against the spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from statecore.doctor.checks.context import CheckContext, store_finding
from statecore.doctor.checks.custom import has_custom_store
from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.inspection import StoreView, TaskView
from statecore.formats.releases import GLOBAL
from statecore.formats.task_id import TaskId
from statecore.spec.model import ApplicationSpec, StoreSpec, task_of, undecided_kinds, undecided_note
from statecore.statedir.store_places import StorePlace
from statecore.words import shortened_list


def check_kind(store: StoreView) -> list[Finding]:
    """A store that is not of its declared kind."""
    if not store.mismatch:
        return []
    text = "" if store.declared is None else str(store.declared.kind)
    return [store_finding(store, "kind-mismatch", Severity.LOSS, store.mismatch, repair=Repair.REBUILD, declared=text)]


def check_declarations(
    spec: ApplicationSpec, places: Sequence[StorePlace], empty_tasks: Sequence[str], context: CheckContext
) -> list[Finding]:
    """Declared stores without a directory, undeclared stores, and tasks of undeclared subtopologies.

    Those of tasks without any store are found by :func:`check_empty_tasks`.
    """
    return [*_undecided(spec), *_absent(spec, places, empty_tasks, context), *_undeclared(spec, places)]


_MOVE_AWAY = (
    "Compare the number with Topology.describe(). If it is not there, move the directory away while the application is "
    "stopped; else declare the subtopology's stores in the spec."
)


def check_undeclared_tasks(
    spec: ApplicationSpec, tasks: Mapping[str, TaskView], context: CheckContext
) -> list[Finding]:
    """Tasks of undeclared subtopologies with which an application that is stopped may not start again.

    Kafka Streams builds the whole topology for the task of a subtopology that does not exist, global stores included,
    and ends when it opens these a second time.
    """
    if not context.release.offsets_inside or not (spec.global_stores or _has_globals(tasks)):
        return []
    declared = {store.subtopology for store in (*spec.stores, *spec.global_stores)}
    found = []
    present = [TaskId.parse(name) for name, task in tasks.items() if name and task.has_content]
    for task in sorted(present, key=lambda task: task.order):
        if not task.is_global and task.subtopology not in declared:
            what = (
                f"{task} is a task of the subtopology {task.subtopology}, of which no store is declared: if the "
                "topology has no such subtopology, every start of the application fails, because it has global stores"
            )
            found.append(Finding("task-undeclared", what, Severity.ERROR, str(task), own_remedy=_MOVE_AWAY))
    return found


def check_tasks_of_no_subtopology(
    places: Sequence[StorePlace], tasks: Mapping[str, TaskView], context: CheckContext
) -> list[Finding]:
    """Without a spec: tasks all of whose stores are those of another subtopology, which has more tasks.

    A topology has a store in one subtopology only.
    """
    subtopologies: dict[int, set[str]] = {}
    stores: dict[int, set[str]] = {}
    for place in places:
        if place.partition is not None:
            subtopologies.setdefault(place.subtopology, set()).add(place.task)
            stores.setdefault(place.subtopology, set()).add(place.store)
    fails = context.release.offsets_inside and _has_globals(tasks)
    found = []
    for wrong, names in sorted(stores.items()):
        right = [
            other
            for other, of_task in sorted(subtopologies.items())
            if (len(of_task), -other) > (len(subtopologies[wrong]), -wrong) and stores[other] & names
        ]
        if not right or names - set().union(*(stores[other] for other in right)):
            continue
        for task in sorted(subtopologies[wrong], key=lambda task: TaskId.parse(task).order):
            what = (
                f"{task} has only stores that the tasks of the subtopology {shortened_list([*map(str, right)], 3)} "
                f"have: if the topology has no subtopology {wrong}, "
                + (
                    "every start of the application fails, because it has global stores"
                    if fails
                    else "Kafka Streams ignores the directory"
                )
            )
            severity = Severity.ERROR if fails else Severity.WARNING
            found.append(Finding("task-undeclared", what, severity, task, own_remedy=_MOVE_AWAY))
    return found


def _has_globals(tasks: Mapping[str, TaskView]) -> bool:
    return GLOBAL in tasks and tasks[GLOBAL].has_content


def check_empty_tasks(spec: ApplicationSpec, empty_tasks: Sequence[str]) -> list[Finding]:
    """Declared stores of tasks whose directory has no store: a restore at the next start, and nothing to delete."""
    found = []
    for store in filter(_is_expected, spec.stores):
        missing = [task for task in empty_tasks if store in spec.stores_of(task)]
        what = f"{store.name} is declared and has no directory in {shortened_list(missing, 5)}, which "
        what += "has no store" if len(missing) == 1 else "have no store"
        found += [
            Finding("store-absent", what, Severity.WARNING, task, store.name, repair=Repair.REBUILD) for task in missing
        ]
    return found


def check_transactional(spec: ApplicationSpec, stores: Sequence[StoreView], context: CheckContext) -> list[Finding]:
    """Transactional stores (KIP-892) that the spec does not declare; one finding if all stores show it.

    The setting is the application's. But one store without a status among others may be the work of another tool.
    """
    shown = [store for store in stores if store.transactional]
    if spec.transactional_state_stores or not context.release.transactional_stores or not shown:
        return []
    code, severity = "transactional-undeclared", Severity.WARNING
    others = sum(bool(store.offsets) and not store.transactional and store.closed is not None for store in stores)
    undeclared = f"as transactional stores do, and {spec.source} lacks transactional_state_stores: true"
    if others:
        which = "another store has" if others == 1 else f"{others:,} other stores have"
        what = f"has an offset and no status, {undeclared}; {which} a status"
        return [store_finding(store, code, severity, what) for store in shown]
    names = [f"{store.task} {store.store}" for store in shown]
    have = "has" if len(shown) == 1 else "have"
    what = f"{shortened_list(names, 3)} {have} an offset and no status, {undeclared}"
    return [Finding(code, what, severity, evidence={"stores": names})]


def _undecided(spec: ApplicationSpec) -> list[Finding]:
    text = undecided_note(spec)
    if not text:
        return []
    return [Finding("kind-undecided", text, Severity.NOTE, evidence={"stores": [*undecided_kinds(spec)]})]


def _is_expected(store: StoreSpec) -> bool:
    """Whether a task has a directory of the store; other ones are in memory, undecided, or created at the start."""
    return store.is_logged and store.kind.can_be_built


_ELSEWHERE = "Nothing if other instances have its tasks; else correct the name or the subtopology in the spec."


def _absent(
    spec: ApplicationSpec, places: Sequence[StorePlace], empty_tasks: Sequence[str], context: CheckContext
) -> list[Finding]:
    seen = {(place.task, place.store) for place in places}
    named = {place.store for place in places}
    severity = context.severity_without_offset(Severity.WARNING)
    emptied = {TaskId.parse(task).subtopology for task in empty_tasks}
    found = []
    for store in filter(_is_expected, (*spec.stores, *spec.global_stores)):
        tasks = sorted(_tasks_of(store, places))
        missing = [task for task in tasks if (task, store.name) not in seen]
        what = f"{store.name} is declared and has no directory"
        for task in missing:
            text = f"{what} in {shortened_list(missing, 5)}"
            found.append(Finding("store-absent", text, severity, task, store.name, repair=Repair.REBUILD))
        if not tasks and store.name not in named and store.subtopology not in emptied:
            what += ", and none of its tasks is here"
            found.append(Finding("store-absent", what, Severity.NOTE, store=store.name, own_remedy=_ELSEWHERE))
    return found


def _tasks_of(store: StoreSpec, places: Sequence[StorePlace]) -> set[str]:
    return {
        place.task
        for place in places
        if place.subtopology == store.subtopology
        if place.partition is None or place.task == task_of(store, place.partition)
    }


def _undeclared(spec: ApplicationSpec, places: Sequence[StorePlace]) -> list[Finding]:
    every = (*spec.stores, *spec.global_stores)
    subtopologies = {store.subtopology for store in every}
    names = {store.name for store in every}
    at_home = {(store.subtopology, store.name) for store in every}
    found: dict[tuple[str, str], Finding] = {}
    for place in places:
        if place.store not in names:
            if not place.databases and (has_custom_store(spec, place.task) or TaskId.match(place.store) is not None):
                continue  # files of the custom store, or a task within a task
            what = f"{place.store} has a directory and is not declared"
            found["", place.store] = Finding("store-undeclared", what, Severity.WARNING, store=place.store)
        elif place.subtopology not in subtopologies:
            what = f"{place.task} is a task of the subtopology {place.subtopology}, of which no store is declared"
            found[place.task, ""] = Finding("task-undeclared", what, Severity.WARNING, place.task)
        elif (place.subtopology, place.store) not in at_home:
            what = f"{place.store} has a directory in {place.task} and is declared for another subtopology"
            found[place.task, place.store] = Finding(
                "store-undeclared", what, Severity.WARNING, place.task, place.store
            )
    return sorted(found.values(), key=lambda one: (one.task, one.store))
