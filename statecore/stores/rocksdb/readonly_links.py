"""Read-only opening of a database through a temporary directory of symbolic links to its files.

RocksDB and rocksdict both write into a directory that they open, even read-only, and a reader must not.

A writer that has the database open is not disturbed: the reader sees the newest commit that was in files and log at the
time of opening. But between listing and opening the files the writer may replace some, which then looks like damage. So
an opening that fails while files appear, disappear or grow is retried; damage is only reported once the files did not
change. SST files are all opened at once. RocksDB opens blob files when it reads one of their values, so they are held
open here and linked through their descriptors.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from statecore.errors import Capacity, Corrupted, Fenced, Invalid, NotFound, Retryable, StatecoreError
from statecore.formats.rocksdb_log import BLOB_SUFFIX
from statecore.stores.fd_paths import Descriptor
from statecore.stores.rocksdb import fork_safety as forks
from statecore.stores.rocksdb.directory import CONFIG_FILE
from statecore.stores.rocksdb.directory_lock import LOCK_FILE, writer_of
from statecore.stores.rocksdb.errors import STOP_THE_OTHER, translate
from statecore.system_errors import Cause, cause_of

T = TypeVar("T")

_ATTEMPTS = 8
_PAUSE_SECONDS = 0.02  # Before the second attempt; doubles with each

_NOT_LINKED = frozenset({LOCK_FILE, "LOG", CONFIG_FILE})
"""Files that opening writes: through a link it would write into the database."""

_PREFIX = "statecore-read-only-"
_OWN_NAME = re.compile(rf"{_PREFIX}(\d+)-\w+")
_ABANDONED_SECONDS = 3600  # Younger directories are kept: processes of other containers are not visible
_swept: set[str] = set()  # Where this process has already looked for abandoned directories
_ELSEWHERE = ("/tmp", "/var/tmp", "/dev/shm")
_MAY_BE_A_WRITER = (Corrupted, Fenced, NotFound, Retryable)
"""Errors that a concurrent writer may cause for a reader, even if no file changes meanwhile."""


class ReadOnlyLinks:
    """A temporary directory of symbolic links to the files of a database; its path is ``name``.

    It is removed with this object, or with the process that created it, but not by a forked child.
    """

    def __init__(self, path: Path) -> None:
        self.name = _temporary_directory()
        self._finalizer = weakref.finalize(self, _remove_if_own_process, self.name, os.getpid())
        self._blobs: list[Descriptor] = []
        try:
            directory = path.resolve()
            for file in directory.iterdir():
                # RocksDB would wait for ever for a named pipe, and needs no directory.
                if file.name not in _NOT_LINKED and file.is_file():
                    Path(self.name, file.name).symlink_to(self._held(file) or file)
        except OSError as error:
            self.cleanup()
            raise translate(path, "Reading", error) from error

    def _held(self, file: Path) -> Path | None:
        """A path to a blob file that survives its deletion by a writer; ``None`` for another file."""
        if not file.name.endswith(BLOB_SUFFIX):
            return None
        held = Descriptor()
        with suppress(FileNotFoundError):
            held.open(file, os.O_RDONLY)
        self._blobs.append(held)
        return held.path()

    def cleanup(self) -> None:
        """Remove the directory."""
        self._finalizer()
        for blob in self._blobs:
            blob.close()


def open_through_links(
    path: Path, open_there: Callable[[Path], T], *, damage_beside_writer: bool = False
) -> tuple[ReadOnlyLinks, T]:
    """Open read-only, retrying while a writer changes files; return the links, to be removed last, and the result."""
    forks.mark_used()
    for attempt in range(_ATTEMPTS):
        before, shadow = files_of(path), None
        try:
            shadow = ReadOnlyLinks(path)
            return shadow, open_there(Path(shadow.name))
        except BaseException as error:
            if shadow is not None:
                shadow.cleanup()
            if not isinstance(error, StatecoreError):
                raise
            may_be_a_writer = isinstance(error, _MAY_BE_A_WRITER)
            writer = writer_of(path) if may_be_a_writer and not damage_beside_writer else None
            if files_of(path) == before and writer is None:
                raise
            if attempt == _ATTEMPTS - 1:
                if not may_be_a_writer:
                    raise
                raise Fenced(
                    f"The database at {path} could not be opened read-only while {writer or 'another process'} writes "
                    f"to it: {error.what}",
                    code="store-open",
                    action=STOP_THE_OTHER,
                    store_path=str(path),
                ) from error
        time.sleep(_PAUSE_SECONDS * 2**attempt)
    raise AssertionError("unreachable")


def files_of(path: Path) -> frozenset[tuple[str, int]]:
    """Names and sizes of a database's files; empty without one. A new column family only lengthens the MANIFEST."""
    found = set()
    try:
        for file in path.iterdir():
            with suppress(FileNotFoundError):
                found.add((file.name, file.stat().st_size))
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise translate(path, "Reading", error) from error
    return frozenset(found)


def _temporary_directory() -> str:
    """Create a directory in ``TMPDIR`` or a standard place."""
    refused: dict[str, OSError] = {}
    for parent in dict.fromkeys(_parents()):
        try:
            made = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent)
            _sweep(parent)
            return made
        except OSError as error:
            refused[parent] = error
    reasons = "; ".join(f"{parent}: {error.strerror or error}" for parent, error in refused.items())
    full = any(cause_of(error) is Cause.FULL for error in refused.values())
    raise (Capacity if full else Invalid)(
        f"No temporary directory can be created ({reasons}).",
        code="no-space" if full else "temporary-directory-missing",
        action="Set TMPDIR to a directory that this user may write to, with room for a few links.",
    )


def _sweep(parent: str) -> None:
    """Remove directories of this user's killed processes, once in each place. An open database needs no links."""
    if parent in _swept:
        return
    _swept.add(parent)
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            made = _OWN_NAME.fullmatch(entry.name)
            if made is not None and _is_abandoned(entry, int(made[1])):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_abandoned(entry: os.DirEntry[str], process: int) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
        if status.st_uid != os.geteuid() or time.time() - status.st_mtime < _ABANDONED_SECONDS:
            return False
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False  # gone, or the pid belongs to another user's process
    return False


def _parents() -> Iterator[str]:
    with suppress(OSError):
        yield tempfile.gettempdir()
    yield from (os.environ[name] for name in ("TMPDIR", "TEMP", "TMP", "XDG_RUNTIME_DIR") if os.environ.get(name))
    yield from _ELSEWHERE


def _remove_if_own_process(directory: str, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(directory, ignore_errors=True)
