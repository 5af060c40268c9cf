"""A job of statecore as a child process of the Airflow task that waits for it.

The job's secrets, native code and memory stay out of the task's process, which is Airflow's and has Airflow's libraries
loaded. A separate process costs 0.35 CPU seconds and 80 MiB more (1.2 s and 150 MiB instead of 0.85 s and 70 MiB,
beside the 1.8 s and 166 MiB of a task that has loaded Airflow and does nothing).

The process never outlives the task: it is terminated when Airflow calls ``on_kill``, and exits by itself when its
standard input is closed, as when the task is killed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from statecore.progress import parse_machine_line

_END_SECONDS = 2.0
"""How long to wait after SIGTERM, and again after SIGKILL; Airflow gives the task five seconds."""


class JobProcess:
    """A module of statecore run as a program, with the environment of this process."""

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
        """The process id."""
        return self._process.pid

    def wait(self, on_progress: Callable[[dict[str, Any]], None], on_line: Callable[[str], None]) -> int:
        """Pass on the output until the process exits, and return its exit code.

        Returns:
            The exit code; negative if a signal ended the process.
        """
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                progress = parse_machine_line(line)
                if progress is not None:
                    on_progress(progress)
                elif text := line.rstrip():
                    on_line(text)
        code = self._process.wait()
        self._close_input()
        return code

    def kill(self) -> None:
        """Terminate the process; does nothing if it has exited."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            # With a timeout: the signal that led here may have interrupted a wait for the same process.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
        self._close_input()

    def _close_input(self) -> None:
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
