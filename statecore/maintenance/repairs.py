"""From findings to what mends them: which databases and files are changed in place of what, and which are built anew.

A finding names the repair that fits it under the application's guarantee. Here they are put together by task:

- a store that is **rebuilt** needs nothing else: all that was found in it goes with it;
- all else is a **mending** of the task's directory: offsets lowered, a status set, a segment made, a file moved aside;
- what no repair is known for is **left** to a person, and said.

Pure functions: nothing is read or changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from statecore.formats.kinds import StoreKind
from statecore.formats.releases import CHECKPOINT_FILE, GLOBAL
from statecore.formats.topic_partition import TopicPartition
from statecore.maintenance.catalogue import Repair, Severity
from statecore.maintenance.findings import Finding
from statecore.maintenance.views import StoreView
from statecore.placement.state_directory import partition_of, store_directory


@dataclass(frozen=True)
class Mending:
    """One change of one task's directory.

    Attributes:
        task: the task.
        repair: what is done.
        store: the store, empty where it is about files of the task.
        directory: the store's directory relative to the task's; empty likewise.
        kind: its kind, ``None`` where that is not known.
        changelog: its changelog partition, where a segment is made.
        names: files of the task's directory that are moved aside, or column families that are dropped.
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
        names = f" ({', '.join(self.names)})" if self.names else ""
        return f"{of}{self.repair.value}{names}"


@dataclass(frozen=True)
class Rebuild:
    """Stores that are rebuilt from their changelogs, or from a snapshot, by one restore.

    Attributes:
        stores: their names.
        partitions: of the tasks; empty for global stores, and where a store is missing in all tasks.
        tasks: the tasks; empty where it is all of them.
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

    mendings: Mapping[str, tuple[Mending, ...]]
    rebuilds: tuple[Rebuild, ...]
    left: tuple[Finding, ...]

    @property
    def is_nothing_to_do(self) -> bool:
        """Whether it changes nothing."""
        return not self.mendings and not self.rebuilds


def plan_repairs(findings: Iterable[Finding], stores: Sequence[StoreView]) -> RepairPlan:
    """What mends what was found.

    Args:
        findings: all of one application.
        stores: its stores as they were seen.
    """
    views = {(view.task, view.store): view for view in stores}
    every = list(findings)
    rebuilt = {(one.task, one.store) for one in every if one.repair is Repair.REBUILD and one.store}
    wanted = {view.task for view in stores if _wants_checkpoint(view) and (view.task, view.store) not in rebuilt}
    mended: dict[tuple[str, str, Repair], list[Finding]] = {}
    codes: dict[tuple[str, str], set[str]] = {of: set() for of in rebuilt}
    left = []
    for one in every:
        of = one.task, one.store
        if one.code == "half-migrated" and one.task not in wanted and any(task == one.task for task, _ in rebuilt):
            for key in rebuilt:  # who lacked an offset gets one by being rebuilt
                codes[key] |= {one.code} if key[0] == one.task else set()
        elif _is_of_checkpoint(one):
            how = Repair.MERGE_CHECKPOINT if one.task in wanted else Repair.MOVE_ASIDE
            mended.setdefault((one.task, "", how), []).append(one)
        elif of in rebuilt:
            codes[of].add(one.code)
        elif one.repair in _MADE_IN_A_COPY and (one.severity is not Severity.NOTE or one.repair in _OF_NOTES):
            mended.setdefault((*of, one.repair), []).append(one)
        elif one.severity is not Severity.NOTE:
            left.append(one)
    mendings: dict[str, list[Mending]] = {}
    for (task, store, repair), ones in sorted(mended.items(), key=lambda item: _ORDER.index(item[0][2])):
        mendings.setdefault(task, []).append(_mending(task, store, repair, ones, views.get((task, store))))
    return RepairPlan({task: tuple(of) for task, of in sorted(mendings.items())}, _rebuilds(codes), tuple(left))


_ORDER = (
    *(Repair.MERGE_CHECKPOINT, Repair.MOVE_ASIDE, Repair.DROP_FAMILY, Repair.LOWER_OFFSETS),
    *(Repair.CREATE_SEGMENT, Repair.SET_STATUS, Repair.GIVE, Repair.TOUCH),
)
"""The order in which a task is mended."""

_MADE_IN_A_COPY = frozenset(_ORDER) - {Repair.MERGE_CHECKPOINT}
_OF_NOTES = frozenset({Repair.CREATE_SEGMENT})
"""What is made although nothing is wrong yet: it would be under exactly-once."""


def _wants_checkpoint(view: StoreView) -> bool:
    """Whether the offset of a store is nowhere but in ``.checkpoint``."""
    return view.logged and bool(view.databases) and not view.offsets


def _is_of_checkpoint(finding: Finding) -> bool:
    if finding.code == "half-migrated":
        return True
    return finding.repair is Repair.MOVE_ASIDE and finding.evidence.get("file") == CHECKPOINT_FILE


def _mending(task: str, store: str, repair: Repair, ones: Sequence[Finding], view: StoreView | None) -> Mending:
    names = dict.fromkeys(name for one in ones for name in _named(one, repair))
    kind = view.kind if view is not None and view.kind.can_be_built else None
    directory = ""
    if view is not None:
        directory = store if view.segmented else store_directory(store, StoreKind.KEY_VALUE)
    changelog = next((one.partition for one in ones if one.partition is not None), None)
    codes = tuple(dict.fromkeys(one.code for one in ones))
    return Mending(task, repair, store, directory, kind, changelog, tuple(names), codes)


def _named(finding: Finding, repair: Repair) -> Iterable[str]:
    """The files, or the column families, that a repair is about."""
    if repair is Repair.DROP_FAMILY:
        return tuple(finding.evidence.get("families", ()))
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
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for task, stores in sorted(by_task.items()):
        subtopology = task if task in ("", GLOBAL) else task.rpartition("_")[0]
        groups.setdefault((subtopology, tuple(sorted(stores))), []).append(task)
    return tuple(
        Rebuild(
            stores,
            tuple(sorted(partition for task in tasks if task and (partition := partition_of(task)) is not None)),
            tuple(filter(None, tasks)),
            tuple(sorted(set().union(*(codes[task] for task in tasks)))),
        )
        for (_, stores), tasks in groups.items()
    )
