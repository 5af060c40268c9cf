"""Descriptors that nobody forgets, and the paths that follow what they have open.

A signal handler that raises may do so when a call has returned and before anybody has taken what it returned. A number
would be lost so, and what it stands for stays open, and locked, for as long as the process lives. So here the number is
in an object before the call is over that made it, and out of it after the one that closed it.

On Linux an open directory has a path that is no name: ``/proc/self/fd/<number>`` leads to it wherever it was renamed
to, and to nothing else as long as the descriptor is open.
"""

from __future__ import annotations

import os
import re
from collections import deque
from contextlib import suppress
from pathlib import Path

_OF_THIS_PROCESS = "/proc/self/fd"

_OWN_FILES = (_OF_THIS_PROCESS, "/dev/fd")
"""Where a process sees which files it has open: on Linux, and on every Unix."""

FOLLOWING = re.compile(rf"{_OF_THIS_PROCESS}/\d+")
"""Such a path, as it appears in what the system or RocksDB says."""


class Descriptor:
    """One open file or directory; none at first, and closed at the latest with this object."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: list[int] = []

    def open(self, path: Path, flags: int) -> None:
        """Open what is at a path.

        Raises:
            OSError: the system does not.
        """
        self._numbers.extend(map(os.open, (path,), (flags | os.O_CLOEXEC,)))

    @property
    def number(self) -> int | None:
        """What the system calls it; ``None`` while it is closed."""
        return self._numbers[0] if self._numbers else None

    def path(self) -> Path | None:
        """A path that follows what is open; ``None`` where the system has none that does."""
        if not self._numbers:
            return None
        path = Path(_OF_THIS_PROCESS, str(self._numbers[0]))
        try:
            there, here = path.stat(), os.fstat(self._numbers[0])
        except OSError:
            return None
        return path if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino) else None

    def close(self) -> None:
        """Close it; a second time changes nothing."""
        if self._numbers:
            deque(map(os.close, map(list.pop, (self._numbers,))), maxlen=0)

    __del__ = close


def numbers() -> list[int]:
    """Descriptors that this process has; none where the system does not tell.

    Raises:
        OSError: to look takes one more, and there is none to be had.
    """
    for directory in _OWN_FILES:
        with suppress(FileNotFoundError):
            return [int(entry.name) for entry in os.scandir(directory)]
    return []
