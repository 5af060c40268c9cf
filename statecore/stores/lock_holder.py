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

from statecore.errors import Invalid, StatecoreError
from statecore.stores.descriptors import Descriptor, numbers
from statecore.system_errors import RUN_AS_APPLICATION, system_error

FLOCK: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "linux": ("hhqqi4x", ("type", "whence", "start", "length", "process")),
    "darwin": ("qqihh", ("start", "length", "process", "type", "whence")),
}
"""Platform (``sys.platform``) → ``struct flock`` of ``fcntl.h`` on 64 bits: its layout, and its fields in order."""


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
        Capacity: this process may not have one more descriptor to look.
    """
    if sys.platform not in FLOCK:
        raise Invalid(
            f"Who holds the lock of {path} cannot be found out on the platform {sys.platform}.",
            action=f"Run this on one of {', '.join(FLOCK)}.",
            file=str(path),
        )
    file = Descriptor()
    try:
        if is_open_here(path):
            return Holder(os.getpid(), "this process")
        file.open(path, os.O_RDONLY)
        return None if file.number is None else holder_of(file.number)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unseen(path, error) from error
    finally:
        file.close()


def _unseen(path: Path, error: OSError) -> StatecoreError:
    return system_error(error, f"Nobody could look who holds {path}", action=RUN_AS_APPLICATION)


def holder_of(descriptor: int) -> Holder | None:
    """Who holds the lock of an open file; ``None`` when nobody else does, or the kernel does not say."""
    if sys.platform not in FLOCK:
        return None
    try:
        process = _conflicting(descriptor, fcntl.F_GETLK)
    except OSError:
        return None
    if process is None:
        return None
    process = max(process, 0)
    command = ""
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{process}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return Holder(process, command)


def is_held_here(descriptor: int) -> bool:
    """Whether this process itself holds the lock of an open file; if so, who closes the descriptor lets go of it.

    A process never conflicts with a record lock of its own, but an open file description (``F_OFD_GETLK``) does.

    Raises:
        OSError: the kernel does not say.
    """
    return _conflicting(descriptor, fcntl.F_OFD_GETLK) == os.getpid()


def _conflicting(descriptor: int, command: int) -> int | None:
    """The process whose lock is in the way of one on a whole open file, as the kernel says; ``None`` without one.

    Raises:
        OSError: the kernel does not say.
    """
    layout, fields = FLOCK[sys.platform]
    whole_file = {"type": fcntl.F_WRLCK, "whence": os.SEEK_SET, "start": 0, "length": 0, "process": 0}
    asked = struct.pack(layout, *(whole_file[name] for name in fields))
    answer = dict(zip(fields, struct.unpack(layout, fcntl.fcntl(descriptor, command, asked)), strict=True))
    return None if answer["type"] == fcntl.F_UNLCK else int(answer["process"])


def is_open_here(path: Path) -> bool:
    """Whether this process has a file open, under whatever name; False where the system does not tell.

    Raises:
        OSError: this process may not have one more descriptor to look.
    """
    try:
        wanted = path.stat()
    except OSError:
        return False
    for descriptor in numbers():  # a thousand stores have ten thousand of them
        with contextlib.suppress(OSError):
            found = os.fstat(descriptor)
            if found.st_ino == wanted.st_ino and found.st_dev == wanted.st_dev:
                return True
    return False
