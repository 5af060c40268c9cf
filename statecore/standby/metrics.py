"""Metrics of standby tasks: the same figures as the line of a round.

A gauge has no value while its figure is unknown: 0 would say that the copy is caught up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from statecore.metrics import RESTORE_REMAINING, STANDBY_FAILED, STANDBY_TASKS, UPDATED, Metrics
from statecore.standby.report import StandbyTaskReport


class StandbyMetrics:
    """Metrics of one process's tasks."""

    def __init__(
        self, metrics: Metrics, application_id: str, reports: Callable[[], Sequence[StandbyTaskReport]]
    ) -> None:
        self._metrics, self._tags = metrics, {"application-id": application_id}
        self._ends = (
            metrics.observe(STANDBY_TASKS, lambda: _count(reports(), failed=False), self._tags),
            metrics.observe(STANDBY_FAILED, lambda: _count(reports(), failed=True), self._tags),
        )

    def add_task(self, task: str, report: Callable[[], StandbyTaskReport]) -> Callable[[], None]:
        """Register an open task; returns a function to call when it is closed."""

        def remaining() -> float | None:
            lag = report().lag
            return None if lag is None else float(lag)

        return self._metrics.observe(RESTORE_REMAINING, remaining, self._of(task))

    def count_records(self, task: str, records: int) -> None:
        """Count records of a task."""
        self._metrics.add(UPDATED, records, self._of(task))

    def close(self) -> None:
        """Unregister the gauges."""
        for end in self._ends:
            end()

    def _of(self, task: str) -> dict[str, str]:
        return {**self._tags, "task-id": task}


def _count(tasks: Sequence[StandbyTaskReport], *, failed: bool) -> float:
    return float(sum((task.exit_code != 0) is failed for task in tasks))
