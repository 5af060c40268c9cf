"""What the system says no with, as this library's few kinds of error: one translator of ``OSError`` for all rooms."""

from __future__ import annotations

import errno
import os
from enum import Enum, auto
from pathlib import Path
from typing import Any

from statecore.errors import Capacity, Invalid, Retryable, StatecoreError
from statecore.filesystem import MOUNT_FOR_WRITING, NotRegularFile

RUN_AS_APPLICATION = "Run as the user that the application runs as."
"""What to do where this user may not read what the application wrote."""

MEND_DISK = (
    "Look at the kernel's log (dmesg). Mend the disk or its file system, or name directories on another one, then run "
    "this again."
)
"""What to do where the disk or its file system failed."""


class Refusal(Enum):
    """Why the system refused something."""

    FULL = auto()
    """There is no room left, on the disk or in somebody's quota."""

    TOO_MANY_FILES = auto()
    """This process, or the system, has no descriptor left."""

    TOO_LARGE = auto()
    """No file may become that large: this process has a limit, or the file system has one."""

    READ_ONLY = auto()
    """The file system is mounted read-only."""

    DENIED = auto()
    """This user has no right to it."""

    FAILED = auto()
    """The disk or its file system failed."""

    OTHER = auto()
    """Anything else: a path that is not there, a directory in place of a file."""


_REFUSALS = {
    errno.ENOSPC: Refusal.FULL,
    errno.EDQUOT: Refusal.FULL,
    errno.EMFILE: Refusal.TOO_MANY_FILES,
    errno.ENFILE: Refusal.TOO_MANY_FILES,
    errno.EFBIG: Refusal.TOO_LARGE,
    errno.EROFS: Refusal.READ_ONLY,
    errno.EACCES: Refusal.DENIED,
    errno.EPERM: Refusal.DENIED,
    errno.EIO: Refusal.FAILED,
    getattr(errno, "EUCLEAN", errno.EIO): Refusal.FAILED,  # of Linux only
}
_TEXTS = {os.strerror(number): refusal for number, refusal in _REFUSALS.items()}


def refusal_of(error: Exception) -> Refusal:
    """Why the system refused: by the number of an ``OSError``, else by the system's words in the text of the error."""
    if isinstance(error, OSError) and error.errno is not None:
        return _REFUSALS.get(error.errno, Refusal.OTHER)
    said = str(error)
    return next((refusal for text, refusal in _TEXTS.items() if text in said), Refusal.OTHER)


def system_error(
    error: Exception, what: str, *, action: str, room: str = "Free room there, then run this again.", **context: Any
) -> StatecoreError:
    """The error to raise when the system refused something.

    Args:
        error: what was raised.
        what: what could not be done, as the beginning of a sentence: "/d/file could not be written".
        action: what to do, where the system's answer does not tell.
        room: what to do where there is no room.
        context: names as fields, for machines.

    Returns:
        ``Capacity`` when there is no room or no descriptor left, or a file may not grow; ``Retryable`` when the disk
        failed, for another host may have a whole one; else ``Invalid``.
    """
    said = (error.strerror if isinstance(error, OSError) else None) or str(error)
    sentence = f"{what}: {said.rstrip('.')}."
    refusal = refusal_of(error)
    if refusal is Refusal.FULL:
        return Capacity(sentence, code="no-space", action=room, **context)
    if refusal is Refusal.TOO_MANY_FILES:
        return Capacity(
            sentence,
            code="too-many-open-files",
            action="Raise the limit of open files (ulimit -n), then run this again.",
            **context,
        )
    if refusal is Refusal.TOO_LARGE:
        return Capacity(
            sentence,
            code="file-too-large",
            action="Raise the limit of a file's size (ulimit -f), or use a file system without one, then run this "
            "again.",
            **context,
        )
    if refusal is Refusal.FAILED:
        return Retryable(sentence, code="disk-failed", action=MEND_DISK, **context)
    if refusal is Refusal.READ_ONLY:
        return Invalid(sentence, code="read-only-file-system", action=MOUNT_FOR_WRITING, **context)
    if isinstance(error, NotRegularFile):
        return Invalid(sentence, code="file-not-regular", action="Put a file there.", **context)
    code = "permission-denied" if refusal is Refusal.DENIED else "system-refused"
    return Invalid(sentence, code=code, action=action, **context)


def write_error(path: Path, error: Exception) -> StatecoreError:
    """The error to raise when a file cannot be written, as :func:`system_error` has it."""
    return system_error(
        error, f"{path} cannot be written", action="Check that the directory exists and is writable.", path=str(path)
    )
