"""Puts whole task directories in place, so that a crash at any moment leaves each of them wholly old or wholly new.

The steps, all under the application's ``.lock``, and what Kafka Streams would see if it started after a kill there:

==============  ==============================================================  ====================================
step            what is done                                                    the application sees
==============  ==============================================================  ====================================
assemble        images are moved, kept stores hard-linked, gaps created, below  the old directories
                ``.statecore/placement-<id>/tasks/``
look            every restored database is read: offset and status              the old directories
sync            every file and directory is made durable                        the old directories
journal         written beside, synced, renamed to ``journal.json``             the old directories
swap            ``renameat2(RENAME_EXCHANGE)``, one task after another; what    each task wholly old or wholly new
                was live now lies in the staging directory
(no exchange)   where directories cannot be exchanged: live → ``aside/``, then  between the two renames that one task
                new → live                                                      is absent: it restores it from the
                                                                                changelog, as after the loss
verify          the file list with sizes; put back when it is not right         each task wholly old or wholly new
mark            journal says ``verified``                                       the new directories
sweep           the old directories and the staging are deleted                 the new directories
record          the journal becomes ``placed.json``                             the new directories
==============  ==============================================================  ====================================

Nothing above is a mixture: a store never stands beside another one's offsets. The offset of each new store is in the
store, so a task that is new beside one that is old is as legal as two tasks that committed at different times.

:func:`recover` runs first in every job. It rolls a placement forward where the new directory is complete and the old
one is exactly what the journal saw; where the application has used the directory meanwhile it is the application's and
is left alone; where the new one is not complete the old one is put back. The normal way and the recovery share the same
code: a placement is its journal, settled.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from statecore.errors import Corrupted
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.progress import NullProgress, Progress
from statecore.runtime.database_state import create_unknown, databases_of, read_database_state
from statecore.runtime.files import (
    exchange,
    file_sizes,
    fingerprint,
    inode,
    link_tree,
    move,
    remove_tree,
    set_modes,
    set_owner,
    sync_file,
    sync_tree,
)
from statecore.runtime.journal import (
    JOURNAL,
    RECORD,
    VERIFIED,
    Journal,
    JournalTask,
    PlacedStore,
    identity_of,
    read_journal,
)
from statecore.runtime.journal import SWAPPING as SWAPPING
from statecore.runtime.placement_plan import PlacementPlan, SiblingStore, StoreImage, TaskPlan, plan_placement
from statecore.runtime.state_directory import DIRECTORY_MODE, FILE_MODE, StateDirectory, store_directory
from statecore.spec.reader import WINDOWED_KINDS

__all__ = [
    "PlacedTask",
    "PlacementPlan",
    "PlacementReport",
    "RecoveryReport",
    "SiblingStore",
    "StoreImage",
    "apply_placement",
    "plan_placement",
    "recover",
]

STAGING_PREFIX = "placement-"
SET_ASIDE = "set-aside"
"""In the work directory: old directories that the application replaced itself while a placement was interrupted."""

_KEPT_NAMES = frozenset({"plans", SET_ASIDE, JOURNAL, RECORD})
_OWN_LEFTOVERS = (STAGING_PREFIX, "look-")
DAY = 86_400.0


@dataclass(frozen=True)
class PlacedTask:
    """One task directory that is in place.

    Attributes:
        task: the task.
        stores: the databases that were restored or created in it.
    """

    task: str
    stores: tuple[PlacedStore, ...]


@dataclass(frozen=True)
class PlacementReport:
    """What a placement did.

    Attributes:
        tasks: every task of the plan; all are in place.
    """

    tasks: tuple[PlacedTask, ...]


@dataclass(frozen=True)
class RecoveryReport:
    """What :func:`recover` found and did.

    Attributes:
        request_id: the request whose placement was interrupted; empty when none was.
        placed: tasks whose new directory is in place now.
        put_back: tasks whose new directory was not complete; they have their old one.
        left: tasks that the application, or somebody, changed since; they were left as they are.
        swept: names of leftovers that were deleted from the work directory.
    """

    request_id: str = ""
    placed: tuple[str, ...] = ()
    put_back: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    swept: tuple[str, ...] = ()


class _Outcome(Enum):
    PLACED = "placed"
    PUT_BACK = "put back"
    LEFT = "left"


def apply_placement(
    plan: PlacementPlan, faults: FaultPoints = NO_FAULTS, progress: Progress | None = None
) -> PlacementReport:
    """Put the images of a plan in place.

    Args:
        plan: what :func:`plan_placement` decided, with ``path`` and ``committed_offset`` of every image.
        faults: points at which a test lets the process die.
        progress: told each task.

    Returns:
        What is in place. The moved-aside directories and the staging are gone.

    Raises:
        Corrupted: an image is not what it must be; nothing was replaced by it.
        Fenced: the lock was lost.
    """
    directory = plan.directory
    directory.check_locked()
    if read_journal(directory.work_path) is not None:
        raise ValueError("an interrupted placement has to be settled by recover() before a plan is made")
    faults.reach("placement.start")
    progress = progress or NullProgress()
    todo = [task for task in plan.tasks if not task.already_placed]
    placed = {task.task: task.already_placed for task in plan.tasks}
    if todo:
        staging = directory.work_path / f"{STAGING_PREFIX}{uuid.uuid4().hex}"
        try:
            entries = _Assembly(directory, staging, faults, progress).assemble(todo)
            faults.reach("placement.before-journal")
        except Exception:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        journal = Journal(plan.request_id, staging.name, SWAPPING, entries)
        journal.write(directory.work_path)
        faults.reach("placement.after-journal")
        outcomes = _Settlement(directory, journal, faults, progress, look=False).settle()
        _raise_unless_placed(directory, outcomes)
        placed |= {entry.task: entry.stores for entry in entries}
    faults.reach("placement.done")
    return PlacementReport(tuple(PlacedTask(task, stores) for task, stores in placed.items()))


def recover(
    directory: StateDirectory,
    faults: FaultPoints = NO_FAULTS,
    *,
    keep: Collection[str] | None = None,
    max_age: float = DAY,
    clock: Callable[[], float] = time.time,
) -> RecoveryReport:
    """Settle what a killed job left, and sweep its leftovers. Idempotent; call it first, under the lock.

    Whoever holds the lock is alone, so every leftover is of a dead job. Staging that a retry may still want is kept
    for a while.

    Args:
        directory: the application's state directory, locked.
        faults: points at which a test lets the process die.
        keep: names in the work directory that are wanted; everything else goes. ``None``: whatever is young enough.
        max_age: without ``keep``, seconds since its last change after which staging of others is deleted.
        clock: seconds since the epoch.

    Raises:
        Fenced: the lock is not held.
    """
    directory.check_locked()
    work = directory.work_path
    journal = read_journal(work)
    outcomes: dict[str, _Outcome] = {}
    if journal is not None:
        outcomes = _Settlement(directory, journal, faults, NullProgress(), look=True).settle()
    swept = _sweep(work, keep, max_age, clock)
    return RecoveryReport(
        journal.request_id if journal is not None else "",
        *(tuple(task for task, found in outcomes.items() if found is wanted) for wanted in _Outcome),
        swept,
    )


class _Assembly:
    """Builds complete task directories in the staging directory and makes them durable."""

    def __init__(self, directory: StateDirectory, staging: Path, faults: FaultPoints, progress: Progress) -> None:
        self.directory, self.staging, self.faults, self.progress = directory, staging, faults, progress

    def assemble(self, tasks: Collection[TaskPlan]) -> tuple[JournalTask, ...]:
        """All tasks, durable; what the journal has to say of them."""
        self.progress.phase("assemble", len(tasks), "tasks")
        (self.staging / "aside").mkdir(parents=True)
        entries = []
        for task in tasks:
            target = self.staging / "tasks" / task.task
            target.mkdir(parents=True)
            stores = self._fill(task, target)
            entries.append(self._entry(task, target, stores))
            self.progress.advance()
        self.faults.reach("placement.after-assembly")
        sync_tree(self.staging)
        sync_file(self.staging.parent)
        self.faults.reach("placement.after-sync")
        self.progress.done()
        return tuple(entries)

    def _fill(self, task: TaskPlan, target: Path) -> list[PlacedStore]:
        live = self.directory.task_path(task.task)
        stores: list[PlacedStore] = []
        for image in task.restored:
            if image.path is None or image.committed_offset is None:
                raise ValueError(f"the image of {image.store} in {task.task} has no path or no offset")
            where = target / store_directory(image.store, image.kind)
            where.parent.mkdir(exist_ok=True)
            move(image.path, where)
            self.faults.reach("placement.after-image-move")
            stores += self._databases(image, target, where, image.committed_offset)
        for name in task.kept:
            link_tree(live / name, target / name)
        for sibling in task.created:
            where = target / store_directory(sibling.store, sibling.kind)
            create_unknown(_first_segment(where, sibling), sibling.kind, sibling.changelog)
            stores += self._databases(sibling, target, where, OFFSET_UNKNOWN)
        self.faults.reach("placement.after-siblings")
        for path in (target, target / "rocksdb"):
            if path.is_dir():
                path.chmod(DIRECTORY_MODE)
        if self.directory.owner is not None:
            set_owner(target, self.directory.owner)
        # Kafka Streams may delete directories that were not changed for long (state.cleanup.dir.max.age.ms).
        os.utime(target)
        return stores

    def _databases(self, store: SiblingStore, target: Path, where: Path, offset: int) -> list[PlacedStore]:
        """The databases of a restored or created store, looked at before anything live is touched."""
        for leftover in where.rglob("rocksdict-config.json"):
            leftover.unlink()
        set_modes(where, DIRECTORY_MODE, FILE_MODE)
        databases = databases_of(where)
        if not databases:
            raise Corrupted(
                f"The image of the store {store.store} in task {store.task} holds no database.",
                action="Run the restore again; nothing was replaced.",
                task=store.task,
                store=store.store,
            )
        placed = []
        for database in databases:
            entry = PlacedStore(
                store.store,
                str(database.relative_to(target)),
                store.changelog,
                offset,
                sum(file_sizes(database).values()),
                identity_of(database),
            )
            _look(store.task, entry, database, self.staging)
            placed.append(entry)
        return placed

    def _entry(self, task: TaskPlan, target: Path, stores: list[PlacedStore]) -> JournalTask:
        live = self.directory.task_path(task.task)
        old = inode(live)
        new = inode(target)
        assert new is not None
        return JournalTask(
            task.task, new, file_sizes(target), old, fingerprint(live) if old is not None else None, tuple(stores)
        )


class _Settlement:
    """Brings the tasks of a journal to their end, from wherever they are.

    Args:
        look: open the databases too; after a crash their files may be other than they were.
    """

    def __init__(
        self, directory: StateDirectory, journal: Journal, faults: FaultPoints, progress: Progress, *, look: bool
    ) -> None:
        self.directory, self.journal, self.faults, self.progress = directory, journal, faults, progress
        self.staging = directory.work_path / journal.attempt
        self.look = look

    def settle(self) -> dict[str, _Outcome]:
        """Swap, verify, mark, sweep, record; task → how it ended."""
        work = self.directory.work_path
        outcomes = {entry.task: _Outcome.PLACED for entry in self.journal.tasks}
        if self.journal.state != VERIFIED:
            self.progress.phase("place", len(outcomes), "tasks")
            for entry in self.journal.tasks:
                outcomes[entry.task] = self._settle_task(entry)
                self.progress.advance()
            placed = tuple(entry for entry in self.journal.tasks if outcomes[entry.task] is _Outcome.PLACED)
            Journal(self.journal.request_id, self.journal.attempt, VERIFIED, placed).write(work)
            self.faults.reach("placement.after-mark")
            self.progress.done()
        for part in ("aside", "tasks"):
            self.faults.reach("placement.during-sweep")
            shutil.rmtree(self.staging / part, ignore_errors=True)
        shutil.rmtree(self.staging, ignore_errors=True)
        self.faults.reach("placement.after-sweep")
        (work / JOURNAL).replace(work / RECORD)
        sync_file(work)
        return outcomes

    def _settle_task(self, entry: JournalTask) -> _Outcome:
        live, staged = self.directory.task_path(entry.task), self._staged(entry)
        if inode(live) != entry.new_inode:
            if not self._untouched(entry):
                self._set_old_aside(entry)
                return _Outcome.LEFT
            if inode(staged) != entry.new_inode or file_sizes(staged) != entry.files:
                return self._put_back(entry)
            self.faults.reach("placement.before-swap")
            self.directory.check_locked()
            self._swap(entry)
            self.faults.reach("placement.after-swap")
        if not self._is_right(entry):
            return self._put_back(entry)
        os.utime(live)
        self.faults.reach("placement.after-verify")
        return _Outcome.PLACED

    def _staged(self, entry: JournalTask) -> Path:
        return self.staging / "tasks" / entry.task

    def _aside(self, entry: JournalTask) -> Path:
        return self.staging / "aside" / entry.task.replace("/", "+")

    def _untouched(self, entry: JournalTask) -> bool:
        """Whether the live directory is exactly what the journal saw, or is absent because the swap stood half done."""
        live = self.directory.task_path(entry.task)
        found = inode(live)
        if found is None:
            return entry.old_inode is None or inode(self._aside(entry)) == entry.old_inode
        return found == entry.old_inode and fingerprint(live) == entry.old_fingerprint

    def _swap(self, entry: JournalTask) -> None:
        live, staged, aside = self.directory.task_path(entry.task), self._staged(entry), self._aside(entry)
        if inode(live) is None:
            live.parent.mkdir(mode=DIRECTORY_MODE, exist_ok=True)  # of a named topology
            staged.rename(live)
        elif not exchange(live, staged):
            live.rename(aside)
            sync_file(aside.parent)
            self.faults.reach("placement.between-renames")
            staged.rename(live)
        for parent in (live.parent, staged.parent):
            sync_file(parent)

    def _is_right(self, entry: JournalTask) -> bool:
        """Whether the new directory, now live, is what was assembled; or was opened by the application since."""
        live = self.directory.task_path(entry.task)
        found = file_sizes(live)
        if found.keys() - entry.files.keys():
            return True  # RocksDB makes new files whenever a database is opened: the application has it
        if found != entry.files:
            return False
        if self.look:
            try:
                for store in entry.stores:
                    _look(entry.task, store, live / store.directory, self.directory.work_path)
            except Corrupted:
                return False
        return True

    def _put_back(self, entry: JournalTask) -> _Outcome:
        """Make the old directory live again, or none where none was."""
        live, staged, aside = self.directory.task_path(entry.task), self._staged(entry), self._aside(entry)
        if inode(live) == entry.new_inode:
            discarded = self.staging / f"discarded-{live.name}"
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
        return _Outcome.PUT_BACK

    def _set_old_aside(self, entry: JournalTask) -> None:
        """Keep an old directory that somebody replaced by one of their own while the placement stood interrupted."""
        for path in (self._staged(entry), self._aside(entry)):
            if entry.old_inode is not None and inode(path) == entry.old_inode:
                kept = self.directory.work_path / SET_ASIDE / self.journal.attempt / entry.task
                kept.parent.mkdir(parents=True, exist_ok=True)
                path.rename(kept)


def _first_segment(where: Path, sibling: SiblingStore) -> Path:
    """The database of a store without data: its directory, or where it has segments the segment of time 0."""
    segmented = sibling.kind in WINDOWED_KINDS or sibling.kind is StoreKind.GRACE_BUFFER
    return where / f"{sibling.store}.0" if segmented else where


def _look(task: str, store: PlacedStore, database: Path, scratch: Path) -> None:
    """Open a copy and compare its bookkeeping with what it must be.

    Raises:
        Corrupted: it is not.
    """
    state = read_database_state(database, scratch)
    found = state.offsets.get(store.changelog)
    if found != store.offset or not state.closed_cleanly or len(state.offsets) != 1:
        raise Corrupted(
            f"The image of the store {store.store} in task {task} says offset {found} of {store.changelog} and status "
            f"{state.status}; {store.offset} and 0 were expected.",
            action="Run the restore again; nothing was replaced.",
            task=task,
            store=store.store,
            offset=found,
        )


def _raise_unless_placed(directory: StateDirectory, outcomes: dict[str, _Outcome]) -> None:
    failed = sorted(task for task, outcome in outcomes.items() if outcome is not _Outcome.PLACED)
    if failed:
        raise Corrupted(
            f"The new directories of {', '.join(failed)} in {directory.path} changed between assembly and verification;"
            " their old ones are in place.",
            action="Check the disk and who writes there, then run the restore again.",
            tasks=failed,
        )


def _sweep(work: Path, keep: Collection[str] | None, max_age: float, clock: Callable[[], float]) -> tuple[str, ...]:
    swept = []
    for entry in sorted(work.iterdir()):
        if entry.name in _KEPT_NAMES or (keep is not None and entry.name in keep):
            continue
        own = entry.name.startswith(_OWN_LEFTOVERS) or entry.name.endswith(".tmp")
        if own or keep is not None or clock() - _last_change(entry) > max_age:
            remove_tree(entry)
            swept.append(entry.name)
    return tuple(swept)


def _last_change(path: Path) -> float:
    """The newest modification time of a path and what lies directly in it."""
    times = [path.stat().st_mtime]
    if path.is_dir():
        times += [entry.stat(follow_symlinks=False).st_mtime for entry in os.scandir(path)]
    return max(times)
