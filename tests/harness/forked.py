"""Processes that tests start over and over to see them killed, forked from one that has imported what they need.

A start takes milliseconds in place of half a second, and to be killed, a forked process is like any other::

    with Forks() as forks:                                            # tests: the fixture ``forks``
        ended = forks.run("tests.unit.tasks.standby_world", "dir")   # python -m tests.unit.tasks.standby_world dir
        assert ended.returncode == -signal.SIGKILL, ended.errors
        with forks.running("tests.unit.runtime.endless", "dir") as process:
            process.read_line()
            process.kill()

``python -m tests.harness.forked`` is the one that forks. It runs nothing itself, so it has no threads and no locks that
a child would miss or share.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_ENDED = "ended "


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes:
        returncode: as of ``subprocess``: negative for a signal.
        errors: what it wrote to stderr.
    """

    returncode: int
    errors: str


class Forked:
    """A process that runs."""

    def __init__(self, server: subprocess.Popen[str], errors: Path) -> None:
        assert server.stdout is not None
        self._lines, self._errors = server.stdout, errors
        self._ended: Ended | None = None
        self._pid = int(self._lines.readline())

    def read_line(self) -> str:
        """The next line that it writes."""
        return self._lines.readline()

    def kill(self) -> None:
        """SIGKILL."""
        os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> Ended:
        """Waits until it has ended and the system has taken back what it had; unread lines are dropped."""
        while self._ended is None:
            line = self._lines.readline()
            if not line:
                raise RuntimeError("The process that forks has died.")
            if line.startswith(_ENDED):
                self._ended = Ended(int(line[len(_ENDED) :]), self._errors.read_text())
        return self._ended


class Forks:
    """Starts processes, one at a time; a context manager."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.harness.forked"]
        root = Path(__file__).parents[2]
        self._server = subprocess.Popen(
            command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    @contextlib.contextmanager
    def running(self, module: str, *arguments: str, environment: Mapping[str, str] = {}) -> Iterator[Forked]:
        """A process that is ``python -m <module> <arguments>``; killed at the end of the block where it still runs."""
        with tempfile.NamedTemporaryFile() as errors:
            asked = {"module": module, "arguments": arguments, "environment": dict(environment), "errors": errors.name}
            assert self._server.stdin is not None
            self._server.stdin.write(json.dumps(asked) + "\n")
            self._server.stdin.flush()
            process = Forked(self._server, Path(errors.name))
            try:
                yield process
            finally:
                if process._ended is None:
                    process.kill()
                    process.wait()

    def run(self, module: str, *arguments: str, environment: Mapping[str, str] = {}) -> Ended:
        """Runs one until it ends by itself."""
        with self.running(module, *arguments, environment=environment) as process:
            return process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.communicate(timeout=1200)


def _serve() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        importlib.import_module(asked["module"])  # from now on every child has it
        child = os.fork()
        if child == 0:
            _be(asked)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{_ENDED}{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _be(asked: dict[str, Any]) -> None:
    """Runs a module as a program, and ends."""
    code = 1
    try:
        os.dup2(os.open(asked["errors"], os.O_WRONLY), sys.stderr.fileno())
        sys.stdout.write(f"{os.getpid()}\n")
        sys.stdout.flush()
        os.environ.update(asked["environment"])
        sys.argv = [asked["module"], *asked["arguments"]]
        sys.modules.pop(asked["module"])  # it runs under the name __main__
        runpy.run_module(asked["module"], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            sys.stderr.write(ended.code)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
