"""Directories that the kernel refuses to rename: mount points, and directories of a lower overlay layer.

A task directory is replaced by a rename, and copied by links. Neither crosses file systems or mounts (``EXDEV``), and a
mount point itself cannot be moved (``EBUSY``). An overlay file system, as in containers, renames no directory of its
lower layers unless it is mounted with ``redirect_dir`` (``EXDEV``).
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
"""Errors with which the kernel refuses a rename permanently."""

_ACTION = (
    "Make the application's directory one of a single mount: mount the directory above; or copy it with cp -a to a "
    "volume, or within this container, and rename the copy to its place. Then run this again."
)


def mount_in(root: Path) -> Path | None:
    """``root`` or the first directory below it that is a mount point of this namespace; ``None`` if there is none."""
    top = os.path.realpath(root)
    found = [place for place in _mount_points() if place == top or place.startswith(f"{top}/")]
    return Path(root, os.path.relpath(min(found), top)) if found else None


def why_mounted(root: Path) -> str:
    """Why a task's directory cannot be replaced, as a sentence; empty if nothing is mounted in it."""
    mount = mount_in(root)
    if mount is None:
        return ""
    return (
        f"{mount} is a separate mount, and only directories on the mount of the application's directory can be linked "
        "and exchanged. Mount the directory above, and make this a directory of it."
    )


def refuse_unmovable(directory: StateDirectory, staging: Path, tasks: Iterable[str]) -> None:
    """Check that the kernel would rename the live directories of tasks; nothing is renamed.

    Each is renamed onto a non-empty directory, which POSIX forbids: the error tells whether the rename was possible
    otherwise.
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
            probe.rename(live)  # a file system that ignores POSIX
            (probe / "occupied").mkdir(parents=True)


def unmovable(live: Path, error: OSError) -> StatecoreError:
    """The error for a live directory that cannot be exchanged; nothing was changed."""
    what = f"The directory {live} cannot be exchanged for another"
    if error.errno not in UNMOVABLE:
        return system_error(error, what, action=RUN_AS_APPLICATION, path=str(live))
    return Invalid(
        f"{what}: {error.strerror}. It is a mount point, or not on the mount of .statecore; or it is in a lower "
        "layer of an overlay file system, such as a container's image. Nothing was changed.",
        code="mount-in-the-way",
        action=_ACTION,
        path=str(live),
    )


def _mount_points() -> list[str]:
    try:
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:  # Linux only
        return []
    fields = (line.split(b" ") for line in lines)
    return [os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), field[4])) for field in fields]
