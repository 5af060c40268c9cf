"""Puts whole task directories in place, so that a crash at any moment leaves each of them wholly old or wholly new.

The steps, all under the application's ``.lock``, and what Kafka Streams would see if it started after a kill there:

==============  ==============================================================  ====================================
step            what is done                                                    the application sees
==============  ==============================================================  ====================================
assemble        images are moved, kept stores hard-linked, gaps created, below  the old directories
                ``.statecore/placement-<id>/tasks/``
look            of every restored database offset, status and a row of each     the old directories
                family are read, and its blob files are there
sync            every file and directory is made durable                        the old directories
journal         written beside, synced, renamed to ``journal.json``; before it  the old directories
                what it will become, so that from here on no room is needed
swap            ``renameat2(RENAME_EXCHANGE)``, one task after another; what    each task wholly old or wholly new
                was live now lies in the staging directory
(no exchange)   where directories cannot be exchanged: live → ``aside/``, then  between the two renames that one task
                new → live                                                      is absent: it restores it from the
                                                                                changelog, as after the loss
verify          the file list with sizes; put back when it is not right         each task wholly old or wholly new
mark            journal says ``verified``                                       the new directories
sweep           the old directories, or what of them is to be kept, are moved   the new directories
                to ``replaced/`` for a week; the staging is deleted
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
from pathlib import Path

from statecore.errors import Corrupted
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.progress import NullProgress, Progress
from statecore.statedir.file_trees import remove_tree
from statecore.statedir.journal import (
    SWAPPING,
    Journal,
    JournalTask,
    PlacedStore,
    read_journal,
    read_record,
)
from statecore.statedir.journal_recovery import JournalRecovery, Outcome
from statecore.statedir.plan import PlacementPlan, plan_placement
from statecore.statedir.siblings import SiblingStore, StoreImage
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.task_assembly import TaskAssembly
from statecore.statedir.task_swap import put_in_place
from statecore.statedir.work_directory import REPLACED, STAGING_PREFIX, entry_of

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

DAY = 86_400.0
_KEEPS_REPLACED = 7 * DAY


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
        stuck: names of leftovers that this user may not delete; they stay, and are in nobody's way.
        work_path: the work directory.
    """

    request_id: str = ""
    placed: tuple[str, ...] = ()
    put_back: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    swept: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    work_path: Path | None = None

    def __str__(self) -> str:
        """What was settled, and what could not be swept; empty where nothing was interrupted or is in the way."""
        words = [
            f"{what}: {', '.join(tasks)}"
            for what, tasks in (
                ("put in place", self.placed),
                ("put back as they were", self.put_back),
                ("left to the application, which has used them since", self.left),
            )
            if tasks
        ]
        settled = f"An interrupted placement was settled; {'; '.join(words)}." if words else ""
        stuck = (
            f"{self.work_path} holds {', '.join(self.stuck)}, which nobody needs any more and this user may not delete."
            " Delete it as root."
            if self.stuck
            else ""
        )
        return " ".join(filter(None, [settled, stuck]))


def apply_placement(
    plan: PlacementPlan,
    faults: FaultPoints = NO_FAULTS,
    progress: Progress | None = None,
    *,
    staged: Collection[Path] = (),
    keeps: bool = False,
) -> PlacementReport:
    """Put the images of a plan in place.

    Args:
        plan: what :func:`plan_placement` decided, with ``path`` and ``offsets`` of every image.
        faults: points at which a test lets the process die.
        progress: told each task.
        staged: directories in which files of the images may have other names, which nobody else uses. A file that has
            a name outside is somebody else's too, and is copied where its owner or mode has to change.
        keeps: whether the directories that are replaced are kept for a week (:mod:`statecore.statedir.task_swap`);
            else they are deleted.

    Returns:
        What is in place. The staging is gone.

    Raises:
        Corrupted: an image is not what it must be; nothing was replaced by it.
        Fenced: the lock was lost, or somebody has opened a store of these tasks meanwhile.
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
            entries = TaskAssembly(directory, staging, faults, progress, staged).assemble(todo)
            journal = Journal(plan.request_id, staging.name, SWAPPING, entries, _placed_earlier(plan), keeps)
            outcomes = put_in_place(directory, journal, faults, progress)
        except Exception:
            if read_journal(directory.work_path) is None:  # else recover() needs it
                shutil.rmtree(staging, ignore_errors=True)
            raise
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
    outcomes: dict[str, Outcome] = {}
    if journal is not None:
        outcomes = JournalRecovery(directory, journal, faults, NullProgress(), look=True).settle()
    swept, stuck = _sweep(work, keep, max_age, clock)

    def ended(as_: Outcome) -> tuple[str, ...]:
        return tuple(task for task, outcome in outcomes.items() if outcome is as_)

    return RecoveryReport(
        request_id=journal.request_id if journal is not None else "",
        placed=ended(Outcome.PLACED),
        put_back=ended(Outcome.PUT_BACK),
        left=ended(Outcome.LEFT),
        swept=swept,
        stuck=stuck,
        work_path=work,
    )


def _raise_unless_placed(directory: StateDirectory, outcomes: dict[str, Outcome]) -> None:
    failed = sorted(task for task, outcome in outcomes.items() if outcome is not Outcome.PLACED)
    if failed:
        raise Corrupted(
            f"The new directories of {', '.join(failed)} in {directory.path} changed between assembly and verification;"
            " their old ones are in place.",
            code="staged-task-changed",
            action="Check the disk and who writes there, then run the restore again.",
            tasks=failed,
        )


def _placed_earlier(plan: PlacementPlan) -> tuple[JournalTask, ...]:
    """What the record says of the tasks that are in place already; it must not forget them with this placement."""
    record = read_record(plan.directory.work_path)
    names = {task.task for task in plan.tasks if task.already_placed}
    return tuple(entry for entry in (*record.tasks, *record.earlier) if entry.task in names) if record else ()


def _sweep(
    work: Path, keep: Collection[str] | None, max_age: float, clock: Callable[[], float]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Delete leftovers; names of those that were, and of those that are another user's."""
    swept, stuck = [], []
    for entry in sorted([*(work / REPLACED).glob("*"), *work.iterdir()]):
        try:
            if _is_dead(entry, work, keep, max_age, clock):
                remove_tree(entry)
                swept.append(str(entry.relative_to(work)))
        except PermissionError:  # root gave the application a task that was root's: the old one still is
            stuck.append(str(entry.relative_to(work)))
    return tuple(swept), tuple(stuck)


def _is_dead(entry: Path, work: Path, keep: Collection[str] | None, max_age: float, clock: Callable[[], float]) -> bool:
    """Whether nobody needs an entry of the work directory, or of what is kept there, any more."""
    if entry.parent != work:
        return entry.is_dir() and clock() - entry.stat().st_mtime > _KEEPS_REPLACED
    if entry_of(entry.name).stays or (keep is not None and entry.name in keep):
        return False
    own = entry.name.startswith(STAGING_PREFIX) or entry.name.endswith(".tmp")
    return own or keep is not None or clock() - _last_change(entry) > max_age


def _last_change(path: Path) -> float:
    """The newest modification time of a path and what lies directly in it."""
    times = [path.stat().st_mtime]
    if path.is_dir():
        times += [entry.stat(follow_symlinks=False).st_mtime for entry in os.scandir(path)]
    return max(times)
