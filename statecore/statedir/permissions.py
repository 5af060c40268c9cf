"""Files of a state directory that its application cannot use, by owner, group and mode.

The application is assumed to run as owner and group of its directory: Kafka Streams sets that directory's mode at every
start, which only its owner can. RocksDB reads its files, writes to ``LOCK``, and creates and deletes all others, for
which it needs write access to the directory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from statecore.formats.releases import LOCK_FILE
from statecore.statedir.file_ownership import group_name, user_name
from statecore.stores.rocksdb.directory_lock import LOCK_FILE as DATABASE_LOCK

_WRITTEN = frozenset({LOCK_FILE, DATABASE_LOCK})


def unusable(application: Path, below: Path) -> list[tuple[str, str]]:
    """Files and directories of a task, itself included, that the application cannot use, each with the reason."""
    owner = application.stat()
    if owner.st_uid == 0:
        return []
    found = []
    for path, status in _walk(below):
        is_directory = stat.S_ISDIR(status.st_mode)
        wanted = 7 if is_directory else 6 if path.name in _WRITTEN else 4
        has = _rights(status, owner.st_uid, owner.st_gid)
        if has & wanted != wanted:
            name = str(path.relative_to(application))
            found.append((name, _reason(status, owner)))
    return found


def _rights(status: os.stat_result, uid: int, gid: int) -> int:
    """Permissions of a user and group on a file: 4 read, 2 write, 1 enter or execute."""
    shift = 6 if status.st_uid == uid else 3 if status.st_gid == gid else 0
    return status.st_mode >> shift & 7


def _reason(status: os.stat_result, owner: os.stat_result) -> str:
    mode = stat.filemode(status.st_mode)
    return (
        f"belongs to {user_name(status.st_uid)}:{group_name(status.st_gid)} with mode {mode}, and the application runs "
        f"as {user_name(owner.st_uid)}:{group_name(owner.st_gid)}"
    )


def _walk(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    try:
        status = path.lstat()
    except OSError:
        return
    yield path, status
    if stat.S_ISDIR(status.st_mode):
        try:
            entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        except OSError:
            return
        for entry in entries:
            yield from _walk(Path(entry.path))
