"""Maps the errors of jobs to Airflow's exceptions: retry, or fail at once with what to do.

A job that fails writes its ``StatecoreError`` as JSON to the report file.

==========  ==================  ============================================
kind        exception           what Airflow does
==========  ==================  ============================================
Retryable   ``JobUnavailable``  retries soon
Capacity    ``JobCapacity``     retries late: space has to be freed first
Fenced      ``JobRefused``      fails at once: a running application
                                does not stop by itself
Invalid     ``JobRefused``      fails at once
NotFound    ``JobRefused``      fails at once
Corrupted   ``JobRefused``      fails at once
a defect    ``JobRefused``      fails at once
none        Spark's own error   retries: the driver was killed or died
==========  ==================  ============================================
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from statecore.errors import StatecoreError, kind_and_code

PROBLEMS = "problems"
"""The key of an error's context whose content the message already lists line by line."""

_REASON_LENGTH = 400

RETRIED_KINDS = ("Retryable", "Capacity")
"""Kinds of error that are retried."""


class JobRefused(AirflowFailException):
    """The job refused and would refuse again: the task fails without a retry.

    Attributes:
        reason: kind, code and first sentence of the job's error, for pages and the outcome; empty without one.
    """

    reason: str = ""


class JobUnavailable(AirflowException):
    """An external system was not available in time; a retry may succeed."""

    reason: str = ""


class JobCapacity(JobUnavailable):
    """Disk, memory or time was not enough; a retry may succeed once there is more of it."""


class Log(Protocol):
    """The method of a logger that is used here."""

    def error(self, text: str, *values: Any) -> None:
        """Log at level ERROR."""


def exception_for(error: Mapping[str, Any], log: Log | None = None, *, retried: bool = True) -> AirflowException:
    """The exception for a job's error; without ``retried`` one that Airflow does not retry, whatever its kind."""
    kind = str(error.get("error", "unknown"))
    message = describe(error)
    if log is not None:
        log_error(error, log)
    exception: JobRefused | JobUnavailable
    if not retried or kind not in RETRIED_KINDS:
        exception = JobRefused(message)
    else:
        exception = JobCapacity(message) if kind == "Capacity" else JobUnavailable(message)
    exception.reason = short_reason(error)
    return exception


def short_reason(error: Mapping[str, Any]) -> str:
    """Kind and code of an error with the first line of its text, of bounded length."""
    what = str(error.get("what", "")).strip().partition("\n")[0]
    return f"{kind_and_code(error)}: {what}"[:_REASON_LENGTH] if what else kind_and_code(error)


def refused(error: StatecoreError, log: Log | None = None) -> AirflowException:
    """The exception for an error raised in the task itself, before a job was started."""
    return exception_for(error.to_json(), log=log)


def log_error(error: Mapping[str, Any], log: Log) -> None:
    for line in describe(error).splitlines():
        log.error("%s", line)


def describe(error: Mapping[str, Any]) -> str:
    """Kind, code, message, action and context of an error, for the task's log and alerts."""
    text = f"{kind_and_code(error)}: {str(error.get('what', 'the job reported no reason.')).rstrip()}"
    if action := error.get("action"):
        text += f"\nWhat to do: {action}"
    context = error.get("context")
    if isinstance(context, Mapping):
        where = [f"{name}={value}" for name, value in context.items() if name != PROBLEMS]
        if where:
            text += f"\nWhere: {', '.join(where)}"
    return text


def retry_policy() -> ExceptionRetryPolicy:
    """Retry delays by kind of error; ``JobRefused`` needs no rule, because Airflow never retries it."""
    return ExceptionRetryPolicy(
        rules=[
            RetryRule(
                exception=f"{__name__}.JobCapacity",
                action=RetryAction.RETRY,
                retry_delay=timedelta(minutes=10),
                reason="not enough disk, memory or time",
            ),
            RetryRule(
                exception=f"{__name__}.JobUnavailable",
                action=RetryAction.RETRY,
                retry_delay=timedelta(seconds=30),
                reason="an external system was not available in time",
            ),
        ]
    )
