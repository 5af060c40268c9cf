"""Claims on RocksDB directories: at most one store has one open for writing, in this process or any other.

RocksDB's ``LOCK`` is not sufficient. Within a process it goes by the text of the path, so a symbolic link, ``..``, a
relative path or a second mount opens a database twice and destroys it; rocksdict and RocksDB write into the directory
before they try it; and it is released before the directory is cleaned up. So a store *claims* the directory before it
touches anything in it, and releases the claim last, after its native objects:

- within this process by device and inode. The directory stays open meanwhile, so its inode is not reused;
- among processes of this library by ``flock`` on the directory itself. It leaves no file behind, and it is no POSIX
  record lock: a process loses its record lock on ``LOCK`` when it closes any descriptor of that file. File systems
  without such locks (NFS) do without;
- the kernel is asked for the holder of ``LOCK``, the only lock that Kafka Streams knows.

RocksDB works by path, and a directory may be renamed while it is open. So where possible RocksDB gets a path through
the claim's descriptor. That path means another directory once the descriptor number is reused: the descriptor stays
open, and the directory claimed, as long as anything of the database is alive in this process.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from contextlib import suppress
from pathlib import Path

from statecore.errors import Fenced, StatecoreError
from statecore.filesystem import FileId, file_id
from statecore.stores.fd_paths import Descriptor
from statecore.stores.lock_holder import Holder, guard, is_held_by_this_process, lock_holder
from statecore.stores.rocksdb.errors import STOP_THE_OTHER, translate

LOCK_FILE = "LOCK"


class _ClaimState:
    """The resources of a claim. It outlives a claim that cannot be released yet."""

    def __init__(self, claim: Claim, path: Path) -> None:
        self.claim = weakref.ref(claim)
        self.path = path
        self.process = os.getpid()
        self.directory = Descriptor()
        self._lock = Descriptor()
        self.following: Path | None = None
        self.identity: FileId | None = None
        self.is_released = False
        self.may_be_open = False

    @property
    def is_registered(self) -> bool:
        return self.identity is not None and _claimed.get(self.identity) is self

    @property
    def is_abandoned(self) -> bool:
        return self.is_released or self.claim() is None

    def follow(self, number: int) -> None:
        """Use the path through the descriptor, if the kernel can also tell when RocksDB has released the database."""
        path = self.directory.path()
        with suppress(OSError):
            if path is not None:
                is_held_by_this_process(number)
                self.following = path

    def may_have_database_open(self) -> bool:
        """Whether RocksDB may still use the descriptor's path."""
        if not self.may_be_open or self.following is None:
            return False
        try:
            if self._lock.number is None:
                self._lock.open(self.following / LOCK_FILE, os.O_RDONLY)
            if self._lock.number is not None and is_held_by_this_process(self._lock.number):
                return True  # the descriptor stays open: closing it would release the lock
        except FileNotFoundError:
            pass
        except OSError:  # unknown at the moment
            return True
        self._lock.close()
        return False


_claimed: dict[FileId, _ClaimState] = {}


class Claim:
    """The exclusive right of one store to a directory, until it is released or garbage-collected.

    Attributes:
        directory: a path that stays this directory's until the claim is released, even if it is renamed and another
        takes its name; without ``/proc`` its resolved path. Use this path for all access.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held = held = _ClaimState(self, path)
        self._finalizer = weakref.finalize(self, _release, held)
        self._finalizer.atexit = False  # native objects may live longer, and the kernel releases it with the process
        try:
            try:
                directory = path.resolve(strict=True)
                held.directory.open(directory, os.O_RDONLY | os.O_DIRECTORY)
                number = held.directory.number
                assert number is not None
                held.identity = file_id(os.fstat(number))
            except (OSError, RuntimeError) as error:  # RuntimeError: circular links
                raise translate(path, "Opening", error) from error
            held.follow(number)
            self.directory = held.following or directory
            with guard():
                _release_abandoned()
                other = _claimed.setdefault(held.identity, held)
            if other is not held:
                raise Fenced(
                    f"The database at {path} is open in this process already, as {other.path}.",
                    code="store-open-in-process",
                    action="Close that store, or use it: a process opens a database once. Stop the process if that "
                    "store is no longer reachable.",
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
                f"The database at {self._path} is being opened or closed by another process, which does not hold "
                f"its {LOCK_FILE} at the moment.",
                code="store-open",
                action=STOP_THE_OTHER,
                store_path=str(self._path),
            ) from None
        except OSError:
            return  # no such locks here

    def check(self) -> None:
        """Raise if another process holds RocksDB's lock; call it only while RocksDB does not hold it for this store."""
        holder = lock_holder(self.directory / LOCK_FILE)
        if holder is not None:
            raise fenced(self._path, holder)

    def release(self) -> None:
        """Release the directory; idempotent."""
        _release(self._held)


def fenced(path: Path, holder: Holder) -> Fenced:
    """The error about a database that another process has open."""
    return Fenced(
        f"The database at {path} is open: {holder} holds its {LOCK_FILE}.",
        code="store-open",
        action=STOP_THE_OTHER,
        store_path=str(path),
    )


def writer_of(path: Path) -> Holder | None:
    """The process that has a database open for writing, as far as visible from here; ``None`` if none has."""
    holder = None
    with guard(), suppress(OSError, StatecoreError):  # guarded: no thread here may take the lock meanwhile
        _release_abandoned()
        claimed = file_id(path.stat()) in _claimed
        holder = Holder(os.getpid(), "this process") if claimed else lock_holder(path / LOCK_FILE)
    return holder


def _release(held: _ClaimState) -> None:
    """Release a claim; a signal handler may interrupt it after any step, and the next caller repeats the steps."""
    held.is_released = True
    if os.getpid() != held.process or not held.is_registered:
        held.directory.close()  # a forked child's copy: the parent has the lock; or nothing was claimed
        return
    with guard():
        if held.directory.number is not None:
            with suppress(OSError):
                # Explicit, because a forked child has it open too.
                fcntl.flock(held.directory.number, fcntl.LOCK_UN)
        if held.may_have_database_open():
            return
        held.directory.close()
        if held.is_registered and held.identity is not None:
            _claimed.pop(held.identity, None)


def _release_abandoned() -> None:
    """Release what garbage-collected claims left; the guard is held."""
    for held in [held for held in _claimed.values() if held.is_abandoned]:
        _release(held)


os.register_at_fork(after_in_child=_claimed.clear)
