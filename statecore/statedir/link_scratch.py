"""Scratch directory for the hard links of a backup, in the application's work directory.

It is locked while its job lives, so that leftovers of a killed job can be told from directories in use.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from statecore.filesystem import make_directories
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.work_directory import BACKUP_LINKS_PREFIX
from statecore.system_errors import RUN_AS_APPLICATION, system_error

_HELD = "held"
_MIN_AGE_SECONDS = 60.0


@contextmanager
def scratch(directory: StateDirectory) -> Iterator[Path]:
    """A directory on the file system of the state directory, removed at the end; also removes those of killed jobs."""
    path = directory.work_path / f"{BACKUP_LINKS_PREFIX}{uuid.uuid4().hex}"
    try:
        _sweep(directory.work_path)
        make_directories(path, 0o700)
        held = os.open(path / _HELD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise system_error(error, f"{path} cannot be created", action=RUN_AS_APPLICATION, path=str(path)) from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(held)


def _sweep(work: Path) -> None:
    for path in work.glob(f"{BACKUP_LINKS_PREFIX}*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime < _MIN_AGE_SECONDS:
                continue
            held = os.open(path / _HELD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(held)


def is_in_use(path: Path) -> bool:
    """Whether a job still uses such a directory; read-only."""
    try:
        held = os.open(path / _HELD, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(held)
    return False
