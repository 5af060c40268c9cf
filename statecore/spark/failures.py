"""From what Spark says to this library's few kinds of error; the operator never sees a stack trace of Java."""

from __future__ import annotations

import re

from statecore.errors import Invalid, Retryable, StatecoreError
from statecore.jobs.failures import worker_died

_WORKER_DIED = re.compile(
    r"Python worker (exited unexpectedly|failed to connect back)|ExecutorLostFailure|exit (code|status)[: ]*137"
    r"|OutOfMemoryError"
)
_CANNOT_WORK = re.compile(
    r"(ModuleNotFoundError: No module named '[^']+')|(Cannot run program \"[^\"]+\")|PYTHON_VERSION_MISMATCH"
    r"|(reading the port number from [^\n]*stdout)|(Bad data in [^\n]*'s standard output)"
)
_ON_HOST = re.compile(r"\(TID \d+\) \((\S+) executor (\w+)\)")
_RAISED = re.compile(r"[A-Za-z_][\w.]*(Error|Exception)\b(?!.*PYTHON_EXCEPTION)")
_STOPPED = re.compile(r"SparkContext was shut down|stopped SparkContext|[Jj]ob .{0,40}cancelled|Stage cancelled")


def spark_failure(error: Exception, doing: str) -> StatecoreError:
    """What to say when Spark itself gave a job up; a task's own error is a value and never comes here."""
    said = str(error)
    if _STOPPED.search(said) or type(error).__name__ == "Py4JNetworkError":
        return Retryable(
            f"Spark was stopped while {doing}.",
            code="spark-stopped",
            action="Start the restore again under the same request id; what was finished is found again.",
        )
    unfit = _CANNOT_WORK.search(said)
    if unfit:
        host = _ON_HOST.search(said)
        why = next((part for part in unfit.groups() if part), "another version of Python than the driver's")
        return Invalid(
            f"The Python of an executor{f' on {host[1]}' if host else ''} cannot run its tasks, met while "
            f"{doing}: {why}.",
            code="executor-python-unusable",
            action="Install this release there (statecore[pipeline]) and name its interpreter (executor_python, "
            "STATECORE_EXECUTOR_PYTHON or spark.pyspark.python), or send a packed environment along (spark.archives).",
            host=host[1] if host else None,
            trace=said,
        )
    died = _WORKER_DIED.search(said)
    if died:
        return worker_died(doing, left=said[died.start() :], worker="A worker process of Spark")
    if "PythonException" in said:  # outside the part of a task that answers with values
        raised = [line for line in map(str.strip, said.splitlines()) if _RAISED.match(line)]
        return StatecoreError(
            f"A worker process of Spark could not run its task while {doing}: {raised[-1] if raised else _cause(said)}",
            code="spark-worker-failed",
            action="Make sure that every executor has this very release of statecore and Python; else report it.",
            trace=said,
        )
    return Retryable(
        f"Spark gave up while {doing}: {_cause(said) or type(error).__name__}",
        code="spark-failed",
        action="Look at Spark's log, then start the restore again; what was finished is found again.",
    )


def _cause(said: str) -> str:
    """The one line of a Java stack trace that says why."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    reasons = [line for line in lines if re.match(r"(: )?[\w.$]+(Exception|Error)\b", line)]
    return (reasons or lines or [""])[0].removeprefix(": ")[:500]
