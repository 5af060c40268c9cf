"""What a standby is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from statecore.errors import Invalid
from statecore.jobs.declaration import declare
from statecore.jobs.request import LIMITS, PATIENCE, WHAT, OfSpec, check_memory_budget, check_state_dir
from statecore.jobs.task_names import check_instance, only_tasks
from statecore.jobs.values import Duration, FilePath, Flag, Size, Text
from statecore.runtime.assignment.static import INSTANCE, Instance

DEFAULT_INTERVAL_MS = 30_000
"""That of Kafka Streams' ``commit.interval.ms``."""


def _check_interval(_: str, interval: int) -> None:
    if interval < 1:
        raise Invalid(f"{interval} ms is no time between two rounds.", action="Give a time such as 30s.")


@dataclass(frozen=True, kw_only=True)
class StandbyRequest(OfSpec):
    """A request to keep warm copies of tasks of one application."""

    state_dir: str = field(
        metadata=declare(
            FilePath(where="on this machine"),
            title="State directory",
            help="where the copies are kept, in the layout of a state.dir; never that of a running instance",
            check=check_state_dir,
        ),
    )
    tasks: tuple[str, ...] = field(default=(), metadata=only_tasks("every task"))
    instance: str | None = field(
        default=None,
        metadata=declare(
            Text("I/N", pattern=INSTANCE.pattern),
            title="Instance",
            help="only the share of instance I of N, counted from 0 as a StatefulSet does: tasks whose subtopology and "
            "partition, added up, leave I when they are divided by N",
            section=WHAT,
            check=check_instance,
        ),
    )
    interval: int = field(
        default=DEFAULT_INTERVAL_MS,
        metadata=declare(
            Duration(),
            title="Interval",
            help="time between two rounds, at the end of which rows and offsets are committed: commit.interval.ms of a "
            "standby task",
            section=WHAT,
            check=_check_interval,
        ),
    )
    once: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Once",
            help="bring the copies to the end of the changelogs, and stop",
            section=WHAT,
        ),
    )
    memory_budget: int = field(
        default=64 << 20,
        metadata=declare(
            Size(),
            title="Memory",
            help="memory for the records of the store that is being followed; what it does not hold lies on disk "
            "meanwhile",
            section=LIMITS,
            check=check_memory_budget,
        ),
    )
    timeout: float = field(default=30.0, metadata=PATIENCE)

    def __post_init__(self) -> None:
        """Look at every value. Raises ``Invalid``."""
        super().__post_init__()
        if self.tasks and self.instance is not None:
            raise Invalid(
                "Both tasks and the share of an instance were asked for.", action="Give --task or --instance."
            )

    def wants(self, task: str) -> bool:
        """Whether a task is asked for."""
        if self.tasks:
            return task in self.tasks
        return self.instance is None or Instance.parse(self.instance).has(task)
