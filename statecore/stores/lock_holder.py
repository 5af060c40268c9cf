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

from statecore.errors import StatecoreError
from statecore.stores.descriptors import Descriptor, numbers
from statecore.system_errors import RUN_AS_APPLICATION, system_error

_FLOCK = "hhqqi"
"""Linux' ``struct flock`` on 64 bits: type, whence, start, length, process."""

_ASKED = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0) + bytes(8)


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
        Capacity: this process may not have one more descriptor to look.
    """
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
    try:
        answer = struct.unpack_from(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, _ASKED))
    except OSError:
        return None
    if answer[0] == fcntl.F_UNLCK:
        return None
    process = max(answer[4], 0)
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
    answer = struct.unpack_from(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _ASKED))
    return bool(answer[0] != fcntl.F_UNLCK and answer[4] == os.getpid())


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
