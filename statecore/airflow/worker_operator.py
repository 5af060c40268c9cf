"""Base of the operators that mostly run their job as a process on the worker, and use Spark only when needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from statecore.airflow.failures import exception_for
from statecore.airflow.job_process import JobProcess
from statecore.airflow.job_progress import ProgressRecorder
from statecore.airflow.operators import StatecoreSparkOperator, ended_without_report, request_id_of

if TYPE_CHECKING:
    from airflow.sdk import Context

_STARTING = {"event": "begin", "phase": "starting", "count": 0, "total": None, "unit": "", "seconds": 0.0}


class StatecoreWorkerOperator(StatecoreSparkOperator):
    """Runs a job as a process on the worker, or by Spark; arguments as :class:`StatecoreSparkOperator`."""

    may_do_without_spark: ClassVar[bool] = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._process: JobProcess | None = None

    def on_kill(self) -> None:
        """Terminate the job."""
        if self._process is not None:
            self._process.kill()
        elif self._hook is not None:
            super().on_kill()

    def _run_here(
        self,
        context: Context,
        module: str,
        arguments: Sequence[str],
        report_file: Path,
        *,
        known: Collection[int] = (),
        who: str = "The job",
    ) -> int:
        """Run a module as a process on the worker, and return its exit code.

        ``known`` are exit codes besides 0 that are no failure; ``who`` names the process in messages. Raises
        ``JobRefused`` or ``JobUnavailable`` for the error that the job has reported, or if it ended without a report.
        """
        recorder = ProgressRecorder(context, self.log)
        recorder(_STARTING)
        # The report first, as for spark-submit.
        arguments = ["--here", "--report", str(report_file), *arguments]
        code = self._wait_for(module, arguments, recorder, lambda line: self.log.info("%s", line))
        if code != 0 and code not in known:
            self._raise_reported(report_file)
            died = ended_without_report(who, f"exit code {code}" if code > 0 else f"signal {-code}")
            self._record_failure(report_file, request_id_of(context), died)
            raise exception_for(died.to_json(), log=self.log)
        return code

    def _wait_for(
        self,
        module: str,
        arguments: Sequence[str],
        on_progress: Callable[[dict[str, Any]], None],
        on_line: Callable[[str], None],
    ) -> int:
        """Run a module as a process that ends with the task; see :meth:`JobProcess.wait`."""
        self._process = JobProcess(module, arguments)
        try:
            return self._process.wait(on_progress, on_line)
        finally:
            self._process.kill()
            self._process = None
