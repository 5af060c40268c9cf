"""What is wrong with an instance now."""

from __future__ import annotations

import pytest

from statecore.airflow.ui.failing_applications import KEPT_SECONDS
from statecore.airflow.ui.standing import Standing
from statecore.jobs.attempt import Attempt
from statecore.jobs.history.report_head import read_head
from statecore.jobs.history.report_index import InstanceReports
from tests.unit.jobs.reports import BEGAN, attempt, done, entry, failed


def standing(tried: Attempt, age: float, **error: str) -> Standing:
    """An instance whose only attempt failed that many seconds ago."""
    head = read_head(failed(tried, **error))
    return Standing(InstanceReports(tried.instance, (head,), ()), BEGAN + age)


@pytest.mark.parametrize(
    ("kind", "phase", "is_over"),
    [
        ("Invalid", "", True),
        ("NotFound", "plan", True),
        ("Invalid", "place", False),
        ("NotFound", "publish", False),
        ("Corrupted", "plan", False),
        ("Retryable", "", False),
    ],
)
def test_a_restore_that_was_refused_is_an_alarm_for_a_day(kind: str, phase: str, is_over: bool) -> None:
    error = {"error": kind, "code": "owner-unknown", "phase": phase}
    first, second = (standing(attempt(0), KEPT_SECONDS + more, **error) for more in (-1, 1))
    assert (first.is_over, first.is_red) == (False, True)
    assert (second.is_over, second.is_red) == (is_over, not is_over)


def test_a_publication_that_was_refused_is_an_alarm_until_the_next_one() -> None:
    error = {"error": "Invalid", "code": "partition-unknown"}
    assert standing(attempt(0, state_dir=""), 2 * KEPT_SECONDS, **error).is_red


def test_a_refusal_after_a_job_that_may_have_changed_something_stays_an_alarm() -> None:
    tried = attempt(0)
    refused = read_head(failed(tried, error="Invalid", code="owner-unknown", phase="plan"))
    dead = read_head(failed(attempt(-60), error="Retryable", code="disk-failed", phase="place"))
    assert Standing(InstanceReports(tried.instance, (refused, dead), ()), BEGAN + 2 * KEPT_SECONDS).is_red


@pytest.mark.parametrize("state_dir", ["", "/s"])
def test_an_attempt_that_runs_does_not_hide_the_failure_before_it(state_dir: str) -> None:
    tried = attempt(0, state_dir)
    dead = failed(tried, error="Retryable", code="broker-unreachable")
    heads = [read_head(one) for one in (attempt(9, state_dir).begun(), attempt(6, state_dir).begun(), dead)]
    found = Standing(InstanceReports(tried.instance, tuple(heads), ()), BEGAN + 10)
    assert (found.failure, found.last, found.is_red) == (heads[2], heads[0], True)
    assert found.failing_since == tried.started
    heads.insert(1, read_head(done(attempt(7, state_dir), entry("s", 0))))
    found = Standing(InstanceReports(tried.instance, tuple(heads), ()), BEGAN + 10)
    assert (found.failure, found.is_red) == (None, False)
