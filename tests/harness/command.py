"""The command line, as a person runs it: a process of its own."""

from __future__ import annotations

import os
import pty
import subprocess
import sys


def statecore(*words: object, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``statecore`` with these words; never on a terminal."""
    command = [sys.executable, "-m", "statecore.cli.main", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, input=stdin)


def statecore_on_a_terminal(answers: str, *words: object) -> tuple[int, str]:
    """Run it as at a terminal; exit code, and what a person sees there."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "statecore.cli.main", *map(str, words)]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, answers.encode())
    seen = b""
    try:
        while part := os.read(ours, 65536):
            seen += part
    except OSError:  # Linux says so when nobody has the other end open any more
        pass
    os.close(ours)
    return process.wait(timeout=300), seen.decode()
