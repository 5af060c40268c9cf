"""A database opened to be read, in a temporary directory of symbolic links to its files.

RocksDB and rocksdict both write into a directory that they open, read-only too, and who only reads must not.

Whoever has the database open for writing is not disturbed and need not be asked: what is read is a whole commit, the
newest that was in files and log when it was opened. But between the listing of the files and the opening of them the
writer may replace some, and what is opened then looks damaged. So an opening that fails while files come, go or grow is
tried again; nothing is called damaged before they have stood still. SST files are all opened at once. Blob files
RocksDB opens when it reads a value of one, so they are held open here, and a link leads to what is open.
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
from statecore.stores.rocksdb import fork_safety as forks
from statecore.stores.rocksdb.directory import CONFIG_FILE
from statecore.stores.rocksdb.directory_lock import LOCK_FILE, writer_of
from statecore.stores.rocksdb.errors import STOP_THE_OTHER, translate
from statecore.stores.rocksdb.fd_paths import Descriptor
from statecore.system_errors import Refusal, refusal_of

T = TypeVar("T")

_ATTEMPTS = 8
_PAUSE_SECONDS = 0.02
"""Before the second attempt; it doubles with each."""

_NOT_LINKED = frozenset({LOCK_FILE, "LOG", CONFIG_FILE})
"""Files that opening writes: through a link it would write into the database."""

_PREFIX = "statecore-read-only-"
_MADE_BY = re.compile(rf"{_PREFIX}(\d+)-\w+")
_ABANDONED_SECONDS = 3600
"""Younger directories are left alone: a process of another container is not seen from this one."""

_swept: set[str] = set()
"""Where this process has looked for directories of others."""

_ELSEWHERE = ("/tmp", "/var/tmp", "/dev/shm")
_MAY_BE_A_WRITER = (Corrupted, Fenced, NotFound, Retryable)
"""What a writer at work may look like to who reads, even when no file changes meanwhile."""


class Shadow:
    """A temporary directory of symbolic links to the files of a database, blob files as they are now.

    Its path is ``name``. It goes with this object, or with the process that made it, but not with a child forked from
    that process.
    """

    def __init__(self, path: Path) -> None:
        self.name = _temporary_directory()
        self._finalizer = weakref.finalize(self, _remove_if_made_here, self.name, os.getpid())
        self._blobs: list[Descriptor] = []
        try:
            directory = path.resolve()
            for file in directory.iterdir():
                if file.name not in _NOT_LINKED:
                    Path(self.name, file.name).symlink_to(self._held(file) or file)
        except OSError as error:
            self.cleanup()
            raise translate(path, "Looking into", error) from error

    def _held(self, file: Path) -> Path | None:
        """A path that leads to a blob file also when a writer has deleted it; ``None`` for another file."""
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


def opened_through_links(
    path: Path, open_there: Callable[[Path], T], *, damage_beside_writer: bool = False
) -> tuple[Shadow, T]:
    """Open a database to be read, again while a writer changes its files.

    Args:
        path: the database.
        open_there: opens the directory it is given; where it raises, it has let go of everything.
        damage_beside_writer: call damage what is found in files that stand still, though a writer has the database
            open: for who only tells. Else that is ``Fenced``, because somebody is at work there.

    Returns:
        The directory of links, to be cleaned up when the database was closed, and what ``open_there`` returned.

    Raises:
        NotFound: it is gone.
        Fenced: a writer changed its files at every attempt, or has it open and it cannot be read.
        Invalid: this user may not read it, or no temporary directory can be made.
        Capacity: no room for a temporary directory.
        StatecoreError: what ``open_there`` raised.
    """
    forks.used()
    for attempt in range(_ATTEMPTS):
        before, shadow = files_of(path), None
        try:
            shadow = Shadow(path)
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
                    f"The database at {path} could not be opened to be read while {writer or 'another process'} is at "
                    f"work in it: {error.what}",
                    code="store-open",
                    action=STOP_THE_OTHER,
                    store_path=str(path),
                ) from error
        time.sleep(_PAUSE_SECONDS * 2**attempt)
    raise AssertionError("unreachable")


def files_of(path: Path) -> frozenset[tuple[str, int]]:
    """Names and sizes of a database's files; empty when there is none. New column families only lengthen a MANIFEST.

    Raises:
        Invalid: this user may not look.
    """
    found = set()
    try:
        for file in path.iterdir():
            with suppress(FileNotFoundError):
                found.add((file.name, file.stat().st_size))
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise translate(path, "Looking into", error) from error
    return frozenset(found)


def _temporary_directory() -> str:
    """A fresh directory where this user may make one: ``TMPDIR``, or the places that every system has.

    Raises:
        Capacity: none of them has room.
        Invalid: there is no such place.
    """
    refused: dict[str, OSError] = {}
    for parent in dict.fromkeys(_parents()):
        try:
            made = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent)
            _sweep(parent)
            return made
        except OSError as error:
            refused[parent] = error
    said = "; ".join(f"{parent}: {error.strerror or error}" for parent, error in refused.items())
    full = any(refusal_of(error) is Refusal.FULL for error in refused.values())
    raise (Capacity if full else Invalid)(
        f"No temporary directory can be made ({said}).",
        code="no-space" if full else "temporary-directory-missing",
        action="Set TMPDIR to a directory that this user may write to, with room for a few links.",
    )


def _sweep(parent: str) -> None:
    """Remove what processes of this user have left that were killed; once in each place.

    The files that a directory links to are safe, and a database that is open needs its links no more.
    """
    if parent in _swept:
        return
    _swept.add(parent)
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            made = _MADE_BY.fullmatch(entry.name)
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
        return False  # it has gone, or somebody else has that number now
    return False


def _parents() -> Iterator[str]:
    with suppress(OSError):
        yield tempfile.gettempdir()
    yield from (os.environ[name] for name in ("TMPDIR", "TEMP", "TMP", "XDG_RUNTIME_DIR") if os.environ.get(name))
    yield from _ELSEWHERE


def _remove_if_made_here(directory: str, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(directory, ignore_errors=True)
