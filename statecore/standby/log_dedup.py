"""Deduplicates what a standby service prints: a problem once while it lasts, a report when something changed.

While a task has much to read, or its snapshot is fetched, rounds follow each other at once; hours of equal lines would
hide what an operator has to read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping

from statecore.errors import StatecoreError
from statecore.progress import Clock
from statecore.standby.report import StandbyReport
from statecore.words import shortened_list

_NUMBERS = re.compile(r"[0-9][0-9,.]*")


class Messages:
    """Emits a problem when it appears, once for all tasks that have it, and not again while it lasts."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._problems: dict[str, str] = {}
        self._recovered: list[str] = []
        self._last: dict[str, dict[str, str]] = {}
        self._are_unreachable = False

    def brokers_unreachable(self, error: StatecoreError) -> None:
        """No broker answers, so no task can be followed."""
        if not self._are_unreachable:
            self._are_unreachable = True
            self._say(f"No task is followed until the brokers answer; the copies stay as they are: {error}")

    def brokers_answered(self) -> None:
        """The brokers answered."""
        if self._are_unreachable:
            self._are_unreachable = False
            self._say("The brokers answer again; the copies are followed.")

    def problem(self, tasks: Iterable[str], why: str) -> None:
        """A problem keeps tasks, or some of their stores, from being followed."""
        new = [task for task in tasks if self._problems.get(task) != why]
        self._problems |= dict.fromkeys(new, why)
        if new:
            self._say(f"{_named(new)}: {why}")

    def task_failed(self, task: str, error: StatecoreError) -> None:
        """A task failed and is retried later."""
        if self._problems.get(task) != str(error):
            self._problems[task] = str(error)
            self._say(f"Task {task} failed and is retried later; its copy stays as it is: {error}")

    def task_is_well(self, task: str) -> None:
        """A task has no problem."""
        if self._problems.pop(task, None) is not None:
            self._recovered.append(task)

    def forget(self, task: str) -> None:
        """A task was removed."""
        self._problems.pop(task, None)

    def changes(self, kind: str, texts: Mapping[str, str]) -> None:
        """Emit the texts of a kind that changed since the last call, by name; numbers (offsets) are not compared."""
        before = self._last.get(kind, {})
        self._last[kind] = now = {name: _NUMBERS.sub("", text) for name, text in texts.items()}
        for name, text in texts.items():
            if before.get(name) != now[name]:
                self._say(text)

    def end_round(self) -> None:
        """Report the tasks that recovered in this round."""
        if self._recovered:
            self._say(f"{_named(self._recovered)} {'is' if len(self._recovered) == 1 else 'are'} followed again.")
            self._recovered = []


def _named(tasks: list[str]) -> str:
    return f"Task{'' if len(tasks) == 1 else 's'} {shortened_list(tasks)}"


class RoundReports:
    """Reports after complete rounds; after others only if something changed or an interval has passed."""

    def __init__(
        self, on_report: Callable[[StandbyReport], object], interval: float, clock: Clock = time.monotonic
    ) -> None:
        self._report, self._interval, self._clock = on_report, interval, clock
        self._state: object = None
        self._reported_at = 0.0

    def end_round(self, report: StandbyReport, *, is_complete: bool) -> None:
        """Report the end of a round; it is complete if the next one starts only after the interval."""
        # Without the lag, which changes in every round.
        state = [(task.task, task.role, task.exit_code, task.lag is None) for task in report.tasks]
        now = self._clock()
        if is_complete or state != self._state or now - self._reported_at >= self._interval:
            self._state, self._reported_at = state, now
            self._report(report)
