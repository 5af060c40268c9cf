"""The request of a standby process."""

from __future__ import annotations

from dataclasses import dataclass, field

from statecore.errors import Invalid
from statecore.jobs.fields.catalog import (
    LIMITS,
    PATIENCE,
    WHAT,
    OfSpec,
    check_memory_budget,
    check_state_dir,
    repository_url,
)
from statecore.jobs.fields.declaration import declare
from statecore.jobs.fields.tasks import only_tasks
from statecore.jobs.fields.types import Duration, FilePath, Flag, Size, Text, Whole
from statecore.spec.units import format_duration
from statecore.standby.assignment.model import AssignmentSettings
from statecore.standby.kafka_group import GroupSettings

DEFAULT_INTERVAL_MS = 30_000  # Default of Kafka Streams' commit.interval.ms


GROUP_SECTION = "Group"  # Section of the options of a group

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
    "max_open_databases",
)
"""Fields that need a group."""


def _check_least(name: str, value: int) -> None:
    if value < 1:
        raise Invalid(f"{_option(name)} is {value}.", code="number-invalid", action="Give 1 or more.", parameter=name)


def _check_not_empty(name: str, value: str) -> None:
    """Refuse the value of an unset variable: members with the same empty instance id would fence each other."""
    if not value.strip():
        raise Invalid(
            f"{_option(name)} is empty, perhaps because a variable is not set.",
            code="value-empty",
            action='Give it a value, such as "$(hostname)" in a script or %H in a systemd unit, or leave it out.',
            parameter=name,
        )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _check_interval(_: str, interval: int) -> None:
    if interval < 1:
        raise Invalid(
            f"{format_duration(interval)} is no valid interval between two rounds.",
            code="duration-invalid",
            action="Give a time such as 30s.",
            parameter="interval",
        )


@dataclass(frozen=True, kw_only=True)
class StandbyRequest(OfSpec):
    """A request to follow tasks of one application as standbys."""

    state_dir: str = field(
        metadata=declare(
            FilePath(where="on this machine"),
            title="State directory",
            help="where the copies are kept, in the layout of a state.dir; never that of a running instance",
            check=check_state_dir,
        )
    )
    tasks: tuple[str, ...] = field(default=(), metadata=only_tasks("every task", global_too=False))
    repository: str | None = field(
        default=None,
        metadata=repository_url(
            "URL of the snapshots, s3://bucket/prefix or file:///path: a new copy starts from the newest snapshot of "
            "its task",
            section=WHAT,
            otherwise="a new copy is read from the start of its changelogs",
        ),
    )
    interval: int = field(
        default=DEFAULT_INTERVAL_MS,
        metadata=declare(
            Duration(),
            title="Interval",
            help="time between two rounds; each commits rows and offsets at its end, like commit.interval.ms of a "
            "standby task",
            section=WHAT,
            check=_check_interval,
        ),
    )
    once: bool = field(
        default=False,
        metadata=declare(
            Flag(), title="Once", help="bring the copies to the end of the changelogs, and stop", section=WHAT
        ),
    )
    group: str | None = field(
        default=None,
        metadata=declare(
            Text("ID"),
            title="Group",
            help="share the tasks with the other processes of this consumer group; nothing else may use it, above all "
            "not the application",
            section=GROUP_SECTION,
            check=_check_not_empty,
        ),
    )
    replicas: int = field(
        default=AssignmentSettings.replicas,
        metadata=declare(
            Whole(words="a number of copies"),
            title="Replicas",
            help="how many copies of each task the group keeps: num.standby.replicas",
            section=GROUP_SECTION,
            check=_check_least,
        ),
    )
    instance_id: str | None = field(
        default=None,
        metadata=declare(
            Text("ID"),
            title="Instance id",
            help="group.instance.id, unique for each process: a restart within the session timeout then moves no task",
            section=GROUP_SECTION,
            check=_check_not_empty,
        ),
    )
    host: str | None = field(
        default=None,
        metadata=declare(
            Text("NAME"),
            title="Host",
            help="failure domain of this process, such as a zone; two copies of a task have different ones as long as "
            "there are enough",
            section=GROUP_SECTION,
            otherwise="the name of this machine",
            check=_check_not_empty,
        ),
    )
    recovery_lag: int = field(
        default=AssignmentSettings.recovery_lag,
        metadata=declare(
            Whole(words="a number of records"),
            title="Acceptable lag",
            help="a copy that is at most so many records behind counts as caught up: acceptable.recovery.lag",
            section=GROUP_SECTION,
        ),
    )
    max_warmups: int = field(
        default=AssignmentSettings.max_warmups,
        metadata=declare(
            Whole(words="a number of copies"),
            title="Warm-ups",
            help="how many copies are warmed up at a time to move tasks: max.warmup.replicas",
            section=GROUP_SECTION,
            check=_check_least,
        ),
    )
    probing_interval: int = field(
        default=AssignmentSettings.probing_interval_ms,
        metadata=declare(
            Duration(),
            title="Probing interval",
            help="time between two checks whether warm-ups have caught up: probing.rebalance.interval.ms",
            section=GROUP_SECTION,
            check=_check_least,
        ),
    )
    session_timeout: int = field(
        default=GroupSettings.session_timeout_ms,
        metadata=declare(
            Duration(),
            title="Session timeout",
            help="time without a heartbeat after which this process's tasks are given to others: session.timeout.ms",
            section=GROUP_SECTION,
            check=_check_least,
        ),
    )
    cleanup_delay: int | None = field(
        default=None,
        metadata=declare(
            Duration(),
            title="Cleaning",
            help="delete copies that are not assigned to this process and were not changed for this time, if others "
            "have as much: state.cleanup.delay.ms",
            section=GROUP_SECTION,
            otherwise="never",
        ),
    )
    cleanup_even_best: bool = field(
        default=False,
        metadata=declare(
            Flag(),
            title="Clean even the best copy",
            help="also remove copies of which others have less, or an unknown amount; those are moved to "
            ".statecore/unowned for a week",
            section=GROUP_SECTION,
        ),
    )
    max_open_databases: int = field(
        default=256,
        metadata=declare(
            Whole(words="a number of databases"),
            title="Open databases",
            help="how many databases are open at once before the group has assigned tasks; others are read without "
            "opening them",
            section=LIMITS,
        ),
    )
    memory_budget: int = field(
        default=64 << 20,
        metadata=declare(
            Size(),
            title="Memory",
            help="memory for the records of the store that is being read; the rest is spilled to disk",
            section=LIMITS,
            check=check_memory_budget,
        ),
    )
    block_cache: int = field(
        default=64 << 20,
        metadata=declare(
            Size(),
            title="Block cache",
            help="memory for blocks of the databases, of all tasks together; it fills as files are read, and blocks of "
            "deleted files stay until it is full",
            section=LIMITS,
            check=check_memory_budget,
        ),
    )
    timeout: float = field(default=30.0, metadata=PATIENCE)

    def __post_init__(self) -> None:
        """Validate the fields. Raises ``Invalid``."""
        super().__post_init__()
        if self.group is None:
            group_only = [name for name in _GROUP_FIELDS if getattr(self, name) != getattr(StandbyRequest, name)]
            if group_only:
                raise Invalid(
                    f"{_option(group_only[0])} needs a group, and none is given.",
                    code="option-missing",
                    action="Give --group too.",
                    option="group",
                )
        elif self.cleanup_even_best and self.cleanup_delay is None:
            raise Invalid(
                "--cleanup-even-best needs --cleanup-delay.",
                code="option-missing",
                action="Give --cleanup-delay too.",
                option="cleanup_delay",
            )
        elif self.tasks or self.once:
            raise Invalid(
                "The group assigns the tasks of this process for as long as it runs.",
                code="options-conflict",
                action="Give either --group, or --task or --once.",
                options=["group", "once", "tasks"],
            )
