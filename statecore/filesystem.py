"""Files that must be durable and unchanged: hashes, fsync, atomic replacement, modes, links, clones."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from statecore.errors import Invalid

DIRECTORY_MODE = 0o750
"""As Kafka Streams' ``StateDirectory`` sets it: rwxr-x---."""

FILE_MODE = 0o640

MOUNT_FOR_WRITING = (
    "Mount it for writing, or name a directory elsewhere; where nobody mounted it so, the kernel did after an error of "
    "the disk (dmesg)."
)
"""What to do about a read-only file system."""

AnyPath = str | os.PathLike[str]
"""What may be given for a path."""

_TICK_NS = 20_000_000
_FICLONE = 0x40049409
"""The request to share another file's bytes, of ``linux/fs.h``; where it has another number it is not understood."""

_CANNOT_CLONE = (
    errno.EAGAIN,  # of ZFS, where the blocks are not on the disk yet
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


def given_path(path: AnyPath) -> Path:
    """A path that somebody gave, absolute from now on: who changes the working directory later changes nothing.

    Raises:
        Invalid: it is no path, or RocksDB, which wants UTF-8, could not be told it.
    """
    try:
        text = os.fspath(path)
        if not isinstance(text, str) or not text or "\0" in text:
            raise TypeError
        text.encode()
        return Path(text).absolute()
    except TypeError:
        why, action = "is no path", "Give the path as a str or a pathlib.Path."
    except UnicodeEncodeError:
        why, action = "is not UTF-8", "Give a path that is: RocksDB cannot be told another."
    except OSError as error:
        why, action = f"is relative to a directory that is gone ({error.strerror})", "Give an absolute path."
    raise Invalid(f"{path!a} {why}.", code="path-invalid", action=action, path=ascii(path))


@dataclass(frozen=True)
class FileMoment:
    """Which file it was, and when it was written to last: as long as this is the same, so are its bytes.

    The clock of a file system ticks every few milliseconds, and two writes within a tick look like one. So there is no
    moment of a file that was written to just now.

    Attributes:
        device: number of its file system.
        inode: its own number there, which links and new names share.
        bytes: its size.
        modified: when it was written to last, in ns.
    """

    device: int
    inode: int
    bytes: int
    modified: int

    @staticmethod
    def of(path: Path, clock: Callable[[], int] = time.time_ns) -> FileMoment | None:
        """What a file is now, if that can be told from what it will be after another write."""
        found = path.stat()
        if abs(clock() - found.st_mtime_ns) < _TICK_NS:
            return None
        return FileMoment(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def is_as_it_was(path: Path, moment: FileMoment | None) -> bool:
    """Whether nobody has written to a file since a moment; nobody can tell where there is none."""
    return moment is not None and moment == FileMoment.of(path)


def file_sha256(path: Path) -> str:
    """Hex digest of a whole file."""
    digest = sha256()
    buffer = bytearray(_CHUNK)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(view[:count])
    return digest.hexdigest()


def file_hashes(paths: Sequence[Path]) -> list[str]:
    """Hex digests of whole files; large ones are worked on at the same time, by as many threads as there are cores."""
    if len(paths) < 2 or sum(path.stat().st_size for path in paths) < _WORTH_THREADS:
        return [file_sha256(path) for path in paths]
    with ThreadPoolExecutor(min(len(paths), os.cpu_count() or 1)) as pool:
        return list(pool.map(file_sha256, paths))


class NotRegularFile(OSError):
    """What a file is expected to be is something else, such as a named pipe, which would be waited for."""

    def __init__(self, path: AnyPath) -> None:
        super().__init__(errno.EINVAL, "It is not a regular file", os.fspath(path))


def open_regular(path: AnyPath) -> BinaryIO:
    """Open a file for reading; it never waits for a writer.

    Raises:
        NotRegularFile: it is a pipe, a socket or a device.
        OSError: it cannot be opened; that of a directory is an ``IsADirectoryError``.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise (NotRegularFile(path) if error.errno == errno.ENXIO else error) from None  # of a socket
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(mode):
            raise NotRegularFile(path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: AnyPath) -> bytes:
    """The content of a file, as :func:`open_regular` opens it."""
    with open_regular(path) as file:
        return file.read()


def sync_file(path: AnyPath) -> None:
    """Force a file's (or a directory's) content to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_if_readable(directory: Path) -> None:
    """Force a directory's content to the disk; of another user's that may not be read nobody can."""
    with suppress(PermissionError):
        sync_file(directory)


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file so that after a crash it is wholly the old or wholly the new one.

    It is no more open than its directory, and root's goes to the directory's owner.
    """
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
            partial.unlink()  # else a full disk is kept full
        raise
    sync_file(path.parent)


def remove_durably(path: Path) -> None:
    """Delete a file so that it does not come back after a crash; nothing there is fine."""
    try:
        path.unlink()
    except FileNotFoundError:
        return
    sync_file(path.parent)


def sync_tree(directory: Path, *, without: frozenset[str] = frozenset()) -> None:
    """Force every file and directory below ``directory``, itself and its own entry in its parent to the disk.

    Files that go meanwhile are no error. Those whose names are in ``without`` are not opened: who closes any descriptor
    of a file lets go of the record lock that the process has on it.

    Many at once: a file system makes syncs that come together durable in one go, so a database of a dozen small files
    takes about as long as one of them.
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
    """Delete a directory with everything below it, as far as that goes; many of those two levels below it at once.

    A file system that frees blocks on the device (``discard``) waits for it with each file.
    """
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
    """The threads of this process that wait for the disk: to start them takes longer than a small database."""
    global _waiting
    if _waiting is None:
        _waiting = ThreadPoolExecutor(_FILES_AT_ONCE, "statecore-disk")
    return _waiting


def _in_child() -> None:
    global _waiting
    _waiting = None  # its threads are not here


os.register_at_fork(after_in_child=_in_child)


def set_modes(directory: Path, *, without: frozenset[str] = frozenset()) -> None:
    """Give every file and directory the modes Kafka Streams expects; one that has them is not written to.

    Files that go meanwhile are no error. One that has a name elsewhere, too, is left alone: it is not this directory's.

    Args:
        directory: where.
        without: names of files that are left alone.
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
    """A directory and all below it, each with its files, as ``os.walk`` has them; without a ``Path`` for each."""
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
    """This process's umask, read without setting it: other threads make files meanwhile."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:  # no Linux
        os.umask(mask := os.umask(0o077))
        return mask
    return int(next(line for line in status.splitlines() if line.startswith("Umask:")).split()[1], 8)


def give_to_owner(path: Path) -> None:
    """What root makes in somebody else's directory belongs to that somebody, or they could not use it."""
    above = path.parent.stat()
    if os.geteuid() == 0 and above.st_uid != 0:
        os.chown(path, above.st_uid, above.st_gid)


def is_as_made_in(directory: Path, status: os.stat_result) -> bool:
    """Whether a file is like those that this process makes in a directory and gives to its owner.

    Of the same owner and group; for its group to read, and no more open than this process's umask lets it be.
    """
    above = directory.stat()
    uid, gid = os.geteuid(), above.st_gid if above.st_mode & stat.S_ISGID else os.getegid()
    if uid == 0 and above.st_uid != 0:
        uid, gid = above.st_uid, above.st_gid
    mode, masked = stat.S_IMODE(status.st_mode), ~current_umask()
    least, most = FILE_MODE & masked, 0o666 & masked
    return (status.st_uid, status.st_gid) == (uid, gid) and mode & least == least and not mode & ~most


def make_directories(path: Path, mode: int = DIRECTORY_MODE) -> None:
    """Make a directory and what is missing above it, each given to the owner of the one above it."""
    if not path.is_dir():
        make_directories(path.parent, mode)
        path.mkdir(mode=mode, exist_ok=True)
        give_to_owner(path)


def link_or_copy(source: Path, target: Path) -> None:
    """Make ``target`` a second name of ``source``, or a copy where the file system does not allow that."""
    if not link(source, target):
        shutil.copyfile(source, target)


def link(source: Path, target: Path) -> bool:
    """Make ``target`` a second name of ``source``.

    Returns:
        Whether it was done; ``False`` where the file system does not allow that, and nothing was made.

    Raises:
        FileExistsError: ``target`` is there.
    """
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        return False
    return True


def clone(source: Path, target: Path) -> bool:
    """Make ``target`` a file of its own that has the bytes of ``source`` without a copy: the disk holds them once until
    one of the two is written to (XFS, btrfs).

    Returns:
        Whether it was done; ``False`` where the file system cannot, and nothing was made.

    Raises:
        FileExistsError: ``target`` is there.
    """
    with source.open("rb") as given, target.open("xb") as made:
        try:
            fcntl.ioctl(made, _FICLONE, given.fileno())
        except OSError as error:
            target.unlink()
            if error.errno not in _CANNOT_CLONE:
                raise
            return False
        if os.fstat(made.fileno()).st_size != os.fstat(given.fileno()).st_size:  # ZFS 2.2 has cut some
            target.unlink()
            return False
    return True


def part_from_others(path: Path) -> None:
    """Make a file that has other names, too, one that has this name alone; the others stay as they are.

    It has the same mode and time as before, and is not forced to the disk.
    """
    status, own = path.stat(), path.with_name(f"{path.name}.own")
    try:
        own.unlink(missing_ok=True)  # of somebody who died
        if not clone(path, own):
            shutil.copyfile(path, own)
        own.chmod(stat.S_IMODE(status.st_mode))
        os.utime(own, ns=(status.st_atime_ns, status.st_mtime_ns))
        own.replace(path)
    except BaseException:
        with suppress(OSError):
            own.unlink()  # else a full disk is kept full
        raise


def is_read_only(path: Path) -> bool:
    """Whether a path lies on a file system that is mounted read-only, for this process at least."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def holds_no_files(path: Path) -> bool:
    """Whether a path lies on a file system that has neither blocks nor inodes, as ``/proc`` and ``/sys``."""
    system = os.statvfs(path)
    return system.f_blocks == 0 and system.f_files == 0


def tree_bytes(directory: Path) -> int:
    """Bytes of all files below a directory, of which some may go while one looks."""
    total = 0
    for _, files in _walk(directory):
        for file in files:
            with suppress(FileNotFoundError):
                total += file.stat(follow_symlinks=False).st_size
    return total
