"""File descriptors that cannot leak, and paths through them that survive renames.

A signal handler may raise after ``open`` has returned and before its result is assigned. The descriptor would leak, and
keep its file open and locked for the life of the process. So here the number is stored in an object within the call
that opens it, and removed within the call that closes it.

On Linux ``/proc/self/fd/<number>`` is a path to an open directory wherever it was renamed to, as long as the descriptor
is open.
"""

from __future__ import annotations

import os
import re
from collections import deque
from contextlib import suppress
from pathlib import Path

from statecore.filesystem import file_id

_OF_THIS_PROCESS = "/proc/self/fd"

_OWN_FILES = (_OF_THIS_PROCESS, "/dev/fd")  # Lists the open files of a process: on Linux, and on every Unix
FOLLOWING = re.compile(rf"{_OF_THIS_PROCESS}/\d+")  # Such a path in messages of the system or RocksDB


class Descriptor:
    """One open file or directory; initially closed, and closed at the latest with this object."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: list[int] = []

    def open(self, path: Path, flags: int) -> None:
        # Without blocking: a named pipe may have the name of any file.
        self._numbers.extend(map(os.open, (path,), (flags | os.O_CLOEXEC | os.O_NONBLOCK,)))

    @property
    def number(self) -> int | None:
        """The descriptor number; ``None`` while closed."""
        return self._numbers[0] if self._numbers else None

    def path(self) -> Path | None:
        """A path through the descriptor; ``None`` if the system has none."""
        if not self._numbers:
            return None
        path = Path(_OF_THIS_PROCESS, str(self._numbers[0]))
        try:
            return path if file_id(path.stat()) == file_id(os.fstat(self._numbers[0])) else None
        except OSError:
            return None

    def close(self) -> None:
        """Close it; idempotent."""
        if self._numbers:
            deque(map(os.close, map(list.pop, (self._numbers,))), maxlen=0)

    __del__ = close


def numbers() -> list[int]:
    """The open descriptors of this process; empty if the system does not list them."""
    for directory in _OWN_FILES:
        with suppress(FileNotFoundError):
            return [int(entry.name) for entry in os.scandir(directory)]
    return []
