"""Reports of standby tasks, and their metrics, which are the same figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from statecore.metrics import RESTORE_REMAINING, STANDBY_FAILED, STANDBY_TASKS, UPDATED, Metrics


@dataclass(frozen=True)
class StandbyStoreReport:
    """A store that follows its changelog.

    Attributes:
        changelog: changelog partition, ``<topic>-<partition>``.
        offset: last applied offset; -4 if there is none.
        lag: offsets behind the changelog end in the last round; ``None`` before.
        records: records read since the job began.
        rebuilt: how often it was emptied and read from the start.
        error: what stopped it in the last round.
    """

    store: str
    changelog: str
    offset: int
    lag: int | None
    records: int
    rebuilt: int
    error: str | None


@dataclass(frozen=True)
class StandbyTaskReport:
    """A standby task.

    Attributes:
        role: ``standby``, or ``warmup`` while it catches up to take a task over.
        stores: empty if the task could not be opened.
        error: why the task failed, or ``None``.
        exit_code: exit code of the worst error of the last round; 0 without one.
    """

    task: str
    role: str
    stores: tuple[StandbyStoreReport, ...]
    error: str | None
    exit_code: int

    @property
    def lag(self) -> int | None:
        """Lag of all its stores together; ``None`` if that of one is unknown."""
        lags = [store.lag for store in self.stores]
        return None if None in lags or not lags else sum(lag for lag in lags if lag is not None)


@dataclass(frozen=True)
class StandbyReport:
    """State of all standby tasks of a process.

    Attributes:
        rounds: number of rounds so far.
    """

    application_id: str
    state_dir: str
    rounds: int
    tasks: tuple[StandbyTaskReport, ...]

    @property
    def exit_code(self) -> int:
        """Exit code of the worst error; 0 without one."""
        return max((task.exit_code for task in self.tasks), default=0)

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
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
