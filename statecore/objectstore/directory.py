"""Blobs in a directory: the implementation for one machine, and for many that share a file system.

A blob is a file below the root, under its name. It is written, or linked, under a name of its own in ``~partial`` and
then linked to its place, which either happens or finds something there::

    <root>/<name>                    the blob
    <root>/~partial/<random>         on its way (no blob has such a name); what a dead process left there may be deleted
    <root>/~locks/...                of pointers in the same directory (:mod:`.directory_pointers`)

A file on the same file system is not copied: that is what makes local runs free of copies. What it shares with the blob
that it becomes is for whoever opens the directory to say (:class:`Sharing`). Two names of one file have one owner and
one mode, and who writes to it under one name writes to both; two clones have nothing in common but room on the disk.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path

from statecore.errors import NotFound, Retryable, StatecoreError
from statecore.filesystem import (
    AnyPath,
    NotRegularFile,
    clone,
    give_to_owner,
    is_as_made_in,
    link,
    make_directories,
    open_regular,
    sync_file,
    sync_if_readable,
)
from statecore.objectstore.base import Blob, Blobs, checked_name, checked_range
from statecore.objectstore.rights import denied
from statecore.system_errors import Refusal, refusal_of, system_error

_PARTIAL = "~partial"
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_CANNOT_BE = (errno.EEXIST, errno.ENOTDIR, errno.ENOTEMPTY, errno.EISDIR, errno.ENAMETOOLONG)
"""Another blob is in the way: its name is the directory of this one, or the other way round."""

_FINAL = (Refusal.FULL, Refusal.TOO_MANY_FILES, Refusal.TOO_LARGE, Refusal.READ_ONLY, Refusal.DENIED)
"""What is no better the next time unless somebody does something."""


class Sharing(Enum):
    """What a file that is put and its blob have in common, on a file system that allows it; else the blob is a copy."""

    NAMES = "names"
    """They are one file with two names: for blobs that live no longer than the job that puts them."""

    ROOM = "room"
    """They are clones; where there are none, one file with two names, if its owner, group and mode are those that a
    blob is to have."""

    CLONES = "clones"
    """They are clones, and never one file."""


class DirectoryBlobs(Blobs):
    """Blobs below a directory, which is made when the first one is put.

    Args:
        root: the directory.
        sharing: what files that are put have in common with their blobs.
        passing: whether nobody looks for these blobs once the process has died, so that they need not survive a loss
            of power and nothing is forced to the disk.
    """

    def __init__(self, root: AnyPath, sharing: Sharing = Sharing.NAMES, *, passing: bool = False) -> None:
        self._root, self._sharing, self._passing = Path(root), sharing, passing
        self._named: dict[Path, int] = {}  # inodes of directories whose names are on the disk, with those above them

    def put_if_absent(self, name: str, content: bytes | Path) -> bool:
        """See :meth:`Blobs.put_if_absent`."""
        final = self._root / checked_name(name)
        with self._said("put", name):
            if isinstance(content, Path) and not content.is_file():
                raise NotFound(
                    f"There is no file {content} to be put.",
                    code="upload-file-missing",
                    action="Make it anew.",
                    path=str(content),
                )
            for directory in (final.parent, *final.parent.parents):
                if directory.is_dir():
                    break
                self._named.pop(directory, None)  # somebody has deleted it
            make_directories(final.parent)
            if final.is_symlink() and not final.exists():  # a blob that leads to nothing is none
                self.replace(name, content)
                return True
            if final.is_dir():
                final.rmdir()  # what has blobs in it stays, and is in the way
            if final.exists() and not final.is_file():
                raise NotRegularFile(final)
            made = not final.exists() and self._made(content, final)
            if not made:
                self._force(final)  # what this one made was forced to the disk before it got its name
            self._sync_name(final)  # also where another was first: it may not have come to this yet
            return made

    def replace(self, name: str, content: bytes | Path) -> None:
        """See :meth:`Blobs.replace`. Always by a copy: a second name would share the next damage with the file."""
        final = self._root / checked_name(name)
        partial = self._root / _PARTIAL / uuid.uuid4().hex
        with self._said("put", name):
            if isinstance(content, Path) and not content.is_file():
                raise NotFound(
                    f"There is no file {content} to be put.",
                    code="upload-file-missing",
                    action="Make it anew.",
                    path=str(content),
                )
            make_directories(final.parent)
            make_directories(partial.parent)
            try:
                if isinstance(content, bytes):
                    partial.write_bytes(content)
                else:
                    shutil.copyfile(content, partial)
                give_to_owner(partial)
                self._force(partial)
                partial.replace(final)
            finally:
                with suppress(OSError):
                    partial.unlink()
            self._sync_name(final)

    def _force(self, path: Path) -> None:
        if not self._passing:
            sync_file(path)

    def _sync_name(self, final: Path) -> None:
        """Force the name of a blob to the disk, and once those of the directories that it lies in."""
        if self._passing:
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

    def _made(self, content: bytes | Path, final: Path) -> bool:
        """Whether bytes, or a file, got their name as a blob; ``False`` where another was first."""
        if isinstance(content, bytes):
            return bool(self._written(final, lambda partial: partial.write_bytes(content)))
        made = None
        if self._sharing is not Sharing.NAMES:
            made = self._written(final, lambda partial: clone(content, partial))
        if made is None and self._may_link(content, final):
            made = self._linked(content, final)
        if made is None:
            made = self._written(final, lambda partial: shutil.copyfile(content, partial))
        return bool(made)

    def _may_link(self, file: Path, final: Path) -> bool:
        if self._sharing is Sharing.ROOM:
            return is_as_made_in(final.parent, file.stat())
        return self._sharing is Sharing.NAMES

    def _linked(self, file: Path, final: Path) -> bool | None:
        """Whether a file got its name as a blob; ``None`` where it has to be copied."""
        file = file.resolve()  # a second name of a symbolic link would go with the file that it leads to
        self._force(file)
        try:
            return True if link(file, final) else None
        except FileExistsError:
            return False

    def _written(self, final: Path, write: Callable[[Path], object]) -> bool | None:
        """Whether what is written beside got its name as a blob; ``None`` where ``write`` says ``False``: it cannot."""
        partial = self._root / _PARTIAL / uuid.uuid4().hex
        make_directories(partial.parent)
        try:
            if write(partial) is False:
                return None
            give_to_owner(partial)
            self._force(partial)
            os.link(partial, final)
        except FileExistsError:
            return False
        finally:
            with suppress(OSError):  # else a full disk is kept full
                partial.unlink()
        return True

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """See :meth:`Blobs.get`."""
        checked_range(start, end)
        with self._said("read", name), open_regular(self._root / checked_name(name)) as file:
            file.seek(start)
            return file.read() if end is None else file.read(end - start)

    def head(self, name: str) -> Blob:
        """See :meth:`Blobs.head`."""
        path = self._root / checked_name(name)
        with self._said("read", name):
            status = path.stat()
            if stat.S_ISDIR(status.st_mode):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            if not stat.S_ISREG(status.st_mode):
                raise NotRegularFile(path)
        return Blob(name, status.st_size, status.st_mtime)

    def list(self, prefix: str = "") -> Iterator[Blob]:
        """See :meth:`Blobs.list`."""
        found = []
        with self._said("listed", prefix):
            above = self._root / prefix.rpartition("/")[0]
            for directory, _, files in os.walk(above):
                of = Path(directory).relative_to(self._root)
                if not of.as_posix().startswith("~"):  # no part of a name begins so
                    found += [name for file in files if (name := (of / file).as_posix()).startswith(prefix)]
        for name in sorted(found):
            with suppress(NotFound):  # deleted meanwhile
                with self._said("read", name):
                    status = (self._root / name).stat()
                if stat.S_ISREG(status.st_mode):
                    yield Blob(name, status.st_size, status.st_mtime)

    def directories(self, above: str) -> Iterator[str]:
        """See :meth:`Blobs.directories`. One whose blobs were all deleted may be among them."""
        with self._said("listed", above), suppress(FileNotFoundError, NotADirectoryError):
            with os.scandir(self._root / checked_name(above)) as entries:
                names = [entry.name for entry in entries if entry.is_dir()]
            yield from names

    def delete(self, name: str) -> None:
        """See :meth:`Blobs.delete`."""
        path = self._root / checked_name(name)
        with self._said("deleted", name), suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
            sync_file(path.parent)

    def local_path(self, name: str) -> Path:
        """See :meth:`Blobs.local_path`; there always is one."""
        self.head(name)
        return self._root / name

    @contextmanager
    def _said(self, what: str, name: str) -> Iterator[None]:
        """What the system says, as one of the kinds that the seam has."""
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
                action="Look whether that is the right place.",
                **where,
            )
        if refusal_of(error) is Refusal.DENIED:
            return denied(error, failed, self._root, writing=what in ("put", "deleted"), **where)
        if isinstance(error, NotRegularFile) or error.errno in _CANNOT_BE or refusal_of(error) in _FINAL:
            return system_error(
                error,
                failed,
                action="Give this user the right to read and write there.",
                room="Free room there, or use a larger disk, and start again.",
                **where,
            )
        return Retryable(
            f"{failed}: {error.strerror or error}.",
            code="disk-failed",
            action="Look at the disk and at the kernel's log (dmesg), then try again.",
            **where,
        )
