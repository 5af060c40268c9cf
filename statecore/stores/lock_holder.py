"""Asks the kernel which process holds the lock of a state directory or database, without taking the lock.

A POSIX record lock belongs to a process, and **closing any descriptor of the file releases the process's lock**. So
when this very process turns out to hold a lock, the descriptor is kept open, one for each file, until the lock is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import struct
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from statecore.errors import Invalid, StatecoreError
from statecore.filesystem import FileId, NotRegularFile, file_id
from statecore.stores.fd_paths import Descriptor, numbers
from statecore.system_errors import RUN_AS_APPLICATION, system_error

FLOCK: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "linux": ("hhqqi4x", ("type", "whence", "start", "length", "process")),
    "darwin": ("qqihh", ("start", "length", "process", "type", "whence")),
}
"""``struct flock`` of ``fcntl.h`` on 64 bits, by platform (``sys.platform``): its layout, and its fields in order."""


_guard = threading.RLock()
_inspected: dict[FileId, Descriptor] = {}
"""Files under inspection, and those whose lock this process was found to hold."""
_strays: list[Descriptor] = []


def guard() -> threading.RLock:
    """Held while a lock is queried or taken: no thread may lock a file between opening and closing it for a query.

    There is one for all locks, because a claim may be garbage-collected, and released, wherever a thread allocates.
    """
    return _guard


class Holder(NamedTuple):
    """The process that holds a lock."""

    process: int  # its id; 0 if it runs in another container (process namespace)
    command: str  # its name, if visible
    lost: bool = False  # whether it has lost the lock and still runs

    def __str__(self) -> str:
        if not self.process:
            return "a process of another container"
        command = f" ({self.command})" if self.command else ""
        return f"process {self.process}{command}{', which has lost its lock' if self.lost else ''}"


def lock_holder(path: Path) -> Holder | None:
    """The process that holds the lock of a file; ``None`` if none does, or there is no such file."""
    if sys.platform not in FLOCK:
        raise Invalid(
            f"The holder of the lock of {path} cannot be determined on the platform {sys.platform}.",
            code="platform-unsupported",
            action=f"Run this on one of {', '.join(FLOCK)}.",
            file=str(path),
            platform=sys.platform,
        )
    holder = None
    try:
        with guard():
            holder = _ask(path)
    except (FileNotFoundError, NotRegularFile):  # no process can hold its lock
        pass
    except OSError as error:
        raise _unseen(path, error) from error
    return holder


def _ask(path: Path) -> Holder | None:
    identity, number = _open_registered(path)
    if _is_ours(number, identity):
        return Holder(os.getpid(), "this process")
    holder = holder_of(number)
    _inspected[identity].close()
    del _inspected[identity]
    return holder


def _open_registered(path: Path) -> tuple[FileId, int]:
    """Open a file, or reuse its kept descriptor; registered before it is opened. The guard is held."""
    while True:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise NotRegularFile(path)
        identity = file_id(status)
        file = _inspected.setdefault(identity, Descriptor())
        try:
            if file.number is None:
                file.open(path, os.O_RDONLY)
        finally:
            if file.number is None:
                _inspected.pop(identity, None)
        assert file.number is not None
        if file_id(os.fstat(file.number)) == identity:
            return identity, file.number
        _strays.append(file)  # replaced between stat and open; this process may hold its lock
        del _inspected[identity]


def _is_ours(number: int, identity: FileId) -> bool:
    """Whether this process may hold the lock of an open file."""
    try:
        return is_held_by_this_process(number)
    except (AttributeError, OSError):  # not supported by the system or file system
        return is_open_in_this_process(identity, besides=number)


def _unseen(path: Path, error: OSError) -> StatecoreError:
    return system_error(error, f"The holder of {path} could not be determined", action=RUN_AS_APPLICATION)


def holder_of(descriptor: int) -> Holder | None:
    """Another process that holds the lock of an open file; ``None`` if none does, or the kernel does not tell."""
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


def is_held_by_this_process(descriptor: int) -> bool:
    """Whether this process itself holds the lock of an open file; if so, closing the descriptor releases it.

    A process never conflicts with its own record lock, but an open file description (``F_OFD_GETLK``) does.
    """
    return _conflicting(descriptor, fcntl.F_OFD_GETLK) == os.getpid()


def _conflicting(descriptor: int, command: int) -> int | None:
    """Pid of the process whose lock conflicts with a lock of the whole file; ``None`` without one."""
    layout, fields = FLOCK[sys.platform]
    whole_file = {"type": fcntl.F_WRLCK, "whence": os.SEEK_SET, "start": 0, "length": 0, "process": 0}
    asked = struct.pack(layout, *(whole_file[name] for name in fields))
    answer = dict(zip(fields, struct.unpack(layout, fcntl.fcntl(descriptor, command, asked)), strict=True))
    return None if answer["type"] == fcntl.F_UNLCK else int(answer["process"])


def is_open_in_this_process(identity: FileId, *, besides: int) -> bool:
    """Whether another descriptor of this process than ``besides`` has the file ``identity`` (device, inode) open."""
    for descriptor in numbers():
        with contextlib.suppress(OSError):
            if descriptor != besides and file_id(os.fstat(descriptor)) == identity:
                return True
    return False


def _in_child() -> None:
    global _guard
    _guard = threading.RLock()  # a thread of the parent may hold it


os.register_at_fork(after_in_child=_in_child)
