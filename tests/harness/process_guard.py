"""Runs a command, and kills it when the process that started it is gone, even after SIGKILL.

``python process_guard.py OWNER_PID COMMAND…`` becomes the parent of the command, forwards SIGTERM and SIGINT, exits
with the command's exit code, and kills the command as soon as the process OWNER_PID is gone. A broker that pytest
started therefore never survives pytest. Only the standard library is used, and it runs as a plain file: it costs a
few milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

POLL_SECONDS = 0.5


def started_at(pid: int) -> str | None:
    """The start time of a process in clock ticks since boot, or None when it is gone or a zombie.

    Together with the pid this names one process for ever: pids come again, the pair does not.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def command_line(owner: int, command: list[str]) -> list[str]:
    """The command, wrapped so that it ends with the process ``owner``."""
    return [sys.executable, "-S", "-E", str(Path(__file__).resolve()), str(owner), *command]


def _main(arguments: list[str]) -> int:
    owner, command = int(arguments[0]), arguments[1:]
    identity = started_at(owner)
    if identity is None:
        return 1
    child = subprocess.Popen(command)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _frame: _hand_on(child, received))
    while True:
        try:
            return child.wait(timeout=POLL_SECONDS)
        except subprocess.TimeoutExpired:
            if started_at(owner) != identity:
                child.kill()
                return child.wait()


def _hand_on(child: subprocess.Popen[bytes], received: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, received)


if __name__ == "__main__":
    raise SystemExit(_main(sys.argv[1:]))
