"""Limits the report lines of standby rounds.

While a task has much to read, or its snapshot is fetched, rounds follow each other at once; hours of equal lines would
hide what an operator has to read.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from statecore.progress import Clock
from statecore.standby.report import StandbyReport


class RoundReports:
    """Reports after complete rounds; after others only if something changed or an interval has passed."""

    def __init__(
        self, on_report: Callable[[StandbyReport], object], interval: float, clock: Clock = time.monotonic
    ) -> None:
        self._report, self._interval, self._clock = on_report, interval, clock
        self._state: object = None
        self._reported_at = 0.0

    def end_round(self, report: StandbyReport, *, is_complete: bool) -> None:
        """Report the end of a round; it is whole if the next one starts only after the interval."""
        # Without the lag, which changes in every round.
        state = [(task.task, task.role, task.exit_code, task.lag is None) for task in report.tasks]
        now = self._clock()
        if is_complete or state != self._state or now - self._reported_at >= self._interval:
            self._state, self._reported_at = state, now
            self._report(report)
