"""Maps exceptions of Spark to the error kinds of statecore."""

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
    """The error for an exception of Spark itself; errors of tasks are returned as values instead."""
    text = str(error)
    if _STOPPED.search(text) or type(error).__name__ == "Py4JNetworkError":
        return Retryable(
            f"Spark was stopped while {doing}.",
            code="spark-stopped",
            action="Start the job again with the same request id; finished work is reused.",
        )
    unfit = _CANNOT_WORK.search(text)
    if unfit:
        host = _ON_HOST.search(text)
        why = next((part for part in unfit.groups() if part), "another version of Python than the driver's")
        return Invalid(
            f"The Python of an executor{f' on {host[1]}' if host else ''} cannot run its tasks, found while "
            f"{doing}: {why}.",
            code="executor-python-unusable",
            action="Install this release there (pip install '.[pipeline]' in a checkout), and name its interpreter "
            "(executor_python, STATECORE_EXECUTOR_PYTHON or spark.pyspark.python), or send a packed "
            "environment along (spark.archives).",
            host=host[1] if host else None,
            trace=text,
        )
    died = _WORKER_DIED.search(text)
    if died:
        return worker_died(doing, left=text[died.start() :], worker="A worker process of Spark")
    if "PythonException" in text:  # outside the part of a task that returns errors as values
        raised = [line for line in map(str.strip, text.splitlines()) if _RAISED.match(line)]
        return StatecoreError(
            f"A worker process of Spark could not run its task while {doing}: {raised[-1] if raised else _cause(text)}",
            code="spark-worker-failed",
            action="Make sure that every executor has the same release of statecore and Python; else report it.",
            trace=text,
        )
    return Retryable(
        f"Spark gave up while {doing}: {_cause(text) or type(error).__name__}",
        code="spark-failed",
        action="See Spark's log, then start the job again; finished work is reused.",
    )


def _cause(text: str) -> str:
    """The line of a Java stack trace that has the cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    reasons = [line for line in lines if re.match(r"(: )?[\w.$]+(Exception|Error)\b", line)]
    return (reasons or lines or [""])[0].removeprefix(": ")[:500]
