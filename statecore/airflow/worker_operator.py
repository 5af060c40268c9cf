"""Base of the operators that mostly run their job as a process on the worker, and use Spark only when needed.

The job's secrets, native code and memory stay out of the task's process, which is Airflow's and has Airflow's libraries
loaded. A separate process costs 0.35 CPU seconds and 80 MiB more (1.2 s and 150 MiB instead of 0.85 s and 70 MiB,
beside the 1.8 s and 166 MiB of a task that has loaded Airflow and does nothing). It never outlives the task: it is
terminated when Airflow calls ``on_kill``, and exits by itself when its standard input is closed, as when the task is
killed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from statecore.airflow.failures import exception_for
from statecore.airflow.job_progress import ProgressRecorder
from statecore.airflow.operators import StatecoreSparkOperator, ended_without_report, exit_in_words
from statecore.airflow.reports import request_id_of
from statecore.progress import parse_machine_line

if TYPE_CHECKING:
    from airflow.sdk import Context

PROGRAM = "statecore.jobs.program"

_END_SECONDS = 2.0
"""How long to wait after SIGTERM, and again after SIGKILL; Airflow gives the task five seconds."""

_STARTING = {"event": "begin", "phase": "starting", "count": 0, "total": None, "unit": "", "seconds": 0.0}


class JobProcess:
    """A job run as a program (:mod:`statecore.jobs.program`), with the environment of this process."""

    def __init__(self, verb: str, arguments: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", PROGRAM, verb, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, on_progress: Callable[[dict[str, Any]], None], on_line: Callable[[str], None]) -> int:
        """Pass on the output until the process exits; returns its exit code, negative if a signal ended it."""
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


class StatecoreWorkerOperator(StatecoreSparkOperator):
    """Runs a job as a process on the worker, or by Spark; arguments as :class:`StatecoreSparkOperator`."""

    runs_without_spark: ClassVar[bool] = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._process: JobProcess | None = None

    def on_kill(self) -> None:
        """Terminate the job."""
        if self._process is not None:
            self._process.kill()
        elif self._hook is not None:
            super().on_kill()

    def _run_on_worker(
        self,
        context: Context,
        verb: str,
        arguments: Sequence[str],
        report_file: Path,
        *,
        known: Collection[int] = (),
        who: str = "The job",
    ) -> int:
        """Run a job as a process on the worker; ``known`` are exit codes besides 0 that are no failure."""
        recorder = ProgressRecorder(context, self.log)
        recorder(_STARTING)
        # The report first, as for spark-submit.
        arguments = ["--local", "--report", str(report_file), *arguments]
        code = self._wait_for(verb, arguments, recorder, lambda line: self.log.info("%s", line))
        if code != 0 and code not in known:
            self._raise_reported(report_file)
            died = ended_without_report(who, exit_in_words(code))
            self._record_failure(report_file, request_id_of(context), died)
            raise exception_for(died.to_json(), log=self.log)
        return code

    def _wait_for(
        self,
        verb: str,
        arguments: Sequence[str],
        on_progress: Callable[[dict[str, Any]], None],
        on_line: Callable[[str], None],
    ) -> int:
        """Run a job as a process that ends with the task; see :meth:`JobProcess.wait`."""
        self._process = JobProcess(verb, arguments)
        try:
            return self._process.wait(on_progress, on_line)
        finally:
            self._process.kill()
            self._process = None
