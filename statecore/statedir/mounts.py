"""Directories that the kernel does not let be renamed: mount points, and those of a lower layer of an overlay.

A task directory is replaced by a rename, and copied by links. Neither goes beyond a file system, nor beyond a mount of
the same one (``EXDEV``), and a mount point itself stays where it is (``EBUSY``). An overlay file system, as containers
have them, renames no directory that its lower layers have, unless it is mounted with ``redirect_dir`` (``EXDEV``).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from pathlib import Path

from statecore.errors import Invalid, StatecoreError
from statecore.statedir.state_directory import StateDirectory
from statecore.system_errors import RUN_AS_APPLICATION, system_error

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(rb"\\([0-7]{3})")

UNMOVABLE = (errno.EXDEV, errno.EBUSY)
"""What the kernel says of a rename that it will never do there."""

_ACTION = (
    "Make the application's directory one of a single mount: mount the directory above; or copy it with cp -a to a "
    "volume, or within this container, and let the copy take its place. Then run this again."
)


def mount_in(root: Path) -> Path | None:
    """A directory, or the first one below it, on which a file system is mounted; ``None`` where none is.

    Mounts of other namespaces (of a container that runs beside this one) are not seen, and are in nobody's way here.
    """
    top = os.path.realpath(root)
    found = [place for place in _mount_points() if place == top or place.startswith(f"{top}/")]
    return Path(root, os.path.relpath(min(found), top)) if found else None


def why_mounted(root: Path) -> str:
    """Why a task's directory cannot be replaced, as a sentence; empty where nothing is mounted in it."""
    mount = mount_in(root)
    if mount is None:
        return ""
    return (
        f"{mount} is a mount of its own, and only what lies on the mount of the application's directory can be copied "
        "by links and exchanged. Mount the directory above, and let this be a directory of it."
    )


def refuse_unmovable(directory: StateDirectory, staging: Path, tasks: Iterable[str]) -> None:
    """Make sure that the kernel would rename the live directories of tasks; nothing is renamed.

    It is asked to rename each over a directory that is not empty, which POSIX forbids. Whoever says *that* would have
    done it else.

    Args:
        directory: the application's state directory, locked.
        staging: where the directories are that will take their place.
        tasks: whose directories; those that are not there are passed over.

    Raises:
        Invalid: it would not; nothing was changed.
    """
    probe = staging / "probe"
    (probe / "occupied").mkdir(parents=True, exist_ok=True)
    for task in tasks:
        live = directory.task_path(task)
        try:
            live.rename(probe)
        except OSError as error:
            if error.errno in UNMOVABLE:
                raise unmovable(live, error) from error
        else:
            probe.rename(live)  # a file system that does not do what POSIX says
            (probe / "occupied").mkdir(parents=True)


def unmovable(live: Path, error: OSError) -> StatecoreError:
    """The error to raise where the kernel does not let a live directory be exchanged, and all is as it was."""
    what = f"The directory {live} cannot be exchanged for another"
    if error.errno not in UNMOVABLE:
        return system_error(error, what, action=RUN_AS_APPLICATION, path=str(live))
    return Invalid(
        f"{what}: {error.strerror}. It is a mount point, or not on the mount of .statecore; or it lies in a lower "
        "layer of an overlay file system, as what a container's image holds. Nothing was changed.",
        code="mount-in-the-way",
        action=_ACTION,
        path=str(live),
    )


def _mount_points() -> list[str]:
    try:
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:  # of Linux only
        return []
    fields = (line.split(b" ") for line in lines)
    return [os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), field[4])) for field in fields]
