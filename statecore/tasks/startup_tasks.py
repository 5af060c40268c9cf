"""Opens a standby for each existing task directory before the first assignment (KAFKA-17411).

How many databases are open at once is bounded, by a setting and by the process's limits. Tasks above that are read
closed, and opened when they are taken. Under exactly-once each database of such a task is inspected, read-only and one
at a time: ``.checkpoint`` does not tell whether Kafka Streams closed it.

A corrupt task is found here, and not while a rebalance waits. Under exactly-once its rows cannot be trusted, so its
directory is moved aside and kept for a week; the caller is told whether a snapshot has a copy. At-least-once restores
over the existing rows, so nothing is moved: the task is refused, and an operator decides. The same holds where a store
of the task has no changelog, or a file belongs to no known store, because these rows exist nowhere else. Directories
that are not of this application, or of no subtopology of it, are left alone and reported.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from statecore.errors import Capacity, Corrupted, Invalid, StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import GLOBAL
from statecore.formats.task_id import TaskId
from statecore.spec.model import ApplicationSpec
from statecore.statedir.known_files import unlogged_files
from statecore.statedir.open_stores import refuse_open_stores
from statecore.statedir.placement import recover
from statecore.statedir.quarantine import KEPT_MS, Quarantined, delete_expired, quarantine_task, quarantined
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_on_disk import untrusted_in
from statecore.statedir.task_layout import stores_in, why_partially_deleted
from statecore.statedir.work_directory import CORRUPT
from statecore.tasks.offset_sums import Task, TaskDirectoryState, TaskSum, declared_stores, open_task_sum, read_task_sum

_LOG = logging.getLogger(__name__)
_SAME_SPEC = "Let all members use the same spec, that of the application as it is now."
_RESTORE_IT = "Restore the task from its changelogs or a snapshot, or repair it (statecore repair)."

OpenedTask = TypeVar("OpenedTask", bound=Task)
FindSnapshot = Callable[[str], str | None]  # Returns the snapshot that has a copy of a task, None where none has


@dataclass(frozen=True)
class StartupSettings:
    """How a start treats existing directories.

    Attributes:
        max_open_databases: open at once before the first assignment; a windowed store has a database for each segment.
            0: none, so that every task is read closed.
    """

    max_open_databases: int = 256

    def __post_init__(self) -> None:
        if self.max_open_databases < 0:
            raise Invalid(
                f"max_open_databases is {self.max_open_databases}.",
                code="setting-invalid",
                action="Give a number from 0 on.",
                setting="max_open_databases",
            )


@dataclass(frozen=True)
class CorruptTask:
    """A corrupt task whose directory was moved aside."""

    task: str
    quarantined: Quarantined  # the directory moved aside, and since when
    reason: str  # what was wrong; empty where an earlier start found it
    snapshot: str | None  # the snapshot that has a copy of the task, to be fetched; None where none has
    why_snapshot_unknown: str = ""  # why it is unknown whether there is a copy; empty where it is known


class StartupTasks(Generic[OpenedTask]):
    """The tasks on this machine's disk, from the start of a process to its first assignment.

    To be called by one thread: the one that starts the workers.
    """

    def __init__(
        self,
        directory: StateDirectory,
        spec: ApplicationSpec,
        open_task: Callable[[str], OpenedTask],
        *,
        settings: StartupSettings | None = None,
        find_snapshot: FindSnapshot | None = None,
        clock: Callable[[], float] = time.time,
        faults: FaultPoints = NO_FAULTS,
    ) -> None:
        self._directory, self._spec, self._open_task = directory, spec, open_task
        self._settings = settings or StartupSettings()
        self._find_copy: FindSnapshot = find_snapshot or (lambda _: None)
        self._clock, self._faults = clock, faults
        self._open: dict[str, OpenedTask] = {}
        self._sums: dict[str, TaskSum] = {}
        self._corrupt: dict[str, CorruptTask] = {}
        self._refused: dict[str, StatecoreError] = {}
        self._databases = 0
        self._is_recovered = False  # whether :meth:`recover` has been called since the last start
        self._is_full = False
        """Whether descriptors or disk space did not suffice to open another task, which is sound all the same."""

    @property
    def sums(self) -> Mapping[str, TaskSum]:
        """The tasks that this process may offer to its group, by name; as :meth:`start` found them."""
        return {task: one for task, one in self._sums.items() if one.is_usable and task not in self._refused}

    @property
    def skipped(self) -> Mapping[str, TaskSum]:
        """Directories that this process must not open, each with its reason."""
        return {task: one for task, one in self._sums.items() if not one.is_usable}

    @property
    def corrupt(self) -> Mapping[str, CorruptTask]:
        """Tasks whose corrupt directory was moved aside and not replaced."""
        return dict(self._corrupt)

    @property
    def refused(self) -> Mapping[str, StatecoreError]:
        """Tasks that could not be opened or read, and are unchanged."""
        return dict(self._refused)

    @property
    def open_tasks(self) -> Mapping[str, OpenedTask]:
        """Open standbys that were not taken."""
        return dict(self._open)

    def recover(self, say: Callable[[str], object] | None = None) -> None:
        """Finish an interrupted placement, and delete corrupt directories that have expired."""
        recover(self._directory, self._faults, say)
        delete_expired(self._directory, CORRUPT, self._now_ms())
        self._is_recovered = True

    def start(self) -> Mapping[str, TaskSum]:
        """Recover unless :meth:`recover` was called, open standbys within the limit, read other tasks.

        Returns:
            :attr:`sums`.
        """
        self._directory.check_locked()
        if not self._is_recovered:
            self.recover()
        self._is_recovered = False
        self._report_quarantined()
        try:
            for task in self._directory.task_directories():
                if task not in self._open:
                    self._start_task(task)
        except BaseException:
            self.close_rest()
            raise
        return self.sums

    def take(self, task: str) -> OpenedTask:
        """Return the standby of a task, opened now where it was not; the caller has to close it."""
        taken = self._open.pop(task, None)
        if taken is not None:
            self._databases -= self._sums[task].databases
            return taken
        self._check_assignable(task)
        try:
            opened = self._open_task(task)
        except Corrupted as error:
            self._handle_corrupt(task, error)
            raise
        self._refused.pop(task, None)
        self._corrupt.pop(task, None)
        return opened

    def close_rest(self) -> None:
        """Close the standbys that were not taken; idempotent."""
        failures: list[Exception] = []
        while self._open:
            task, one = self._open.popitem()
            try:
                one.close()
            except Exception as error:
                failures.append(error)
            self._databases -= self._sums[task].databases
            self._faults.reach("startup.after-close")
        if failures:
            raise failures[0]

    def _start_task(self, task: str) -> None:
        # Read before opening: opening a task changes files, and this directory may belong to another application.
        found = read_task_sum(self._directory, task, self._spec)
        if found.state is TaskDirectoryState.EMPTY:
            return
        self._sums[task] = found
        if found.state is TaskDirectoryState.DAMAGED:
            self._handle_corrupt(task, Corrupted(found.reason, code="task-damaged", action=_RESTORE_IT, task=task))
        elif found.state is TaskDirectoryState.KNOWN:
            fits = not self._is_full and self._databases + found.databases <= self._settings.max_open_databases
            if found.databases and fits:
                self._open_standby(task, found.databases)
            elif found.databases and self._spec.processing_guarantee.is_exactly_once:
                self._check_closed(task)

    def _open_standby(self, task: str, count: int) -> None:
        try:
            opened = self._open_task(task)
        except Corrupted as error:
            self._handle_corrupt(task, error)
            return
        except Capacity as error:
            _LOG.warning("Task %s and those after it are read closed and not opened yet: %s", task, error)
            self._is_full = True
            if self._spec.processing_guarantee.is_exactly_once:
                self._check_closed(task)
            return
        except StatecoreError as error:
            self._refused[task] = error
            return
        self._open[task] = opened
        self._databases += count
        opened_sum = open_task_sum(opened, self._directory.application_id, self._spec)
        self._sums[task] = TaskSum(task, opened_sum.state, opened_sum.reason, opened_sum.stores, count)
        self._faults.reach("startup.after-open")

    def _check_closed(self, task: str) -> None:
        """Inspect a closed task for what would prevent its opening."""
        try:
            unclean = untrusted_in(self._directory.task_path(task))
        except Corrupted as error:
            self._handle_corrupt(task, error)
        except StatecoreError as error:
            self._refused[task] = error
        else:
            if unclean is not None:
                what = f"{unclean} was not closed cleanly, so its rows may be ahead of its offset."
                self._handle_corrupt(task, Corrupted(what, code="not-closed-cleanly", action=_RESTORE_IT, task=task))

    def _handle_corrupt(self, task: str, error: Corrupted) -> None:
        if not self._spec.processing_guarantee.is_exactly_once or self._has_unlogged_rows(task):
            self._refused[task] = error
            return
        copy, unknown = self._snapshot_of(task)
        self._faults.reach("startup.before-aside")
        try:
            refuse_open_stores(self._directory.task_path(task))
            aside = quarantine_task(self._directory, task, CORRUPT, self._now_ms())
        except StatecoreError as failure:
            self._directory.check_locked()
            self._refused[task] = failure
            return
        self._faults.reach("startup.after-aside")
        self._sums.pop(task, None)
        self._corrupt[task] = CorruptTask(task, aside, error.what, copy, unknown)

    def _has_unlogged_rows(self, task: str) -> bool:
        """Whether a task may have rows without a changelog, which would be deleted after a week aside."""
        path, declared = self._directory.task_path(task), self._spec.stores_of(task)
        logged = {one.name for one in declared if one.is_logged and one.kind is not StoreKind.IN_MEMORY}
        try:
            unlogged = [store for store in stores_in(path) if store.store not in logged]
            if any(store.databases or why_partially_deleted(store) for store in unlogged):
                return True
            return bool(unlogged_files(path, declared))
        except StatecoreError:  # a part of it cannot be read
            return True

    def _snapshot_of(self, task: str) -> tuple[str | None, str]:
        try:
            return self._find_copy(task), ""
        except StatecoreError as error:
            return None, error.what

    def _report_quarantined(self) -> None:
        """Report quarantined directories that have not expired and whose task has no directory now."""
        now_ms = self._now_ms()
        present = set(self._directory.task_directories())
        for one in quarantined(self._directory, CORRUPT):
            if one.task not in present and now_ms - one.at_ms <= KEPT_MS:
                self._corrupt[one.task] = CorruptTask(one.task, one, "", *self._snapshot_of(one.task))

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _check_assignable(self, task: str) -> None:
        if TaskId.match(task) is None or task == GLOBAL:
            raise Invalid(
                f"{task!r} was assigned, and is not a task id such as 0_1.",
                code="task-unknown",
                action=_SAME_SPEC,
                task=task,
            )
        if not declared_stores(self._spec, task):
            raise Invalid(
                f"The task {task} was assigned, and {self._spec.source} declares no logged store on disk of its "
                "subtopology.",
                code="task-unknown",
                action=_SAME_SPEC,
                task=task,
            )
        found = read_task_sum(self._directory, task, self._spec)  # read again: an operator may have moved it away
        if found.state is TaskDirectoryState.FOREIGN:
            raise Invalid(
                f"The task directory {self._directory.task_path(task)} is not of "
                f"{self._directory.application_id}: {found.reason}",
                code="task-directory-foreign",
                action="Move it away; then the task starts empty here.",
                task=task,
            )
