"""Who holds the lock of an application's directory, or of a database: asked of the kernel, without taking the lock.

A POSIX record lock belongs to a process, and **closing any descriptor of the file drops what the process holds**: a
file that this process has open is therefore not opened again, only named as held here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from statecore.errors import Invalid

FLOCK: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "linux": ("hhqqi4x", ("type", "whence", "start", "length", "process")),
    "darwin": ("qqihh", ("start", "length", "process", "type", "whence")),
}
"""Platform (``sys.platform``) → ``struct flock`` of ``fcntl.h`` on 64 bits: its layout, and its fields in order."""

_OWN_FILES = ("/proc/self/fd", "/dev/fd")
"""Where a process sees which files it has open: on Linux, and on every Unix."""


class Holder(NamedTuple):
    """The process that holds a lock.

    Attributes:
        process: its id; 0 when it runs in another container (process namespace).
        command: its name, as far as it can be seen.
    """

    process: int
    command: str

    def __str__(self) -> str:
        if not self.process:
            return "a process of another container"
        return f"process {self.process}" + (f" ({self.command})" if self.command else "")


def lock_holder(path: Path) -> Holder | None:
    """Who holds the lock of a file; ``None`` when nobody does, or there is no such file.

    Raises:
        Invalid: this user may not read it, or it is not known how this platform's kernel is asked.
    """
    if sys.platform not in FLOCK:
        raise Invalid(
            f"Who holds the lock of {path} cannot be found out on the platform {sys.platform}.",
            action=f"Run this on one of {', '.join(FLOCK)}.",
            file=str(path),
        )
    if _open_here(path):
        return Holder(os.getpid(), "this process")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Invalid(
            f"{path} cannot be read: {error.strerror}.", action="Run as the user that the application runs as."
        ) from error
    try:
        return holder_of(descriptor)
    finally:
        os.close(descriptor)


def holder_of(descriptor: int) -> Holder | None:
    """Who holds the lock of an open file; ``None`` when nobody else does, or the kernel does not say."""
    if sys.platform not in FLOCK:
        return None
    layout, fields = FLOCK[sys.platform]
    whole_file = {"type": fcntl.F_WRLCK, "whence": os.SEEK_SET, "start": 0, "length": 0, "process": 0}
    try:
        asked = struct.pack(layout, *(whole_file[name] for name in fields))
        answer = dict(zip(fields, struct.unpack(layout, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)), strict=True))
    except OSError:
        return None
    if answer["type"] == fcntl.F_UNLCK:
        return None
    process = max(answer["process"], 0)
    command = ""
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{process}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return Holder(process, command)


def _open_here(path: Path) -> bool:
    try:
        wanted = path.stat()
    except OSError:
        return False
    for descriptor in _own_descriptors():  # a thousand stores have ten thousand of them
        with contextlib.suppress(OSError):
            found = os.fstat(descriptor)
            if found.st_ino == wanted.st_ino and found.st_dev == wanted.st_dev:
                return True
    return False


def _own_descriptors() -> list[int]:
    for directory in _OWN_FILES:
        with contextlib.suppress(OSError):
            return [int(entry.name) for entry in os.scandir(directory)]
    return []
