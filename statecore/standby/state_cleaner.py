"""Deletes task directories that no process owns, like Kafka Streams' cleaner, but never the best copy.

Kafka Streams deletes a task directory that no thread of the process owns and that was not changed for
``state.cleanup.delay.ms`` (``StateDirectory.cleanRemovedTasks``), by the modification time of the directory. It does
not ask whether another process has the task's state. Here a directory is deleted only if another member is known to be
at least as far with the task; unpublished state counts as unknown. With ``force`` the others are moved away and kept
for a week.

The application's lock is held meanwhile. A directory is first moved by one rename and then deleted, so that a kill
leaves no half of a task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from statecore.errors import StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.formats.integers import INT64_MAX
from statecore.spec.model import ApplicationSpec, StoreSpec
from statecore.statedir.known_files import unlogged_files
from statecore.statedir.open_stores import refuse_open_stores
from statecore.statedir.quarantine import delete_expired, delete_quarantined, quarantine_task, quarantined
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.task_layout import StoreDirectory, stores_in, why_partially_deleted
from statecore.statedir.work_directory import CLEANED, UNOWNED
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES
from statecore.tasks.offset_sums import TaskDirectoryState, TaskSum, read_task_sum
from statecore.words import shortened_list


@dataclass(frozen=True)
class CleanupResult:
    """Result of one cleanup."""

    deleted: tuple[str, ...] = ()  # tasks whose directories were deleted
    kept: Mapping[str, str] = field(default_factory=dict)  # expired unowned tasks, and why they stay
    # tasks whose directories were moved but could not be deleted, and why; the next cleanup retries
    failed: Mapping[str, str] = field(default_factory=dict)
    # tasks that were moved away for a week though no other process may have all of their state
    moved_away: Mapping[str, Path] = field(default_factory=dict)


def clean_unowned(
    directory: StateDirectory,
    owned: Collection[str],
    others: Mapping[str, int],
    *,
    spec: ApplicationSpec,
    cleanup_delay_ms: int,
    force: bool = False,
    shortened: Collection[str] = (),
    may_delete: Callable[[str], bool] = lambda _: True,
    clock: Callable[[], float] = time.time,
    faults: FaultPoints = NO_FAULTS,
) -> CleanupResult:
    """Delete the task directories that no process owns or needs, ``cleanup_delay_ms`` after their last change."""
    directory.check_locked()
    now_ms = int(clock() * 1000)
    delete_expired(directory, UNOWNED, now_ms)
    kept: dict[str, str] = {}
    moved_away: dict[str, Path] = {}
    for task, found in _expired(directory, owned, spec, cleanup_delay_ms, now_ms):
        if isinstance(found, OSError):
            kept[task] = str(found)
            continue
        reason = why_kept(directory, found, others.get(task), spec)
        if reason and not (force and is_forcible(found)):
            kept[task] = reason
            continue
        if not may_delete(task):
            continue
        faults.reach("cleaning.before-aside")
        below = UNOWNED if reason or task in shortened else CLEANED
        try:
            refuse_open_stores(directory.task_path(task))  # it may have been opened since it was read
            moved = quarantine_task(directory, task, below, now_ms)
        except StatecoreError as error:
            directory.check_locked()
            kept[task] = error.what
        else:
            if below == UNOWNED:
                moved_away[task] = moved.path
        faults.reach("cleaning.after-aside")
    deleted, left = _delete(directory, faults)
    return CleanupResult(tuple(deleted), kept, left, moved_away)


def removable_tasks(
    directory: StateDirectory,
    owned: Collection[str],
    others: Collection[str],
    *,
    spec: ApplicationSpec,
    cleanup_delay_ms: int,
    force: bool = False,
) -> list[str]:
    """Task directories that would be deleted if their owners had all of their state."""
    return [
        task
        for task, found in _expired(directory, owned, spec, cleanup_delay_ms, int(time.time() * 1000))
        if isinstance(found, TaskSum)
        and (
            (force and is_forcible(found))
            or not why_kept(directory, found, INT64_MAX if task in others else None, spec)
        )
    ]


def is_forcible(found: TaskSum) -> bool:
    """Whether ``force`` may remove a task: not another application's, nor one that may be open."""
    return not found.is_open_elsewhere and found.state not in (
        TaskDirectoryState.OPEN,
        TaskDirectoryState.UNREADABLE,
        TaskDirectoryState.FOREIGN,
    )


def why_kept(directory: StateDirectory, found: TaskSum, elsewhere: int | None, spec: ApplicationSpec) -> str:
    """Why an expired directory stays; empty if it may be deleted."""
    if found.is_open_elsewhere or found.state is TaskDirectoryState.OPEN:
        return found.reason if found.state is TaskDirectoryState.OPEN else "Another process has one of its stores open."
    if found.state is TaskDirectoryState.UNREADABLE:
        return f"Whether another process has it open is unknown: {found.reason}"
    if found.state is TaskDirectoryState.EMPTY:
        return ""
    if found.state is not TaskDirectoryState.KNOWN:
        return f"It cannot be compared with other copies: {found.reason}"
    unsaid = next((one for one in found.stores if one.is_unknown), None)
    if unsaid is not None:
        return f"Its store {unsaid.store} cannot be compared with other copies: {unsaid.reason}"
    if elsewhere is None:
        return "No other process is known to have a copy of it."
    held = replicated_sum(found, spec)
    if held > elsewhere:
        return f"It is the best copy: its offset sum is {held:,}, and the best one elsewhere {elsewhere:,}."
    return why_unreplicated(directory, found, spec)


def _expired(
    directory: StateDirectory,
    owned: Collection[str],
    spec: ApplicationSpec,
    cleanup_delay_ms: int,
    now_ms: int,
) -> Iterator[tuple[str, TaskSum | OSError]]:
    """Expired unowned tasks with their offset sums, or the error of reading them."""
    for task in directory.task_directories():
        if task in owned:
            continue
        try:
            if now_ms - directory.task_path(task).stat().st_mtime_ns // 1_000_000 > cleanup_delay_ms:
                yield task, read_task_sum(directory, task, spec)
        except OSError as error:
            yield task, error


def _delete(directory: StateDirectory, faults: FaultPoints) -> tuple[list[str], dict[str, str]]:
    """Delete all moved directories, including those of a cleaner that was killed."""
    deleted, left = [], {}
    for one in quarantined(directory, CLEANED):
        try:
            delete_quarantined(directory, one)
        except StatecoreError as error:
            directory.check_locked()
            left[one.task] = error.what
        else:
            deleted.append(one.task)
            faults.reach("cleaning.after-delete")
    return deleted, left


def why_unreplicated(directory: StateDirectory, found: TaskSum, spec: ApplicationSpec) -> str:
    """Why the offset sum of a closed task does not cover all its rows; empty if it does."""
    try:
        for place in stores_in(directory.task_path(found.task)):
            has_rows = place.databases or why_partially_deleted(place)
            reason = _why_unreplicated(place, found, spec) if has_rows else ""
            if reason:
                return f"Its store {place.store} {reason}"
        if files := unlogged_files(directory.task_path(found.task), spec.stores_of(found.task)):
            return f"It contains {shortened_list(files, 3)}, of no known store, so no other copy has them."
    except StatecoreError as error:
        return error.what
    except OSError as error:
        return str(error)
    return ""


def replicated_sum(found: TaskSum, spec: ApplicationSpec) -> int:
    """Offset sum of a task without its versioned stores, which standbys do not follow."""
    versioned = {store.name for store in spec.stores_of(found.task) if store.kind.is_versioned}
    return TaskSum(found.task, found.state, stores=tuple(s for s in found.stores if s.store not in versioned)).sum


def _why_unreplicated(place: StoreDirectory, found: TaskSum, spec: ApplicationSpec) -> str:
    store = next((one for one in spec.stores_of(found.task) if one.name == place.store), None)
    if store is None:
        return "is not declared, so it is unknown whether other copies have its rows."
    if (store.is_logged and not store.kind.is_versioned) or not _has_rows(place, store):
        return ""
    if store.is_logged:
        return "is versioned, and standbys do not follow it."
    return "has no changelog, so no other copy has its rows."


def _has_rows(place: StoreDirectory, store: StoreSpec) -> bool:
    """Whether a store has rows. Raises ``StatecoreError``: it cannot be read."""
    if not store.kind.can_be_built or not place.databases:  # files of rows that no database reads
        return True
    for database in place.databases:
        with RocksDBStore(database, store.kind, read_only=True, settings=KEEP_FILES) as opened:
            if opened.has_rows():
                return True
    return False
