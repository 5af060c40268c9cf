"""What is wrong with an instance now, by its reports and the last check: red on the page, and first on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from statecore.airflow.ui.failing_applications import KEPT_SECONDS
from statecore.airflow.ui.state_view import run_of
from statecore.jobs.attempt import parsed_time
from statecore.jobs.history.report_head import ReportHead, ReportOutcome
from statecore.jobs.history.report_index import InstanceReports

_REFUSED = frozenset({"Invalid", "NotFound"})
"""Kinds of error with which a job is refused; after ``Fenced`` there is no alarm anyway."""

_CHANGING = frozenset({"place", "publish"})
"""Phases in which a job may have changed something."""


@dataclass(frozen=True)
class Standing:
    """An instance with what was found of its snapshots.

    Attributes:
        now: seconds since the epoch.
        fresh: what the last check found (``store_page``); ``None`` for a state directory, or without checks.
    """

    reports: InstanceReports
    now: float
    fresh: Mapping[str, Any] | None = None

    @property
    def last(self) -> ReportHead:
        """The latest attempt."""
        return self.reports.last

    @property
    def ended(self) -> ReportHead:
        """The latest attempt whose end was reported: one that runs says nothing yet. The latest if there is none."""
        running = (ReportOutcome.BEGUN, ReportOutcome.PLANNED)
        return next((one for one in self.reports.attempts if one.outcome not in running), self.last)

    @property
    def verification(self) -> ReportHead | None:
        """The verification that failed, if one did.

        No other job ends that: ``verify_snapshots`` deletes its report when it knows of no damage any more.
        """
        return next((one for one in self.reports.attempts if _has_failed(one) and _is_verification(one)), None)

    @property
    def is_over(self) -> bool:
        """Whether the latest attempt that ended has failed, and that says nothing of now any more.

        That is where a later check has found that the snapshot has all records. A job of a state directory that was
        refused has changed nothing, and no check looks at the directory: it is over after as long as a refusal of the
        spec is kept.
        """
        fresh, last = self.fresh, self.ended
        if not _has_failed(last) or _is_verification(last):
            return False
        if self.reports.instance.state_dir:
            since = takewhile(lambda one: not one.succeeded, self.reports.attempts)
            return all(map(_was_refused, since)) and self._is_past(last.when)
        return fresh is not None and not fresh["is_late"] and str(fresh["current"]) > last.when

    @property
    def failure(self) -> ReportHead | None:
        """The latest attempt that ended, if it failed and that is not over.

        A newer attempt that runs does not hide it: in an outage each of them waits long, and would hide the cause.
        """
        return self.ended if _has_failed(self.ended) and not self.is_over else None

    @property
    def is_fenced(self) -> bool:
        """Whether that failure is a refusal, because another process had the directory or the head.

        It has changed nothing, and is no alarm.
        """
        return self.failure is not None and self.failure.error.get("error") == "Fenced"

    def _is_past(self, when: str) -> bool:
        time = parsed_time(when)
        return time is not None and self.now - time.timestamp() > KEPT_SECONDS

    @property
    def failing_since(self) -> str:
        """When the first failure since the last success was; empty without a failure."""
        if self.failure is None or _is_verification(self.failure):
            return "" if self.failure is None else self.failure.failing_since
        since = takewhile(lambda one: not one.succeeded, self.reports.attempts)
        return min(one.failing_since or one.when for one in since if _has_failed(one) and not _is_verification(one))

    @property
    def is_explained(self) -> bool:
        """Whether there is no new check, and the latest attempt has failed since the last one: it says why."""
        return self.failure is not None and self.fresh is not None and self.failure.when > str(self.fresh["checked"])

    @property
    def is_red(self) -> bool:
        fresh = self.fresh
        is_bad = fresh is not None and (fresh["is_late"] or fresh["is_unchecked"] or fresh["is_damaged"])
        return bool(is_bad or self.verification or (self.failure and not self.is_fenced))


def _has_failed(head: ReportHead) -> bool:
    return head.outcome is ReportOutcome.FAILED


def _was_refused(head: ReportHead) -> bool:
    """Whether a job was refused before it could change anything."""
    return _has_failed(head) and head.error.get("error") in _REFUSED and head.error.get("phase") not in _CHANGING


def _is_verification(head: ReportHead) -> bool:
    run = run_of(head.attempt.request_id)
    return run is not None and run.dag_id == "verify_snapshots"
