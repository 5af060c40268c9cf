"""From what the system, Python or Spark says to this library's few kinds of error.

The operator who is paged sees one of them, never a stack trace of Java.
"""

from __future__ import annotations

import errno
import re
import traceback
from typing import Any

from statecore.errors import Capacity, Corrupted, Invalid, Retryable, StatecoreError
from statecore.stores.files import MOUNT_FOR_WRITING

_FULL = (errno.ENOSPC, errno.EDQUOT)
_DENIED = (errno.EACCES, errno.EPERM)
_DAMAGED = (errno.EIO, getattr(errno, "EUCLEAN", errno.EIO))  # the second is Linux' own: a damaged file system

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


def as_statecore_error(error: BaseException, doing: str, **context: Any) -> StatecoreError:
    """The error an operator should see for an exception that stopped something.

    Args:
        error: what was raised.
        doing: what was being done, to follow "while": ``store 'x' of task 0_0 was built in /d``.
        context: names as fields, for machines.
    """
    if isinstance(error, StatecoreError):
        error.context = {**context, **error.context}
        return error
    if isinstance(error, OSError) and error.errno is not None:
        said = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        if error.errno in _FULL:
            return Capacity(
                f"The disk ran full while {doing}: {said}.",
                action="Free room there, or give a staging directory on a larger disk, and start the restore again.",
                **context,
            )
        if error.errno == errno.EROFS:
            return Invalid(
                f"The file system is mounted read-only, which was noticed while {doing}: {said}.",
                action=MOUNT_FOR_WRITING,
                **context,
            )
        if error.errno in _DENIED:
            return Invalid(
                f"The system refused while {doing}: {said}.",
                action="Give this user the right to read and write there, or run as the user that the application "
                "runs as.",
                **context,
            )
        if error.errno in _DAMAGED:
            return Corrupted(
                f"The disk failed while {doing}: {said}.",
                action="Look at the kernel's log, use another disk, then start the restore again.",
                **context,
            )
    if isinstance(error, MemoryError):
        return Capacity(
            f"There was not enough memory while {doing}.",
            action="Give a smaller memory budget, or fewer tasks at once (master local[1]), and start again.",
            **context,
        )
    return StatecoreError(
        f"A defect of this program, while {doing}: {type(error).__name__}: {error}",
        action="Report it together with the trace.",
        **context,
        trace="".join(traceback.format_exception(error)),
    )


def spark_failure(error: Exception, doing: str) -> StatecoreError:
    """What to say when Spark itself gave a job up; a task's own error is a value and never comes here."""
    said = str(error)
    if _STOPPED.search(said) or type(error).__name__ == "Py4JNetworkError":
        return Retryable(
            f"Spark was stopped while {doing}.",
            action="Start the restore again under the same request id; what was finished is found again.",
        )
    unfit = _CANNOT_WORK.search(said)
    if unfit:
        host = _ON_HOST.search(said)
        why = next((part for part in unfit.groups() if part), "another version of Python than the driver's")
        return Invalid(
            f"The Python of an executor{f' on {host[1]}' if host else ''} cannot run its tasks, met while "
            f"{doing}: {why}.",
            action="Install this release there (statecore[pipeline]) and name its interpreter (executor_python, "
            "STATECORE_EXECUTOR_PYTHON or spark.pyspark.python), or send a packed environment along (spark.archives).",
            host=host[1] if host else None,
            trace=said,
        )
    if _WORKER_DIED.search(said):
        return Capacity(
            f"A worker process of Spark died while {doing}; most often the system killed it for want of memory.",
            action="Look at the kernel's log (dmesg). Give a smaller memory budget, or fewer tasks at once (master "
            "local[1]), and start again; what was finished is found again.",
        )
    if "PythonException" in said:  # outside the part of a task that answers with values
        raised = [line for line in map(str.strip, said.splitlines()) if _RAISED.match(line)]
        return StatecoreError(
            f"A worker process of Spark could not run its task while {doing}: {raised[-1] if raised else _cause(said)}",
            action="Make sure that every executor has this very release of statecore and Python; else report it.",
            trace=said,
        )
    return Retryable(
        f"Spark gave up while {doing}: {_cause(said) or type(error).__name__}",
        action="Look at Spark's log, then start the restore again; what was finished is found again.",
    )


def _cause(said: str) -> str:
    """The one line of a Java stack trace that says why."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    reasons = [line for line in lines if re.match(r"(: )?[\w.$]+(Exception|Error)\b", line)]
    return (reasons or lines or [""])[0].removeprefix(": ")[:500]
