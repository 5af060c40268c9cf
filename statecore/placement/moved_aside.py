"""Task directories that are out of the way: whole, below ``.statecore``, by one rename each.

Killed at any moment, a task is where it was or where it was moved to, and never in part in both. Kafka Streams looks at
neither.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from statecore.filesystem import DIRECTORY_MODE, give_to_owner, sync_file
from statecore.placement.contents import directories_in
from statecore.placement.state_directory import StateDirectory
from statecore.placement.trees import remove_tree
from statecore.system_errors import RUN_AS_APPLICATION, system_error

_TOPOLOGY_END = "~"
"""In place of the slash behind a named topology, whose names have no such character."""


@dataclass(frozen=True)
class MovedAside:
    """A task directory that was moved.

    Attributes:
        task: which one it was.
        path: where it lies now.
        at_ms: when it was moved.
    """

    task: str
    path: Path
    at_ms: int


def move_aside(directory: StateDirectory, task: str, below: str, now_ms: int) -> MovedAside:
    """Move a task's directory to ``.statecore/<below>/``, durably.

    Args:
        directory: the application's, locked.
        task: which one.
        below: a name of :mod:`statecore.placement.work_directory`.
        now_ms: the time.

    Raises:
        Fenced: the lock is not held.
        Invalid: the system does not let it be moved; it is where it was.
        Capacity: the disk is full.
    """
    directory.check_locked()
    source, parent = directory.task_path(task), directory.work_path / below
    try:
        if not parent.is_dir():
            parent.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
            give_to_owner(parent)
            sync_file(parent.parent)
        at_ms = now_ms
        while (target := parent / f"{task.replace('/', _TOPOLOGY_END)}@{at_ms}").exists():
            at_ms += 1
        source.rename(target)
        sync_file(parent)
        sync_file(source.parent)
    except OSError as error:
        raise system_error(
            error, f"The task directory {source} could not be moved aside", action=RUN_AS_APPLICATION, task=task
        ) from error
    if source.parent != directory.path:
        with contextlib.suppress(OSError):  # other tasks of the named topology are there
            source.parent.rmdir()
    return MovedAside(task, target, at_ms)


def moved_aside(directory: StateDirectory, below: str) -> list[MovedAside]:
    """What lies in ``.statecore/<below>/``, the oldest first; other names than ours are left out."""
    found = []
    for path in directories_in(directory.work_path / below):
        task, at, moment = path.name.rpartition("@")
        if at and moment.isascii() and moment.isdigit():
            found.append(MovedAside(task.replace(_TOPOLOGY_END, "/"), path, int(moment)))
    return sorted(found, key=lambda one: (one.at_ms, one.path.name))


def delete_aside(directory: StateDirectory, one: MovedAside) -> None:
    """Delete a task directory that was moved aside; what was deleted in part is found again by :func:`moved_aside`.

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
