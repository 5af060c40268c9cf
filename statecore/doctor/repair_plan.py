"""From findings to what mends them: which databases and files are changed in place of what, and which are built anew.

A finding names the repair that fits it under the application's guarantee. Here they are put together by task:

- a store that is **rebuilt** needs nothing else: all that was found in it goes with it;
- all else is a **mending** of the task's directory: offsets lowered, a status set, a segment made, a file moved aside;
- what no repair is known for is **left** to a person, and said.

Pure functions: nothing is read or changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.views import StoreView
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import CHECKPOINT_FILE
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.state_directory import store_directory


@dataclass(frozen=True)
class RepairAction:
    """One change of one task's directory.

    Attributes:
        task: the task.
        repair: what is done.
        store: the store, empty where it is about files of the task.
        directory: the store's directory relative to the task's; empty likewise.
        kind: its kind, ``None`` where that is not known.
        changelog: its changelog partition, where a segment is made.
        names: files of the task's directory that are moved aside, column families that are dropped, or entries of
            ``.checkpoint`` that no store has.
        codes: of the findings that it mends.
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
        of = f"{self.store}: " if self.store else ""
        without = "without " if self.repair is Repair.MERGE_CHECKPOINT else ""
        names = f" ({without}{', '.join(self.names)})" if self.names else ""
        return f"{of}{self.repair.value}{names}"


@dataclass(frozen=True)
class Rebuild:
    """Stores that are rebuilt from their changelogs, or from a snapshot, by one restore.

    Attributes:
        stores: their names.
        partitions: of the tasks; empty for global stores.
        tasks: the tasks. None is made that is not here: it may be another instance's.
        codes: of the findings that it mends.
    """

    stores: tuple[str, ...]
    partitions: tuple[int, ...]
    tasks: tuple[str, ...]
    codes: tuple[str, ...]


@dataclass(frozen=True)
class RepairPlan:
    """What mends a directory.

    Attributes:
        mendings: changes of task directories, by task.
        rebuilds: what is rebuilt after them.
        left: findings that are worse than a note and that nothing here mends.
    """

    mendings: Mapping[str, tuple[RepairAction, ...]]
    rebuilds: tuple[Rebuild, ...]
    left: tuple[Finding, ...]

    @property
    def is_nothing_to_do(self) -> bool:
        """Whether it changes nothing."""
        return not self.mendings and not self.rebuilds


def plan_repairs(findings: Iterable[Finding], stores: Sequence[StoreView], *, rebuilds: bool = True) -> RepairPlan:
    """What mends what was found.

    Args:
        findings: all of one application.
        stores: its stores as they were seen.
        rebuilds: whether stores can be rebuilt, which takes a spec; else all that was found in such a store is left.
    """
    views = {(view.task, view.store): view for view in stores}
    every = without_older(findings, stores)
    rebuilt = {(one.task, one.store) for one in every if one.repair is Repair.REBUILD and one.store and one.task}
    wanted = {view.task for view in stores if _wants_checkpoint(view) and (view.task, view.store) not in rebuilt}
    mended: dict[tuple[str, str, Repair], list[Finding]] = {}
    codes: dict[tuple[str, str], set[str]] = {of: set() for of in rebuilt}
    left = []
    for one in every:
        of = one.task, one.store
        if one.code == "half-migrated" and one.task not in wanted and any(task == one.task for task, _ in rebuilt):
            for key in rebuilt:  # who lacked an offset gets one by being rebuilt
                codes[key] |= {one.code} if key[0] == one.task else set()
            left += [] if rebuilds else [one]
        elif _is_of_checkpoint(one):
            how = Repair.MERGE_CHECKPOINT if one.task in wanted else Repair.MOVE_ASIDE
            mended.setdefault((one.task, "", how), []).append(one)
        elif one.repair is Repair.DROP_ENTRIES:
            mended.setdefault((one.task, "", one.repair), []).append(one)
        elif of in rebuilt and (rebuilds or one.severity is Severity.NOTE):
            codes[of].add(one.code)
        elif of in rebuilt:
            left.append(one)
        elif (done := _in_a_copy(one, views.get(of))) and (one.severity is not Severity.NOTE or done in _OF_NOTES):
            mended.setdefault((*of, done), []).append(one)
        elif one.severity is not Severity.NOTE:
            left.append(one)
    mendings: dict[str, list[RepairAction]] = {}
    for (task, store, repair), ones in sorted(mended.items(), key=lambda item: _ORDER.index(item[0][2])):
        mendings.setdefault(task, []).append(_mending(task, store, repair, ones, views.get((task, store))))
    restores = _rebuilds(codes) if rebuilds else ()
    return RepairPlan({task: tuple(of) for task, of in sorted(mendings.items())}, restores, tuple(left))


_ORDER = (
    *(Repair.DROP_ENTRIES, Repair.MERGE_CHECKPOINT, Repair.MOVE_ASIDE, Repair.DROP_FAMILY, Repair.LOWER_OFFSETS),
    *(Repair.CREATE_SEGMENT, Repair.SET_STATUS, Repair.GIVE, Repair.TOUCH),
)
"""The order in which a task is mended."""

_MADE_IN_A_COPY = frozenset(_ORDER) - {Repair.MERGE_CHECKPOINT}
_OF_NOTES = frozenset({Repair.CREATE_SEGMENT})
"""What is made although nothing is wrong yet: it would be under exactly-once."""

_OF_OLDER = {"checkpoint-stray": Repair.DROP_ENTRIES, "rights": Repair.GIVE, "cleaning-deletes": Repair.TOUCH}
"""What is done in a task of an older release, which stays one."""


def without_older(findings: Iterable[Finding], stores: Sequence[StoreView]) -> list[Finding]:
    """The findings, none with a repair in a task that is wholly of a release without offsets in the stores.

    All that a repair writes is of the newest release: one such store in the task, and neither release takes it as a
    whole. Such a directory is migrated first. A task without any database is of the release of the others. Rows that
    were flushed after ``.checkpoint`` have all stores of their task rebuilt. And owners, modes, times and entries of a
    file are no release's own.
    """
    every = list(findings)
    older = {one.task for one in every if one.code == "older-release"}
    older -= {one.task for one in every if one.code == "half-migrated"}
    if older and not any(one.has_offsets_family for view in stores for one in view.readable):
        older |= {one.task for one in every if one.task}
    older -= {one.task for one in every if one.code == "rows-after-checkpoint" and one.repair is Repair.REBUILD}
    return [replace(one, repair=_of_older(one)) if one.task in older else one for one in every]


def _of_older(finding: Finding) -> Repair | None:
    """What is done about a finding in a task of an older release."""
    if finding.code == "checkpoint-stray" and finding.repair is not Repair.MOVE_ASIDE:
        return None  # it is of another file, or costs no more than a restore
    return _OF_OLDER.get(finding.code)


def _in_a_copy(finding: Finding, view: StoreView | None) -> Repair | None:
    """What is done about it in a copy of its task, if anything is: not beside the tasks, nor of a store of no kind."""
    if finding.repair is Repair.CREATE_SEGMENT and (view is None or not view.kind.can_be_built):
        return None
    return finding.repair if finding.task and finding.repair in _MADE_IN_A_COPY else None


def _wants_checkpoint(view: StoreView) -> bool:
    """Whether the offset of a store is nowhere but in ``.checkpoint``."""
    return view.logged and bool(view.databases) and not view.offsets


def _is_of_checkpoint(finding: Finding) -> bool:
    if finding.code == "half-migrated":
        return True
    return finding.repair is Repair.MOVE_ASIDE and finding.evidence.get("file") == CHECKPOINT_FILE


def _mending(task: str, store: str, repair: Repair, ones: Sequence[Finding], view: StoreView | None) -> RepairAction:
    names = dict.fromkeys(name for one in ones for name in _named(one, repair))
    kind = view.kind if view is not None and view.kind.can_be_built else None
    directory = ""
    if view is not None:
        directory = store if view.segmented else store_directory(store, StoreKind.KEY_VALUE)
    changelog = next((one.partition for one in ones if one.partition is not None), None)
    codes = tuple(dict.fromkeys(one.code for one in ones))
    return RepairAction(task, repair, store, directory, kind, changelog, tuple(names), codes)


def _named(finding: Finding, repair: Repair) -> Iterable[str]:
    """The files, the column families or the entries that a repair is about."""
    if repair is Repair.DROP_FAMILY:
        return tuple(finding.evidence.get("families", ()))
    if repair in (Repair.MERGE_CHECKPOINT, Repair.DROP_ENTRIES):
        return tuple(finding.evidence.get("entries", ()))
    if repair is not Repair.MOVE_ASIDE:
        return ()
    file = finding.evidence.get("file")
    return tuple(finding.evidence.get("files", ())) if file is None else (str(file),)


def _rebuilds(rebuilt: Mapping[tuple[str, str], Iterable[str]]) -> tuple[Rebuild, ...]:
    """One restore for all tasks of a subtopology of which the same stores are rebuilt."""
    by_task: dict[str, list[str]] = {}
    codes: dict[str, set[str]] = {}
    for (task, store), of in rebuilt.items():
        by_task.setdefault(task, []).append(store)
        codes.setdefault(task, set()).update(of)
    groups: dict[tuple[tuple[str | None, int], tuple[str, ...]], list[str]] = {}
    for task, stores in sorted(by_task.items()):
        groups.setdefault((TaskId.parse(task).subtopology_id, tuple(sorted(stores))), []).append(task)
    return tuple(
        Rebuild(
            stores,
            tuple(sorted(partition for task in tasks if (partition := TaskId.parse(task).partition) is not None)),
            tuple(tasks),
            tuple(sorted(set().union(*(codes[task] for task in tasks)))),
        )
        for (_, stores), tasks in groups.items()
    )
