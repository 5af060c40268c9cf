"""Replaces task directories by modified copies of them.

A live task directory is never changed. :meth:`TaskCopies.copy` links it into a staging directory (immutable SST files
as hard links, all else as bytes), the databases are changed there, and :meth:`TaskCopies.swap` puts the results in
place by :mod:`statecore.statedir.placement`. A killed job has changed nothing, or leaves a journal that
:func:`statecore.statedir.placement.recover` finishes. ::

    <application>/.statecore/
      placement-<id>/tasks/0_1/        the copy, until it is live; then the old directory, until it is verified
      placement-<id>/kept/0_1/         files that the copy lacks and that are kept
      replaced/placement-<id>/0_1/     those files, once all is in place; with ``keeps`` the whole old directory.
                                       The first job after a week deletes it

A copy is put in place only if the live directory's fingerprint, taken before copying, is unchanged.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from statecore.errors import Invalid, Retryable
from statecore.faults import FaultPoints
from statecore.filesystem import sync_tree
from statecore.progress import Progress
from statecore.statedir.file_trees import file_sizes, fingerprint, inode, link_in, link_tree
from statecore.statedir.journal import SWAPPING, Journal, JournalTask, read_journal
from statecore.statedir.journal_replay import KEPT_FILES, PlacementOutcome
from statecore.statedir.mounts import refuse_unmovable, why_mounted
from statecore.statedir.open_stores import refuse_open_stores
from statecore.statedir.placement import put_in_place
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.work_directory import REPLACED, STAGING_PREFIX


class TaskCopies:
    """Task directories that are replaced by modified copies; the context deletes copies that were not put in place."""

    def __init__(
        self, directory: StateDirectory, request_id: str, faults: FaultPoints, progress: Progress, *, keeps: bool
    ) -> None:
        directory.check_locked()
        if read_journal(directory.work_path) is not None:
            raise ValueError("recover() must finish an interrupted placement before another begins")
        self.directory, self.request_id, self.keeps = directory, request_id, keeps
        self._faults, self._progress = faults, progress
        self.staging = directory.work_path / f"{STAGING_PREFIX}{uuid.uuid4().hex}"
        self._fingerprints: dict[str, str] = {}

    def __enter__(self) -> TaskCopies:
        (self.staging / "aside").mkdir(parents=True)
        self._faults.reach("placement.start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if read_journal(self.directory.work_path) is None:  # else recover() needs it
            shutil.rmtree(self.staging, ignore_errors=True)

    @property
    def kept_path(self) -> Path:
        """The directory of kept files once all is in place; missing if nothing was kept."""
        return self.directory.work_path / REPLACED / self.staging.name

    def copy(self, task: str) -> Path:
        """Copy a live task directory for modification. SST files in it are the live ones: never write to them."""
        live = self.directory.task_path(task)
        if (link := link_in(live)) is not None:
            raise Invalid(
                f"{link} is a link to {os.path.realpath(link)}; {task} cannot be copied. Nothing was changed.",
                code="task-directory-linked",
                action="Replace the link by the directory, or mount the place there.",
                task=task,
                path=str(link),
            )
        if mounted := why_mounted(live) or why_mounted(self.directory.work_path):
            raise Invalid(
                f"{task} cannot be copied.",
                code="mount-in-the-way",
                action=f"{mounted} Nothing was changed.",
                task=task,
            )
        refuse_unmovable(self.directory, self.staging, [task])
        refuse_open_stores(live)
        before = fingerprint(live)
        target = self.staging / "tasks" / task
        link_tree(live, target, self.directory.ownership)
        self._fingerprints[task] = before
        self._faults.reach("placement.after-image-move")
        return target

    def keep(self, task: str, names: Iterable[str]) -> None:
        """Keep files that a copy will lack, by their names in the task's directory."""
        for name in names:
            target = self.staging / KEPT_FILES / task / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.directory.task_path(task) / name, target, follow_symlinks=False)
            for path in (target, *target.parents):  # a later job of the owner deletes it
                if path == self.staging:
                    break
                self.directory.ownership.set_owner(path)

    def swap(self, tasks: Iterable[str]) -> dict[str, PlacementOutcome]:
        """Put the copies of these tasks in place; returns the outcome of each."""
        wanted = list(tasks)
        for task in wanted:
            target = self.staging / "tasks" / task
            # Kafka Streams may delete directories that were unchanged for long (state.cleanup.dir.max.age.ms).
            os.utime(target)
        self._faults.reach("placement.after-assembly")
        sync_tree(self.staging)
        self._faults.reach("placement.after-sync")
        entries = tuple(self._entry(task) for task in wanted)
        return put_in_place(
            self.directory,
            Journal(self.request_id, self.staging.name, SWAPPING, entries, keeps=self.keeps),
            self._faults,
            self._progress,
        )

    def _entry(self, task: str) -> JournalTask:
        live, made = self.directory.task_path(task), self.staging / "tasks" / task
        old, new = inode(live), inode(made)
        if old is None or new is None or fingerprint(live) != self._fingerprints[task]:
            raise Retryable(
                f"The directory {live} has changed since it was copied; nothing was put in place.",
                code="task-directory-changed",
                action="Find out which process writes there without the application's lock, then run this again.",
                task=task,
            )
        return JournalTask(task, new, file_sizes(made), old, self._fingerprints[task], ())
