"""Plans repairs from findings: which databases and files are changed in a copy, and which stores are rebuilt.

A finding names the repair that fits it under the application's guarantee. By task they become:

- a store that is **rebuilt**: that covers all its findings;
- **repair actions** on the task's directory: lower offsets, set a status, create a segment, move a file aside;
- findings **left** to a person, because no repair is known.

Pure functions: nothing is read or changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from statecore.doctor.finding_catalog import CATALOG, Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.inspection import StoreView
from statecore.errors import Reason
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import CHECKPOINT_FILE, GLOBAL
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec
from statecore.statedir.state_directory import store_directory


@dataclass(frozen=True)
class RepairAction:
    """One change of one task's directory.

    Attributes:
        store: the store; empty for files of the task.
        directory: the store's directory relative to the task's; empty likewise.
        kind: its kind, ``None`` if unknown.
        changelog: its changelog partition, for a new segment.
        names: files that are moved aside, column families that are dropped, or entries of ``.checkpoint`` that no store
            has.
        codes: codes of the findings that it repairs.
    """

    task: str
    repair: Repair
    store: str = ""
    directory: str = ""
    kind: StoreKind | None = None
    changelog: TopicPartition | None = None
    names: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()

    def __str__(self) -> str:
        prefix = f"{self.store}: " if self.store else ""
        without = "without " if self.repair is Repair.MERGE_CHECKPOINT else ""
        names = f" ({without}{', '.join(self.names)})" if self.names else ""
        return f"{prefix}{self.repair.value}{names}"


@dataclass(frozen=True)
class Rebuild:
    """Stores that are rebuilt by one restore, from their changelogs or from a snapshot.

    Attributes:
        partitions: partitions of the tasks; empty for global stores.
        tasks: the tasks. Tasks that do not exist here are not created: they may be another instance's.
        codes: codes of the findings that it repairs.
    """

    stores: tuple[str, ...]
    partitions: tuple[int, ...]
    tasks: tuple[str, ...]
    codes: tuple[str, ...]


@dataclass(frozen=True)
class RepairPlan:
    """Repairs of a directory.

    Attributes:
        rebuilds: restores that run after them.
        unrepaired: findings worse than a note without a repair.
        refused: why no store of some tasks is rebuilt, each with its task.
    """

    actions: Mapping[str, tuple[RepairAction, ...]]
    rebuilds: tuple[Rebuild, ...]
    unrepaired: tuple[Finding, ...]
    refused: tuple[Reason, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        return not self.actions and not self.rebuilds


def plan_repairs(
    findings: Iterable[Finding],
    stores: Sequence[StoreView],
    *,
    spec: ApplicationSpec | None = None,
    rebuilds: bool = True,
    refused: Sequence[Reason] = (),
) -> RepairPlan:
    """Plan the repairs for the findings of one application; with a spec only stores that it declares are rebuilt.

    Args:
        refused: why no store of a task can be rebuilt, each with its task.
    """
    views = {(view.task, view.store): view for view in stores}
    given = list(findings)
    # A restore refuses a partition that the topic does not have, when others are rebuilt already; and a task within a
    # task is moved to its place first.
    by_hand = {one.task for one in given if one.code == "partition-unknown" and one.task != GLOBAL}
    by_hand |= {one.task for one in given if one.code == "task-misplaced" and one.severity is Severity.ERROR}
    by_hand |= {str(one.context["task"]) for one in refused}

    def can_rebuild(task: str, store: str) -> bool:
        return rebuilds and task not in by_hand and (spec is None or is_rebuildable(spec, task, store))

    every = without_older(given, stores, can_rebuild)
    rebuilt = {(one.task, one.store) for one in every if one.repair is Repair.REBUILD and one.store and one.task}
    merging = {view.task for key, view in views.items() if key not in rebuilt and _has_offset_only_in_checkpoint(view)}
    possible = {(task, store) for task, store in rebuilt if can_rebuild(task, store)}
    codes: dict[tuple[str, str], set[str]] = {task_store: set() for task_store in possible}
    in_copy: dict[tuple[str, str, Repair], list[Finding]] = {}
    left = []
    for one in every:
        if covering := _covering(one, rebuilt, merging):
            for task_store in covering & possible:
                codes[task_store].add(one.code)
            if covering - possible and one.severity is not Severity.NOTE:
                left.append(one)
        elif action := _action_for(one, views.get((one.task, one.store)), merging):
            in_copy.setdefault(action, []).append(one)
        elif one.severity is not Severity.NOTE:
            left.append(one)
    by_task: dict[str, list[RepairAction]] = {}
    for (task, store, repair), grouped in sorted(in_copy.items(), key=lambda item: _ORDER.index(item[0][2])):
        by_task.setdefault(task, []).append(_repair_action(task, store, repair, grouped, views.get((task, store))))
    in_order = {task: tuple(actions) for task, actions in sorted(by_task.items())}
    return RepairPlan(in_order, _rebuilds(codes), tuple(left), tuple(refused))


def is_rebuildable(spec: ApplicationSpec, task: str, store: str) -> bool:
    """Whether a restore by this spec can rebuild a store of a task: it would refuse any other one."""
    return any(
        one.is_restorable and not one.is_undecided and not one.is_filled_by_processor
        for one in spec.stores_of(task)
        if one.name == store
    )


def _covering(finding: Finding, rebuilt: Set[tuple[str, str]], merging: Set[str]) -> Set[tuple[str, str]]:
    """The rebuilt stores whose rebuild repairs a finding; ``merging`` are the tasks whose ``.checkpoint`` is merged."""
    if finding.code == "half-migrated" and finding.task not in merging:  # a rebuild gives the store an offset
        return {(task, store) for task, store in rebuilt if task == finding.task}
    if _is_of_checkpoint(finding) or finding.repair is Repair.DROP_ENTRIES:
        return frozenset()
    return rebuilt & {(finding.task, finding.store)}


def _action_for(finding: Finding, view: StoreView | None, merging: Set[str]) -> tuple[str, str, Repair] | None:
    """Task, store and repair of the action that repairs a finding in a copy; the store of a task's file is empty."""
    if _is_of_checkpoint(finding):
        return finding.task, "", Repair.MERGE_CHECKPOINT if finding.task in merging else Repair.MOVE_ASIDE
    if finding.repair is Repair.DROP_ENTRIES:
        return finding.task, "", Repair.DROP_ENTRIES
    repair = _repair_in_copy(finding, view)
    if repair is None or (finding.severity is Severity.NOTE and repair not in _OF_NOTES):
        return None
    return finding.task, finding.store, repair


_ORDER = (
    *(Repair.DROP_ENTRIES, Repair.MERGE_CHECKPOINT, Repair.MOVE_ASIDE, Repair.DROP_FAMILY, Repair.LOWER_OFFSETS),
    *(Repair.CREATE_SEGMENT, Repair.SET_STATUS, Repair.GIVE, Repair.TOUCH),
)
"""The order of repairs of a task."""

_IN_COPY = frozenset(_ORDER) - {Repair.MERGE_CHECKPOINT}
_OF_NOTES = frozenset({Repair.CREATE_SEGMENT})
"""Repairs that are also made for a note: under exactly-once it would be an error."""

_OF_OLDER = {"checkpoint-stray": Repair.DROP_ENTRIES, "rights": Repair.GIVE, "cleaning-deletes": Repair.TOUCH}
"""Repairs that are possible in a task of an older release without migrating it."""


def without_older(
    findings: Iterable[Finding],
    stores: Sequence[StoreView],
    can_rebuild: Callable[[str, str], bool] = lambda *_: True,
) -> list[Finding]:
    """The findings, without most repairs in a task that is completely of a release without offsets in the stores.

    Repairs write the newest format, and one such store in the task would prevent either release from opening all of it.
    Such a directory is migrated first. A task without any database counts as of the release of the others. Rows flushed
    after ``.checkpoint`` still have all stores of their task rebuilt, where that is possible: else its offsets are the
    only ones, and stay. Owners, modes, times and entries of a file are
    the same in all releases.
    """
    every = list(findings)
    older = {one.task for one in every if one.code == "older-release"}
    older -= {one.task for one in every if one.code == "half-migrated"}
    if older and not any(one.has_offsets_family for view in stores for one in view.readable):
        older |= {one.task for one in every if one.task}
    older -= {
        one.task
        for one in every
        if one.code == "rows-after-checkpoint" and one.repair is Repair.REBUILD and can_rebuild(one.task, one.store)
    }
    return [replace(one, repair=_of_older(one)) if one.task in older else one for one in every]


def restore_remedy(finding: Finding, spec: ApplicationSpec | None) -> str:
    """The restore that rebuilds a store which a repair does not, because its task is of an older release; or empty.

    It is one of all stores of the task: the others have their offsets in a file of the task alone.
    """
    kind = CATALOG[finding.code]
    if (
        finding.repair is not None
        or finding.own_remedy
        or not finding.store
        or Repair.REBUILD not in kind.repairs
        or kind.code == "older-release"
    ):
        return ""
    found = TaskId.match(finding.task)
    partition = "" if found is None or found.is_global else f" --partition {found.partition}"
    stores = () if spec is None or found is None else spec.stores_of(finding.task)
    names = [one.name for one in stores if one.is_logged and one.kind.can_be_built] or [finding.store]
    command = " ".join(["statecore restore --replace", *(f"--store {name}" for name in names)]) + partition
    return f" A restore by its spec does: {command}. Then migrate the directory to the application's release."


def _of_older(finding: Finding) -> Repair | None:
    """The repair of a finding in a task of an older release."""
    if finding.code == "checkpoint-stray" and finding.repair is not Repair.MOVE_ASIDE:
        return None  # it is about another file, or costs no more than a restore
    return _OF_OLDER.get(finding.code)


def _repair_in_copy(finding: Finding, view: StoreView | None) -> Repair | None:
    """The repair of a finding in a copy of its task; ``None`` outside of tasks, and for stores of unknown kind."""
    if finding.repair is Repair.CREATE_SEGMENT and (view is None or not view.kind.can_be_built):
        return None
    return finding.repair if finding.task and finding.repair in _IN_COPY else None


def _has_offset_only_in_checkpoint(view: StoreView) -> bool:
    """Whether the offset of a store is only in ``.checkpoint``."""
    return view.logged and bool(view.databases) and not view.offsets


def _is_of_checkpoint(finding: Finding) -> bool:
    if finding.code == "half-migrated":
        return True
    return finding.repair is Repair.MOVE_ASIDE and finding.evidence.get("file") == CHECKPOINT_FILE


def _repair_action(
    task: str, store: str, repair: Repair, grouped: Sequence[Finding], view: StoreView | None
) -> RepairAction:
    names = dict.fromkeys(name for one in grouped for name in _named(one, repair))
    kind = view.kind if view is not None and view.kind.can_be_built else None
    directory = ""
    if view is not None:
        directory = store if view.segmented else store_directory(store, StoreKind.KEY_VALUE)
    changelog = next((one.partition for one in grouped if one.partition is not None), None)
    codes = tuple(dict.fromkeys(one.code for one in grouped))
    return RepairAction(task, repair, store, directory, kind, changelog, tuple(names), codes)


def _named(finding: Finding, repair: Repair) -> Iterable[str]:
    if repair is Repair.DROP_FAMILY:
        return tuple(finding.evidence.get("families", ()))
    if repair in (Repair.MERGE_CHECKPOINT, Repair.DROP_ENTRIES):
        return tuple(finding.evidence.get("entries", ()))
    if repair is not Repair.MOVE_ASIDE:
        return ()
    file = finding.evidence.get("file")
    return tuple(finding.evidence.get("files", ())) if file is None else (str(file),)


def _rebuilds(rebuilt: Mapping[tuple[str, str], Iterable[str]]) -> tuple[Rebuild, ...]:
    """One restore for all tasks of a subtopology with the same stores to rebuild."""
    by_task: dict[str, list[str]] = {}
    codes: dict[str, set[str]] = {}
    for (task, store), found in rebuilt.items():
        by_task.setdefault(task, []).append(store)
        codes.setdefault(task, set()).update(found)
    groups: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for task, stores in sorted(by_task.items()):
        groups.setdefault((TaskId.parse(task).subtopology, tuple(sorted(stores))), []).append(task)
    return tuple(
        Rebuild(
            stores,
            tuple(sorted(partition for task in tasks if (partition := TaskId.parse(task).partition) is not None)),
            tuple(tasks),
            tuple(sorted(set().union(*(codes[task] for task in tasks)))),
        )
        for (_, stores), tasks in groups.items()
    )
