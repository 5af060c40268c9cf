"""Takes task directories, lets somebody change copies of them, and puts the copies in their place.

A live task directory is never changed. :meth:`Exchange.copy` makes second names of it (SST files, which nobody writes
to again, as hard links, all else as bytes) in a staging directory; what has to become of the databases is done there;
:meth:`Exchange.swap` puts the results in place by the journal of :mod:`statecore.statedir.apply`. Whoever is killed
has changed nothing, or leaves a journal that :func:`statecore.statedir.apply.recover` brings to its end. ::

    <application>/.statecore/
      placement-<id>/tasks/0_1/        the copy, until it is live; then what was live, until it is verified
      placement-<id>/kept/0_1/         files that the copy does not have, and somebody may miss
      replaced/placement-<id>/0_1/     those files, once all is in place; with ``keeps`` all that was live.
                                       The first job after a week deletes it

A copy is put in place only where the live directory is still the one that was copied; its fingerprint is taken first.
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
from statecore.statedir.file_ownership import user_name
from statecore.statedir.file_trees import file_sizes, fingerprint, inode, link_in, link_tree
from statecore.statedir.journal import MARK, SWAPPING, Journal, JournalTask, read_journal
from statecore.statedir.journal_recovery import KEPT, JournalRecovery, Outcome
from statecore.statedir.mounts import refuse_unmovable, unmovable, why_mounted
from statecore.statedir.open_stores import refuse_open_stores
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.work_directory import REPLACED, STAGING_PREFIX


def replaced_in(directory: StateDirectory) -> list[Path]:
    """What was replaced in a directory and is still kept, a directory for each placement, by name."""
    return sorted(path for path in (directory.work_path / REPLACED).glob("*") if path.is_dir())


class TaskSwap:
    """Task directories that are about to be replaced by changed copies of themselves.

    A context manager: what was not put in place is deleted at its end.

    Args:
        directory: the application's state directory, locked; what was interrupted there is settled.
        request_id: the request that they are replaced for.
        faults: points at which a test lets the process die.
        progress: told each task that is put in place.
        keeps: whether all that is replaced is kept for a week; else only what was handed to :meth:`keep`.

    Attributes:
        staging: the directory in which the copies are made.
    """

    def __init__(
        self, directory: StateDirectory, request_id: str, faults: FaultPoints, progress: Progress, *, keeps: bool
    ) -> None:
        directory.check_locked()
        if read_journal(directory.work_path) is not None:
            raise ValueError("an interrupted placement has to be settled by recover() before another begins")
        self.directory, self.request_id, self.keeps = directory, request_id, keeps
        self._faults, self._progress = faults, progress
        self.staging = directory.work_path / f"{STAGING_PREFIX}{uuid.uuid4().hex}"
        self._seen: dict[str, str] = {}

    def __enter__(self) -> TaskSwap:
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
        """Where what was kept lies once all is in place; nothing is there where nothing had to be kept."""
        return self.directory.work_path / REPLACED / self.staging.name

    def copy(self, task: str) -> Path:
        """A copy of a live task directory, to be changed. SST files in it are the live ones: never write to them.

        Raises:
            Fenced: somebody has a store of the task open.
            Invalid: a directory in it is a link: a copy of the link would be the live directory; or it is a mount,
                which no link leaves; or the kernel does not let it be renamed.
            OSError: no room, or no right to read.
        """
        live = self.directory.task_path(task)
        if (link := link_in(live)) is not None:
            raise Invalid(
                f"{link} is a link to {os.path.realpath(link)}: no copy of {task} can be changed. Nothing was changed.",
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
        seen = fingerprint(live)
        target = self.staging / "tasks" / task
        link_tree(live, target, self.directory.ownership)
        self._seen[task] = seen
        self._faults.reach("placement.after-image-move")
        return target

    def keep(self, task: str, names: Iterable[str]) -> None:
        """Keep files that a copy will not have, by their names in the task's directory."""
        for name in names:
            target = self.staging / KEPT / task / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.directory.task_path(task) / name, target, follow_symlinks=False)
            for path in (target, *target.parents):  # it stays, and a job of the owner deletes it
                if path == self.staging:
                    break
                self.directory.ownership.give_away(path)

    def swap(self, tasks: Iterable[str]) -> dict[str, Outcome]:
        """Put the copies of these tasks in place, all others stay as they are.

        Returns:
            What became of each.

        Raises:
            Fenced: the lock was lost, or somebody has opened a store of them.
            Retryable: a live directory has changed since it was copied; nothing was put in place.
            Invalid: the kernel does not let a live directory be renamed; nothing was put in place.
        """
        wanted = list(tasks)
        for task in wanted:
            target = self.staging / "tasks" / task
            # Kafka Streams may delete directories that were not changed for long (state.cleanup.dir.max.age.ms).
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
        if old is None or new is None or fingerprint(live) != self._seen[task]:
            raise Retryable(
                f"The directory {live} has changed since it was copied; nothing was put in place.",
                code="task-directory-changed",
                action="Find out who works in it without the application's lock, then run this again.",
                task=task,
            )
        return JournalTask(task, new, file_sizes(made), old, self._seen[task], ())


def put_in_place(
    directory: StateDirectory, journal: Journal, faults: FaultPoints, progress: Progress
) -> dict[str, Outcome]:
    """Swap the task directories that lie complete and durable in a placement's staging directory.

    Args:
        directory: the application's state directory, locked.
        journal: what is to be swapped; from here on it says so on the disk.
        faults: points at which a test lets the process die.
        progress: told each task.

    Returns:
        What became of each task.

    Raises:
        Fenced: the lock was lost, or somebody has opened a store of these tasks; nothing was swapped.
        Invalid: the kernel does not let one of them be renamed, or what is to be kept cannot be; all are as they were.
    """
    staging = directory.work_path / journal.attempt
    refuse_unmovable(directory, staging, [entry.task for entry in journal.tasks])
    _refuse_unkeepable(directory, journal)
    faults.reach("placement.before-journal")
    for entry in journal.tasks:
        refuse_open_stores(directory.task_path(entry.task))
    directory.give_to_owner()
    journal.verified(journal.tasks).write(staging, MARK)
    directory.ownership.give(staging / MARK)  # it stays, under another name
    journal.write(directory.work_path)
    faults.reach("placement.after-journal")
    settlement = JournalRecovery(directory, journal, faults, progress, look=False)
    outcomes = settlement.settle()
    if settlement.refused is not None:
        raise unmovable(*settlement.refused)
    return outcomes


def _refuse_unkeepable(directory: StateDirectory, journal: Journal) -> None:
    """Make sure that what is to be kept can be put where it is kept, which another user may have made."""
    kept = directory.work_path / REPLACED
    keeps = journal.keeps or (directory.work_path / journal.attempt / KEPT).is_dir()
    if keeps and kept.is_dir() and not os.access(kept, os.W_OK | os.X_OK):
        other = user_name(kept.stat().st_uid)
        raise Invalid(
            f"{kept}, where what is replaced is kept, belongs to {other}, and this user may not write there. Nothing "
            "was changed.",
            code="permission-denied",
            action=f"As {other}, give it to the user that the application runs as (chown -R), or delete it.",
            path=str(kept),
            owner=other,
        )
