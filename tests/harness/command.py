"""The command line, as a person runs it: a process of its own."""

from __future__ import annotations

import subprocess
import sys


def statecore(*words: object, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``statecore`` with these words; never on a terminal."""
    command = [sys.executable, "-m", "statecore.cli.main", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, input=stdin)
