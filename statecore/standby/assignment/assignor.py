"""Assigns standby tasks to members, after KIP-441 (HighAvailabilityTaskAssignor).

First the **targets** are computed: copies balanced over members, preferably at those that are caught up, then at those
with little to read, then where they are (`balance.py`). Then the part of it that is possible **now**: while a target
member is far behind a copy elsewhere, that copy stays, and the target gets a **warm-up**, at most
``max.warmup.replicas`` at a time. A later round finds the warm-up caught up and moves the task. Each such round adds a
copy that is both balanced and caught up, so the rounds terminate.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from statecore.standby.assignment.balance import Balance, Numbers, Shape
from statecore.standby.assignment.model import NO_COPY, Assignment, AssignmentSettings, Copy, Member, Role

Targets = dict[str, set[int]]  # Task → indexes of its target members in the sorted list

# Each criterion outweighs all later ones, also in a difference of two costs.
_MOST_LAG = 1 << 40
_MOVE = 1 << 42
_MAGNITUDE = 1 << 45
_BEHIND = 1 << 53


def assign(
    members: Sequence[Member],
    ends: Mapping[str, int],
    settings: AssignmentSettings | None = None,
    *,
    is_late: Callable[[], bool] = lambda: False,
) -> Assignment:
    """Assign every task to members."""
    settings = settings or AssignmentSettings()
    members = sorted(members, key=lambda member: member.id)
    tasks = sorted(ends)
    errors = {
        task: f"Member {member.id} has task {task}, which the application does not have."
        for member in reversed(members)
        for task in sorted(member.copies.keys() - ends.keys(), reverse=True)
    }
    if not members:
        return Assignment({}, errors=errors)
    round_ = _Round(members, ends, settings, is_late)
    targets = round_.targets(tasks)
    for task in tasks:
        round_.resolve(task, targets[task])
    round_.warm_up()
    placed = zip(members, round_.roles, strict=True)
    return Assignment(
        {member.id: dict(sorted(roles.items())) for member, roles in placed},
        probing=bool(round_.wanted) or round_.was_late,
        errors=errors,
    )


@dataclass
class _Round:
    """One assignment computation. Members are addressed by their index in the sorted list."""

    members: Sequence[Member]
    ends: Mapping[str, int]
    settings: AssignmentSettings
    is_late: Callable[[], bool]
    was_late: bool = False

    def __post_init__(self) -> None:
        self.roles: list[dict[str, Role]] = [{} for _ in self.members]
        self.wanted: list[tuple[str, int]] = []
        self._holders: dict[str, list[int]] = {task: [] for task in self.ends}
        for at, member in enumerate(self.members):
            for task in member.copies:
                if task in self._holders:
                    self._holders[task].append(at)

    def costs(self, tasks: Sequence[str]) -> Numbers:
        """Cost of each task (rows) at each member (columns)."""
        found = np.empty((len(tasks), len(self.members)), np.int64)
        for row, task in zip(found, tasks, strict=True):
            end, holders = self.ends[task], self._holders[task]
            row[:] = self.cost(NO_COPY, end)
            row[holders] = [self.cost(self.members[at].copies[task], end) for at in holders]
        return found

    def cost(self, copy: Copy, end: int) -> int:
        """Cost of a copy at a member: whether it is caught up, magnitude of its lag, whether it moves, its lag."""
        role, lag, recovered = copy.role, copy.lag(end), self.settings.recovery_lag
        move = 0 if role is Role.STANDBY else 2 * _MOVE if role is Role.ON_DISK else _MOVE
        if lag <= recovered:
            return move
        magnitude = (lag // max(1, recovered)).bit_length()
        return _BEHIND + magnitude * _MAGNITUDE + move + min(lag, _MOST_LAG)

    def targets(self, tasks: Sequence[str]) -> Targets:
        """Balanced target members of each task."""
        hosts = {host: number for number, host in enumerate(sorted({member.host for member in self.members}))}
        # With more copies than hosts some must share a host, but none holds more than necessary.
        on_a_host = -(-self.settings.replicas // len(hosts))
        shape = Shape([hosts[member.host] for member in self.members], on_a_host)
        spread = Balance(shape, self.costs(tasks))
        spread.start(self.settings.replicas)
        self.was_late |= not spread.even_out(self.is_late)
        return dict(zip(tasks, spread.members(), strict=True))

    def lag(self, task: str, at: int) -> int:
        return self.members[at].lag(task, self.ends[task])

    def better(self, task: str, at: int) -> list[int]:
        """Members whose copies are so much better that this member cannot replace them yet."""
        recovered, lag = self.settings.recovery_lag, self.lag(task, at)
        if lag <= recovered:
            return []
        lags = [(other, self.lag(task, other)) for other in self._holders[task]]
        return [other for other, better in lags if lag - better > recovered or better <= recovered]

    def resolve(self, task: str, target: set[int]) -> None:
        """Place copies at targets, or for each target that has to wait at a better copy elsewhere."""
        for at in sorted(target):
            free = [other for other in self.better(task, at) if other not in target and task not in self.roles[other]]
            if free:
                here = min(free, key=lambda other: (*self._rank(task, other), other))
                self.roles[here][task] = Role.STANDBY
                self.wanted.append((task, at))
            else:
                self.roles[at][task] = Role.STANDBY

    def warm_up(self) -> None:
        """Start warm-ups up to the limit, those in progress first."""
        self.wanted.sort(
            key=lambda one: (
                self.members[one[1]].copy(one[0]).role is not Role.WARMUP,
                self.lag(*one) > self.settings.recovery_lag,
                one,
            )
        )
        for task, at in self.wanted[: self.settings.max_warmups]:
            self.roles[at].setdefault(task, Role.WARMUP)

    def _rank(self, task: str, at: int) -> tuple[int, int]:
        """Sort key: the most complete copy first; of caught-up copies the one in use."""
        lag = self.lag(task, at)
        return 0 if lag <= self.settings.recovery_lag else lag, -self.members[at].copy(task).role
