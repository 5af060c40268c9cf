"""Who is given which tasks: KIP-441's idea (HighAvailabilityTaskAssignor) for fleets of standbys and of active tasks.

First it is computed where copies **should** be: as evenly as they can be, by capacity; under that condition with as
few as possible at members that are not caught up, then with little to read, then moving as few as possible. Then, what
can be done of that **now**: as long as a copy that should be at one member is far behind one that is not meant to stay
at another, it stays there, and the member gets a **warm-up**, ``max.warmup.replicas`` at a time. A later round finds
the warm-up caught up, and moves the task. Every warm-up that has caught up is a copy more that is both evenly placed
and caught up, so the rounds end.

Copies start where each of them is cheapest, and chains of moves (a task from one member to the next, another task from
that one to a third) even them out, the cheapest chain first: as in the successive shortest paths of a flow, so the
result is the cheapest of all even ones. Only hosts that several members share can bar a chain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heapify, heappop, heappush

from statecore.runtime.assignment.model import Assignment, AssignmentSettings, Member, Placement, Role

Targets = dict[str, set[int]]
"""Task → members (their places in the sorted list) where its copies should be."""

Move = tuple[str, int, int]
"""A task, whose copy goes from one member to another."""

_NOWHERE: set[int] = set()


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
        # Each is more than all of the next together could be.
        copies = len(self.ends) * (len(self.members) + 1)
        self._lag = (sum(self.ends.values()) + 1) * (len(self.members) + 1)
        self._moves = 2 * copies + 1
        self._magnitudes = 65 * copies + 1

    def cost(self, task: str, at: int, active: bool) -> int:
        """What it costs to have a copy there, as a number to be added up.

        First whether it is caught up, then the magnitude of what is to be read, then whether it is moved, then its lag.
        """
        role = self.members[at].copy(task).role
        kept = Role.ACTIVE if active else Role.STANDBY
        move = 0 if role is kept else 2 if role is Role.ON_DISK else 1
        lag, recovered = self.lag(task, at), self.settings.recovery_lag
        if lag <= recovered:
            return move * self._lag
        magnitude = (lag // max(1, recovered)).bit_length()
        return ((self._magnitudes + magnitude) * self._moves + move) * self._lag + lag

    def targets(self, tasks: Sequence[str], copies: int, taken: Targets, *, active: bool) -> Targets:
        """Where copies should be.

        Args:
            tasks: of which.
            copies: how many of each.
            taken: members that have the task already, and no second copy.
            active: whether they are active ones.
        """
        costs = {task: [self.cost(task, at, active) for at in range(len(self.members))] for task in tasks}
        hosts = {member.host for member in self.members}
        every = copies + (1 if taken else 0)
        # With more copies than hosts some must share one, and then no host has more of them than needed.
        on_a_host = -(-every // len(hosts))
        spread = _Spread(self.members, costs, taken, on_a_host)
        for task in tasks:
            spread.start(task, copies)
        self.was_late |= not spread.even_out(self.is_late)
        return spread.at

    def lag(self, task: str, at: int) -> int:
        return self.members[at].lag(task, self.ends[task])

    def must_wait(self, task: str, at: int, other: int) -> bool:
        """Whether a copy at a member is too far behind another one to take its place."""
        lag, better = self.lag(task, at), self.lag(task, other)
        return lag - better > self.settings.recovery_lag or better <= self.settings.recovery_lag < lag

    def resolve_active(self, task: str, target: set[int], standbys: set[int]) -> None:
        """Who has a task active now: who should, or who has a better copy until that one has caught up."""
        for at in target:
            better = [other for other in range(len(self.members)) if self.must_wait(task, at, other)]
            here = at
            if better:
                here = min(better, key=lambda other: (*self._rank(task, other), other not in standbys, other))
                self.wanted.append((task, at))
            has = {other for other, member in enumerate(self.members) if member.copy(task).role is Role.ACTIVE}
            if has - {here}:  # never active at two members: it is given up first
                self.withheld.add(task)
                self.roles[here][task] = Role.STANDBY
            else:
                self.roles[here][task] = Role.ACTIVE

    def resolve_standbys(self, task: str, target: set[int]) -> None:
        """Who has standbys now: for each member that should and has to wait, one with a better copy that should not."""
        others = [at for at in range(len(self.members)) if at not in target and task not in self.roles[at]]
        others.sort(key=lambda at: (*self._rank(task, at), at))
        for at in sorted(target):
            if task in self.roles[at]:
                continue
            stands_in = next((other for other in others if self.must_wait(task, at, other)), None)
            if stands_in is None:
                self.roles[at][task] = Role.STANDBY
            else:
                others.remove(stands_in)
                self.roles[stands_in][task] = Role.STANDBY
                self.wanted.append((task, at))

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


class _Spread:
    """Copies at members, and how they are evened out."""

    def __init__(
        self, members: Sequence[Member], costs: Mapping[str, Sequence[int]], taken: Targets, on_a_host: int
    ) -> None:
        self._members, self._costs, self._taken, self._on_a_host = members, costs, taken, on_a_host
        self.at: Targets = {}
        self._load = [0] * len(members)
        self._moves: dict[tuple[int, int], list[tuple[int, str]]] = defaultdict(list)
        """From one member to another: heaps of what it costs to move which task; some are no longer possible."""

    def start(self, task: str, copies: int) -> None:
        """Copies of a task where they are cheapest, and of two such members at the emptier one."""
        self.at[task] = set()
        for at in sorted(range(len(self._members)), key=lambda at: (self._costs[task][at], self._filled(at), at)):
            if len(self.at[task]) < copies and self._fits(task, at):
                self.at[task].add(at)
                self._load[at] += 1
        for move in self._possible(task):
            self._moves[move[:2]].append(move[2:])

    def even_out(self, is_late: Callable[[], bool]) -> bool:
        """Move copies until no chain of moves makes it more even, or cheaper and as even; or it is late.

        Returns:
            Whether it came to its end.
        """
        for heap in self._moves.values():
            heapify(heap)
        barred: set[Move] = set()
        while (chain := self._cheapest_chain(barred)) is not None:
            if is_late():
                return False
            wrong = self._move(chain)
            if wrong is None:
                for task, at, to in barred:
                    heappush(self._moves[at, to], (self._costs[task][to] - self._costs[task][at], task))
                barred.clear()
            else:
                barred.add(wrong)
        return True

    def _possible(self, task: str) -> Iterator[tuple[int, int, int, str]]:
        costs = self._costs[task]
        for at in self.at[task]:
            for to in range(len(self._members)):
                if self._fits(task, to, at):
                    yield at, to, costs[to] - costs[at], task

    def _fits(self, task: str, to: int, instead_of: int | None = None) -> bool:
        there = (self.at[task] | self._taken.get(task, _NOWHERE)) - {instead_of}
        if to in there or to == instead_of:
            return False
        host = self._members[to].host
        return sum(self._members[other].host == host for other in there) < self._on_a_host

    def _filled(self, at: int) -> float:
        return self._load[at] / self._members[at].capacity

    def _cheapest_move(self, at: int, to: int, barred: set[Move]) -> tuple[int, str] | None:
        heap = self._moves.get((at, to))
        while heap:
            cost, task = heap[0]
            if at in self.at[task] and (task, at, to) not in barred and self._fits(task, to, at):
                return cost, task
            heappop(heap)
        return None

    def _cheapest_chain(self, barred: set[Move]) -> list[Move] | None:
        count = range(len(self._members))
        step = [
            {to: found for to in count if (found := self._cheapest_move(at, to, barred)) is not None} for at in count
        ]
        best: tuple[bool, int, list[Move]] | None = None
        for first in count:
            if not any(self._gain(first, last) >= 0 for last in count if last != first):
                continue
            for last, (cost, path) in self._paths(first, step).items():
                gain = self._gain(first, last)
                if gain < 0 or (gain == 0 and cost >= 0):
                    continue
                found_chain = (gain == 0, cost, path)
                if best is None or found_chain < best:
                    best = found_chain
        return best[2] if best else None

    def _gain(self, first: int, last: int) -> Fraction:
        """By how much the fuller of two members is less full when one copy goes from the first to the last."""
        before = Fraction(self._load[first], self._members[first].capacity)
        return before - Fraction(self._load[last] + 1, self._members[last].capacity)

    def _paths(self, first: int, step: Sequence[Mapping[int, tuple[int, str]]]) -> dict[int, tuple[int, list[Move]]]:
        """The cheapest chain from a member to each other (Bellman and Ford), the shorter of two that cost the same."""
        best: dict[int, tuple[int, list[Move]]] = {first: (0, [])}
        changed = {first}
        while changed:
            following: set[int] = set()
            for at in sorted(changed):
                cost, path = best[at]
                for to, (more, task) in step[at].items():
                    known = best.get(to)
                    if known is not None and (cost + more, len(path) + 1) >= (known[0], len(known[1])):
                        continue
                    if to != first and all(to != passed for _, _, passed in path):
                        best[to] = (cost + more, [*path, (task, at, to)])
                        following.add(to)
            changed = following
        del best[first]
        return best

    def _move(self, chain: Sequence[Move]) -> Move | None:
        """Do all moves of a chain, or none and return the one that the others make impossible."""
        done: list[Move] = []
        for task, at, to in chain:
            if at not in self.at[task] or not self._fits(task, to, at):
                for undone, came_from, went_to in reversed(done):
                    self.at[undone].remove(went_to)
                    self.at[undone].add(came_from)
                return task, at, to
            self.at[task].remove(at)
            self.at[task].add(to)
            done.append((task, at, to))
        self._load[chain[0][1]] -= 1
        self._load[chain[-1][2]] += 1
        for task in {task for task, _, _ in chain}:
            for move in self._possible(task):
                heappush(self._moves[move[:2]], move[2:])
        return None
