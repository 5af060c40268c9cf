"""Finishes the tasks of a placement's journal, after assembly or after a crash at any point.

The state of a task is read from the disk: the inode of the live directory, and of the two places where the other one
may be.

=============================================  ==============================  =======================================
live is                                        the new directory is            then
=============================================  ==============================  =======================================
the new one                                    live                            verify; keep it, or put the old one back
the old one, exactly as in the journal         complete in staging             swap, verify
the old one, exactly as in the journal         not complete                    leave the old one
absent, as before the placement                complete in staging             swap, verify
absent, the old one is in ``aside/``           complete in staging             finish the swap, verify
absent, the old one is in ``aside/``           not complete                    put the old one back
anything else                                  anywhere                        leave it: the application made or used it
=============================================  ==============================  =======================================

Where the kernel (:mod:`statecore.statedir.mounts`) or missing permissions prevent a rename, waiting is no help: every
task gets its old directory back, and the journal is closed.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from statecore.errors import Corrupted, Invalid
from statecore.faults import FaultPoints
from statecore.filesystem import sync_file
from statecore.progress import Progress
from statecore.statedir.file_trees import exchange, file_sizes, fingerprint, inode, remove_tree
from statecore.statedir.journal import VERIFIED, VERIFIED_JOURNAL, Journal, JournalTask
from statecore.statedir.mounts import UNMOVABLE
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.task_assembly import check_placed
from statecore.statedir.work_directory import JOURNAL, RECORD, REPLACED, SET_ASIDE

KEPT_FILES = "kept"
"""In the staging directory: files of old directories that are kept, by task."""


_REFUSED = (*UNMOVABLE, errno.EACCES, errno.EPERM)


class PlacementOutcome(Enum):
    """Result for one task of a placement."""

    PLACED = "placed"
    PUT_BACK = "put back"
    LEFT_ALONE = "left alone"


class JournalReplay:
    """Executes one journal."""

    def __init__(
        self,
        directory: StateDirectory,
        journal: Journal,
        faults: FaultPoints,
        progress: Progress,
        *,
        verify_databases: bool,
    ) -> None:
        self.directory, self.journal, self.faults, self.progress = directory, journal, faults, progress
        self.staging = directory.work_path / journal.attempt
        self.verify_databases = verify_databases
        self.refused: tuple[Path, OSError] | None = None

    def replay(self) -> dict[str, PlacementOutcome]:
        """Swap, verify, mark, sweep and record; task → outcome."""
        work = self.directory.work_path
        outcomes = {entry.task: PlacementOutcome.PLACED for entry in self.journal.tasks}
        if self.journal.state != VERIFIED:
            self.progress.phase("place", len(outcomes), "tasks")
            for entry in self.journal.tasks:
                outcomes[entry.task] = self._replay_task(entry)
                self.progress.advance()
                if self.refused is not None:
                    outcomes = {entry.task: self._revert(entry) for entry in self.journal.tasks}
                    break
            self._mark(tuple(entry for entry in self.journal.tasks if outcomes[entry.task] is PlacementOutcome.PLACED))
            self.faults.reach("placement.after-mark")
            self.progress.done()
        self._keep_replaced(outcomes)
        self.faults.reach("placement.after-keeping")
        for part in ("aside", "tasks"):
            self.faults.reach("placement.during-sweep")
            shutil.rmtree(self.staging / part, ignore_errors=True)
        shutil.rmtree(self.staging, ignore_errors=True)
        self.faults.reach("placement.after-sweep")
        (work / JOURNAL).replace(work / RECORD)
        sync_file(work)
        return outcomes

    def _keep_replaced(self, outcomes: Mapping[str, PlacementOutcome]) -> None:
        """Move the old directories that are kept out of the staging; those moved before stay."""
        kept = self.directory.work_path / REPLACED / self.journal.attempt
        for entry in self.journal.tasks:
            if outcomes[entry.task] is not PlacementOutcome.PLACED:
                continue
            places = [self._staged(entry), self._aside(entry)] if self.journal.keeps else []
            old = next(
                (path for path in places if inode(path) == entry.old_inode), self.staging / KEPT_FILES / entry.task
            )
            if old.is_dir() and not (kept / entry.task).exists():
                (kept / entry.task).parent.mkdir(parents=True, exist_ok=True)
                old.rename(kept / entry.task)
        if kept.is_dir():
            os.utime(kept)  # its week starts now
            for path in (kept, kept.parent):
                self.directory.ownership.apply(path)
                sync_file(path)

    def _mark(self, placed: tuple[JournalTask, ...]) -> None:
        """Set the journal to ``verified``; by a rename if all tasks were placed, which a full disk does not stop."""
        work = self.directory.work_path
        if placed == self.journal.tasks and (self.staging / VERIFIED_JOURNAL).is_file():
            (self.staging / VERIFIED_JOURNAL).replace(work / JOURNAL)
            sync_file(work)
        else:
            self.journal.verified(placed).write(work)

    def _replay_task(self, entry: JournalTask) -> PlacementOutcome:
        live, staged = self.directory.task_path(entry.task), self._staged(entry)
        if inode(live) != entry.new_inode:
            if not self._is_unchanged(entry):
                self._set_aside_old(entry)
                return PlacementOutcome.LEFT_ALONE
            if inode(staged) != entry.new_inode or file_sizes(staged) != entry.files:
                return self._put_back(entry)
            self.faults.reach("placement.before-swap")
            self.directory.check_locked()
            try:
                self._swap(entry)
            except OSError as error:
                if error.errno not in _REFUSED:
                    raise
                self.refused = live, error
                return PlacementOutcome.PUT_BACK
            self.faults.reach("placement.after-swap")
        if not self._is_valid(entry):
            return self._put_back(entry)
        os.utime(live)
        self.faults.reach("placement.after-verify")
        return PlacementOutcome.PLACED

    def _staged(self, entry: JournalTask) -> Path:
        return self.staging / "tasks" / entry.task

    def _aside(self, entry: JournalTask) -> Path:
        return self.staging / "aside" / entry.task

    def _is_unchanged(self, entry: JournalTask) -> bool:
        """Whether the live directory is exactly as in the journal, or absent because the swap is half done."""
        live = self.directory.task_path(entry.task)
        found = inode(live)
        if found is None:
            return entry.old_inode is None or inode(self._aside(entry)) == entry.old_inode
        return found == entry.old_inode and fingerprint(live) == entry.old_fingerprint

    def _swap(self, entry: JournalTask) -> None:
        live, staged, aside = self.directory.task_path(entry.task), self._staged(entry), self._aside(entry)
        if inode(live) is None:
            staged.rename(live)
        elif not exchange(live, staged):
            live.rename(aside)
            sync_file(aside.parent)
            self.faults.reach("placement.between-renames")
            staged.rename(live)
        for parent in (live.parent, staged.parent):
            sync_file(parent)

    def _is_valid(self, entry: JournalTask) -> bool:
        """Whether the live directory is the assembled one, or was opened by the application since."""
        live = self.directory.task_path(entry.task)
        found = file_sizes(live)
        if found.keys() - entry.files.keys():
            return True  # RocksDB creates files whenever a database is opened: the application uses it
        if found != entry.files:
            return False
        if self.verify_databases:
            try:
                for store in entry.stores:
                    check_placed(entry.task, store, live)
            except (Corrupted, Invalid):  # assembly had read it on this machine
                return False
        return True

    def _revert(self, entry: JournalTask) -> PlacementOutcome:
        """Give a task its old directory back, unless it has been used since."""
        live = self.directory.task_path(entry.task)
        if inode(live) == entry.new_inode and file_sizes(live).keys() - entry.files.keys():
            # RocksDB creates files whenever a database is opened: the application uses it
            return PlacementOutcome.PLACED
        if inode(live) in (None, entry.new_inode) or self._is_unchanged(entry):
            return self._put_back(entry)
        return PlacementOutcome.LEFT_ALONE

    def _put_back(self, entry: JournalTask) -> PlacementOutcome:
        """Make the old directory live again, or none if there was none."""
        live, staged, aside = self.directory.task_path(entry.task), self._staged(entry), self._aside(entry)
        if inode(live) == entry.new_inode:
            discarded = self.staging / f"discarded-{entry.task}"
            remove_tree(discarded)
            old = next((path for path in (staged, aside) if inode(path) == entry.old_inode), None)
            if entry.old_inode is None or old is None:
                live.rename(discarded)
            elif not exchange(live, old):
                live.rename(discarded)
                old.rename(live)
        elif inode(live) is None and entry.old_inode is not None and inode(aside) == entry.old_inode:
            aside.rename(live)
        sync_file(live.parent)
        return PlacementOutcome.PUT_BACK

    def _set_aside_old(self, entry: JournalTask) -> None:
        """Set aside an old directory that was replaced by another process while the placement was interrupted."""
        for path in (self._staged(entry), self._aside(entry)):
            if entry.old_inode is not None and inode(path) == entry.old_inode:
                kept = self.directory.work_path / SET_ASIDE / self.journal.attempt / entry.task
                kept.parent.mkdir(parents=True, exist_ok=True)
                path.rename(kept)
