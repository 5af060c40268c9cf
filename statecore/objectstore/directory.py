"""Blobs and pointers in a directory, for one machine or for many that share a file system.

A blob is a file below the root, under its name. It is written, or linked, under a random name in ``~partial`` and then
hard-linked to its final name, which either succeeds or finds an existing blob::

    <root>/<name>                    the blob
    <root>/~partial/<random>         in progress (no blob has such a name); what killed processes left is deleted
    <root>/~partial/<name's hash>.…  the same of a pointer; who locks the pointer next deletes it
    <root>/~locks/<2 hex>            held while a pointer is replaced whose name's hash begins with these

A file on the same file system is not copied, so local runs make no copies. :class:`Sharing` chooses what the file and
the blob share. Hard links have one owner and one mode, and a write through one name changes both; clones only share
disk space.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum, auto
from pathlib import Path
from typing import IO

from statecore.errors import Invalid, NotFound, Retryable, StatecoreError
from statecore.filesystem import (
    AnyPath,
    NotRegularFile,
    clone,
    file_id,
    give_to_owner,
    has_expected_owner_and_mode,
    link,
    make_directories,
    open_regular,
    read_regular,
    sync_file,
    sync_if_readable,
)
from statecore.objectstore.base import Blob, Blobs, checked_name, checked_range
from statecore.objectstore.content import Content, check_content, opened
from statecore.objectstore.pointers import Pointers, PointerValue
from statecore.system_errors import Cause, cause_of, permission_error, system_error

_PARTIAL = "~partial"
_CHUNK = 1 << 20
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_CANNOT_BE = (errno.EEXIST, errno.ENOTDIR, errno.ENOTEMPTY, errno.EISDIR, errno.ENAMETOOLONG)
"""Another blob is in the way: its name is the directory of this one, or the other way round."""

_NOT_SUPPORTED = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""The file system has no links or no locks at all."""


class Sharing(Enum):
    """What an uploaded file and its blob share, if the file system allows; else the blob is a copy."""

    HARD_LINKS = auto()
    """A hard link: for blobs that live no longer than the job that puts them."""

    CLONES_OR_LINKS = auto()
    """A clone; without clones a hard link, if owner, group and mode are those that a blob is to have."""

    CLONES_ONLY = auto()
    """A clone, never a hard link."""


class DirectoryBlobs(Blobs):
    """Blobs below a directory, which is created with the first one."""

    is_local = True

    def __init__(self, root: AnyPath, sharing: Sharing = Sharing.HARD_LINKS, *, temporary: bool = False) -> None:
        self._root, self._sharing, self._temporary = Path(root), sharing, temporary
        self._named: dict[Path, int] = {}  # inodes of directories whose names are synced, with those above

    def put_if_absent(self, name: str, content: Content) -> bool:
        final = self._root / checked_name(name)
        with self._translated("put", name):
            check_content(content)
            for directory in (final.parent, *final.parent.parents):
                if directory.is_dir():
                    break
                self._named.pop(directory, None)  # it was deleted
            make_directories(final.parent)
            if final.is_symlink() and not final.exists():  # a dangling link is no blob
                self.replace(name, content)
                return True
            if final.is_dir():
                final.rmdir()  # fails if it contains blobs
            if final.exists() and not final.is_file():
                raise NotRegularFile(final)
            made = not final.exists() and self._place(content, final)
            if not made:
                self._sync(final)  # a new blob was synced before it got its name
            self._sync_name(final)  # also for an existing blob: its writer may not have done this yet
            return made

    def replace(self, name: str, content: Content) -> None:
        """See :meth:`Blobs.replace`. Always copies: a hard link would share the next damage with the file."""
        final = self._root / checked_name(name)
        partial = self._root / _PARTIAL / uuid.uuid4().hex
        with self._translated("put", name):
            check_content(content)
            make_directories(final.parent)
            make_directories(partial.parent)
            try:
                _write(content, partial)
                give_to_owner(partial)
                self._sync(partial)
                partial.replace(final)
            finally:
                with suppress(OSError):
                    partial.unlink()
            self._sync_name(final)

    def _sync(self, path: Path) -> None:
        if not self._temporary:
            sync_file(path)

    def _sync_name(self, final: Path) -> None:
        """Sync the directory of a blob, and once those above it."""
        if self._temporary:
            return
        sync_file(final.parent)
        unsure = {}
        for directory in (final.parent, *final.parent.parents):
            inode = directory.stat().st_ino
            if self._named.get(directory) != inode:
                (sync_if_readable if directory == self._root else sync_file)(directory.parent)
                unsure[directory] = inode
            if directory == self._root:
                break
        self._named.update(unsure)

    def _place(self, content: Content, final: Path) -> bool:
        """Store bytes or a file as a blob; ``False`` if it exists."""
        if not isinstance(content, Path):
            return bool(self._write(final, lambda partial: _write(content, partial)))
        made = None
        if self._sharing is not Sharing.HARD_LINKS:
            made = self._write(final, lambda partial: clone(content, partial))
        if made is None and self._may_link(content, final):
            made = self._link(content, final)
        if made is None:
            made = self._write(final, lambda partial: _write(content, partial))
        return bool(made)

    def _may_link(self, file: Path, final: Path) -> bool:
        if self._sharing is Sharing.CLONES_OR_LINKS:
            return has_expected_owner_and_mode(final.parent, file.stat())
        return self._sharing is Sharing.HARD_LINKS

    def _link(self, file: Path, final: Path) -> bool | None:
        """Hard-link a file as a blob; ``False`` if it exists, ``None`` if it has to be copied."""
        file = file.resolve()  # a hard link to a symbolic link would dangle with its target
        self._sync(file)
        try:
            return True if link(file, final) else None
        except FileExistsError:
            return False

    def _write(self, final: Path, write: Callable[[Path], object]) -> bool | None:
        """Write a blob beside and link it; ``False`` if it exists, ``None`` if ``write`` cannot (returns ``False``)."""
        partial = self._root / _PARTIAL / uuid.uuid4().hex
        make_directories(partial.parent)
        try:
            if write(partial) is False:
                return None
            give_to_owner(partial)
            self._sync(partial)
            if not link(partial, final):
                raise OSError(errno.ENOTSUP, "it makes no hard links between its directories", str(final))
        except FileExistsError:
            return False
        finally:
            with suppress(OSError):  # else a full disk stays full
                partial.unlink()
        return True

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        checked_range(start, end)
        with self._translated("read", name), open_regular(self._root / checked_name(name)) as file:
            file.seek(start)
            return file.read() if end is None else file.read(end - start)

    def head(self, name: str) -> Blob:
        path = self._root / checked_name(name)
        with self._translated("read", name):
            status = path.stat()
            if stat.S_ISDIR(status.st_mode):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            if not stat.S_ISREG(status.st_mode):
                raise NotRegularFile(path)
        return Blob(name, status.st_size, status.st_mtime)

    def list(self, prefix: str = "") -> Iterator[Blob]:
        found = []
        with self._translated("listed", prefix):
            above = self._root / prefix.rpartition("/")[0]
            # a directory of blobs may be a link to a larger disk
            for directory, _, files in os.walk(above, onerror=_refuse_unlistable, followlinks=True):
                of = Path(directory).relative_to(self._root)
                if not of.as_posix().startswith("~"):  # no part of a name begins with ~
                    found += [name for file in files if (name := (of / file).as_posix()).startswith(prefix)]
        for name in sorted(found):
            with suppress(NotFound):  # deleted meanwhile
                with self._translated("read", name):
                    status = (self._root / name).stat()
                if stat.S_ISREG(status.st_mode):
                    yield Blob(name, status.st_size, status.st_mtime)

    def directories(self, above: str) -> Iterator[str]:
        """See :meth:`Blobs.directories`. May include one whose blobs were all deleted."""
        with self._translated("listed", above), suppress(FileNotFoundError, NotADirectoryError):
            with os.scandir(self._root / checked_name(above)) as entries:
                names = [entry.name for entry in entries if entry.is_dir()]
            yield from names

    def delete(self, name: str) -> None:
        self.delete_all([name])

    def delete_all(self, names: Sequence[str]) -> None:
        changed: dict[Path, str] = {}  # directories, with a name in each
        try:
            for name in names:
                path = self._root / checked_name(name)
                with self._translated("deleted", name), suppress(FileNotFoundError, NotADirectoryError):
                    path.unlink()
                    changed[path.parent] = name
        finally:
            for directory, name in changed.items():
                with self._translated("deleted", name), suppress(FileNotFoundError, NotADirectoryError):
                    sync_file(directory)

    def delete_leftovers(self, before: float, *, apply: bool = True) -> Sequence[int]:
        """See :meth:`Blobs.delete_leftovers`. A writer that stood still so long is refused, and may try again."""
        found = []
        with self._translated("deleted", _PARTIAL), suppress(NotADirectoryError):
            for path in (self._root / _PARTIAL).glob("*"):
                with suppress(FileNotFoundError):  # its writer has ended
                    status = path.lstat()
                    if stat.S_ISREG(status.st_mode) and status.st_mtime < before:
                        if apply:
                            path.unlink()
                        found.append(status.st_size)
        return found

    def local_path(self, name: str) -> Path:
        """See :meth:`Blobs.local_path`; never ``None``."""
        self.head(name)
        return self._root / name

    @contextmanager
    def _translated(self, what: str, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._error(what, name, error) from error

    def _error(self, what: str, name: str, error: OSError) -> StatecoreError:
        where = {"blob": name, "directory": str(self._root)}
        failed = f"The blob {name} in {self._root} could not be {what}"
        if error.errno in _ABSENT and what != "put":
            return NotFound(
                f"There is no blob {name} in {self._root}.",
                code="blob-not-found",
                action="Check that this is the right location.",
                **where,
            )
        return _refused(error, failed, self._root, writing=what in ("put", "deleted"), **where)


def _refused(error: OSError, failed: str, root: Path, *, writing: bool, **where: str) -> StatecoreError:
    """The error for what the system refuses of a blob or a pointer; what is not known as final may be tried again."""
    cause = cause_of(error)
    if cause is Cause.DENIED:
        return permission_error(error, failed, root, writing=writing, **where)
    if error.errno in _NOT_SUPPORTED:
        return Invalid(
            f"{failed}: the file system cannot do it ({error.strerror}).",
            code="object-store-unsuitable",
            action="Use one file system with hard links and locks (flock) for the whole directory: local ones have "
            "them, and NFS of Linux.",
            **where,
        )
    if isinstance(error, NotRegularFile) or error.errno in _CANNOT_BE or cause is not Cause.OTHER:
        return system_error(
            error,
            failed,
            action="Give this user permission to read and write there.",
            room="Free space there, or use a larger disk, then run this again.",
            **where,
        )
    return Retryable(
        f"{failed}: {error.strerror or error}.",
        code="disk-failed",
        action="Check the disk and the kernel log (dmesg), then run this again.",
        **where,
    )


def _refuse_unlistable(error: OSError) -> None:
    """A directory that was deleted meanwhile has no blobs; of one that cannot be read that is not known."""
    if error.errno not in _ABSENT:
        raise error


def _write(content: Content, path: Path) -> None:
    if isinstance(content, Path):
        shutil.copyfile(content, path)
        return
    with opened(content) as source, path.open("wb") as file:
        shutil.copyfileobj(source, file, _CHUNK)


_LOCKS = "~locks"
_LOCK_DIGITS = 2  # of the hash of a pointer's name: the file of a lock stays, so pointers share them
_READS = 3  # of a pointer that another machine replaces meanwhile


class DirectoryPointers(Pointers):
    """Pointers below a directory, which is created with the first one: files, replaced under a lock of all processes.

    On a file system shared by several machines the lock works if its ``flock`` does across machines (NFS of Linux,
    Lustre with ``-o flock``). The version of a content is its SHA-256.
    """

    def __init__(self, root: AnyPath) -> None:
        self._root = Path(root)

    def read(self, name: str) -> PointerValue | None:
        path = self._root / checked_name(name)
        try:
            content = _read_current(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._error("read", name, error) from error
        return PointerValue(content, _version(content))

    def swap(self, name: str, content: bytes, expected: str | None) -> str | None:
        path = self._root / checked_name(name)
        while True:
            with self._locked(name) as is_held:
                self._fence(name)
                now = self.read(name)
                if (None if now is None else now.version) != expected:
                    return None
                if self._replace(name, path, content, is_held):
                    return _version(content)

    def _fence(self, name: str) -> None:
        """Delete what earlier holders of the lock have not put in place: they died, or their lock file was deleted.

        Such a writer may have checked its lock just before that. Its rename fails now, or came before the next read.
        """
        try:
            for partial in (self._root / _PARTIAL).glob(f"{_hashed(name)}.*"):
                partial.unlink(missing_ok=True)
        except OSError as error:
            raise self._error("written", name, error) from error

    def _replace(self, name: str, path: Path, content: bytes, is_held: Callable[[], bool]) -> bool:
        """Replace a pointer durably; returns whether its lock was held until then.

        Raises:
            Retryable: the lock was lost while the pointer was replaced. Another machine's listing of a shared directory
                may be too old for :meth:`_fence`.
        """
        partial = self._root / _PARTIAL / f"{_hashed(name)}.{uuid.uuid4().hex}"
        try:
            make_directories(path.parent)
            make_directories(partial.parent)
            with partial.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            try:
                give_to_owner(partial)
                if not is_held():  # another process may have replaced the pointer since it was read
                    partial.unlink()
                    return False
                partial.replace(path)
            except (
                FileNotFoundError
            ):  # the next holder of the lock has deleted it; or NFS repeated a rename that was done
                now = self.read(name)
                if now is None or now.content != content:
                    return False
            for directory in (path.parent, *path.parent.parents):
                if directory == self._root.parent:
                    sync_if_readable(directory)
                    break
                sync_file(directory)
            if is_held():
                return True
        except OSError as error:
            with suppress(OSError):
                partial.unlink()
            raise self._error("written", name, error) from error
        raise Retryable(
            f"The lock file of the pointer {name} in {self._root} was deleted while the pointer was replaced, so "
            "another process may have replaced it at the same time.",
            code="write-outcome-unknown",
            action=f"Exclude {_LOCKS} from what deletes old files, and run this again.",
            pointer=name,
            directory=str(self._root),
        )

    @contextmanager
    def _locked(self, name: str) -> Iterator[Callable[[], bool]]:
        """Lock a pointer; yields whether it is locked still, which it is not once the lock file was deleted."""
        lock = self._root / _LOCKS / _hashed(name)[:_LOCK_DIGITS]
        with ExitStack() as opened:
            while True:
                try:
                    make_directories(lock.parent)
                    file = opened.enter_context(_opened_lock(lock))
                    with suppress(PermissionError):  # owned by another user, who has done this
                        give_to_owner(lock)
                except OSError as error:
                    raise self._error("written", name, error) from error
                try:
                    # A lock of the open file, not of the process: threads exclude each other, too.
                    fcntl.flock(file, fcntl.LOCK_EX)
                    if _is_at(lock, file):
                        break
                except OSError as error:
                    raise self._error("locked", name, error) from error
                file.close()
            yield lambda: _is_at(lock, file)

    def _error(self, doing: str, name: str, error: OSError) -> StatecoreError:
        failed = f"The pointer {name} in {self._root} could not be {doing}"
        return _refused(error, failed, self._root, writing=doing != "read", pointer=name, directory=str(self._root))


def _opened_lock(lock: Path) -> IO[bytes]:
    try:
        return lock.open("ab")
    except PermissionError:  # made by another user for another pointer; it can be locked all the same
        return lock.open("rb")


def _read_current(path: Path) -> bytes:
    """The bytes of a file, read again if another machine has replaced it since it was opened."""
    for _ in range(_READS - 1):
        try:
            return read_regular(path)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
    return read_regular(path)


def _hashed(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _version(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _is_at(path: Path, file: IO[bytes]) -> bool:
    """Whether a path names an open file."""
    try:
        return file_id(path.stat()) == file_id(os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
