"""Pointers in a directory: one file each, replaced under a lock among all processes.

On a file system shared by several machines the lock works if its ``flock`` does across machines (NFS of Linux, Lustre
with ``-o flock``). The version of a content is its SHA-256::

    <root>/<name>                   the content
    <root>/~locks/<name's hash>     held while it is replaced
    <root>/~partial/<random>        the next content, until it is renamed
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from statecore.errors import StatecoreError
from statecore.filesystem import AnyPath, give_to_owner, make_directories, read_regular, sync_file, sync_if_readable
from statecore.objectstore.base import checked_name
from statecore.objectstore.permissions import permission_error
from statecore.objectstore.pointers import Pointers, PointerValue
from statecore.system_errors import Cause, cause_of, system_error

_LOCKS, _PARTIAL = "~locks", "~partial"


class DirectoryPointers(Pointers):
    """Pointers below a directory, which is created with the first one."""

    def __init__(self, root: AnyPath) -> None:
        self._root = Path(root)

    def read(self, name: str) -> PointerValue | None:
        path = self._root / checked_name(name)
        try:
            content = read_regular(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._error("read", name, error) from error
        return PointerValue(content, _version(content))

    def swap(self, name: str, content: bytes, expected: str | None) -> str | None:
        path = self._root / checked_name(name)
        with self._locked(name):
            now = self.read(name)
            if (None if now is None else now.version) != expected:
                return None
            partial = self._root / _PARTIAL / uuid.uuid4().hex
            try:
                make_directories(path.parent)
                make_directories(partial.parent)
                with partial.open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                give_to_owner(partial)
                partial.replace(path)
                for directory in (path.parent, *path.parent.parents):
                    if directory == self._root.parent:
                        sync_if_readable(directory)
                        break
                    sync_file(directory)
            except OSError as error:
                with suppress(OSError):
                    partial.unlink()
                raise self._error("written", name, error) from error
        return _version(content)

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        lock = self._root / _LOCKS / hashlib.sha256(name.encode()).hexdigest()
        try:
            make_directories(lock.parent)
            file = lock.open("a")
            with suppress(PermissionError):  # owned by another user, who has done this
                give_to_owner(lock)
        except OSError as error:
            raise self._error("written", name, error) from error
        with file:
            try:
                # A lock of the open file, not of the process: threads exclude each other, too.
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError as error:
                raise self._error("locked", name, error) from error
            yield

    def _error(self, doing: str, name: str, error: OSError) -> StatecoreError:
        failed, where = f"The pointer {name} in {self._root} could not be {doing}", {"pointer": name}
        if cause_of(error) is Cause.DENIED:
            return permission_error(
                error, failed, self._root, writing=doing != "read", directory=str(self._root), **where
            )
        return system_error(
            error,
            failed,
            action="Give this user permission to read and write there.",
            directory=str(self._root),
            **where,
        )


def _version(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
