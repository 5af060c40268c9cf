"""How a job's error becomes Airflow's decision: try again, or stop at once and say what to do.

A job that fails writes its ``StatecoreError`` as JSON to the report file. Retrying a spec error ten times only hides
it; not retrying a broker that restarts wakes somebody for nothing.

==========  ==================  ============================================
kind        exception           what Airflow does
==========  ==================  ============================================
Retryable   ``JobUnavailable``  retries soon
Capacity    ``JobCapacity``     retries late: room has to be made
Fenced      ``JobRefused``      fails at once, unless the operator is told
                                ``retry_on=(..., "Fenced")``: a running
                                application does not stop by itself
Invalid     ``JobRefused``      fails at once
NotFound    ``JobRefused``      fails at once
Corrupted   ``JobRefused``      fails at once
none        Spark's own error   retries: the driver was killed or died
==========  ==================  ============================================
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, Protocol

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from statecore.errors import StatecoreError, kind_and_code

PROBLEMS = "problems"
"""The name in an error's context of what its message tells line by line already."""

RETRIED_KINDS = ("Retryable", "Capacity")
"""Kinds of error that a later try may get over."""


class JobRefused(AirflowFailException):
    """The job said no, and would say no again: the task fails without another try.

    Attributes:
        reason: kind and code of the job's error; empty where there is none.
    """

    reason: str = ""


class JobUnavailable(AirflowException):
    """Something outside was not there in time; another try may succeed.

    Attributes:
        reason: kind and code of the job's error.
    """

    reason: str = ""


class JobCapacity(JobUnavailable):
    """Disk, memory or time was not enough; another try may succeed once there is room."""


class Log(Protocol):
    """As much of a logger as is used here."""

    def error(self, text: str, *values: Any) -> None:
        """Write a line."""


def exception_for(
    error: Mapping[str, Any], retry_on: Collection[str] = RETRIED_KINDS, log: Log | None = None
) -> AirflowException:
    """The exception for a job's error.

    Args:
        error: ``StatecoreError.to_json()`` as read from the report.
        retry_on: the kinds that are worth another try.
        log: the task's log, which gets the message line by line: Airflow shows an exception's as one.
    """
    kind = str(error.get("error", "unknown"))
    message = describe(error)
    if log is not None:
        log_error(error, log)
    exception: JobRefused | JobUnavailable
    if kind not in retry_on:
        exception = JobRefused(message)
    else:
        exception = JobCapacity(message) if kind == "Capacity" else JobUnavailable(message)
    exception.reason = kind_and_code(error)
    return exception


def refused(error: StatecoreError, log: Log | None = None) -> AirflowException:
    """The exception for an error raised in the task itself, before any job was started."""
    return exception_for(error.to_json(), log=log)


def log_error(error: Mapping[str, Any], log: Log) -> None:
    """Write an error to a task's log, line by line."""
    for line in describe(error).splitlines():
        log.error("%s", line)


def describe(error: Mapping[str, Any]) -> str:
    """The kind and the code, what happened, what to do, and the names as fields; for the task's log and the alert."""
    text = f"{kind_and_code(error)}: {str(error.get('what', 'the job gave no reason.')).rstrip()}"
    if action := error.get("action"):
        text += f"\nWhat to do: {action}"
    context = error.get("context")
    if isinstance(context, Mapping):
        where = [f"{name}={value}" for name, value in context.items() if name != PROBLEMS]
        if where:
            text += f"\nWhere: {', '.join(where)}"
    return text


def retry_policy() -> ExceptionRetryPolicy:
    """Delays by the kind of error; ``JobRefused`` needs no rule, Airflow fails on it at once."""
    return ExceptionRetryPolicy(
        rules=[
            RetryRule(
                exception=f"{__name__}.JobCapacity",
                action=RetryAction.RETRY,
                retry_delay=timedelta(minutes=10),
                reason="no room for now",
            ),
            RetryRule(
                exception=f"{__name__}.JobUnavailable",
                action=RetryAction.RETRY,
                retry_delay=timedelta(seconds=30),
                reason="something outside was not there in time",
            ),
        ]
    )
