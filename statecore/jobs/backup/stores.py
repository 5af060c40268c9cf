"""Selects the stores of a backup, and collects why stores cannot be published; reads only names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from statecore.discover.contradicted_kinds import find_contradictions
from statecore.errors import Invalid, NotFound, Reason
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import GLOBAL
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.backup.request import BackupRequest
from statecore.jobs.planning.selection import refuse_undecided
from statecore.spec.model import ApplicationSpec, StoreSpec
from statecore.statedir.state_directory import StateDirectory, store_directory
from statecore.statedir.task_layout import StoreDirectory

StoreKey = tuple[str, str]
"""Task and name of a store."""

Refuse = Callable[[Reason], None]
"""Receives each problem, with its task (empty if it concerns several) and its store."""


class Problems:
    """Reasons why stores cannot be published; a backup is refused with all of them at once."""

    def __init__(self) -> None:
        self._found: list[Reason] = []

    def add(self, problem: Reason) -> None:
        self._found.append(problem)

    def check(self) -> None:
        """Raise ``Invalid`` with all problems, if there are any."""
        found = self._found
        if not found:
            return
        listed = found[0] if len(found) == 1 else "".join(f"\n  - {problem}" for problem in found)
        raise Invalid(
            f"Nothing was published: {listed}",
            code="backup-refused",
            action="A backup has all requested stores or none. Solve the listed problems, then run this again.",
            problems=[problem.to_json() for problem in found],
        )


@dataclass(frozen=True)
class SelectedStore:
    """A store to back up."""

    task: str
    spec: StoreSpec
    directory: StoreDirectory

    @property
    def key(self) -> StoreKey:
        return self.task, self.spec.name

    @property
    def name(self) -> str:
        return (
            f"Store {self.spec.name} of task {self.task}" if self.task != GLOBAL else f"Global store {self.spec.name}"
        )

    @property
    def changelog(self) -> TopicPartition | None:
        """Its changelog partition; ``None`` for a global store, which has all of them."""
        partition = TaskId.parse(self.task).partition
        return None if partition is None else TopicPartition(self.spec.changelog, partition)


class Selection(NamedTuple):
    """The stores of a backup.

    Attributes:
        tasks: requested tasks, or all existing ones.
        notes: notes on stores that are left out.
    """

    tasks: tuple[str, ...]
    stores: tuple[SelectedStore, ...]
    notes: tuple[str, ...]


def select_stores_on_disk(
    directory: StateDirectory, spec: ApplicationSpec, request: BackupRequest, refuse: Refuse
) -> Selection:
    """Select the stores; those without files, offset or known format are left out with a note."""
    tasks, empty = _tasks(directory, request)
    declared = {store.name for store in (*spec.stores, *spec.global_stores)}
    unknown = sorted(set(request.stores) - declared)
    if unknown:
        raise NotFound(
            f"{spec.source} declares no store {', '.join(unknown)}; it declares {', '.join(sorted(declared))}.",
            code="store-not-declared",
            action="Name stores of the spec.",
            stores=unknown,
        )
    wanted = {task: _declared(spec, task, request.stores) for task in tasks}
    undecided = {store: None for stores in wanted.values() for store in stores if store.is_undecided}
    refuse_undecided(spec, list(undecided))
    wrong = _mismatched_classes(directory, spec, wanted, refuse)
    selected: list[SelectedStore] = []
    for task in tasks:
        existing = {found.name: found for found in directory.stores(task) if (task, found.store) not in wrong}
        for store in wanted[task]:
            if (task, store.name) in wrong:
                continue
            found = existing.pop(store_directory(store.name, store.kind), None)
            if store.kind is StoreKind.CUSTOM:
                existing.pop(store.name, None)  # a custom class chooses its own paths
            if not store.is_restorable:
                continue
            if found is None:
                refuse(_missing(directory, task, store, existing.values()))
            else:
                selected.append(SelectedStore(task, store, found))
        if not request.stores:
            custom = any(store.kind is StoreKind.CUSTOM for store in wanted[task])
            for found in existing.values():
                if found.databases or not custom:  # otherwise they are files of that store
                    refuse(_undeclared(spec, task, found))
    notes = [f"Left out: {', '.join(empty)}, which {'has' if len(empty) == 1 else 'have'} no store."] if empty else []
    return Selection(tasks, tuple(selected), (*notes, *_left_out(wanted.values())))


def _mismatched_classes(
    directory: StateDirectory, spec: ApplicationSpec, wanted: Mapping[str, Sequence[StoreSpec]], refuse: Refuse
) -> set[tuple[str, str]]:
    """Refuse custom stores that are declared as another kind, and the reverse."""
    found = set()
    for one in find_contradictions(directory, spec, wanted, by_content=False):
        tasks = [task for task in one.tasks if any(store.name == one.store for store in wanted[task])]
        if tasks and one.is_of_another_class:
            what = f"{one}. Correct the kind in the spec, or move the directory away if it is a leftover."
            refuse(Reason(what, "kind-mismatch", task=tasks[0] if len(tasks) == 1 else "", store=one.store))
            found |= {(task, one.store) for task in tasks}
    return found


def _tasks(directory: StateDirectory, request: BackupRequest) -> tuple[tuple[str, ...], list[str]]:
    """The tasks to back up, and those left out because they are empty directories."""
    existing = directory.task_directories()
    if directory.stores(GLOBAL):
        existing.append(GLOBAL)
    absent = [task for task in request.tasks if task not in existing]
    if absent:
        raise NotFound(
            f"{directory.path} has no task {', '.join(absent)}; it has {', '.join(existing) or 'none'}.",
            code="task-not-found",
            action="Name tasks that have a directory.",
            tasks=absent,
        )
    wanted = [
        task
        for task in existing
        if (not request.tasks or task in request.tasks)
        and (not request.partitions or TaskId.parse(task).partition in request.partitions)
    ]
    if not wanted:
        raise NotFound(
            f"{directory.path} has no task{' of these partitions' if existing else ''} to back up.",
            code="task-not-found",
            action="Use the state.dir of an instance that has run.",
            state_dir=str(directory.state_dir),
        )
    empty = [task for task in wanted if task not in request.tasks and not directory.stores(task)]
    if len(empty) == len(wanted):
        return tuple(wanted), []
    return tuple(task for task in wanted if task not in empty), empty


def _declared(spec: ApplicationSpec, task: str, names: Sequence[str]) -> list[StoreSpec]:
    found = [store for store in spec.stores_of(task) if not names or store.name in names]
    return sorted(found, key=lambda store: store.name)


def _missing(directory: StateDirectory, task: str, store: StoreSpec, others: Iterable[StoreDirectory]) -> Reason:
    where = directory.task_path(task) / store_directory(store.name, store.kind)
    other = next((found for found in others if found.store == store.name), None)
    if other is not None:
        shape = "has segments" if other.segmented else "has no segments"
        what = (
            f"Store {store.name} of task {task} is declared as {store.kind}, and {other.path} {shape}: it is a store "
            "of another kind. Correct the spec (statecore inspect detects kinds)."
        )
        return Reason(what, "kind-mismatch", task=task, store=store.name)
    what = (
        f"Store {store.name} of task {task} is declared, and {where} does not exist. Correct the spec, or name other "
        "stores (--store)."
    )
    return Reason(what, "store-directory-missing", task=task, store=store.name)


def _undeclared(spec: ApplicationSpec, task: str, found: StoreDirectory) -> Reason:
    what = (
        f"{found.path} is a directory of a store that {spec.source} does not declare for task {task}. Declare the "
        "store, move the directory away if the application no longer has it, or name tasks (--task) or stores "
        "(--store)."
    )
    return Reason(what, "store-undeclared", task=task, store=found.store)


def _left_out(wanted: Iterable[Sequence[StoreSpec]]) -> list[str]:
    every = {store.name: store for stores in wanted for store in stores}
    unlogged = sorted(name for name, store in every.items() if not store.is_logged)
    memory = sorted(name for name, store in every.items() if store.is_logged and store.kind is StoreKind.IN_MEMORY)
    custom = sorted(name for name, store in every.items() if store.is_logged and store.kind is StoreKind.CUSTOM)
    notes = []
    if custom:
        notes.append(
            f"Left out: {', '.join(custom)}. They are custom stores (kind custom) of unknown format; Kafka Streams "
            "restores them."
        )
    if unlogged:
        notes.append(
            f"Left out: {', '.join(unlogged)}. The application does not log them (changelog: none), so they have no "
            "offset."
        )
    if memory:
        notes.append(f"Left out: {', '.join(memory)}. They are in memory; Kafka Streams restores them.")
    return notes
