"""Task directories, and single stores of them, that are out of the way: below ``.statecore``, by one rename each.

Killed at any moment, a task or a store is where it was or where it was moved to, and never in part in both. Kafka
Streams does not look there. A store lies in a task directory of its own there, at its place in it.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path

from statecore.errors import Fenced, StatecoreError
from statecore.filesystem import make_directories, sync_file
from statecore.statedir.file_trees import remove_tree
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.task_layout import directories_in
from statecore.system_errors import RUN_AS_APPLICATION, system_error

_LOG = logging.getLogger(__name__)

KEPT_MS = 7 * 86_400_000
"""How long what was moved aside is kept, where nobody says otherwise: a week."""

_TOPOLOGY_END = "~"
"""In place of the slash behind a named topology, whose names have no such character."""


@dataclass(frozen=True)
class Quarantined:
    """A task directory that was moved, or one that was made for a store that was.

    Attributes:
        task: which task's it was.
        path: where it lies now.
        at_ms: when it was moved.
    """

    task: str
    path: Path
    at_ms: int


def quarantine_task(directory: StateDirectory, task: str, below: str, now_ms: int) -> Quarantined:
    """Move a task's directory to ``.statecore/<below>/``, durably.

    Args:
        directory: the application's, locked.
        task: which one.
        below: a name of :mod:`statecore.statedir.work_directory`.
        now_ms: the time.

    Raises:
        Fenced: the lock is not held.
        Invalid: the system does not let it be moved; it is where it was.
        Capacity: the disk is full.
    """
    directory.check_locked()
    source = directory.task_path(task)
    try:
        aside = _place(directory, task, below, now_ms)
        source.rename(aside.path)
        sync_file(aside.path.parent)
        sync_file(source.parent)
    except OSError as error:
        raise system_error(
            error, f"The task directory {source} could not be moved aside", action=RUN_AS_APPLICATION, task=task
        ) from error
    if source.parent != directory.path:
        with contextlib.suppress(OSError):  # other tasks of the named topology are there
            source.parent.rmdir()
    return aside


def quarantine_store(
    directory: StateDirectory, task: str, store: Path, below: str, now_ms: int, *, place: Path | None = None
) -> Quarantined:
    """Move the directory of one store of a task to ``.statecore/<below>/``, durably; its databases are closed.

    Args:
        directory: the application's, locked.
        task: whose store it is.
        store: its directory.
        below: a name of :mod:`statecore.statedir.work_directory`.
        now_ms: the time.
        place: where in the task's directory it belongs; ``None`` where it lies there.

    Returns:
        The directory that was made for it. The store lies in it at its place in its task's.

    Raises:
        Fenced: the lock is not held.
        Invalid, Retryable: the system does not let it be moved; it is where it was.
        Capacity: the disk is full.
    """
    directory.check_locked()
    try:
        aside = _place(directory, task, below, now_ms)
        target = aside.path / (place or store).relative_to(directory.task_path(task))
        make_directories(target.parent)
        store.rename(target)
        for changed in (target.parent, aside.path, aside.path.parent, store.parent):
            sync_file(changed)
    except OSError as error:
        raise system_error(
            error, f"The store {store} could not be moved aside", action=RUN_AS_APPLICATION, task=task
        ) from error
    return aside


def _place(directory: StateDirectory, task: str, below: str, now_ms: int) -> Quarantined:
    """A name that nothing has yet, in a directory that is there. Raises ``OSError``."""
    parent = directory.work_path / below
    if not parent.is_dir():
        make_directories(parent)
        sync_file(parent.parent)
    at_ms = now_ms
    while (target := parent / f"{task.replace('/', _TOPOLOGY_END)}@{at_ms}").exists():
        at_ms += 1
    return Quarantined(task, target, at_ms)


def quarantined(directory: StateDirectory, below: str) -> list[Quarantined]:
    """What lies in ``.statecore/<below>/``, the oldest first; other names than ours are left out."""
    found = []
    for path in directories_in(directory.work_path / below):
        task, at, moment = path.name.rpartition("@")
        if at and moment.isascii() and moment.isdigit():
            found.append(Quarantined(task.replace(_TOPOLOGY_END, "/"), path, int(moment)))
    return sorted(found, key=lambda one: (one.at_ms, one.path.name))


def delete_expired(directory: StateDirectory, below: str, now_ms: int, keep_ms: int = KEPT_MS) -> None:
    """Delete what was moved aside longer ago than it is kept; what cannot be deleted stays, and is no reason to stop.

    Raises:
        Fenced: the lock is not held.
    """
    for one in quarantined(directory, below):
        if now_ms - one.at_ms > keep_ms:
            try:
                delete_quarantined(directory, one)
            except Fenced:
                raise
            except StatecoreError as error:
                _LOG.warning("What was kept for its time is left: %s", error)


def delete_quarantined(directory: StateDirectory, one: Quarantined) -> None:
    """Delete a task directory that was moved aside; what was deleted in part is found again by :func:`quarantined`.

    Raises:
        Fenced: the lock is not held.
        Invalid: the system does not let it be deleted, or not all of it.
    """
    directory.check_locked()
    try:
        remove_tree(one.path)
        sync_file(one.path.parent)
    except FileNotFoundError:
        return
    except OSError as error:
        raise system_error(
            error, f"{one.path} could not be deleted", action=RUN_AS_APPLICATION, path=str(one.path)
        ) from error
