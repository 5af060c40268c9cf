"""Builds permission errors that name the user, the directory, its owner and its mode."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path
from typing import Any

from statecore.errors import Invalid


def permission_error(error: OSError, failed: str, root: Path, *, writing: bool, **context: Any) -> Invalid:
    """The error to raise if the system denies this user access to a directory."""
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
