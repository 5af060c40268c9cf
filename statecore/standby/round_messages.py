"""Which rounds of a standby are worth a line.

Rounds follow each other at once while a task has much to read, and soon while its snapshot is fetched: hours of lines
that say the same would hide what an operator has to read.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from statecore.progress import Clock
from statecore.standby.report import StandbyReport


class RoundMessages:
    """Passes on how the copies stand: after whole rounds, after others where something changed or an interval is over.

    Args:
        told: told how the copies stand.
        interval: seconds after which it is told in any case.
        clock: seconds that never go back.
    """

    def __init__(self, told: Callable[[StandbyReport], object], interval: float, clock: Clock = time.monotonic) -> None:
        self._told, self._interval, self._clock = told, interval, clock
        self._state: object = None
        self._told_at = 0.0

    def round(self, report: StandbyReport, *, is_whole: bool) -> None:
        """A round has ended.

        Args:
            report: how the copies stand.
            is_whole: whether the next one begins after the interval only.
        """
        # Not the lag: it is another one after each round.
        state = [(task.task, task.role, task.exit_code, task.lag is None) for task in report.tasks]
        now = self._clock()
        if is_whole or state != self._state or now - self._told_at >= self._interval:
            self._state, self._told_at = state, now
            self._told(report)
