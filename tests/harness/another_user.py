"""Commands run as a user other than root, who owns what it is given and nothing else. Only root can start them.

Python may be installed where no other user can look (``/root/.pyenv``). Then the command gets a mount namespace of its
own, in which that directory is the only thing in root's home: the user has no rights that it would not have elsewhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

NOBODY = 65534

_SHOW = """
set -e
kept=$(mktemp -d)
mount --make-rprivate /
mount --rbind "$1" "$kept"
mount -t tmpfs -o mode=755 statecore-test "$2"
mkdir -p "$1"
mount --rbind "$kept" "$1"
shift 2
umask "$1"
shift
exec "$@"
"""


@dataclass(frozen=True)
class AnotherUser:
    """A user other than root.

    Attributes:
        home: a directory of its own.
        umask: its umask, as octal digits.
        uid: its id, user and group.
    """

    home: Path
    umask: str
    uid: int = NOBODY

    def command(self, *words: str) -> list[str]:
        """What root has to run so that this user runs these words."""
        become = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "--no-new-privs"]
        base = Path(sys.base_prefix).resolve()
        closed = next((above for above in reversed(base.parents) if not above.stat().st_mode & 0o001), None)
        if closed is None:
            return ["sh", "-c", 'umask "$1"; shift; exec "$@"', "sh", self.umask, *become, *words]
        show = ["unshare", "--mount", "sh", "-c", _SHOW, "sh", str(base), str(closed), self.umask]
        return [*show, *become, *words]

    @property
    def environment(self) -> dict[str, str]:
        """Its environment: a home of its own."""
        own = {"HOME": str(self.home), "XDG_CACHE_HOME": str(self.home / ".cache"), "TMPDIR": str(self.home)}
        return {**os.environ, **own}


@contextmanager
def another_user(umask: str) -> Iterator[AnotherUser]:
    """A user with a home for a while, outside pytest's directories, which are for their owner alone.

    The test is skipped where a process cannot become another user.
    """
    if os.geteuid() != 0 or shutil.which("setpriv") is None or shutil.which("unshare") is None:
        pytest.skip("only root, with util-linux, can run something as another user")
    with tempfile.TemporaryDirectory(prefix="statecore-user-") as made:
        user = AnotherUser(Path(made), umask)
        os.chown(made, user.uid, user.uid)
        _check(user)
        yield user


def _check(user: AnotherUser) -> None:
    done = subprocess.run(
        user.command(sys.executable, "-c", "import os; print(os.geteuid())"),
        capture_output=True,
        text=True,
        check=False,
        env=user.environment,
    )
    if done.stdout.strip() != str(user.uid):
        pytest.skip(f"nothing can be run as another user here: {done.stderr.strip()}")
