"""What is measured of tasks that are kept warm: the same that the line of a round counts.

A gauge has no value where nobody knows one: 0 would say that a copy is caught up of which nobody knows how far it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from statecore.metrics import RESTORE_REMAINING, STANDBY_FAILED, STANDBY_TASKS, UPDATED, Metrics
from statecore.standby.report import StandbyTaskReport


class StandbyMetrics:
    """The metrics of one process's tasks.

    Args:
        metrics: who is told.
        application_id: whose tasks they are.
        reports: how the tasks stand now; asked from the thread that collects.
    """

    def __init__(
        self, metrics: Metrics, application_id: str, reports: Callable[[], Sequence[StandbyTaskReport]]
    ) -> None:
        self._metrics, self._tags = metrics, {"application-id": application_id}
        self._ends = (
            metrics.observe(STANDBY_TASKS, lambda: _count(reports(), failed=False), self._tags),
            metrics.observe(STANDBY_FAILED, lambda: _count(reports(), failed=True), self._tags),
        )

    def opened(self, task: str, report: Callable[[], StandbyTaskReport]) -> Callable[[], None]:
        """A task is open from now on.

        Args:
            task: its name.
            report: how it stands now.

        Returns:
            A function to be called when it is closed.
        """

        def remaining() -> float | None:
            lag = report().lag
            return None if lag is None else float(lag)

        return self._metrics.observe(RESTORE_REMAINING, remaining, self._of(task))

    def updated(self, task: str, records: int) -> None:
        """So many records of a task were followed."""
        self._metrics.add(UPDATED, records, self._of(task))

    def close(self) -> None:
        """Tell no more."""
        for end in self._ends:
            end()

    def _of(self, task: str) -> dict[str, str]:
        return {**self._tags, "task-id": task}


def _count(tasks: Sequence[StandbyTaskReport], *, failed: bool) -> float:
    return float(sum((task.exit_code != 0) is failed for task in tasks))
