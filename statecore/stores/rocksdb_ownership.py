"""Who has a RocksDB directory open for writing: at most one store, of this process or any other.

RocksDB's ``LOCK`` alone does not see to that. Within a process it goes by the text of the path, so a symbolic link,
``..``, a relative path or a second mount opens a database twice and destroys it; rocksdict and RocksDB write into the
directory before they try it; and when it is let go the directory is not tidy yet. So a store *claims* the directory
before anything in it is touched, and gives the claim back after everything, its native objects included:

- within this process by device and inode. The directory stays open meanwhile, so its inode is not given to another;
- among processes of this library by ``flock`` on the directory itself. It leaves no file behind, and it is no POSIX
  record lock: those belong to a process, which loses the one on ``LOCK`` when it closes any descriptor of that file.
  A file system that has no such locks (NFS) does without;
- the kernel is asked who holds ``LOCK``: Kafka Streams knows of nothing else.
"""

from __future__ import annotations

import fcntl
import os
import threading
import weakref
from contextlib import suppress
from pathlib import Path

from statecore.errors import Fenced, StatecoreError
from statecore.stores.lock_holder import Holder, lock_holder
from statecore.stores.rocksdb_errors import STOP_THE_OTHER, translate

LOCK_FILE = "LOCK"

_guard = threading.RLock()  # a claim may be collected, and given back, wherever a thread allocates
_claimed: dict[tuple[int, int], Path] = {}


class Claim:
    """The right of one store to a directory, until it is released or nobody holds it any more.

    Args:
        path: the directory, as messages name it.

    Attributes:
        directory: the directory without symbolic links; what is done to it, is done under this name.

    Raises:
        Fenced: somebody else has it, in this process or another.
        Invalid: this user may not look into it.
        NotFound: it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self.directory = path.resolve(strict=True)
            descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
            raise translate(path, "Opening", error) from error
        identity = _identity(os.fstat(descriptor))
        with _guard:
            other = _claimed.get(identity)
            if other is None:
                _claimed[identity] = path
        if other is not None:
            os.close(descriptor)
            raise Fenced(
                f"The database at {path} is open in this process already, as {other}.",
                action="Close that store, or use it: a process opens a database once. Stop the process where nothing "
                "can reach that store any more.",
                store_path=str(path),
            )
        self._finalizer = weakref.finalize(self, _give_back, descriptor, identity, os.getpid())
        self._finalizer.atexit = False  # native objects may live longer, and the kernel takes it back with the process
        try:
            self._lock(descriptor)
            self.check()
        except BaseException:
            self.release()
            raise

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.check()
            raise Fenced(
                f"The database at {self._path} is opened or closed just now by another process, which does not hold "
                f"its {LOCK_FILE} at this moment.",
                action=STOP_THE_OTHER,
                store_path=str(self._path),
            ) from None
        except OSError:
            return  # no such locks here

    def check(self) -> None:
        """Make sure that nobody else holds RocksDB's lock; to be called while RocksDB does not hold it for this store.

        Raises:
            Fenced: somebody does.
            Invalid: this user may not look.
        """
        holder = lock_holder(self.directory / LOCK_FILE)
        if holder is not None:
            raise fenced(self._path, holder)

    def release(self) -> None:
        """Give the directory back; a second time changes nothing."""
        self._finalizer()


def fenced(path: Path, holder: Holder) -> Fenced:
    """The error about a database that somebody has open."""
    return Fenced(
        f"The database at {path} is open: {holder} holds its {LOCK_FILE}.", action=STOP_THE_OTHER, store_path=str(path)
    )


def writer_of(path: Path) -> Holder | None:
    """Who has a database open for writing, as far as this process can see; ``None`` when nobody has."""
    with _guard, suppress(OSError, StatecoreError):  # guarded: nobody here may take the lock while it is looked at
        if _identity(path.stat()) in _claimed:
            return Holder(os.getpid(), "this process")
        return lock_holder(path / LOCK_FILE)
    return None


def _give_back(descriptor: int, identity: tuple[int, int], process: int) -> None:
    if os.getpid() != process:
        os.close(descriptor)  # a forked child's copy: the lock is its parent's
        return
    with _guard:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # said, because a child that was forked meanwhile has it open too
        os.close(descriptor)
        _claimed.pop(identity, None)


def _in_child() -> None:
    global _guard
    _guard = threading.RLock()  # a thread that is not here may hold it
    _claimed.clear()


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


os.register_at_fork(after_in_child=_in_child)
