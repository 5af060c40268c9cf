"""Owner, group and modes of placed files, which the application has to open and write.

Kafka Streams (``StateDirectory.configurePermissions``) sets ``state.dir`` and the application's directory to mode
rwxr-x--- at every start, or rwxrwx--- with ``allow.os.group.write.access``; everything below is created by its umask.
A job that runs as another user therefore copies what exists:

==========================================  ================================  ========================================
what exists                                 owner and group                   mode of directories
==========================================  ================================  ========================================
the application's directory                 its own                           its own, without the rights of others
``state.dir``, not yet the application's    its own                           its own, without the rights of others
neither                                     those of the nearest parent       rwxr-x---
``--owner user[:group]``                    as given                          as above
==========================================  ================================  ========================================

Files get the same mode without execute permission. Permissions masked by this process's umask are not granted, as with
files of Kafka Streams, unless the directory is writable by a group. A directory that everybody may write to (``/tmp``,
an empty volume of a container), or that root owns while this process cannot give files away, says nothing about the
application: its creator owns it, as with Kafka Streams.

Giving files to another user needs the capability CAP_CHOWN. Without it, the directory must be writable by a group of
this process, as with ``allow.os.group.write.access``; placed files are then writable by the group.

The owner is decided, or refused, before anything is read.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from statecore.errors import Invalid
from statecore.filesystem import DIRECTORY_MODE, current_umask
from statecore.formats.releases import LOCK_FILE
from statecore.stores.rocksdb.directory_lock import LOCK_FILE as DATABASE_LOCK

_CAP_CHOWN = 1 << 0
_CHMODS_OTHERS = 1 << 3 | 1 << 4
"""CAP_FOWNER and CAP_FSETID: set the mode of another user's file, and the setgid bit of a directory whose group this
process is not in.
"""
_COPIED = stat.S_ISGID | 0o770
_GROUP_WRITES = 0o020

INITIAL_MODE = 0o700
"""Mode of a directory from its creation until it is given to its owner."""


@dataclass(frozen=True)
class Process:
    """Properties of this process that decide which files it can create for others.

    Attributes:
        may_chown: whether it can give files to another user (CAP_CHOWN).
    """

    uid: int
    gid: int
    groups: frozenset[int]
    may_chown: bool
    umask: int = 0o022


@dataclass(frozen=True)
class FileOwnership:
    """Owner, group and modes of all placed files.

    Attributes:
        source: where the owner comes from, for messages; the mode may grant less than the mode there.
        by_group: whether the application has access through its group, because this process cannot give files to its
            user.
    """

    uid: int
    gid: int
    directory_mode: int
    source: str
    by_group: bool = False

    @property
    def file_mode(self) -> int:
        """Mode of files: that of directories without execute permission."""
        return self.directory_mode & 0o666

    def __str__(self) -> str:
        mode = stat.filemode(stat.S_IFDIR | self.directory_mode)[1:]
        return f"{user_name(self.uid)}:{group_name(self.gid)} with mode {mode} ({self.source})"

    def apply(self, path: Path) -> None:
        """Set owner, group and mode of a file or directory; of a symbolic link only owner and group.

        The owner is set first if this process can set the mode after that: after a kill in between, the directory has
        its owner and creation mode, and does not look as if this process's user should own it.
        """
        status = path.lstat()
        mode = self.directory_mode if stat.S_ISDIR(status.st_mode) else self.file_mode
        is_wrong = not stat.S_ISLNK(status.st_mode) and stat.S_IMODE(status.st_mode) != mode
        is_first = is_wrong and (self._owns(status) or _capabilities() & _CHMODS_OTHERS != _CHMODS_OTHERS)
        if is_first:
            path.chmod(mode)
        if not self._owns(status):
            self.set_owner(path)
        if is_wrong and not is_first:
            path.chmod(mode)

    def set_owner(self, path: Path) -> None:
        """Set owner and group, but not the mode."""
        if not self.owns(path):
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def accepts(self, status: os.stat_result) -> bool:
        """Whether a file can stay as it is: right owner, and at least the permissions of :attr:`file_mode`."""
        return self._owns(status) and status.st_mode & self.file_mode == self.file_mode

    def owns(self, path: Path) -> bool:
        """Whether owner and group are already right."""
        return self._owns(path.lstat())

    def _owns(self, status: os.stat_result) -> bool:
        return (status.st_uid, status.st_gid) == (self.uid, self.gid)


def this_process() -> Process:
    """This process's user, groups and capabilities (``CapEff``); elsewhere than on Linux root may chown."""
    may_chown = bool(_capabilities() & _CAP_CHOWN)
    return Process(os.geteuid(), os.getegid(), frozenset({os.getegid(), *os.getgroups()}), may_chown, current_umask())


def _capabilities() -> int:
    """The capability bits of this process from the kernel; elsewhere than on Linux root has all of them."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("CapEff:"):
                return int(line.partition(":")[2], 16)
    return -1 if os.geteuid() == 0 else 0


def decide_ownership(state_dir: Path, application: Path, owner: str | None, process: Process) -> FileOwnership:
    """Decide owner and modes of everything placed in an application's directory; changes nothing."""
    model, is_application = _model(state_dir, application, process)
    status = model.stat()
    mode = _mode_of(status, copied=model in (state_dir, application))
    if not mode & _GROUP_WRITES:  # else the application's users need the group's rights, whatever the umask
        mode &= ~process.umask | 0o700
    if owner is not None:
        uid, gid = parse_owner(owner)
        _check_given(owner, uid, gid, process)
        return FileOwnership(uid, gid, mode, "as --owner says")
    source = f"the owner of {model}"
    if process.may_chown or status.st_uid == process.uid:
        gid = status.st_gid if process.may_chown or status.st_gid in process.groups else process.gid
        return FileOwnership(status.st_uid, gid, mode, source)
    if mode & _GROUP_WRITES and status.st_gid in process.groups:
        return FileOwnership(process.uid, status.st_gid, mode, f"written through the group of {model}", True)
    if not is_application and (status.st_uid == 0 or status.st_mode & stat.S_IWOTH):
        gid = status.st_gid if status.st_mode & stat.S_ISGID else process.gid
        return FileOwnership(process.uid, gid, mode, "owned by its creator")
    raise Invalid(
        f"{model} belongs to uid {status.st_uid}, and this runs as uid {process.uid}, which cannot give files away: "
        "the application could not write the stores that are put there.",
        code="chown-not-permitted",
        action="Run as the user that the application runs as, or as root; or let both be in the directory's group and "
        "start the application with allow.os.group.write.access=true and umask 0007. If the application does run as "
        f"uid {process.uid}, say so with --owner {process.uid}:{process.gid} (owner in a request).",
        state_dir=str(state_dir),
        owner=status.st_uid,
        user=process.uid,
    )


def parse_owner(text: str) -> tuple[int, int]:
    """Parse ``user`` or ``user:group``, names or numbers; without a group the user's own. Raises ``Invalid``."""
    user, colon, group = text.partition(":")
    if not user or (colon and not group) or ":" in group:
        raise Invalid(
            f"{text!r} names no owner.",
            code="owner-invalid",
            action="Write user or user:group, by name or number, such as kafka:kafka.",
            owner=text,
        )
    known = _known_user(user)
    if known is None and not user.isdecimal():
        raise Invalid(
            f"The user {user!r} of the owner {text!r} is not known on this machine.",
            code="owner-unknown",
            action="Correct the name, or give the numbers that the application runs with (uid:gid; `id` there says).",
            owner=text,
            user=user,
        )
    if not group and known is None:
        raise Invalid(
            f"The uid {user} is no user of this machine, so its group is not known.",
            code="owner-group-missing",
            action=f"Give the group too: {user}:GID.",
            owner=text,
            user=user,
        )
    uid = known.pw_uid if known is not None else int(user)
    if not group:
        assert known is not None
        return uid, known.pw_gid
    return uid, _group(group, text)


def user_name(uid: int) -> str:
    """A user's name, or the number if it has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def group_name(gid: int) -> str:
    """A group's name, or the number if it has none here."""
    try:
        return grp.getgrgid(gid).gr_name
    except (KeyError, OverflowError):
        return str(gid)


def unwritable(directories: Iterable[Path]) -> Path | None:
    """The first directory in these trees that this process may not change; links are not followed."""
    for root in directories:
        if root.is_dir() and not _may_change(root):
            return root
        for above, names, _ in os.walk(root):  # which is silent about what it may not list
            for path in (Path(above, name) for name in names):
                if not path.is_symlink() and not _may_change(path):
                    return path
    return None


def _may_change(directory: Path) -> bool:
    return os.access(directory, os.R_OK | os.W_OK | os.X_OK)


def _known_user(user: str) -> pwd.struct_passwd | None:
    with suppress(KeyError, OverflowError):
        return pwd.getpwnam(user)
    with suppress(KeyError, OverflowError, ValueError):
        return pwd.getpwuid(int(user))
    return None


def _group(group: str, text: str) -> int:
    with suppress(KeyError):
        return grp.getgrnam(group).gr_gid
    if group.isdecimal():
        return int(group)
    raise Invalid(
        f"The group {group!r} of the owner {text!r} is not known on this machine.",
        code="owner-unknown",
        action="Correct the name, or give the number that the application runs with (`id` there says).",
        owner=text,
        group=group,
    )


def _check_given(owner: str, uid: int, gid: int, process: Process) -> None:
    if process.may_chown or (uid == process.uid and gid in process.groups):
        return
    what = f"to the user {user_name(uid)} (uid {uid})" if uid != process.uid else f"to the group {group_name(gid)}"
    raise Invalid(
        f"This process (uid {process.uid}) cannot give files {what}: it lacks the capability CAP_CHOWN.",
        code="chown-not-permitted",
        action=f"Run as the owner {owner} itself, or as root with that capability.",
        owner=owner,
        user=process.uid,
    )


def is_incomplete(path: Path, process: Process) -> bool:
    """Whether a directory may be from a killed job, not given to its owner yet; then its owner means nothing."""
    status = path.stat()
    bare = (stat.S_IMODE(status.st_mode) & 0o777, status.st_uid) == (INITIAL_MODE, process.uid)
    return process.may_chown and bare and not any(path.iterdir())


def _model(state_dir: Path, application: Path, process: Process) -> tuple[Path, bool]:
    """The directory whose owner is copied, and whether it is the application's own."""
    if application.is_dir() and not is_incomplete(application, process):
        return application, True
    path = state_dir
    while not path.is_dir() or (path == state_dir and is_incomplete(path, process)):
        path = path.absolute().parent
    return path, False


def _mode_of(status: os.stat_result, *, copied: bool) -> int:
    if not copied or status.st_mode & stat.S_IWOTH:
        return DIRECTORY_MODE | status.st_mode & stat.S_ISGID
    return status.st_mode & _COPIED | 0o700


_WRITTEN = frozenset({LOCK_FILE, DATABASE_LOCK})


def unusable_files(application: Path, directory: Path) -> list[tuple[str, str]]:
    """Files and directories of a task, itself included, that the application cannot use, each with the reason.

    The application is assumed to run as owner and group of its directory: Kafka Streams sets that directory's mode at
    every start, which only its owner can. RocksDB reads its files, writes to ``LOCK``, and creates and deletes all
    others, for which it needs write access to the directory.
    """
    owner = application.stat()
    if owner.st_uid == 0:
        return []
    found = []
    for path, status in _walk(directory):
        is_directory = stat.S_ISDIR(status.st_mode)
        wanted = 7 if is_directory else 6 if path.name in _WRITTEN else 4
        has = _rights(status, owner.st_uid, owner.st_gid)
        if has & wanted != wanted:
            name = str(path.relative_to(application))
            found.append((name, _reason(status, owner)))
    return found


def _rights(status: os.stat_result, uid: int, gid: int) -> int:
    """Permissions of a user and group on a file: 4 read, 2 write, 1 enter or execute."""
    shift = 6 if status.st_uid == uid else 3 if status.st_gid == gid else 0
    return status.st_mode >> shift & 7


def _reason(status: os.stat_result, owner: os.stat_result) -> str:
    mode = stat.filemode(status.st_mode)
    return (
        f"belongs to {user_name(status.st_uid)}:{group_name(status.st_gid)} with mode {mode}, and the application runs "
        f"as {user_name(owner.st_uid)}:{group_name(owner.st_gid)}"
    )


def _walk(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    try:
        status = path.lstat()
    except OSError:
        return
    yield path, status
    if stat.S_ISDIR(status.st_mode):
        try:
            entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        except OSError:
            return
        for entry in entries:
            yield from _walk(Path(entry.path))
