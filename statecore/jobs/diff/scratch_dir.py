"""Scratch directory for the reference of a diff, deleted at the end.

It is never inside an application's directory. Leftovers of killed processes are deleted by the next diff on the same
machine.
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
    """A directory of this process below ``below``, as a context manager."""
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
    """Delete directories of dead processes of this machine."""
    for path in below.glob(f"{_PREFIX}.{socket.gethostname()}.*.*"):
        process = path.name.split(".")[-2]
        if process.isdigit() and not _is_alive(int(process)):
            shutil.rmtree(path, ignore_errors=True)


def _is_alive(process: int) -> bool:
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
        f"No directory can be created in {below}",
        action="Name a writable directory with enough space for the stores (--scratch-dir).",
        path=str(below),
    )
