"""Durable file operations: hashes, fsync, atomic replacement, modes, hard links, clones."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from io import BufferedReader
from pathlib import Path
from typing import TypeAlias

from statecore.errors import Invalid

DIRECTORY_MODE = 0o750
"""Mode set by Kafka Streams' ``StateDirectory``: rwxr-x---."""

FILE_MODE = 0o640

READ_ONLY_ACTION = (
    "Remount it writable, or name another directory; if it was not mounted read-only on purpose, the kernel did so "
    "after a disk error (dmesg)."
)
"""What to do about a read-only file system."""

AnyPath = str | os.PathLike[str]
"""Any type accepted as a path."""

_TICK_NS = 20_000_000
_FICLONE = 0x40049409
"""The clone ioctl of ``linux/fs.h``; platforms with another number reject it."""

_CANNOT_CLONE = (
    errno.EAGAIN,  # from ZFS, if the blocks are not on disk yet
    errno.EOPNOTSUPP,
    errno.EXDEV,
    errno.EINVAL,
    errno.ENOSYS,
    errno.ENOTTY,
    errno.EPERM,
    errno.ETXTBSY,
)
_CANNOT_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)

_WORTH_THREADS = 32 << 20
_CHUNK = 1 << 20
_FILES_AT_ONCE = 16

_waiting: ThreadPoolExecutor | None = None


def validated_path(path: AnyPath) -> Path:
    """Validate a path from a caller, and make it absolute, so that a later change of directory does not matter."""
    try:
        text = os.fspath(path)
        if not isinstance(text, str) or not text or "\0" in text:
            raise TypeError
        text.encode()
        return Path(text).absolute()
    except TypeError:
        why, action = "is not a path", "Give the path as a str or a pathlib.Path."
    except UnicodeEncodeError:
        why, action = "is not UTF-8", "Give a path in UTF-8, which RocksDB requires."
    except OSError as error:
        why, action = f"is relative to a directory that no longer exists ({error.strerror})", "Give an absolute path."
    raise Invalid(f"{path!a} {why}.", code="path-invalid", action=action, path=ascii(path))


FileId: TypeAlias = tuple[int, int]
"""Device and inode of a file: the same for all its names."""


def file_id(status: os.stat_result) -> FileId:
    return status.st_dev, status.st_ino


@dataclass(frozen=True)
class FileState:
    """Identity, size and modification time of a file: as long as they are the same, so are its bytes.

    File system clocks tick every few milliseconds, and two writes within a tick look the same. So a file that was
    modified just now has no ``FileState``.

    Attributes:
        inode: its number there, shared by hard links.
        modified: modification time in ns.
    """

    device: int
    inode: int
    bytes: int
    modified: int

    @staticmethod
    def of(path: Path, clock: Callable[[], int] = time.time_ns) -> FileState | None:
        """The current state of a file; ``None`` if a further write could not be told from it."""
        found = path.stat()
        if abs(clock() - found.st_mtime_ns) < _TICK_NS:
            return None
        return FileState(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def is_unmodified(path: Path, state: FileState | None) -> bool:
    """Whether a file is known to be unmodified since a recorded state."""
    return state is not None and state == FileState.of(path)


def file_sha256(path: Path) -> str:
    digest = sha256()
    buffer = bytearray(_CHUNK)
    view = memoryview(buffer)
    with open_regular(path) as file:
        while count := file.readinto(buffer):
            digest.update(view[:count])
    return digest.hexdigest()


def file_hashes(paths: Sequence[Path]) -> list[str]:
    """SHA-256 hex digests of whole files; large ones in parallel, by as many threads as cores."""
    if len(paths) < 2 or sum(path.stat().st_size for path in paths) < _WORTH_THREADS:
        return [file_sha256(path) for path in paths]
    with ThreadPoolExecutor(min(len(paths), os.cpu_count() or 1)) as pool:
        return list(pool.map(file_sha256, paths))


class NotRegularFile(OSError):
    """Not a regular file, such as a named pipe, which would block."""

    def __init__(self, path: AnyPath) -> None:
        super().__init__(errno.EINVAL, "It is not a regular file", os.fspath(path))


def open_regular(path: AnyPath) -> BufferedReader:
    """Open a file for reading without ever blocking."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise (NotRegularFile(path) if error.errno == errno.ENXIO else error) from None  # a socket
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(mode):
            raise NotRegularFile(path)
        return open(descriptor, "rb")  # noqa: PTH123  # a descriptor
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: AnyPath) -> bytes:
    """The content of a file, opened by :func:`open_regular`."""
    with open_regular(path) as file:
        return file.read()


def sync_file(path: AnyPath) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a named pipe would block
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_if_readable(directory: Path) -> None:
    """Sync a directory, unless it is another user's and unreadable, which cannot be synced."""
    with suppress(PermissionError):
        sync_file(directory)


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file atomically and durably; no more open than its directory, a file of root's for its owner."""
    partial = path.with_name(path.name + ".tmp")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _set_mode(partial, stat.S_IMODE(partial.stat().st_mode & path.parent.stat().st_mode))
        give_to_owner(partial)
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()  # else a full disk stays full
        raise
    sync_file(path.parent)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file atomically, also beside other writers; not durably, for what can be written again."""
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def remove_durably(path: Path) -> None:
    """Delete a file durably, if it exists."""
    try:
        path.unlink()
    except FileNotFoundError:
        return
    sync_file(path.parent)


def sync_tree(directory: Path, *, without: frozenset[str] = frozenset()) -> None:
    """Sync every file and directory below ``directory``, itself and its entry in its parent.

    Files deleted meanwhile are no error. Names in ``without`` are not opened: closing any descriptor of a file releases
    the process's record lock on it.

    Syncs run in parallel: a file system completes concurrent syncs together, so a database of a dozen small files takes
    about as long as one of them.
    """
    files: list[AnyPath] = []
    directories: list[AnyPath] = []
    for root, found in _walk(directory):
        directories.append(root)
        files += [file.path for file in found if file.name not in without and not file.is_symlink()]
    for sync, paths in ((_sync_if_there, files), (sync_file, [*directories, directory / ".."])):  # contents first
        for _ in list(_threads().map(sync, paths)):
            pass


def discard_tree(directory: Path) -> None:
    """Delete a directory tree as far as possible, in parallel, because file systems with ``discard`` wait."""
    with suppress(OSError):
        if directory.is_symlink():
            return
        children = [child for child in directory.iterdir() if child.is_dir() and not child.is_symlink()]
        below = [one for child in children for one in child.iterdir()]
        for _ in _threads().map(_remove, below):
            pass
    _remove(directory)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _sync_if_there(path: AnyPath) -> None:
    with suppress(FileNotFoundError):
        sync_file(path)


def _threads() -> ThreadPoolExecutor:
    """This process's threads for disk waits: starting them takes longer than syncing a small database."""
    global _waiting
    if _waiting is None:
        _waiting = ThreadPoolExecutor(_FILES_AT_ONCE, "statecore-disk")
    return _waiting


def _in_child() -> None:
    global _waiting
    _waiting = None  # its threads do not exist here


os.register_at_fork(after_in_child=_in_child)


def set_modes(directory: Path, *, without: frozenset[str] = frozenset()) -> None:
    """Set the modes that Kafka Streams expects on every file and directory; correct ones are not written.

    Files named in ``without`` are skipped.

    Files deleted meanwhile are no error. Files with other hard links are skipped: they are not this directory's alone.
    """
    masked = ~current_umask()
    for root, found in _walk(directory):
        _set_mode(Path(root), DIRECTORY_MODE & masked)
        for file in found:
            with suppress(FileNotFoundError):
                if file.name in without:
                    continue
                status = file.stat()
                if stat.S_IMODE(status.st_mode) != FILE_MODE & masked and status.st_nlink == 1:
                    Path(file).chmod(FILE_MODE & masked)


def _walk(directory: AnyPath) -> Iterator[tuple[AnyPath, list[os.DirEntry[str]]]]:
    """Like ``os.walk``, but faster: a directory and all below it, each with its files, without ``Path`` objects."""
    below: list[str] = []
    files: list[os.DirEntry[str]] = []
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                below.append(entry.path)
            elif not _leads_to_directory(entry):
                files.append(entry)
    yield directory, files
    for one in below:
        yield from _walk(one)


def _leads_to_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _set_mode(path: Path, mode: int) -> None:
    if stat.S_IMODE(path.stat().st_mode) != mode:
        path.chmod(mode)


def current_umask() -> int:
    """This process's umask, read without setting it, which would affect files that other threads create."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:  # not Linux
        os.umask(mask := os.umask(0o077))
        return mask
    return int(next(line for line in status.splitlines() if line.startswith("Umask:")).split()[1], 8)


def give_to_owner(path: Path) -> None:
    """Give a file created by root to the owner of its directory, who could not use it otherwise."""
    above = path.parent.stat()
    if os.geteuid() == 0 and above.st_uid != 0:
        os.chown(path, above.st_uid, above.st_gid)


def has_expected_owner_and_mode(directory: Path, status: os.stat_result) -> bool:
    """Whether owner, group and mode are those of a new file of this process, readable for the group."""
    above = directory.stat()
    uid, gid = os.geteuid(), above.st_gid if above.st_mode & stat.S_ISGID else os.getegid()
    if uid == 0 and above.st_uid != 0:
        uid, gid = above.st_uid, above.st_gid
    mode, masked = stat.S_IMODE(status.st_mode), ~current_umask()
    least, most = FILE_MODE & masked, 0o666 & masked
    return (status.st_uid, status.st_gid) == (uid, gid) and mode & least == least and not mode & ~most


def make_directories(path: Path, mode: int = DIRECTORY_MODE) -> None:
    """Create a directory and its missing ancestors, each given to the owner of the one above."""
    if not path.is_dir():
        make_directories(path.parent, mode)
        path.mkdir(mode=mode, exist_ok=True)
        give_to_owner(path)


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link ``source`` as ``target``, or copy it if the file system does not allow links."""
    if not link(source, target):
        shutil.copyfile(source, target)


def link(source: Path, target: Path) -> bool:
    """Hard-link ``source`` as ``target``; ``False`` if the file system does not allow it."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        return False
    return True


def clone(source: Path, target: Path) -> bool:
    """Clone ``source`` as ``target``, sharing its disk blocks (XFS, btrfs); ``False`` if the file system cannot."""
    with source.open("rb") as given, target.open("xb") as made:
        try:
            fcntl.ioctl(made, _FICLONE, given.fileno())
        except OSError as error:
            target.unlink()
            if error.errno not in _CANNOT_CLONE:
                raise
            return False
        if os.fstat(made.fileno()).st_size != os.fstat(given.fileno()).st_size:  # ZFS 2.2 truncated some
            target.unlink()
            return False
    return True


def break_hard_link(path: Path) -> None:
    """Replace a hard link by a file of its own, with mode and times, not synced; other links are unchanged."""
    status, own = path.stat(), path.with_name(f"{path.name}.own")
    try:
        own.unlink(missing_ok=True)  # left by a killed process
        if not clone(path, own):
            shutil.copyfile(path, own)
        own.chmod(stat.S_IMODE(status.st_mode))
        os.utime(own, ns=(status.st_atime_ns, status.st_mtime_ns))
        own.replace(path)
    except BaseException:
        with suppress(OSError):
            own.unlink()  # else a full disk stays full
        raise


def is_read_only(path: Path) -> bool:
    """Whether a path is on a file system mounted read-only, at least for this process."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def is_virtual_file_system(path: Path) -> bool:
    """Whether a path is on a file system without blocks or inodes, such as ``/proc`` and ``/sys``."""
    system = os.statvfs(path)
    return system.f_blocks == 0 and system.f_files == 0


def tree_bytes(directory: Path) -> int:
    """Bytes of all files below a directory; files deleted meanwhile are ignored."""
    total = 0
    for _, files in _walk(directory):
        for file in files:
            with suppress(FileNotFoundError):
                total += file.stat(follow_symlinks=False).st_size
    return total
