"""What an assignment is made of, and what it is: members with what they have, tasks with their ends, and the answer.

An **offset sum** is a task's committed offsets + 1, added up over its changelogs (KIP-441): 0 is nothing. The **end
sum** of a task is the same of the logs' ends. Their difference is the copy's **lag** in records. A sum beyond the end
has no lag: ends are read by the leader, sums by each member, at different times. (A store beyond the end of its own
changelog, which was truncated or made anew, is left out of the sum by the member that has it.)
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
    """What a member is to a task; the numbers are those in user data."""

    ON_DISK = 0
    """It has a copy, and does not follow the changelogs."""
    WARMUP = 1
    """It brings a copy up to date that is to take over from another one later."""
    STANDBY = 2
    ACTIVE = 3


@dataclass(frozen=True)
class AssignmentSettings:
    """How tasks are assigned; the defaults are Kafka Streams', but for the replicas, without which there are no copies.

    Attributes:
        replicas: ``num.standby.replicas``: copies of each task, an active one not counted.
        recovery_lag: ``acceptable.recovery.lag``: a copy that is at most so many records behind counts as caught up.
        max_warmups: ``max.warmup.replicas``: how many copies are brought up to date at a time, all members together,
            in order to move a task.
        probing_interval_ms: ``probing.rebalance.interval.ms``: after how many milliseconds is looked again whether
            those have caught up.
        with_active: whether each task has an active copy besides the standbys.

    Raises:
        Invalid: a number is out of range.
    """

    replicas: int = 1
    recovery_lag: int = 10_000
    max_warmups: int = 2
    probing_interval_ms: int = 600_000
    with_active: bool = False

    def __post_init__(self) -> None:
        _at_least(NUM_STANDBY_REPLICAS, self.replicas, 0 if self.with_active else 1)
        _at_least(ACCEPTABLE_RECOVERY_LAG, self.recovery_lag, 0)
        _at_least(MAX_WARMUP_REPLICAS, self.max_warmups, 1)
        _at_least(PROBING_REBALANCE_INTERVAL, self.probing_interval_ms, 1)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str | int], *, with_active: bool = False) -> AssignmentSettings:
        """The settings in an application's properties; what is not named has its default.

        A standby fleet of an application with ``num.standby.replicas=0`` has one copy of each task nevertheless.

        Raises:
            Invalid: a value is no number, or out of range.
        """
        replicas = _whole(properties, NUM_STANDBY_REPLICAS, 0 if with_active else cls.replicas)
        return cls(
            replicas=replicas if with_active or replicas else cls.replicas,
            recovery_lag=_whole(properties, ACCEPTABLE_RECOVERY_LAG, cls.recovery_lag),
            max_warmups=_whole(properties, MAX_WARMUP_REPLICAS, cls.max_warmups),
            probing_interval_ms=_whole(properties, PROBING_REBALANCE_INTERVAL, cls.probing_interval_ms),
            with_active=with_active,
        )


@dataclass(frozen=True)
class Copy:
    """What a member has of a task.

    Attributes:
        sum: the offset sum of what lies on its disk; 0: nothing.
        role: what the member is to the task now.
    """

    sum: int = 0
    role: Role = Role.ON_DISK

    def lag(self, end: int) -> int:
        """How many records it is behind; an active one is never behind, it writes the changelog itself."""
        return 0 if self.role is Role.ACTIVE else max(0, end - self.sum)


NO_COPY = Copy()


@dataclass(frozen=True)
class Member:
    """A process that takes part.

    Attributes:
        id: its name in the group, the same for as long as it takes part.
        host: whose loss would take its copies; two copies of a task are kept on different ones.
        capacity: its share of the tasks, as a weight.
        copies: what it has, by task.
    """

    id: str
    host: str
    capacity: int = 1
    copies: Mapping[str, Copy] = field(default_factory=dict)

    def copy(self, task: str) -> Copy:
        """What it has of a task."""
        return self.copies.get(task, NO_COPY)

    def lag(self, task: str, end: int) -> int:
        """How many records its copy is behind."""
        return self.copy(task).lag(end)


@dataclass(frozen=True)
class Placement:
    """What one member is given.

    Attributes:
        roles: tasks, each with what the member is to be to it; never ``ON_DISK``.
    """

    roles: Mapping[str, Role] = field(default_factory=dict)

    def tasks(self, role: Role) -> frozenset[str]:
        """The tasks that it has in one role."""
        return frozenset(task for task, given in self.roles.items() if given is role)


@dataclass(frozen=True)
class Assignment:
    """Who is given what.

    Attributes:
        members: by the member's id; every member is there.
        probing: whether copies are being brought up to date in order to move tasks, so that it is to be looked again.
        follow_up: tasks that were taken from who has them active and are nobody's until it has given them up.
        short: tasks of which there are fewer copies than wanted, because there are too few members, or hosts.
        errors: tasks that members have and nobody knows, with the reason: they stay where they are, followed by nobody.
    """

    members: Mapping[str, Placement]
    probing: bool = False
    follow_up: frozenset[str] = frozenset()
    short: frozenset[str] = frozenset()
    errors: Mapping[str, str] = field(default_factory=dict)


def _whole(properties: Mapping[str, str | int], name: str, otherwise: int) -> int:
    value = properties.get(name, otherwise)
    try:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise ValueError
        return int(value)
    except ValueError as error:
        raise Invalid(
            f"{name} is {value!r}, which is no number.",
            code="setting-invalid",
            action="Give a whole number.",
            setting=name,
        ) from error


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise Invalid(f"{name} is {value}.", code="setting-invalid", action=f"Give {least} or more.", setting=name)
