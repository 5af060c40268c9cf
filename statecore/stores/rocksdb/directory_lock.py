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

RocksDB works by path, and a directory may be renamed while it is open. So where the system has one it is given a path
that follows the claim's descriptor. That path means another directory once the number is given again: the descriptor
stays open, and the directory claimed, as long as anything of the database lives in this process.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from contextlib import suppress
from pathlib import Path

from statecore.errors import Fenced, StatecoreError
from statecore.stores.lock_holder import Holder, guard, is_held_here, lock_holder
from statecore.stores.rocksdb.errors import STOP_THE_OTHER, translate
from statecore.stores.rocksdb.fd_paths import Descriptor

LOCK_FILE = "LOCK"

_Identity = tuple[int, int]


class _Held:
    """What a claim has taken. It outlives the claim where that could not give it back yet."""

    def __init__(self, claim: Claim, path: Path) -> None:
        self.claim = weakref.ref(claim)
        self.path = path
        self.process = os.getpid()
        self.directory = Descriptor()
        self._lock = Descriptor()
        self.following: Path | None = None
        self.identity: _Identity | None = None
        self.unwanted = False
        self.may_be_open = False

    @property
    def is_registered(self) -> bool:
        return self.identity is not None and _claimed.get(self.identity) is self

    @property
    def is_abandoned(self) -> bool:
        return self.unwanted or self.claim() is None

    def follow(self, number: int) -> None:
        """Take the path that follows the directory, where the kernel can also tell when RocksDB is done with it."""
        path = self.directory.path()
        with suppress(OSError):
            if path is not None:
                is_held_here(number)
                self.following = path

    def database_lives(self) -> bool:
        """Whether RocksDB may still be at work under the descriptor's path."""
        if not self.may_be_open or self.following is None:
            return False
        try:
            if self._lock.number is None:
                self._lock.open(self.following / LOCK_FILE, os.O_RDONLY)
            if self._lock.number is not None and is_held_here(self._lock.number):
                return True  # and the descriptor stays open: to close it would let go of the lock
        except FileNotFoundError:
            pass
        except OSError:  # nobody can look just now
            return True
        self._lock.close()
        return False


_claimed: dict[_Identity, _Held] = {}


class Claim:
    """The right of one store to a directory, until it is released or nobody holds it any more.

    Args:
        path: the directory, as messages name it.

    Attributes:
        directory: a path of the directory that stays its own until the claim is released, also when it is renamed and
            another takes its name; without ``/proc`` its path without symbolic links. What is done to it, is done
            under this path.

    Raises:
        Fenced: somebody else has it, in this process or another.
        Invalid: this user may not look into it.
        NotFound: it is not there.
        Capacity: this process may not have one more descriptor.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held = held = _Held(self, path)
        self._finalizer = weakref.finalize(self, _give_back, held)
        self._finalizer.atexit = False  # native objects may live longer, and the kernel takes it back with the process
        try:
            try:
                directory = path.resolve(strict=True)
                held.directory.open(directory, os.O_RDONLY | os.O_DIRECTORY)
                number = held.directory.number
                assert number is not None
                held.identity = _identity(os.fstat(number))
            except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
                raise translate(path, "Opening", error) from error
            held.follow(number)
            self.directory = held.following or directory
            with guard():
                _give_back_abandoned()
                other = _claimed.setdefault(held.identity, held)
            if other is not held:
                raise Fenced(
                    f"The database at {path} is open in this process already, as {other.path}.",
                    code="store-open-in-process",
                    action="Close that store, or use it: a process opens a database once. Stop the process where "
                    "nothing can reach that store any more.",
                    store_path=str(path),
                )
            self._lock(number)
            self.check()
            held.may_be_open = True
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
                code="store-open",
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
            Capacity: this process may not have one more descriptor.
        """
        holder = lock_holder(self.directory / LOCK_FILE)
        if holder is not None:
            raise fenced(self._path, holder)

    def release(self) -> None:
        """Give the directory back; a second time changes nothing."""
        _give_back(self._held)


def fenced(path: Path, holder: Holder) -> Fenced:
    """The error about a database that somebody has open."""
    return Fenced(
        f"The database at {path} is open: {holder} holds its {LOCK_FILE}.",
        code="store-open",
        action=STOP_THE_OTHER,
        store_path=str(path),
    )


def writer_of(path: Path) -> Holder | None:
    """Who has a database open for writing, as far as this process can see; ``None`` when nobody has."""
    holder = None
    with guard(), suppress(OSError, StatecoreError):  # guarded: nobody here may take the lock while it is looked at
        _give_back_abandoned()
        claimed = _identity(path.stat()) in _claimed
        holder = Holder(os.getpid(), "this process") if claimed else lock_holder(path / LOCK_FILE)
    return holder


def _give_back(held: _Held) -> None:
    """Every step may be the last before a signal handler raises, and is taken again by whoever comes next."""
    held.unwanted = True
    if os.getpid() != held.process or not held.is_registered:
        held.directory.close()  # a forked child's copy: the lock is its parent's; or nothing was claimed
        return
    with guard():
        if held.directory.number is not None:
            with suppress(OSError):
                # Said, because a child that was forked meanwhile has it open too.
                fcntl.flock(held.directory.number, fcntl.LOCK_UN)
        if held.database_lives():
            return
        held.directory.close()
        if held.is_registered and held.identity is not None:
            _claimed.pop(held.identity, None)


def _give_back_abandoned() -> None:
    """Give back what claims left that are gone; the guard is held."""
    for held in [held for held in _claimed.values() if held.is_abandoned]:
        _give_back(held)


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino


os.register_at_fork(after_in_child=_claimed.clear)
