"""What file systems can and cannot do, whatever the one is like on which the tests run."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
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
        return SimpleNamespace(
            f_bavail=free, f_frsize=1, f_flag=found.f_flag, f_blocks=found.f_blocks, f_files=found.f_files
        )

    monkeypatch.setattr(os, "statvfs", full)


def without_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """No two directories change their names in one step: the kernel has no such call."""

    class Older(ctypes.CDLL):
        def __getattr__(self, name: str) -> Any:
            if name == "renameat2":
                raise AttributeError(name)
            return super().__getattr__(name)

    monkeypatch.setattr(ctypes, "CDLL", Older)


def refusing_exchange(monkeypatch: pytest.MonkeyPatch, of: Path, number: int) -> None:
    """The kernel refuses with this error to let one directory change its name with another."""

    class Refusing(ctypes.CDLL):
        def __getattr__(self, name: str) -> Any:
            call = super().__getattr__(name)
            if name != "renameat2":
                return call

            def renameat2(at: int, first: bytes, *others: Any) -> int:
                if Path(os.fsdecode(first)) == of:
                    ctypes.set_errno(number)
                    return -1
                return int(call(at, first, *others))

            return renameat2

    monkeypatch.setattr(ctypes, "CDLL", Refusing)


def refusing(monkeypatch: pytest.MonkeyPatch, call: str, number: int, of: Callable[[Path], bool]) -> None:
    """The system refuses a call of ``os`` for some paths.

    Args:
        monkeypatch: takes it back.
        call: its name: ``rename``, ``replace``, ``unlink``, ``rmdir``.
        number: the error.
        of: whether it is refused for a path, or to a path; of a tree that is deleted it is asked by names alone.
    """
    real = getattr(os, call)

    def refused(*paths: Any, **how: Any) -> Any:
        if any(of(Path(path)) for path in paths if isinstance(path, str | os.PathLike)):
            raise OSError(number, os.strerror(number), str(paths[0]))
        return real(*paths, **how)

    monkeypatch.setattr(os, call, refused)
