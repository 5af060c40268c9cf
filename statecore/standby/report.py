"""Reports of standby tasks, and their metrics, which are the same figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from statecore.metrics import RESTORE_REMAINING, STANDBY_FAILED, STANDBY_TASKS, UPDATED, Metrics


@dataclass(frozen=True)
class StandbyStoreReport:
    """A store that follows its changelog."""

    store: str
    changelog: str  # changelog partition, <topic>-<partition>
    offset: int  # last applied offset; -4 if there is none
    lag: int | None  # offsets behind the changelog end in the last round; None before
    records: int  # records read since the job began
    rebuilt: int  # how often it was emptied and read from the start
    error: str | None  # what stopped it in the last round


@dataclass(frozen=True)
class StandbyTaskReport:
    """A standby task."""

    task: str
    role: str  # standby, or warmup while it catches up to take a task over
    stores: tuple[StandbyStoreReport, ...]  # empty if the task could not be opened
    error: str | None  # why the task failed, or None
    exit_code: int  # exit code of the worst error of the last round; 0 without one

    @property
    def lag(self) -> int | None:
        """Lag of all its stores together; ``None`` if that of one is unknown."""
        lags = [store.lag for store in self.stores]
        return None if None in lags or not lags else sum(lag for lag in lags if lag is not None)


@dataclass(frozen=True)
class StandbyReport:
    """State of all standby tasks of a process."""

    application_id: str
    state_dir: str
    rounds: int  # number of rounds so far
    tasks: tuple[StandbyTaskReport, ...]

    @property
    def exit_code(self) -> int:
        """Exit code of the worst error; 0 without one."""
        return max((task.exit_code for task in self.tasks), default=0)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "exit_code": self.exit_code}


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
        self._metrics.add(UPDATED, records, self._of(task))

    def close(self) -> None:
        """Unregister the gauges."""
        for end in self._ends:
            end()

    def _of(self, task: str) -> dict[str, str]:
        return {**self._tags, "task-id": task}


def _count(tasks: Sequence[StandbyTaskReport], *, failed: bool) -> float:
    return float(sum((task.exit_code != 0) is failed for task in tasks))
