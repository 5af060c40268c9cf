"""Where what a comparison is held against is made: a directory of its own, gone in the end.

It never lies in the directory of an application. One that a killed process has left is taken away by the next
comparison on the same machine.
"""

from __future__ import annotations

import os
import shutil
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statecore.errors import StatecoreError
from statecore.system_errors import system_error

_PREFIX = ".statecore-diff"
_MODE = 0o700


@contextmanager
def scratch(below: Path) -> Iterator[Path]:
    """A directory of this process below another one, until the block ends.

    Raises:
        Invalid: this user may not make one there.
        Capacity: there is no room.
    """
    _sweep(below)
    path = below / f"{_PREFIX}.{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
    try:
        path.mkdir(mode=_MODE)
    except OSError as error:
        raise _unusable(below, error) from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _sweep(below: Path) -> None:
    """Take away what processes of this machine have left that live no more."""
    for path in below.glob(f"{_PREFIX}.{socket.gethostname()}.*.*"):
        process = path.name.split(".")[-2]
        if process.isdigit() and not _lives(int(process)):
            shutil.rmtree(path, ignore_errors=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _unusable(below: Path, error: OSError) -> StatecoreError:
    return system_error(
        error,
        f"Nothing can be made in {below}",
        action="Name a directory with room for the stores that this user may write to (--scratch-dir).",
        path=str(below),
    )
