"""Atomic placement of whole task directories: after a crash each task is either completely old or completely new.

Steps, all under the application's ``.lock``, and what Kafka Streams would find if it started after a kill there:

==============  ==============================================================  ====================================
step            action                                                          the application finds
==============  ==============================================================  ====================================
assemble        move images, hard-link carried stores, create gaps, below       the old directories
                ``.statecore/placement-<id>/tasks/``
check           read offset, status and a row of each family of every           the old directories
                restored database; its blob files exist
sync            sync every file and directory                                   the old directories
journal         write, sync, rename to ``journal.json``; its verified form is   the old directories
                written first, so that later steps need no disk space
swap            ``renameat2(RENAME_EXCHANGE)`` task by task; the old directory  each task wholly old or wholly new
                is then in the staging directory
(no exchange)   where directories cannot be exchanged: live → ``aside/``, then  between the two renames that task is
                new → live                                                      absent, and restored from its
                                                                                changelog
verify          compare the file list and sizes; put the old one back if wrong  each task wholly old or wholly new
mark            journal says ``verified``                                       the new directories
sweep           move old directories that are kept to ``replaced/`` for a       the new directories
                week; delete the staging
record          the journal becomes ``placed.json``                             the new directories
==============  ==============================================================  ====================================

A store never stands beside the offsets of another one. The offset of each new store is in the store, so a new task
beside an old one is as valid as two tasks that committed at different times.

:func:`recover` runs first in every job that changes the directory, and when a task's stores are opened; a backup only
reads. It rolls forward where the new directory is complete and the old one matches the journal, leaves a directory that
the application has used since, and puts the old one back where the new one is not complete. Placement itself runs the
same code (:mod:`statecore.statedir.journal_replay`).
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from statecore.errors import Corrupted, Invalid, Retryable
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.progress import NullProgress, Progress
from statecore.statedir.file_ownership import user_name
from statecore.statedir.file_trees import remove_tree
from statecore.statedir.journal import (
    SWAPPING,
    VERIFIED_JOURNAL,
    Journal,
    JournalTask,
    PlacedStore,
    read_journal,
    read_record,
)
from statecore.statedir.journal_replay import KEPT_FILES, JournalReplay, PlacementOutcome
from statecore.statedir.link_scratch import is_in_use
from statecore.statedir.mounts import refuse_unmovable, unmovable
from statecore.statedir.open_stores import refuse_open_stores
from statecore.statedir.placement_plan import PlacementPlan
from statecore.statedir.replaced_tasks import is_expired
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.task_assembly import TaskAssembly
from statecore.statedir.work_directory import BACKUP_LINKS_PREFIX, REPLACED, STAGING_PREFIX, entry_of

DAY = 86_400.0


@dataclass(frozen=True)
class PlacedTask:
    """A task directory that is in place, with the databases restored or created in it."""

    task: str
    stores: tuple[PlacedStore, ...]


@dataclass(frozen=True)
class PlacementReport:
    """Result of a placement: every task of the plan, all in place."""

    tasks: tuple[PlacedTask, ...]


@dataclass(frozen=True)
class RecoveryReport:
    """Result of :func:`recover`.

    Attributes:
        request_id: of the interrupted placement; empty if there was none.
        placed: tasks whose new directory is in place now.
        put_back: tasks whose new directory was incomplete; they have their old one.
        left_alone: tasks that were changed since, by the application or another process; left as they are.
        deleted: names of leftovers deleted from the work directory.
        undeletable: names of leftovers that this user may not delete; they stay, and are harmless.
    """

    request_id: str = ""
    placed: tuple[str, ...] = ()
    put_back: tuple[str, ...] = ()
    left_alone: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    undeletable: tuple[str, ...] = ()
    work_path: Path | None = None

    def __str__(self) -> str:
        """The recovery for operators; empty where nothing was interrupted and nothing is stuck."""
        words = [
            f"{what}: {', '.join(tasks)}"
            for what, tasks in (
                ("put in place", self.placed),
                ("put back as they were", self.put_back),
                ("left as they are, because the application has used them since", self.left_alone),
            )
            if tasks
        ]
        settled = f"An interrupted placement was recovered; {'; '.join(words)}." if words else ""
        stuck = (
            f"{self.work_path} contains {', '.join(self.undeletable)}, which are no longer needed and which this user "
            "may not delete. Delete them as root."
            if self.undeletable
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
    placement_id: str | None = None,
) -> PlacementReport:
    """Put the images of a plan in place; its files are kept under its id (a new one where none is given)."""
    directory = plan.directory
    directory.check_locked()
    if read_journal(directory.work_path) is not None:
        raise ValueError("recover() must finish an interrupted placement before a plan is made")
    faults.reach("placement.start")
    progress = progress or NullProgress()
    todo = [task for task in plan.tasks if not task.already_placed]
    placed = {task.task: task.already_placed for task in plan.tasks}
    if todo:
        staging = directory.work_path / f"{STAGING_PREFIX}{placement_id or uuid.uuid4().hex}"
        try:
            entries = TaskAssembly(directory, staging, faults, progress, staged).assemble(todo)
            journal = Journal(
                plan.request_id, staging.name, SWAPPING, entries, _placed_earlier(plan), keeps, plan.plan_id
            )
            outcomes = put_in_place(directory, journal, faults, progress)
        except Exception:
            if read_journal(directory.work_path) is None:  # else recover() needs it
                shutil.rmtree(staging, ignore_errors=True)
            raise
        _raise_unless_placed(directory, outcomes)
        placed |= {entry.task: entry.stores for entry in entries}
    faults.reach("placement.done")
    return PlacementReport(tuple(PlacedTask(task, stores) for task, stores in placed.items()))


def put_in_place(
    directory: StateDirectory, journal: Journal, faults: FaultPoints, progress: Progress
) -> dict[str, PlacementOutcome]:
    """Swap the task directories that are complete and durable in a placement's staging directory."""
    staging = directory.work_path / journal.attempt
    refuse_unmovable(directory, staging, [entry.task for entry in journal.tasks])
    _refuse_unkeepable(directory, journal)
    faults.reach("placement.before-journal")
    for entry in journal.tasks:
        refuse_open_stores(directory.task_path(entry.task))
    directory.apply_ownership()
    journal.verified(journal.tasks).write(staging, VERIFIED_JOURNAL)
    directory.ownership.apply(staging / VERIFIED_JOURNAL)  # it becomes the journal
    journal.write(directory.work_path)
    faults.reach("placement.after-journal")
    replay = JournalReplay(directory, journal, faults, progress, verify_databases=False)
    outcomes = replay.replay()
    if replay.refused is not None:
        raise unmovable(*replay.refused)
    return outcomes


def _refuse_unkeepable(directory: StateDirectory, journal: Journal) -> None:
    """Raise ``Invalid`` if kept directories cannot be written to ``replaced/``, which another user may have created."""
    kept = directory.work_path / REPLACED
    keeps = journal.keeps or (directory.work_path / journal.attempt / KEPT_FILES).is_dir()
    if keeps and kept.is_dir() and not os.access(kept, os.W_OK | os.X_OK):
        other = user_name(kept.stat().st_uid)
        raise Invalid(
            f"{kept}, where replaced directories are kept, belongs to {other}, and this user may not write there. "
            "Nothing was changed.",
            code="permission-denied",
            action=f"As {other}, give it to the user that the application runs as (chown -R), or delete it.",
            path=str(kept),
            owner=other,
        )


def recover(
    directory: StateDirectory,
    faults: FaultPoints = NO_FAULTS,
    say: Callable[[str], object] | None = None,
    *,
    clock: Callable[[], float] = time.time,
) -> RecoveryReport:
    """Finish or undo what a killed job left, and delete its leftovers. Idempotent; call it first, under the lock.

    The report is also given to ``say`` as one line, unless there is nothing that an operator has to know.

    The lock makes this process the only user but for backups, whose links have a lock of their own. So every other
    leftover belongs to a dead job. Staging that a retry may use is kept for a while.
    """
    directory.check_locked()
    work = directory.work_path
    journal = read_journal(work)
    outcomes: dict[str, PlacementOutcome] = {}
    if journal is not None:
        outcomes = JournalReplay(directory, journal, faults, NullProgress(), verify_databases=True).replay()
    swept, stuck = _sweep(work, clock)

    def ended(as_: PlacementOutcome) -> tuple[str, ...]:
        return tuple(task for task, outcome in outcomes.items() if outcome is as_)

    report = RecoveryReport(
        request_id=journal.request_id if journal is not None else "",
        placed=ended(PlacementOutcome.PLACED),
        put_back=ended(PlacementOutcome.PUT_BACK),
        left_alone=ended(PlacementOutcome.LEFT_ALONE),
        deleted=swept,
        undeletable=stuck,
        work_path=work,
    )
    if say is not None and (line := str(report)):
        say(line)
    return report


def _raise_unless_placed(directory: StateDirectory, outcomes: dict[str, PlacementOutcome]) -> None:
    put_back = sorted(task for task, outcome in outcomes.items() if outcome is PlacementOutcome.PUT_BACK)
    if put_back:
        raise Corrupted(
            f"The new directories of {', '.join(put_back)} in {directory.path} changed between assembly and "
            "verification; their old ones are in place.",
            code="staged-task-changed",
            action="Check the disk and who writes there, then run the restore again.",
            tasks=put_back,
        )
    changed = sorted(task for task, outcome in outcomes.items() if outcome is PlacementOutcome.LEFT_ALONE)
    if changed:
        raise Retryable(
            f"The directories of {', '.join(changed)} in {directory.path} changed while their new ones were assembled; "
            "they were not replaced.",
            code="task-directory-changed",
            action="Find out which process writes there without the application's lock, then run this again.",
            tasks=changed,
        )


def _placed_earlier(plan: PlacementPlan) -> tuple[JournalTask, ...]:
    """Record entries of tasks that are in place already, carried into this placement's record."""
    record = read_record(plan.directory.work_path)
    names = {task.task for task in plan.tasks if task.already_placed}
    return tuple(entry for entry in (*record.tasks, *record.earlier) if entry.task in names) if record else ()


def _sweep(work: Path, clock: Callable[[], float]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Delete leftovers; returns the names of those deleted and of those another user owns."""
    swept, stuck = [], []
    for entry in sorted([*(work / REPLACED).glob("*"), *work.iterdir()]):
        try:
            if _is_dead(entry, work, clock):
                remove_tree(entry)
                swept.append(str(entry.relative_to(work)))
        except PermissionError:  # a task of root's that was given to the application: the old copy is still root's
            stuck.append(str(entry.relative_to(work)))
        except FileNotFoundError:  # a backup, which does not hold the application's lock, is deleting its links
            continue
    return tuple(swept), tuple(stuck)


def _is_dead(entry: Path, work: Path, clock: Callable[[], float]) -> bool:
    """Whether an entry of the work directory, or of ``replaced/``, can be deleted."""
    if entry.parent != work:
        return entry.is_dir() and is_expired(entry, clock())
    if entry_of(entry.name).is_kept:
        return False
    if entry.name.startswith(BACKUP_LINKS_PREFIX) and is_in_use(entry):
        return False
    own = entry.name.startswith(STAGING_PREFIX) or entry.name.endswith(".tmp")
    return own or clock() - _last_change(entry) > DAY


def _last_change(path: Path) -> float:
    times = [path.stat().st_mtime]
    if path.is_dir():
        times += [entry.stat(follow_symlinks=False).st_mtime for entry in os.scandir(path)]
    return max(times)
