"""Offsets of the tasks in an application's directory, and the offset sums by which tasks are assigned.

A member of a group reports for each task on its disk the sum over its changelogs of the next offset (KIP-441), so that
a task goes to the member that has the most of it. Offsets come from:

- **An open task**, which alone knows what it has committed.
- **The task's** ``.checkpoint``, for a closed store, where that is as young as the store's databases: a clean close
  writes the file last. An older file was left by a process that died, and its offsets are too low.
- **Else the databases**, read-only and without touching them. Segments of a store count with the smallest offset of
  all, because rows beyond it may be missing in one of them. Stores that keep no offset inside, as those of Kafka
  Streams 4.2 and grace buffers, have it in ``.checkpoint``, or in ``.checkpoint_<store>``, after all; the former wins,
  as at a start of Kafka Streams.

Damage is detected where a database has to be read, and when a task is opened. A store without a database counts
nothing, whatever a file says of it. Global stores are in no sum: every member has all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from statecore.errors import Corrupted, StatecoreError
from statecore.formats.integers import INT64_MAX
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import UNKNOWN_CHANGELOG, ApplicationSpec, StoreSpec, default_changelog, segmentation_of
from statecore.statedir.checkpoint_overlay import overlaid
from statecore.statedir.open_stores import find_writer
from statecore.statedir.state_directory import StateDirectory, store_directory
from statecore.statedir.store_on_disk import StoreOnDisk, read_store
from statecore.statedir.store_places import changelog_owner
from statecore.statedir.task_layout import StoreDirectory, stores_in, unreadable, why_partially_deleted
from statecore.stores.legacy_offsets import read_offsets


class Task(Protocol):
    """A task whose stores are open."""

    @property
    def name(self) -> str:
        """Kafka Streams' task id, which is its directory: ``0_1``."""

    def offsets(self) -> Mapping[TopicPartition, int]:
        """The last applied offset of each changelog; absent, or -4, where unknown."""

    def close(self) -> None:
        """Close the stores; idempotent."""


class OffsetSource(StrEnum):
    """Where an offset comes from."""

    TASK = "open task"
    FILE = "checkpoint"
    DATABASES = "databases"
    NONE = "nobody"


class TaskDirectoryState(StrEnum):
    """State of a task directory for a process that starts on it."""

    KNOWN = "known"  # Its offsets are known, or it is known that there are none
    OPEN = "open"  # Another process has one of its stores open; its offsets are those of the last flush
    EMPTY = "empty"  # It contains only files of offsets and locks (StateDirectory.taskDirIsEmpty)
    UNDECLARED = "undeclared"  # The spec declares no logged store on disk of its subtopology
    FOREIGN = "foreign"  # Its offsets are of another application's changelogs
    DAMAGED = "damaged"  # A store of it cannot be read, or has lost a part of its files
    UNREADABLE = "unreadable"  # This process has no right to read it, or the disk failed


@dataclass(frozen=True)
class StoreSum:
    """The offset of one store of a task."""

    store: str  # its name; empty for an offset in .checkpoint of an unknown store
    changelog: TopicPartition | None  # its changelog partition; None where unknown
    offset: int | None  # the last one applied; None where unknown
    source: OffsetSource  # where the offset comes from
    databases_differ: bool = False  # whether its databases have different offsets
    reason: str = ""  # why nothing is known, or what is wrong; may be empty
    is_damaged: bool = False  # whether the reason is damage
    is_unknown: bool = False  # whether it has databases without any known offset


@dataclass(frozen=True)
class TaskSum:
    """The offsets of one task directory."""

    task: str
    state: TaskDirectoryState
    reason: str = ""  # why, or a further remark; may be empty
    stores: tuple[StoreSum, ...] = ()  # its stores that count, by name
    databases: int = 0
    is_open_elsewhere: bool = False  # whether another process has one of its stores open, in any state

    @property
    def sum(self) -> int:
        """Its offset sum. Another application's offsets count nothing."""
        return 0 if self.state is TaskDirectoryState.FOREIGN else offset_sum(one.offset for one in self.stores)

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """Last applied offsets by changelog partition, where known."""
        found = ((one.changelog, one.offset) for one in self.stores)
        return {changelog: offset for changelog, offset in found if changelog is not None and offset is not None}

    @property
    def is_usable(self) -> bool:
        """Whether it is a task of this application that may be opened."""
        return self.state in (TaskDirectoryState.KNOWN, TaskDirectoryState.DAMAGED)


def offset_sum(offsets: Iterable[int | None]) -> int:
    """The sum of next offsets; unknown ones (``None``, -4) count nothing, and no sum exceeds 2^63-1."""
    return min(sum(offset + 1 for offset in offsets if offset is not None and offset >= 0), INT64_MAX)


def open_task_sum(task: Task, application_id: str, spec: ApplicationSpec) -> TaskSum:
    """The offsets of an open task; the spec gives the stores' names."""
    names = {_changelog(application_id, one).topic: one.name for one in declared_stores(spec, task.name)}
    stores = [
        StoreSum(names.get(at.topic, ""), at, offset if offset >= 0 else None, OffsetSource.TASK)
        for at, offset in sorted(task.offsets().items())
    ]
    return TaskSum(task.name, TaskDirectoryState.KNOWN, stores=tuple(stores))


def read_offset_sums(
    directory: StateDirectory,
    spec: ApplicationSpec | None = None,
    *,
    tasks: Sequence[str] | None = None,
) -> dict[str, TaskSum]:
    """The offsets of all tasks in a directory, or of some; an error of one task is part of its result."""
    return {
        name: read_task_sum(directory, name, spec)
        for name in dict.fromkeys(directory.task_directories() if tasks is None else tasks)
    }


def read_task_sum(directory: StateDirectory, task: str, spec: ApplicationSpec | None = None) -> TaskSum:
    """The offsets of one task that is closed, or that another process has open. Raises nothing but ``ValueError``."""
    try:
        return _TaskReader(directory, task, spec).read()
    except StatecoreError as error:
        return TaskSum(task, TaskDirectoryState.UNREADABLE, error.what)
    except OSError as error:
        return TaskSum(task, TaskDirectoryState.UNREADABLE, unreadable(directory.task_path(task), error).what)


def is_empty_task(path: Path) -> bool:
    """Whether a task directory has only files of offsets and locks: no file, and no directory of such a name."""
    try:
        with os.scandir(path) as entries:
            return all(
                (one.name.startswith(CHECKPOINT_FILE) or one.name.endswith(".lock")) and not one.is_dir()
                for one in entries
            )
    except FileNotFoundError:
        return True
    except OSError as error:
        raise unreadable(path, error) from error


def _newest_ns(databases: Sequence[Path]) -> int:
    """When a file of these databases was last written, in ns since the epoch; 0 where there is none."""
    newest = 0
    for database in databases:
        with os.scandir(database) as entries:
            for one in entries:
                with suppress(FileNotFoundError):  # a process that has it open deletes files
                    newest = max(newest, one.stat().st_mtime_ns)
    return newest


def declared_stores(spec: ApplicationSpec | None, task: str) -> list[StoreSpec]:
    """The declared logged stores of a task that are on disk in a known format."""
    return [] if spec is None else [store for store in spec.stores_of(task) if store.is_restorable]


def _changelog(application_id: str, store: StoreSpec) -> TopicPartition:
    if store.changelog != UNKNOWN_CHANGELOG:
        return TopicPartition(store.changelog, 0)
    return TopicPartition(default_changelog(application_id, store.name), 0)


@dataclass
class _TaskReader:
    """Reads one task directory."""

    directory: StateDirectory
    task: str
    spec: ApplicationSpec | None
    file: dict[TopicPartition, int] = field(default_factory=dict)
    file_ns: int = -1
    topics: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.path = self.directory.task_path(self.task)
        self.partition = TaskId.parse(self.task).partition
        self.declared = {one.name: one for one in declared_stores(self.spec, self.task)}

    def read(self) -> TaskSum:
        if is_empty_task(self.path):
            return TaskSum(self.task, TaskDirectoryState.EMPTY, "It has no store.")
        notes = self._read_file()
        found = stores_in(self.path)
        databases = {one.name: one.databases for one in found}
        holder = find_writer(path for paths in databases.values() for path in paths)
        undeclared = self.spec is not None and not self.declared
        stores = [self._declared(one, found, holder is not None) for one in self.declared.values()]
        if not self.declared:
            stores = self._undeclared(found, holder is not None)
        stores.sort(key=lambda one: one.store)
        state, reason = TaskDirectoryState.KNOWN, notes
        broken = [one for one in stores if one.is_damaged]
        if undeclared:
            state, reason = (
                TaskDirectoryState.UNDECLARED,
                "The spec declares no logged store on disk of its subtopology.",
            )
        elif (owner := self._owner({one.store for one in found})) is not None:
            state, reason = TaskDirectoryState.FOREIGN, f"Its offsets are of {owner}."
        elif holder is not None:
            state, reason = (
                TaskDirectoryState.OPEN,
                f"{holder} has its stores open; these are the offsets of the last flush.",
            )
        elif broken:
            state, reason = TaskDirectoryState.DAMAGED, broken[0].reason
        count = sum(map(len, databases.values()))
        return TaskSum(self.task, state, reason, tuple(stores), count, is_open_elsewhere=holder is not None)

    def _read_file(self) -> str:
        """Read ``.checkpoint``; returns why it cannot be read, empty where it can, or does not exist."""
        path = self.path / CHECKPOINT_FILE
        try:
            self.file = read_offsets(path)
            self.file_ns = path.stat().st_mtime_ns if self.file else -1
        except FileNotFoundError:
            self.file = {}
        except StatecoreError as error:
            return error.what
        return ""

    def _declared(self, spec: StoreSpec, found: Sequence[StoreDirectory], is_open: bool) -> StoreSum:
        topic = _changelog(self.directory.application_id, spec).topic
        changelog = TopicPartition(topic, self.partition or 0)
        place = next((one for one in found if one.name == self._place(spec)), None)
        if place is None:
            return StoreSum(spec.name, changelog, None, OffsetSource.NONE, reason="It has no directory.")
        lost = why_partially_deleted(place, segmentation_of(spec))
        return self._store(place, changelog, spec.kind.manages_offsets, is_open, lost)[0]

    def _place(self, spec: StoreSpec) -> str:
        if spec.kind is StoreKind.UNKNOWN:  # the shape on disk decides
            return spec.name if (self.path / spec.name).is_dir() else f"rocksdb/{spec.name}"
        return store_directory(spec.name, spec.kind)

    def _undeclared(self, found: Sequence[StoreDirectory], is_open: bool) -> list[StoreSum]:
        stores, claimed = [], set()
        for place in found:
            topic = default_changelog(self.directory.application_id, place.store)
            changelog = TopicPartition(topic, self.partition or 0)
            summed, on_disk = self._store(place, changelog, True, is_open, why_partially_deleted(place))
            if on_disk is not None and on_disk.keeps_no_offset:
                continue
            if summed.offset is None and on_disk is not None:  # another topic, such as a source topic
                offsets = [
                    (at, offset) for at, offset in on_disk.smallest_offsets.items() if at.partition == self.partition
                ]
                if offsets:
                    at, offset = min(offsets)
                    known, disagree = offset if offset >= 0 else None, on_disk.agreed_offsets is None
                    summed = StoreSum(place.store, at, known, OffsetSource.DATABASES, disagree, summed.reason)
            claimed.add(summed.changelog)
            stores.append(summed)
        for at, offset in sorted(self.file.items()):
            if at not in claimed and at.partition == self.partition and any(one.databases for one in found):
                self.topics.add(at.topic)
                stores.append(StoreSum("", at, offset if offset >= 0 else None, OffsetSource.FILE))
        return stores

    def _store(
        self, place: StoreDirectory, changelog: TopicPartition, inside: bool, is_open: bool, lost: str
    ) -> tuple[StoreSum, StoreOnDisk | None]:
        """The offset of a store; and its databases, where they had to be read."""
        databases = place.databases
        if lost:
            return StoreSum(place.store, changelog, None, OffsetSource.NONE, reason=lost, is_damaged=True), None
        if not databases:
            return StoreSum(place.store, changelog, None, OffsetSource.NONE, reason="It has no database."), None
        entry = self.file.get(changelog, OFFSET_UNKNOWN)
        if not is_open and entry != OFFSET_UNKNOWN and _newest_ns(databases) <= self.file_ns:
            self.topics.add(changelog.topic)
            return self._store_sum(place, changelog, entry, OffsetSource.FILE), None
        on_disk = read_store(place, manifests=True)
        if on_disk.damage is not None:
            return StoreSum(
                place.store, changelog, None, OffsetSource.NONE, reason=on_disk.damage.what, is_damaged=True
            ), None
        self.topics |= {at.topic for at in on_disk.smallest_offsets}
        if inside and changelog in on_disk.smallest_offsets:
            smallest, disagree = on_disk.smallest_offsets[changelog], on_disk.agreed_offsets is None
            return self._store_sum(place, changelog, smallest, OffsetSource.DATABASES, disagree), on_disk
        return self._from_files(place, changelog), on_disk

    def _from_files(self, place: StoreDirectory, changelog: TopicPartition) -> StoreSum:
        """A store without an offset inside: from that of its task, or its own file."""
        try:
            alone = read_offsets(place.checkpoint_file)
        except Corrupted as error:
            return StoreSum(place.store, changelog, None, OffsetSource.NONE, reason=error.what, is_unknown=True)
        self.topics |= {at.topic for at in alone}
        offsets = overlaid(alone, self.file)
        if changelog in offsets:
            self.topics.add(changelog.topic)
            return self._store_sum(place, changelog, offsets[changelog], OffsetSource.FILE)
        return StoreSum(
            place.store, changelog, None, OffsetSource.NONE, reason="Its offset is not recorded.", is_unknown=True
        )

    def _store_sum(
        self,
        place: StoreDirectory,
        changelog: TopicPartition,
        offset: int,
        source: OffsetSource,
        disagree: bool = False,
    ) -> StoreSum:
        if offset < 0:
            known = "-4: it is not known." if offset == OFFSET_UNKNOWN else f"{offset}, which is not an offset."
            return StoreSum(place.store, changelog, None, source, disagree, f"Its offset is {known}")
        reason = "Its databases have different offsets; the smallest counts." if disagree else ""
        return StoreSum(place.store, changelog, offset, source, disagree, reason)

    def _owner(self, names: set[str]) -> str | None:
        """The other application whose changelogs the task has offsets of, if any."""
        # Kafka Streams also writes entries of stores that are in memory or of the application's own class.
        logged = () if self.spec is None else (one for one in self.spec.stores_of(self.task) if one.is_logged)
        declared = {_changelog(self.directory.application_id, one).topic for one in logged}
        for topic in sorted((self.topics | {at.topic for at in self.file}) - declared):
            owner = changelog_owner(topic, self.directory.application_id, names)
            if owner is not None:
                return f"the application {owner[0]} (its store {owner[1]})"
        return None
