"""Who holds the lock of an application's directory, or of a database: asked of the kernel, without taking the lock.

A POSIX record lock belongs to a process, and **closing any descriptor of the file drops what the process holds**: a
file that this process has open is therefore not opened again, only named as held here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from pathlib import Path
from typing import NamedTuple

from statecore.errors import Invalid

_FLOCK = "hhqqi"
"""Linux' ``struct flock`` on 64 bits: type, whence, start, length, process."""


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
        Invalid: this user may not read it.
    """
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
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = struct.unpack_from(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked + bytes(8)))
    except OSError:
        return None
    kind, process = answer[0], answer[4]
    if kind == fcntl.F_UNLCK:
        return None
    process = max(process, 0)
    command = ""
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{process}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return Holder(process, command)


def _open_here(path: Path) -> bool:
    try:
        wanted = path.stat()
    except OSError:
        return False
    try:
        mine = [int(entry.name) for entry in os.scandir("/proc/self/fd")]
    except OSError:  # no Linux
        return False
    for descriptor in mine:  # a thousand stores have ten thousand of them
        with contextlib.suppress(OSError):
            found = os.fstat(descriptor)
            if found.st_ino == wanted.st_ino and found.st_dev == wanted.st_dev:
                return True
    return False
