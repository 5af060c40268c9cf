"""Input and output of a task assignment.

An **offset sum** is a task's committed offsets + 1, added up over its changelogs (KIP-441); 0 means no state. The **end
sum** is the same of the log ends. Their difference is the copy's **lag** in records. A sum beyond the end has lag 0:
the leader reads the ends and each member its sums at different times. (A store beyond the end of its own changelog,
which was truncated or recreated, is left out of the sum by its member.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from statecore.errors import Invalid

NUM_STANDBY_REPLICAS = "num.standby.replicas"
ACCEPTABLE_RECOVERY_LAG = "acceptable.recovery.lag"
MAX_WARMUP_REPLICAS = "max.warmup.replicas"
PROBING_REBALANCE_INTERVAL = "probing.rebalance.interval.ms"


class Role(IntEnum):
    """Role of a member for a task; the numbers are those in user data."""

    ON_DISK = 0  # It has a copy that does not follow the changelogs
    WARMUP = 1  # It brings a copy up to date that will replace another one
    STANDBY = 2


@dataclass(frozen=True)
class AssignmentSettings:
    """Assignment settings with Kafka Streams' defaults, except ``replicas``, which is 0 there."""

    replicas: int = 1  # num.standby.replicas: copies of each task
    recovery_lag: int = 10_000  # acceptable.recovery.lag: a copy with at most this lag in records counts as caught up
    max_warmups: int = 2  # max.warmup.replicas: warm-ups at a time over all members
    # probing.rebalance.interval.ms: interval of checks whether warm-ups have caught up
    probing_interval_ms: int = 600_000

    def __post_init__(self) -> None:
        _at_least(NUM_STANDBY_REPLICAS, self.replicas, 1)
        _at_least(ACCEPTABLE_RECOVERY_LAG, self.recovery_lag, 0)
        _at_least(MAX_WARMUP_REPLICAS, self.max_warmups, 1)
        _at_least(PROBING_REBALANCE_INTERVAL, self.probing_interval_ms, 1)


@dataclass(frozen=True)
class Copy:
    """A member's copy of a task."""

    sum: int = 0  # offset sum on its disk; 0 if there is nothing
    role: Role = Role.ON_DISK  # current role of the member for the task

    def lag(self, end: int) -> int:
        """Lag in records."""
        return max(0, end - self.sum)


NO_COPY = Copy()


@dataclass(frozen=True)
class Member:
    """A member of the group."""

    id: str  # member id at the broker
    host: str  # failure domain; copies of a task are placed on different ones
    copies: Mapping[str, Copy] = field(default_factory=dict)  # its copies by task

    def copy(self, task: str) -> Copy:
        return self.copies.get(task, NO_COPY)

    def lag(self, task: str, end: int) -> int:
        """Lag of its copy in records."""
        return self.copy(task).lag(end)


@dataclass(frozen=True)
class Assignment:
    """Assignment of all members."""

    members: Mapping[str, Mapping[str, Role]]  # role by task, never ON_DISK, of every member by its id
    probing: bool = False  # whether warm-ups are in progress, so that a probing rebalance has to follow
    # tasks of members that the application does not have, with the reason; they stay on disk, not followed
    errors: Mapping[str, str] = field(default_factory=dict)


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise Invalid(f"{name} is {value}.", code="setting-invalid", action=f"Give {least} or more.", setting=name)
