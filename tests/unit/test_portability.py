"""On another Unix than Linux everything can be imported, and what is only for Linux says so when it is used."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.errors import Invalid
from statecore.stores.lock_holder import FLOCK, Holder, holder_of, lock_holder
from tests.harness.raising import raises
from tests.unit.test_extras import MODULES

AS_ON_A_MAC = """
import errno, importlib, json, sys, warnings
warnings.simplefilter("ignore")
names = json.loads(sys.argv[1])
for name in names:  # what belongs to other packages, and to Python, is that of this machine
    importlib.import_module(name)
for name in [name for name in sys.modules if name.partition(".")[0] == "statecore"]:
    del sys.modules[name]

import ctypes, fcntl, os, pathlib, resource, signal, socket, struct
sys.platform = "darwin"
LINUX_ONLY = {
    errno: ["EUCLEAN", "EREMOTEIO", "ENOMEDIUM", "EMEDIUMTYPE", "ENODATA", "ECOMM", "EBADFD", "ENOTUNIQ", "ECHRNG"],
    fcntl: ["F_OFD_SETLK", "F_OFD_GETLK", "F_OFD_SETLKW", "F_SETPIPE_SZ", "F_ADD_SEALS"],
    os: ["posix_fadvise", "posix_fallocate", "sched_getaffinity", "sched_setaffinity", "memfd_create", "eventfd",
         "copy_file_range", "splice", "getrandom", "setresuid", "getresuid", "O_DIRECT", "O_PATH", "O_TMPFILE",
         "O_NOATIME", "getxattr", "setxattr", "POSIX_FADV_DONTNEED", "unshare", "setns", "pidfd_open", "fdatasync"],
    signal: ["SIGPOLL", "SIGPWR", "SIGSTKFLT", "sigtimedwait", "sigwaitinfo", "pidfd_send_signal"],
    resource: ["prlimit", "RLIMIT_OFILE", "RUSAGE_THREAD"],
    socket: ["SO_PEERCRED", "TCP_USER_TIMEOUT", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "AF_NETLINK", "TCP_KEEPIDLE"],
}
for owner, gone in LINUX_ONLY.items():
    for name in gone:
        owner.__dict__.pop(name, None)
errno.EDQUOT, errno.ENOTSUP, errno.ENOTEMPTY = 69, 45, 66  # their numbers on a Mac

class Libc:
    def __init__(self, name, **_): pass
ctypes.CDLL = Libc  # neither renameat2 nor on_exit

failed = {}
for name in names:
    try:
        importlib.import_module(name)
    except BaseException as error:
        failed[name] = f"{type(error).__name__}: {error}"

from statecore.system_errors import cause_of
from statecore.statedir.file_trees import exchange
from statecore.jobs import failures
print(json.dumps({
    "failed": failed,
    "full": [cause_of(OSError(number, "no")).name for number in (errno.ENOSPC, errno.EDQUOT)],
    "exchanged": exchange(pathlib.Path("a"), pathlib.Path("b")),
    "damaged": type(failures.as_statecore_error(OSError(errno.EIO, "no"), "it ran")).__name__,
}))
"""


def test_every_module_can_be_imported_where_nothing_of_linux_is() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AS_ON_A_MAC, json.dumps(MODULES)],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said == {"failed": {}, "full": ["FULL", "FULL"], "exchanged": False, "damaged": "Retryable"}


def test_the_layout_of_a_lock_is_that_of_each_system() -> None:
    """Of fcntl.h: on Linux two shorts before two 64 bit offsets, on a Mac the offsets first."""
    sizes = {system: struct.calcsize(layout) for system, (layout, _) in FLOCK.items()}
    assert sizes == {"linux": 32, "darwin": 24}
    assert {frozenset(fields) for _, fields in FLOCK.values()} == {
        frozenset({"type", "whence", "start", "length", "process"})
    }


def test_the_lock_holder_is_read_in_the_layout_of_the_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    def kernel(descriptor: int, command: int, argument: bytes) -> bytes:
        """A Mac's, in which a process holds the lock."""
        assert command == fcntl.F_GETLK
        asked.append(argument)
        return struct.pack("qqihh", 0, 0, os.getpid(), fcntl.F_WRLCK, 0)

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "fcntl", kernel)
    holder = holder_of(0)
    assert holder is not None
    assert holder.process == os.getpid()
    assert asked == [struct.pack("qqihh", 0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)]


def test_on_an_unknown_platform_the_lock_holder_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "freebsd14")
    with raises(Invalid, "platform-unsupported", platform="freebsd14"):
        lock_holder(tmp_path / ".lock")
    with (tmp_path / ".lock").open("w") as file:
        assert holder_of(file.fileno()) is None


def test_a_file_that_this_process_has_open_is_not_opened_again_where_there_is_no_proc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing a second descriptor would let go of the lock."""
    scandir, asked = os.scandir, list[str]()

    def without_proc(path: str) -> Iterator[os.DirEntry[str]]:
        asked.append(path)
        if path.startswith("/proc/"):
            raise FileNotFoundError(2, os.strerror(2), path)
        return scandir(path)

    def does_not_say(descriptor: int, command: int, argument: bytes) -> bytes:
        raise OSError(22, os.strerror(22))

    monkeypatch.setattr(os, "scandir", without_proc)
    monkeypatch.setattr(fcntl, "fcntl", does_not_say)
    with (tmp_path / ".lock").open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        assert lock_holder(tmp_path / ".lock") == Holder(os.getpid(), "this process")
    assert asked[-1] == "/dev/fd"
