from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from airflow.sdk import RetryAction
from airflow.sdk.definitions.retry_policy import ExceptionRetryPolicy
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from statecore import errors
from statecore.airflow import failures


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (errors.Retryable, failures.JobUnavailable),
        (errors.Capacity, failures.JobCapacity),
        (errors.Fenced, failures.JobRefused),
        (errors.Invalid, failures.JobRefused),
        (errors.NotFound, failures.JobRefused),
        (errors.Corrupted, failures.JobRefused),
    ],
)
def test_each_kind_of_error_has_its_exception(kind: type[errors.StatecoreError], expected: type) -> None:
    raised = failures.refused(kind("It broke.", code="test-error", action="Mend it."))
    assert type(raised) is expected
    # AirflowFailException is what Airflow never retries; the retried ones must not be one.
    assert isinstance(raised, AirflowFailException) is (expected is failures.JobRefused)
    assert isinstance(raised, AirflowException)


def test_every_kind_of_error_is_decided_on() -> None:
    refused = {"Fenced", "Invalid", "NotFound", "Corrupted"}
    assert set(errors.KINDS) == refused | set(failures.RETRIED_KINDS)


def test_the_caller_may_have_no_error_retried() -> None:
    error = errors.Retryable("No broker answers.", code="test-error", action="Wait.").to_json()
    assert type(failures.exception_for(error)) is failures.JobUnavailable
    assert type(failures.exception_for(error, retried=False)) is failures.JobRefused


def test_an_unknown_kind_is_not_retried() -> None:
    assert type(failures.exception_for({"error": "Novel", "what": "?"})) is failures.JobRefused


def test_the_message_says_what_happened_what_to_do_and_where() -> None:
    error = errors.NotFound("There is no topic.", code="topic-not-found", action="Correct it.", partition=3)
    what, action, context = str(failures.refused(error)).splitlines()
    assert what == f"NotFound (topic-not-found): {error.what}"
    assert action.endswith(f": {error.action}")
    assert context.endswith(": partition=3")


def test_the_tasks_log_has_the_code_and_is_written_line_by_line() -> None:
    lines: list[str] = []
    log = SimpleNamespace(error=lambda text, *values: lines.append(text % values))
    failures.refused(errors.Fenced("Two\nlines.", code="application-running", action="Stop it."), log)
    assert lines[:2] == ["Fenced (application-running): Two", "lines."]
    assert [line.endswith("Stop it.") for line in lines[2:]] == [True]


def test_an_error_without_a_code_of_an_older_report_is_shown() -> None:
    said = {"error": "Fenced", "exit_code": 11, "what": "It runs.", "action": "Stop it.", "context": {}}
    what, action = str(failures.exception_for(said)).splitlines()
    assert (what, action.endswith("Stop it.")) == ("Fenced: It runs.", True)


def test_an_error_already_logged_by_line_is_not_repeated() -> None:
    problems = ["0_0 holds the store already", "0_1 holds the store already"]
    what = "Not placed:\n" + "".join(f"  {one}\n" for one in problems)
    error = errors.Invalid(
        what, code="placement-refused", action="Do what each line says.", state_dir="/state", problems=problems
    )
    kind, *told, action, context = str(failures.refused(error)).splitlines()
    assert kind.startswith("Invalid (placement-refused): ")
    assert told == [f"  {one}" for one in problems]
    assert action.endswith(error.action)
    assert context.endswith(": state_dir=/state")


@pytest.mark.parametrize(
    ("exception", "action", "delay"),
    [
        (failures.JobUnavailable("x"), RetryAction.RETRY, timedelta(seconds=30)),
        (failures.JobCapacity("x"), RetryAction.RETRY, timedelta(minutes=10)),
        (AirflowException("the driver died"), RetryAction.DEFAULT, None),
    ],
)
def test_delays_follow_the_kind_also_after_the_policy_was_serialized(
    exception: Exception, action: RetryAction, delay: timedelta | None
) -> None:
    for policy in (failures.retry_policy(), ExceptionRetryPolicy.deserialize(failures.retry_policy().serialize())):
        decision = policy.evaluate(exception, try_number=1, max_tries=3)
        assert (decision.action, decision.retry_delay) == (action, delay)
