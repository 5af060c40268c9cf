"""File system operations of placement: exchange directories, link trees, list sizes, fingerprint."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from statecore.formats.rocksdb_log import DATA_SUFFIXES
from statecore.statedir.file_ownership import FileOwnership

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM)


def exchange(first: Path, second: Path) -> bool:
    """Swap two directories atomically by ``renameat2(RENAME_EXCHANGE)``; ``False`` if that is not supported."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    result = rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE)
    if result == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(first), None, str(second))


def move(source: Path, target: Path) -> None:
    """Rename a directory, or copy it if the target is on another file system."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copytree(source, target, symlinks=True)
        shutil.rmtree(source)


def link_tree(
    source: Path, target: Path, ownership: FileOwnership | None = None, on_file: Callable[[int], object] | None = None
) -> None:
    """Copy a database directory: SST and blob files as hard links, everything else as bytes.

    ``target`` must not exist; its parents are created. A hard link shares owner and mode with its source, so a data
    file whose owner has to change is copied; a file with the right owner keeps its mode.
    """
    by_group = ownership is not None and ownership.by_group
    if source.is_dir() and not source.is_symlink():
        target.mkdir(parents=True)
        shutil.copymode(source, target)
        for entry in sorted(os.scandir(source), key=lambda item: item.name):
            if entry.is_symlink() or entry.is_file() or entry.is_dir():  # else a pipe or socket, which no store has
                link_tree(Path(entry.path), target / entry.name, ownership, on_file)
    else:
        is_linked = _may_link(source, ownership) and _linked(source, target)
        if not is_linked:
            shutil.copy2(source, target, follow_symlinks=False)
        if on_file is not None:
            on_file(target.lstat().st_size)
        if is_linked:
            return
    if ownership is not None:
        (ownership.apply if by_group else ownership.set_owner)(target)


def copied_bytes(source: Path, target: Path, ownership: FileOwnership | None = None) -> int:
    """Bytes that :func:`link_tree` would copy; ``target`` exists on the copy's file system."""
    device = target.stat().st_dev
    return sum(
        status.st_size
        for name, status in _walk(source)
        if not name.endswith("/") and not (status.st_dev == device and _may_link(source / name, ownership))
    )


def _may_link(source: Path, ownership: FileOwnership | None) -> bool:
    """Whether a file can be linked: RocksDB never changes it, and its owner stays."""
    if not source.name.endswith(DATA_SUFFIXES) or source.is_symlink():
        return False
    return ownership is None or ownership.by_group or ownership.owns(source)


def _linked(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except OSError as error:
        # Another user's file (fs.protected_hardlinks), another file system, or a file with too many names.
        if error.errno not in (errno.EPERM, errno.EACCES, errno.EXDEV, errno.EMLINK):
            raise
        return False
    return True


def link_in(root: Path) -> Path | None:
    """``root`` or the first directory below it that is a symbolic link; ``None`` if there is none."""
    if root.is_symlink():
        return root
    for path, directories, _ in os.walk(root):
        for name in sorted(directories):
            if (found := Path(path, name)).is_symlink():
                return found
    return None


def file_sizes(root: Path) -> dict[str, int]:
    """Relative path → size of every file below ``root``; directories as ``<path>/`` → 0, so that empty ones count."""
    return {name: 0 if name.endswith("/") else status.st_size for name, status in _walk(root)}


def fingerprint(root: Path) -> str:
    """A hash that changes when anything below ``root`` is written, created or deleted (names, sizes, inodes, times)."""
    digest = hashlib.sha256()
    for name, status in sorted(_walk(root), key=lambda item: item[0]):
        fields = (name,) if name.endswith("/") else (name, status.st_size, status.st_ino, status.st_mtime_ns)
        digest.update(repr(fields).encode())
    return digest.hexdigest()


def inode(path: Path) -> int | None:
    """The inode of a path, not following links; ``None`` if it does not exist."""
    try:
        return os.lstat(path).st_ino
    except FileNotFoundError:
        return None


def remove_tree(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    for entry in os.scandir(root):
        status = entry.stat(follow_symlinks=False)
        if entry.is_dir(follow_symlinks=False):
            yield entry.name + "/", status
            yield from ((f"{entry.name}/{name}", below) for name, below in _walk(Path(entry.path)))
        else:
            yield entry.name, status
