"""Runs ``statecore checkpoint --follow`` one checkpoint at a time, as a benchmark commands.

::

    python -m bench.checkpoint_follower --spec FILE --repository URL

The same function makes the checkpoints (:func:`statecore.jobs.checkpoint.service.run_service`), in a process that stays
warm; instead of waiting for the interval it waits for a line on stdin, and ends with that. Each report is a line on
stdout. :class:`Follower` is who starts it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from bench.process import Cost

_TICKS = os.sysconf("SC_CLK_TCK")


class Follower:
    """The service in a process of its own; its first checkpoint is made when this returns.

    Args:
        spec: the application's.
        url: the repository.
    """

    def __init__(self, spec: Path, url: str) -> None:
        command = [sys.executable, "-m", "bench.checkpoint_follower", "--spec", str(spec), "--repository", url]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._line()

    def checkpoint(self) -> tuple[Cost, dict[str, Any]]:
        """Have a checkpoint made: what it cost, and its report.

        Raises:
            RuntimeError: the service has ended; why stands on stderr.
        """
        assert self._process.stdin is not None
        cpu, began = self._cpu(), time.monotonic()
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._line()
        wall = time.monotonic() - began
        return Cost(wall, self._cpu() - cpu, 0.0, line, 0), json.loads(line)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the service has ended")
        return line

    def _cpu(self) -> float:
        """CPU seconds so far, of the children that it has waited for as well."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, _k: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        finally:
            self._process.kill()
            self._process.stdout.close()


def main() -> NoReturn:
    """Make a checkpoint, and another one whenever a line comes."""
    from statecore.jobs.checkpoint.request import CheckpointRequest
    from statecore.jobs.checkpoint.service import run_service
    from statecore.jobs.engine.processes import ProcessEngine
    from statecore.jobs.read_report import ReadReport

    parser = argparse.ArgumentParser(prog="python -m bench.checkpoint_follower")
    parser.add_argument("--spec", required=True)
    parser.add_argument("--repository", required=True)
    given = parser.parse_args()
    is_told = False

    def made(report: ReadReport) -> None:
        nonlocal is_told
        is_told = True
        print(json.dumps(report.to_json()), flush=True)

    def sleep(seconds: float) -> None:
        nonlocal is_told
        if not is_told:  # it tries again
            time.sleep(seconds)
        elif not sys.stdin.readline():
            raise SystemExit
        is_told = False

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    request = CheckpointRequest(spec_path=given.spec, repository=given.repository)
    run_service(request, ProcessEngine(2), 0.0, made, say=say, sleep=sleep)


if __name__ == "__main__":
    main()
