"""Who is given which tasks: KIP-441's idea (HighAvailabilityTaskAssignor) for fleets of standbys and of active tasks.

First it is computed where copies **should** be: as evenly as they can be, by capacity; under that condition with as
few as possible at members that are not caught up, then with little to read, then moving as few as possible. Then, what
can be done of that **now**: as long as a copy that should be at one member is far behind one that is not meant to stay
at another, it stays there, and the member gets a **warm-up**, ``max.warmup.replicas`` at a time. A later round finds
the warm-up caught up, and moves the task. Every warm-up that has caught up is a copy more that is both evenly placed
and caught up, so the rounds end.

How copies are evened out is in `spread.py`. Of a task only the members that have a copy of it are looked at one by one;
at all others it costs the same.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from statecore.standby.assignment.balance import LONGEST_CHAIN, MOST, Balance, Numbers, Shape
from statecore.standby.assignment.model import NO_COPY, Assignment, AssignmentSettings, Copy, Member, Placement, Role

Targets = dict[str, set[int]]
"""Task → members (their places in the sorted list) where its copies should be."""

_NOWHERE: set[int] = set()
_MOST_MOVED = 2
_MOST_MAGNITUDE = 64


def assign(
    members: Sequence[Member],
    ends: Mapping[str, int],
    settings: AssignmentSettings | None = None,
    *,
    is_late: Callable[[], bool] = lambda: False,
) -> Assignment:
    """Give every task to members.

    Args:
        members: who takes part; their order does not matter.
        ends: every task there is, with the end sum of its changelogs.
        settings: how many copies, and when one is caught up.
        is_late: asked between two moves: whether to end with what is not quite even. Then it is to be looked again.
    """
    settings = settings or AssignmentSettings()
    members = sorted(members, key=lambda member: member.id)
    tasks = sorted(ends)
    errors = {
        task: f"Member {member.id} has task {task}, which the application does not have."
        for member in reversed(members)
        for task in sorted(member.copies.keys() - ends.keys(), reverse=True)
    }
    if not members:
        return Assignment({}, short=frozenset(tasks), errors=errors)
    round_ = _Round(members, ends, settings, is_late)
    actives: Targets = {}
    if settings.with_active:
        actives = round_.targets(tasks, 1, {}, active=True)
    standbys = round_.targets(tasks, settings.replicas, actives, active=False)
    for task in tasks:
        round_.resolve_active(task, actives.get(task, set()), standbys[task])
    for task in tasks:
        round_.resolve_standbys(task, standbys[task])
    round_.warm_up()
    wanted = settings.replicas + settings.with_active
    placed = zip(members, round_.roles, strict=True)
    return Assignment(
        {member.id: Placement(dict(sorted(roles.items()))) for member, roles in placed},
        probing=bool(round_.wanted) or round_.was_late,
        follow_up=frozenset(round_.withheld),
        short=frozenset(task for task in tasks if len(standbys[task]) + len(actives.get(task, ())) < wanted),
        errors=errors,
    )


@dataclass
class _Round:
    """One computation. Members are known by their places in the sorted list."""

    members: Sequence[Member]
    ends: Mapping[str, int]
    settings: AssignmentSettings
    is_late: Callable[[], bool]
    was_late: bool = False

    def __post_init__(self) -> None:
        self.roles: list[dict[str, Role]] = [{} for _ in self.members]
        self.wanted: list[tuple[str, int]] = []
        self.withheld: set[str] = set()
        self._holders: dict[str, list[int]] = {task: [] for task in self.ends}
        for at, member in enumerate(self.members):
            for task in member.copies:
                if task in self._holders:
                    self._holders[task].append(at)
        # Of two chains the one with the smaller number is to be the better one by the first thing in which they differ.
        beyond = 2 * LONGEST_CHAIN
        lag = MOST // LONGEST_CHAIN // (beyond + 1) ** 3 // (_MOST_MOVED + 1) // (_MOST_MAGNITUDE + 1) // 2
        self._longest = max(self.ends.values(), default=0)
        self._lags = min(lag, self._longest)
        self._move = beyond * self._lags + 1
        self._magnitude = beyond * (_MOST_MOVED * self._move + self._lags) + 1
        self._behind = beyond * (_MOST_MAGNITUDE * self._magnitude + _MOST_MOVED * self._move + self._lags) + 1

    def costs(self, tasks: Sequence[str], active: bool) -> Numbers:
        """What each task costs at each member, as a number to be added up: a row for each task."""
        kept = Role.ACTIVE if active else Role.STANDBY
        found = np.empty((len(tasks), len(self.members)), np.int64)
        for row, task in zip(found, tasks, strict=True):
            end, holders = self.ends[task], self._holders[task]
            row[:] = self.cost(NO_COPY, end, kept)
            row[holders] = [self.cost(self.members[at].copies[task], end, kept) for at in holders]
        return found

    def cost(self, copy: Copy, end: int, kept: Role) -> int:
        """What it costs to have a copy where this one is, if a member that has this role of it keeps what it has.

        First whether it is caught up, then the magnitude of what is to be read, then whether it is moved, then its lag.
        """
        role, lag, recovered = copy.role, copy.lag(end), self.settings.recovery_lag
        move = 0 if role is kept else _MOST_MOVED * self._move if role is Role.ON_DISK else self._move
        if lag <= recovered:
            return move
        magnitude = min(_MOST_MAGNITUDE, (lag // max(1, recovered)).bit_length())
        return self._behind + magnitude * self._magnitude + move + lag * self._lags // self._longest

    def targets(self, tasks: Sequence[str], copies: int, taken: Targets, *, active: bool) -> Targets:
        """Where copies should be.

        Args:
            tasks: of which.
            copies: how many of each.
            taken: members that have the task already, and no second copy.
            active: whether they are active ones.
        """
        hosts = {host: number for number, host in enumerate(sorted({member.host for member in self.members}))}
        every = copies + (1 if taken else 0)
        # With more copies than hosts some must share one, and then no host has more of them than needed.
        on_a_host = -(-every // len(hosts))
        shape = Shape(
            [hosts[member.host] for member in self.members], [member.capacity for member in self.members], on_a_host
        )
        spread = Balance(shape, self.costs(tasks, active), [taken.get(task, _NOWHERE) for task in tasks])
        spread.start(copies)
        self.was_late |= not spread.even_out(self.is_late)
        return {task: spread.members_of(number) for number, task in enumerate(tasks)}

    def lag(self, task: str, at: int) -> int:
        return self.members[at].lag(task, self.ends[task])

    def better(self, task: str, at: int) -> list[int]:
        """The members whose copies are so much better than one member's that it cannot take their place yet."""
        recovered, lag = self.settings.recovery_lag, self.lag(task, at)
        if lag <= recovered:
            return []
        lags = [(other, self.lag(task, other)) for other in self._holders[task]]
        return [other for other, better in lags if lag - better > recovered or better <= recovered]

    def resolve_active(self, task: str, target: set[int], standbys: set[int]) -> None:
        """Who has a task active now: who should, or who has a better copy until that one has caught up."""
        for at in target:
            better = self.better(task, at)
            here = at
            if better:
                here = min(better, key=lambda other: (*self._rank(task, other), other not in standbys, other))
                self.wanted.append((task, at))
            has = {other for other in self._holders[task] if self.members[other].copy(task).role is Role.ACTIVE}
            if has - {here}:  # never active at two members: it is given up first
                self.withheld.add(task)
                self.roles[here][task] = Role.STANDBY
            else:
                self.roles[here][task] = Role.ACTIVE

    def resolve_standbys(self, task: str, target: set[int]) -> None:
        """Who has standbys now: for each member that should and has to wait, one with a better copy that should not."""
        for at in sorted(target):
            if task in self.roles[at]:
                continue
            free = [other for other in self.better(task, at) if other not in target and task not in self.roles[other]]
            if free:
                here = min(free, key=lambda other: (*self._rank(task, other), other))
                self.roles[here][task] = Role.STANDBY
                self.wanted.append((task, at))
            else:
                self.roles[at][task] = Role.STANDBY

    def warm_up(self) -> None:
        """As many of the members that have to wait as the setting allows; first those that have begun."""
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
        """The most complete copy first, and of those that are caught up the one that is in use."""
        lag = self.lag(task, at)
        return 0 if lag <= self.settings.recovery_lag else lag, -self.members[at].copy(task).role
