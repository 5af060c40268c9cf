"""Who holds the lock of an application's directory, or of a database: asked of the kernel, without taking the lock.

A POSIX record lock belongs to a process, and **closing any descriptor of the file drops what the process holds**. So
a descriptor with which a lock of this very process is found is kept open, one for each file, until the lock is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from statecore.errors import Invalid, StatecoreError
from statecore.stores.rocksdb.fd_paths import Descriptor, numbers
from statecore.system_errors import RUN_AS_APPLICATION, system_error

FLOCK: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "linux": ("hhqqi4x", ("type", "whence", "start", "length", "process")),
    "darwin": ("qqihh", ("start", "length", "process", "type", "whence")),
}
"""Platform (``sys.platform``) → ``struct flock`` of ``fcntl.h`` on 64 bits: its layout, and its fields in order."""


_Identity = tuple[int, int]

_guard = threading.RLock()
_looked_at: dict[_Identity, Descriptor] = {}
"""Files that are looked at just now, and those of which this process was found to hold the lock."""
_strays: list[Descriptor] = []


def guard() -> threading.RLock:
    """Held while a lock is asked for or taken: nobody here may lock a file between a look at it and its closing.

    It is one for all locks, because a claim may be collected, and given back, wherever a thread allocates.
    """
    return _guard


class Holder(NamedTuple):
    """The process that holds a lock.

    Attributes:
        process: its id; 0 when it runs in another container (process namespace).
        command: its name, as far as it can be seen.
        lost: whether it has lost the lock, and works on.
    """

    process: int
    command: str
    lost: bool = False

    def __str__(self) -> str:
        if not self.process:
            return "a process of another container"
        command = f" ({self.command})" if self.command else ""
        return f"process {self.process}{command}{', which has lost its lock' if self.lost else ''}"


def lock_holder(path: Path) -> Holder | None:
    """Who holds the lock of a file; ``None`` when nobody does, or there is no such file.

    Raises:
        Invalid: this user may not read it, or it is not known how this platform's kernel is asked.
        Capacity: this process may not have one more descriptor to look.
    """
    if sys.platform not in FLOCK:
        raise Invalid(
            f"Who holds the lock of {path} cannot be found out on the platform {sys.platform}.",
            code="platform-unsupported",
            action=f"Run this on one of {', '.join(FLOCK)}.",
            file=str(path),
            platform=sys.platform,
        )
    holder = None
    try:
        with guard():
            holder = _ask(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _unseen(path, error) from error
    return holder


def _ask(path: Path) -> Holder | None:
    identity, number = _look_at(path)
    if _is_ours(number, identity):
        return Holder(os.getpid(), "this process")
    holder = holder_of(number)
    _looked_at[identity].close()
    del _looked_at[identity]
    return holder


def _look_at(path: Path) -> tuple[_Identity, int]:
    """Open a file, or take the descriptor that is kept of it; registered before it is open. The guard is held."""
    while True:
        identity = _identity(path.stat())
        file = _looked_at.setdefault(identity, Descriptor())
        try:
            if file.number is None:
                file.open(path, os.O_RDONLY)
        finally:
            if file.number is None:
                _looked_at.pop(identity, None)
        assert file.number is not None
        if _identity(os.fstat(file.number)) == identity:
            return identity, file.number
        _strays.append(file)  # another took its place between the two looks, and may be locked by this process
        del _looked_at[identity]


def _is_ours(number: int, identity: _Identity) -> bool:
    """Whether this process may hold the lock of an open file."""
    try:
        return is_held_here(number)
    except (AttributeError, OSError):  # a system, or a file system, that has no such question
        return is_open_here(identity, besides=number)


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


def is_open_here(identity: _Identity, *, besides: int) -> bool:
    """Whether this process has a file open with another descriptor, under whatever name.

    Args:
        identity: its device and inode.
        besides: the descriptor that does not count.

    Raises:
        OSError: this process may not have one more descriptor to look.
    """
    for descriptor in numbers():
        with contextlib.suppress(OSError):
            if descriptor != besides and _identity(os.fstat(descriptor)) == identity:
                return True
    return False


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino


def _in_child() -> None:
    global _guard
    _guard = threading.RLock()  # a thread that is not here may hold it


os.register_at_fork(after_in_child=_in_child)
