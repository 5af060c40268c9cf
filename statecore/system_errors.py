"""Translates ``OSError`` into this library's error kinds, for all packages."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from enum import Enum, auto
from pathlib import Path
from typing import Any

from statecore.errors import Capacity, Invalid, Retryable, StatecoreError
from statecore.filesystem import READ_ONLY_ACTION, NotRegularFile

RUN_AS_APPLICATION = "Run as the user that the application runs as."
"""What to do if this user may not read what the application wrote."""

_ASK_SERVER = (
    "Check the server of the network file system and the kernel log of this machine (dmesg), then run this again."
)

REPAIR_DISK = (
    "Check the kernel log (dmesg). Repair the disk or its file system, or name directories on another one, then run "
    "this again."
)
"""What to do if the disk or its file system failed."""


class Cause(Enum):
    """Cause of a system error."""

    FULL = auto()
    """No space left on the disk or in a quota."""

    TOO_MANY_FILES = auto()
    """No descriptor left for this process or the system."""

    TOO_LARGE = auto()
    """The file exceeds a limit of this process or of the file system."""

    READ_ONLY = auto()
    """The file system is mounted read-only."""

    DENIED = auto()
    """Missing permissions."""

    FAILED = auto()
    """The disk or its file system failed."""

    UNREACHABLE = auto()
    """The server of a network file system does not answer, or has another file of that name by now."""

    OTHER = auto()
    """Anything else: a missing path, a directory in place of a file."""


_REFUSALS = {
    errno.ENOSPC: Cause.FULL,
    errno.EDQUOT: Cause.FULL,
    errno.EMFILE: Cause.TOO_MANY_FILES,
    errno.ENFILE: Cause.TOO_MANY_FILES,
    errno.EFBIG: Cause.TOO_LARGE,
    errno.EROFS: Cause.READ_ONLY,
    errno.EACCES: Cause.DENIED,
    errno.EPERM: Cause.DENIED,
    errno.EIO: Cause.FAILED,
    getattr(errno, "EUCLEAN", errno.EIO): Cause.FAILED,  # of Linux only
    errno.ESTALE: Cause.UNREACHABLE,
    errno.ETIMEDOUT: Cause.UNREACHABLE,
    errno.ENOLCK: Cause.UNREACHABLE,
    errno.EHOSTDOWN: Cause.UNREACHABLE,
    errno.EHOSTUNREACH: Cause.UNREACHABLE,
    errno.ENOTCONN: Cause.UNREACHABLE,  # of FUSE
    getattr(errno, "EREMOTEIO", errno.ESTALE): Cause.UNREACHABLE,
}
_TEXTS = {os.strerror(number): refusal for number, refusal in _REFUSALS.items()}


def cause_of(error: Exception) -> Cause:
    """The cause of an error: by the ``errno`` of an ``OSError``, else by the system's message in its text."""
    if isinstance(error, OSError) and error.errno is not None:
        return _REFUSALS.get(error.errno, Cause.OTHER)
    message = str(error)
    return next((refusal for text, refusal in _TEXTS.items() if text in message), Cause.OTHER)


def system_error(
    error: Exception, what: str, *, action: str, room: str = "Free space there, then run this again.", **context: Any
) -> StatecoreError:
    """The library's error for a system error: ``Capacity``, ``Retryable`` if a disk failed, else ``Invalid``."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    sentence = f"{what}: {reason.rstrip('.')}."
    refusal = cause_of(error)
    if refusal is Cause.FULL:
        return Capacity(sentence, code="no-space", action=room, **context)
    if refusal is Cause.TOO_MANY_FILES:
        return Capacity(
            sentence,
            code="too-many-open-files",
            action="Raise the limit of open files (ulimit -n), then run this again.",
            **context,
        )
    if refusal is Cause.TOO_LARGE:
        return Capacity(
            sentence,
            code="file-too-large",
            action="Raise the file size limit (ulimit -f), or use a file system without one, then run this again.",
            **context,
        )
    if refusal is Cause.FAILED:
        return Retryable(sentence, code="disk-failed", action=REPAIR_DISK, **context)
    if refusal is Cause.UNREACHABLE:
        return Retryable(sentence, code="disk-failed", action=_ASK_SERVER, **context)
    if refusal is Cause.READ_ONLY:
        return Invalid(sentence, code="read-only-file-system", action=READ_ONLY_ACTION, **context)
    if isinstance(error, NotRegularFile):
        return Invalid(sentence, code="file-not-regular", action="Replace it by a regular file.", **context)
    code = "permission-denied" if refusal is Cause.DENIED else "system-refused"
    return Invalid(sentence, code=code, action=action, **context)


def write_error(path: Path, error: Exception) -> StatecoreError:
    """The error to raise if a file cannot be written; see :func:`system_error`."""
    return system_error(
        error, f"{path} cannot be written", action="Check that the directory exists and is writable.", path=str(path)
    )


def permission_error(error: OSError, failed: str, root: Path, *, writing: bool, **context: Any) -> Invalid:
    """The error to raise if this user is denied access to a directory; it names the user, the owner and the mode."""
    path = Path(os.fsdecode(error.filename)) if error.filename else root
    path = path if path.is_relative_to(root) else root
    user, where, whose = f"the user {_user(os.geteuid())}", _closest(path), ""
    rights: dict[str, str] = {}
    try:
        seen = where.stat()
        mode, owner = stat.filemode(seen.st_mode), f"{_user(seen.st_uid)}:{_group(seen.st_gid)}"
        whose = f", which belongs to {owner} and has the mode {mode}"
        rights = {"owner": owner, "mode": mode}
    except OSError:  # not even stat is allowed
        pass
    right = "write to" if writing else "read"
    return Invalid(
        f"{failed}: {user} may not {right} {where}{whose}.",
        code="permission-denied",
        action=f"Give {user} permission to {'read and write' if writing else 'read'} all of {root}, or run this as a "
        "user that has it.",
        user=_user(os.geteuid()),
        path=str(where),
        **rights,
        **context,
    )


def _closest(path: Path) -> Path:
    while path != path.parent and not os.path.lexists(path):
        path = path.parent
    return path


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container may run under a uid without a name
        return f"uid {uid}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return f"gid {gid}"
