"""What a standby is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from statecore.errors import Invalid
from statecore.jobs.field_types import Duration, FilePath, Flag, Size, Text, Whole
from statecore.jobs.fields import declare
from statecore.jobs.instance_share import INSTANCE, Instance
from statecore.jobs.restore.request import (
    LIMITS,
    PATIENCE,
    WHAT,
    OfSpec,
    check_memory_budget,
    check_repository,
    check_state_dir,
)
from statecore.jobs.task_names import check_instance, only_tasks
from statecore.standby.assignment.model import AssignmentSettings

DEFAULT_INTERVAL_MS = 30_000
"""That of Kafka Streams' ``commit.interval.ms``."""


FLEET = "Fleet"
"""The heading of what concerns a group."""

DEFAULT_SESSION_MS = 45_000
"""That of Kafka's consumers."""

_GROUP_FIELDS = (
    "instance_id",
    "host",
    "cleanup_delay",
    "cleanup_even_best",
    "replicas",
    "recovery_lag",
    "max_warmups",
    "probing_interval",
    "session_timeout",
    "max_open_stores",
)
"""Without a group they would do nothing."""


def _check_least(name: str, value: int) -> None:
    if value < 1:
        raise Invalid(f"{_option(name)} is {value}.", code="number-invalid", action="Give 1 or more.", parameter=name)


def _check_said(name: str, value: str) -> None:
    """Refuse what a variable that is not set has left: members that all have no name would throw each other out."""
    if not value.strip():
        raise Invalid(
            f"{_option(name)} is empty, as a variable that is not set leaves it.",
            code="value-empty",
            action="Give it a value that is there wherever the command is started, or leave it out: such as "
            '"$(hostname)" in a script, %H in a unit of systemd.',
            parameter=name,
        )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _check_interval(_: str, interval: int) -> None:
    if interval < 1:
        raise Invalid(
            f"{interval} ms is no time between two rounds.",
            code="duration-invalid",
            action="Give a time such as 30s.",
            parameter="interval",
        )


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
    tasks: tuple[str, ...] = field(default=(), metadata=only_tasks("every task", global_too=False))
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
    repository: str | None = field(
        default=None,
        metadata=declare(
            Text("URL"),
            title="Repository",
            help="where snapshots are, s3://bucket/prefix or file:///path: a new copy begins with the newest one of "
            "its task, and follows the rest",
            section=WHAT,
            otherwise="a new copy is read from the start of its changelogs",
            check=check_repository,
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
    group: str | None = field(
        default=None,
        metadata=declare(
            Text("ID"),
            title="Group",
            help="share the tasks with the other processes of this consumer group, which nothing else uses, least of "
            "all the application",
            section=FLEET,
            check=_check_said,
        ),
    )
    replicas: int = field(
        default=AssignmentSettings.replicas,
        metadata=declare(
            Whole(words="a number of copies"),
            title="Replicas",
            help="how many copies of each task the group keeps: num.standby.replicas",
            section=FLEET,
            check=_check_least,
        ),
    )
    instance_id: str | None = field(
        default=None,
        metadata=declare(
            Text("ID"),
            title="Instance id",
            help="group.instance.id, another one in each process: with it a restart within the session timeout moves "
            "no task",
            section=FLEET,
            check=_check_said,
        ),
    )
    host: str | None = field(
        default=None,
        metadata=declare(
            Text("NAME"),
            title="Host",
            help="whose loss would take this process's copies, such as a zone; no two copies of a task have the same, "
            "as long as there are others",
            section=FLEET,
            otherwise="the name of this machine",
            check=_check_said,
        ),
    )
    recovery_lag: int = field(
        default=AssignmentSettings.recovery_lag,
        metadata=declare(
            Whole(words="a number of records"),
            title="Acceptable lag",
            help="a copy that is at most so many records behind counts as caught up: acceptable.recovery.lag",
            section=FLEET,
        ),
    )
    max_warmups: int = field(
        default=AssignmentSettings.max_warmups,
        metadata=declare(
            Whole(words="a number of copies"),
            title="Warm-ups",
            help="how many copies are brought up to date at a time in order to move a task: max.warmup.replicas",
            section=FLEET,
            check=_check_least,
        ),
    )
    probing_interval: int = field(
        default=AssignmentSettings.probing_interval_ms,
        metadata=declare(
            Duration(),
            title="Probing interval",
            help="after how long is looked again whether those have caught up: probing.rebalance.interval.ms",
            section=FLEET,
            check=_check_least,
        ),
    )
    session_timeout: int = field(
        default=DEFAULT_SESSION_MS,
        metadata=declare(
            Duration(),
            title="Session timeout",
            help="after how long without a sign of life this process's tasks are given to others: session.timeout.ms",
            section=FLEET,
            check=_check_least,
        ),
    )
    cleanup_delay: int | None = field(
        default=None,
        metadata=declare(
            Duration(),
            title="Cleaning",
            help="delete copies that this process was not given, and that were not changed for so long, where others "
            "have as much: state.cleanup.delay.ms",
            section=FLEET,
            otherwise="never",
        ),
    )
    cleanup_even_best: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Clean even the best copy",
            help="let copies go also where others have less, or where nobody knows what they have; those are moved to "
            ".statecore/unowned for a week",
            section=FLEET,
        ),
    )
    max_open_stores: int = field(
        default=256,
        metadata=declare(
            Whole(words="a number of stores"),
            title="Open stores",
            help="how many databases are open at once before the group has said which tasks are this process's; others "
            "are read closed",
            section=LIMITS,
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
                "Both tasks and the share of an instance were asked for.",
                code="options-conflict",
                action="Give --task or --instance.",
                options=["instance", "tasks"],
            )
        if self.group is None:
            alone = [name for name in _GROUP_FIELDS if getattr(self, name) != getattr(StandbyRequest, name)]
            if alone:
                raise Invalid(
                    f"{_option(alone[0])} is of a group, and none was given.",
                    code="option-missing",
                    action="Give --group too.",
                    option="group",
                )
        elif self.cleanup_even_best and self.cleanup_delay is None:
            raise Invalid(
                "--cleanup-even-best says what is cleaned, and nothing was to be cleaned.",
                code="option-missing",
                action="Give --cleanup-delay too.",
                option="cleanup_delay",
            )
        elif self.tasks or self.instance is not None or self.once:
            raise Invalid(
                "A group says which tasks are this process's, for as long as it runs.",
                code="options-conflict",
                action="Give --group, or else --task, --instance or --once.",
                options=["group", "instance", "once", "tasks"],
            )

    def wants(self, task: str) -> bool:
        """Whether a task is asked for."""
        if self.tasks:
            return task in self.tasks
        return self.instance is None or Instance.parse(self.instance).has(task)
