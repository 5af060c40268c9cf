"""How warm copies stand, for people and for machines."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class StandbyStoreReport:
    """A store that follows its changelog.

    Attributes:
        store: its name.
        changelog: its changelog partition, ``<topic>-<partition>``.
        offset: the last applied offset; -4 where nothing was.
        lag: how many offsets it was behind when the brokers were asked last; ``None`` before.
        records: how many records were read since the job began.
        rebuilt: how often it was emptied and read from the start.
        error: what stopped it in the last round, or ``None``.
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
    """A task that is kept warm.

    Attributes:
        task: the task.
        role: ``standby``, or ``warmup`` while it catches up to take a task over.
        stores: its stores; none where it could not be opened.
        error: why it was left, or ``None``.
        exit_code: of the worst error of the task's last round; 0 without one.
    """

    task: str
    role: str
    stores: tuple[StandbyStoreReport, ...]
    error: str | None
    exit_code: int

    @property
    def lag(self) -> int | None:
        """How many offsets its stores were behind together; ``None`` where that is not known of one."""
        lags = [store.lag for store in self.stores]
        return None if None in lags or not lags else sum(lag for lag in lags if lag is not None)


@dataclass(frozen=True)
class StandbyReport:
    """How the copies stand.

    Attributes:
        application_id: whose.
        state_dir: where they lie.
        rounds: how many rounds there were.
        tasks: the tasks.
    """

    application_id: str
    state_dir: str
    rounds: int
    tasks: tuple[StandbyTaskReport, ...]

    @property
    def exit_code(self) -> int:
        """That of the worst error; 0 without one."""
        return max((task.exit_code for task in self.tasks), default=0)

    def to_json(self) -> dict[str, Any]:
        """The report as one JSON object."""
        return {**asdict(self), "exit_code": self.exit_code}
