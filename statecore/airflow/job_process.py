"""A job of statecore in a process of its own, beside the task that waits for it.

Not in the task's process: that is Airflow's, with Airflow's libraries loaded, and the job's secrets, its machine code
and its memory had better not be in it. A process of its own costs 0.35 CPU seconds and 80 MiB more (1.2 s and 150 MiB
in place of 0.85 s and 70 MiB, beside the 1.8 s and 166 MiB of a task that has loaded Airflow and does nothing).

The process ends with the task, however that goes: it is terminated where Airflow has the time to say so, and ends by
itself when its standard input does, which a task that is killed leaves behind.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from statecore.progress import parse_machine_line

_END_SECONDS = 2.0
"""How long it may take to end, and once more to be ended; Airflow gives the task five seconds."""


class JobProcess:
    """A module of statecore that runs as a program, with the environment of this process.

    Args:
        module: the module.
        arguments: what it is given.
    """

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def wait(self, on_progress: Callable[[dict[str, Any]], None], on_line: Callable[[str], None]) -> int:
        """Hand on what it says until it ends.

        Args:
            on_progress: told its progress.
            on_line: told every other line.

        Returns:
            Its exit code; negative where a signal ended it.
        """
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                progress = parse_machine_line(line)
                if progress is not None:
                    on_progress(progress)
                elif said := line.rstrip():
                    on_line(said)
        code = self._process.wait()
        self._let_go()
        return code

    def kill(self) -> None:
        """End it now; nothing happens where it has ended."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            # Not for ever: the signal that brought us here may have interrupted a wait for this very process.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
        self._let_go()

    def _let_go(self) -> None:
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
