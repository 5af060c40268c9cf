"""What file systems can and cannot do, whatever the one is like on which the tests run."""

from __future__ import annotations

import errno
import fcntl
import os
from types import SimpleNamespace
from typing import IO, Any

import pytest


def without_clones(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file system clones a file, as ext4."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(fcntl, "ioctl", refuse)


def with_clones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file system clones files, as XFS."""

    def cloned(made: IO[bytes], _: int, given: int) -> None:
        os.sendfile(made.fileno(), given, 0, os.fstat(given).st_size)

    monkeypatch.setattr(fcntl, "ioctl", cloned)


def with_free_room(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """Every file system has so many bytes left."""
    statvfs = os.statvfs

    def full(path: Any) -> Any:
        found = statvfs(path)
        return SimpleNamespace(f_bavail=free, f_frsize=1, f_flag=found.f_flag)

    monkeypatch.setattr(os, "statvfs", full)
