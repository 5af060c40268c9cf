"""What is wrong with an instance now, by its reports and the last check: red on the page, and first on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from statecore.airflow.failures import RETRIED_KINDS
from statecore.airflow.ui.failing_applications import KEPT_SECONDS
from statecore.airflow.ui.state_view import run_of
from statecore.jobs.attempt import parsed_time
from statecore.jobs.history.report_head import ReportHead, ReportOutcome
from statecore.jobs.history.report_index import InstanceReports

_REFUSED = frozenset({"Invalid", "NotFound"})
"""Kinds of error with which a job is refused; after ``Fenced`` there is no alarm anyway."""

_CHANGING = frozenset({"place", "publish"})
"""Phases in which a job may have changed something."""


_SLOTS = "a slot of its pool and one of the executor (core.parallelism)"


@dataclass(frozen=True)
class Alarm:
    """One thing that is wrong with an instance.

    Attributes:
        error: its kind; empty for what the clock tells, or a verification.
        code: of the error, or a reason code.
        since: when it began, as far as is known (ISO 8601, UTC); empty otherwise.
        tried_every: how often the schedule tries again, if that may succeed without a person; else empty.
    """

    error: str
    code: str
    what: str
    action: str
    since: str = ""
    tried_every: str = ""


@dataclass(frozen=True)
class Standing:
    """An instance with what was found of its snapshots.

    Attributes:
        now: seconds since the epoch.
        fresh: what the last check found (``store_page``); ``None`` for a state directory, or without checks.
        tick: how often ``checkpoint_stores`` runs by itself, as a duration; empty for never.
    """

    reports: InstanceReports
    now: float
    fresh: Mapping[str, Any] | None = None
    tick: str = ""

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
    def alarms(self) -> tuple[Alarm, ...]:
        """What is wrong with it, the causes first; nothing unless it is red."""
        return tuple(self._alarms())

    def _alarms(self) -> Iterator[Alarm]:
        failure = None if self.is_fenced else self.failure
        if failure is not None:
            yield self.alarm_of(failure, self.failing_since)
        if self.verification is not None and self.verification is not failure:
            yield self.alarm_of(self.verification, self.verification.failing_since)
        fresh = self.fresh
        if fresh is None:
            return
        if fresh["is_damaged"] and self.verification is None:
            yield Alarm(
                "",
                "snapshot-damaged",
                "A verification has found damaged snapshots.",
                "The report of verify_snapshots, or statecore repo verify, names what is damaged, and what to do.",
            )
        if fresh["is_unchecked"] and not (failure and self.is_explained):
            yield Alarm(
                "",
                "check-missing",
                "No run of checkpoint_stores has found out whether a checkpoint is due.",
                f"Check whether the Dag is paused, whether Airflow's scheduler runs, and whether {_SLOTS} are free; "
                "then read the log of its newest task decide.",
                str(fresh["checked"]),
            )
        elif fresh["is_late"] and failure is None:
            yield Alarm(
                "",
                "snapshot-late",
                "The newest snapshot lacks the records of more than two intervals, and no attempt has failed.",
                f"Open the newest run of checkpoint_stores. If its tasks wait, check whether {_SLOTS} are free. If "
                "there is no run of the last minutes, check whether the Dag is paused, and whether Airflow's scheduler "
                "runs.",
                str(fresh["current"]),
            )

    def alarm_of(self, failure: ReportHead, since: str = "") -> Alarm:
        """The alarm of an attempt that failed."""
        error = failure.error
        kind, code = error.get("error", "unknown"), error.get("code", "")
        run = run_of(failure.attempt.request_id)
        is_scheduled = run is not None and run.dag_id == "checkpoint_stores"
        tried_every = self.tick if is_scheduled and kind in RETRIED_KINDS else ""
        return Alarm(kind, code, error.get("what", ""), error.get("action", ""), since or failure.when, tried_every)

    @property
    def is_red(self) -> bool:
        return bool(self.alarms)


def _has_failed(head: ReportHead) -> bool:
    return head.outcome is ReportOutcome.FAILED


def _was_refused(head: ReportHead) -> bool:
    """Whether a job was refused before it could change anything."""
    return _has_failed(head) and head.error.get("error") in _REFUSED and head.error.get("phase") not in _CHANGING


def _is_verification(head: ReportHead) -> bool:
    run = run_of(head.attempt.request_id)
    return run is not None and run.dag_id == "verify_snapshots"
