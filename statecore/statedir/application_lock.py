"""The lock file of an application's directory, which Kafka Streams takes too.

It is what Java's ``FileChannel.tryLock`` takes: a POSIX record lock over the whole file ``.lock``. Such a lock belongs
to the process, not to the file descriptor: **closing any other descriptor of that file in this process drops it**, and
taking it twice in one process succeeds. Hence the registry here, and :meth:`ApplicationLock.check` before each
irreversible step.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

from statecore.errors import Fenced
from statecore.filesystem import FileId, file_id
from statecore.formats.releases import LOCK_FILE
from statecore.statedir.file_ownership import FileOwnership
from statecore.stores.lock_holder import guard, holder_of

_held: set[FileId] = set()
_LINGER = 0.2
"""Seconds the lock outlives its file: longer than a competitor needs between opening and locking the file."""


class LockedDirectory(Protocol):
    """The parts of a state directory that the lock needs."""

    @property
    def application_id(self) -> str:
        """Kafka Streams' ``application.id``."""

    @property
    def path(self) -> Path:
        """The application's directory."""

    @property
    def work_path(self) -> Path:
        """This library's work directory in it."""

    @property
    def ownership(self) -> FileOwnership:
        """Owner, group and modes of the files that are placed."""


class ApplicationLock:
    """The lock of an application's directory, held from construction until :meth:`release`. Raises ``Fenced``."""

    def __init__(self, directory: LockedDirectory, made: Sequence[Path] = ()) -> None:
        self._directory = directory
        self._file = directory.path / LOCK_FILE
        self._made = made
        self._made_file = False
        while not self._take():
            pass  # the file was deleted between opening and locking it
        self._released = False

    def _take(self) -> bool:
        """Open and lock the file; ``False`` if the path names another file by then."""
        # Closing a second descriptor of a locked file would drop the lock, so it must not even be opened.
        with guard():
            with contextlib.suppress(FileNotFoundError):
                if file_id(self._file.stat()) in _held:
                    raise self._fenced("this process")
            self._descriptor = self._open()
            self._identity = file_id(os.fstat(self._descriptor))
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                same = file_id(self._file.stat()) == self._identity
            except FileNotFoundError:
                same = False
            except OSError as error:
                holder = holder_of(self._descriptor)
                os.close(self._descriptor)
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    raise self._fenced(str(holder or "another process")) from None
                raise
            if not same:
                os.close(self._descriptor)
                return False
            _held.add(self._identity)
        return True

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            return os.open(self._file, flags)
        except FileNotFoundError:
            descriptor = os.open(self._file, flags | os.O_CREAT, 0o600)
        try:
            self._directory.ownership.apply(self._file)
        except BaseException:
            self._file.unlink(missing_ok=True)  # the application could not open this file
            os.close(descriptor)
            raise
        self._made_file = True
        return descriptor

    def check(self) -> None:
        """Raise ``Fenced`` if the lock was released, lost or replaced. Call it before irreversible steps."""
        if not self._is_ours():
            raise Fenced(
                f"The lock of {self._directory.path} was lost.",
                code="lock-lost",
                action="Find out who deleted or took the state directory, then run this again.",
                state_dir=str(self._directory.path),
            )

    def _is_ours(self) -> bool:
        try:
            same = not self._released and file_id(self._file.stat()) == self._identity
            if same:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a no-op while it is ours
        except OSError:
            return False
        return same

    def release(self) -> None:
        """Release the lock. The file stays: deleting it would let two processes lock two files of one name."""
        if not self._released:
            self._released = True
            with guard():
                _held.discard(self._identity)
                os.close(self._descriptor)

    def withdraw(self) -> None:
        """Delete what was created for this lock and is empty, so that a refused job leaves no trace.

        The lock is held a moment longer than its file, so that a process that has opened the file does not get it. If
        the lock was lost, nothing is deleted.
        """
        work = self._directory.work_path
        if (not self._made_file and work not in self._made) or not self._is_ours():
            return
        below = list(os.walk(work))
        if work in self._made and not any(files for _, _, files in below):  # else even an empty directory may be needed
            remove_empty([Path(directory) for directory, _, _ in below])
        if self._made_file and not work.exists():
            self._file.unlink(missing_ok=True)
            time.sleep(_LINGER)
            remove_empty(self._made)

    def __enter__(self) -> ApplicationLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                with contextlib.suppress(OSError):  # keep the job's own error
                    self.withdraw()
        finally:
            self.release()

    def _fenced(self, who: str) -> Fenced:
        return Fenced(
            f"The state directory {self._directory.path} is in use: {who} holds its lock.",
            code="state-directory-in-use",
            action=f"Stop the application {self._directory.application_id} on this machine (or the job that is running "
            "there), then run this again.",
            state_dir=str(self._directory.path),
            application_id=self._directory.application_id,
            holder=who,
        )


def remove_empty(directories: Sequence[Path]) -> None:
    """Remove the empty ones of these directories, the last first."""
    for path in reversed(directories):
        with contextlib.suppress(OSError):
            path.rmdir()
