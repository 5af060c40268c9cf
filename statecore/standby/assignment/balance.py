"""Copies at members, and how they are evened out: as even as they can be, and the cheapest of all even ones.

Copies start where each of them is cheapest. Then chains of moves (a task from one member to the next, another task from
that one to a third) fill the emptiest members from fuller ones, the cheapest chain first. Each is a shortest path
between its two ends, so what results costs as little as any distribution that is as even (successive shortest paths of
a flow). When all is even, chains that make it cheaper and keep it so follow. Only hosts that several members share can
bar a chain.

What a task costs at each member is a table, and so is the cheapest move from each member to each other: a chain costs
one search over the second table and a new row for each of its members, whatever the number of tasks.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

LONGEST_CHAIN = 64
"""How many moves a chain has at most."""

MOST = 1 << 60
"""The costs of a chain never reach it."""

_FAR = 1 << 61
"""The cost of what is not possible; with what a chain costs it still is a number of 64 bits."""

Numbers = npt.NDArray[np.int64]


class Shape(NamedTuple):
    """Members as far as copies are spread over them, each by its place in their list.

    Attributes:
        hosts: the number of each one's host, from 0 on.
        capacities: each one's share, as a weight.
        on_a_host: how many copies of a task may be on one host.
    """

    hosts: Sequence[int]
    capacities: Sequence[int]
    on_a_host: int


class _Path(NamedTuple):
    """Members through which a chain goes; the first is the last where it only changes who has what."""

    members: list[int]
    cost: int


class Balance:
    """The copies of tasks, each task by its place in the table of costs.

    Args:
        shape: the members.
        costs: what each task costs at each member: a row for each task. So many of them as a chain has moves must stay
            below ``MOST``.
        taken: by task the members that have it already, and no second copy.
    """

    def __init__(self, shape: Shape, costs: Numbers, taken: Sequence[Collection[int]]) -> None:
        self._costs = costs
        tasks, count = costs.shape
        self._host = np.array(shape.hosts, np.int64)
        self._capacity = np.array(shape.capacities, np.float64)
        self._on_a_host = shape.on_a_host
        self._load = np.zeros(count, np.int64)
        self._at: list[set[int]] = [set() for _ in range(tasks)]
        self._there = np.zeros((tasks, count), np.bool_)
        self._on_host = np.zeros((tasks, int(self._host.max(initial=0)) + 1), np.int64)
        for task, members in enumerate(taken):
            for at in members:
                self._put(task, at)
        hosts = np.bincount(self._host)
        self._neighbours = [
            np.flatnonzero((self._host == self._host[at]) & (np.arange(count) != at))
            if hosts[self._host[at]] > 1
            else None
            for at in range(count)
        ]
        self._barred: set[tuple[int, int]] = set()
        self._has: list[Numbers] = []
        self._prices = np.empty_like(costs)
        """What a task costs where it may go, as long as the copy that goes there is of another host."""
        self._steps = np.full((count, count), _FAR, np.int64)
        """The cheapest move from a member (row) to another (column)."""

    def start(self, copies: int) -> None:
        """Put copies of every task where they are cheapest, and of two such members at the emptier one."""
        for task, costs in enumerate(self._costs):
            for at in np.lexsort((self._load / self._capacity, costs)).tolist():
                if len(self._at[task]) == copies:
                    break
                if self._fits(task, at):
                    self._put(task, at)
                    self._at[task].add(at)
                    self._load[at] += 1
        has: list[list[int]] = [[] for _ in self._load]
        for task, members in enumerate(self._at):
            for at in members:
                has[at].append(task)
        self._has = [np.array(tasks, np.int64) for tasks in has]
        for task in range(len(self._at)):
            self._price(task)
        for at in range(len(self._load)):
            self._step(at)

    def even_out(self, is_late: Callable[[], bool]) -> bool:
        """Move copies until no chain of moves makes it more even, or cheaper and as even; or it is late.

        Returns:
            Whether it came to its end.
        """
        while (path := self._next_path()) is not None:
            if is_late():
                return False
            moves = [(self._cheapest(at, to), at, to) for at, to in pairwise(path.members)]
            if self._move(moves):
                barred = {task for task, _ in self._barred}
                self._barred.clear()
                self._look_again({task for task, _, _ in moves} | barred, path.members)
        return True

    def members_of(self, task: int) -> set[int]:
        """Where the copies of a task are."""
        return self._at[task]

    def _fits(self, task: int, to: int, instead_of: int | None = None) -> bool:
        if self._there[task, to]:
            return False
        gone = instead_of is not None and self._host[instead_of] == self._host[to]
        return bool(self._on_host[task, self._host[to]] - gone < self._on_a_host)

    def _put(self, task: int, at: int, copies: int = 1) -> None:
        self._there[task, at] = copies > 0
        self._on_host[task, self._host[at]] += copies

    def _price(self, task: int) -> None:
        may = ~self._there[task] & (self._on_host[task][self._host] < self._on_a_host)
        self._prices[task] = np.where(may, self._costs[task], _FAR)
        for barred, to in self._barred:
            if barred == task:
                self._prices[task, to] = _FAR

    def _near_moves(self, at: int, to: Numbers) -> Numbers:
        """What it costs to move each task of a member to others on its host: the copy that leaves makes room."""
        tasks = self._has[at]
        room = self._on_host[tasks, self._host[at]] <= self._on_a_host
        may = ~self._there[np.ix_(tasks, to)] & room[:, None]
        for task, barred in self._barred:
            may[np.ix_(tasks == task, to == barred)] = False
        moves: Numbers = np.where(may, self._costs[np.ix_(tasks, to)], _FAR) - self._costs[tasks, at][:, None]
        return moves

    def _step(self, at: int) -> None:
        """Find the cheapest moves from a member."""
        if not self._has[at].size:
            self._steps[at] = _FAR
            return
        moves = self._prices[self._has[at]]
        moves -= self._costs[self._has[at], at][:, None]
        self._steps[at] = moves.min(axis=0)
        near = self._neighbours[at]
        if near is not None:
            self._steps[at, near] = self._near_moves(at, near).min(axis=0)

    def _cheapest(self, at: int, to: int) -> int:
        """The task with the cheapest move from a member to another."""
        tasks = self._has[at]
        if self._neighbours[at] is not None and self._host[at] == self._host[to]:
            moves = self._near_moves(at, np.array([to], np.int64))[:, 0]
        else:
            moves = self._prices[tasks, to] - self._costs[tasks, at]
        return int(tasks[moves.argmin()])

    def _next_path(self) -> _Path | None:
        filled, after = self._load / self._capacity, (self._load + 1) / self._capacity
        levels = np.unique(after)
        for level in levels:  # the emptiest first
            fuller = filled > level
            if not fuller.any():
                break
            path = self._cheapest_path(fuller, after == level)
            if path is not None:
                return path
        for level in levels:
            path = self._cheapest_path(filled == level, after == level)
            if path is not None and path.cost < 0:
                return path
        return None

    def _cheapest_path(self, sources: npt.NDArray[np.bool_], sinks: npt.NDArray[np.bool_]) -> _Path | None:
        """From any of some members to any of others (Bellman and Ford), the shorter of two that cost the same."""
        if not sources.any():
            return None
        costs = np.where(sources, 0, _FAR)
        before = np.full(len(costs), -1, np.int64)
        changed = np.flatnonzero(sources)
        every = np.arange(len(costs))
        for _ in range(LONGEST_CHAIN):
            more = self._steps[changed] + costs[changed, None]
            cheapest = more.argmin(axis=0)
            reached = more[cheapest, every]
            better = (reached < costs) & (reached < MOST)
            if not better.any():
                break
            costs[better] = reached[better]
            before[better] = changed[cheapest[better]]
            changed = np.flatnonzero(better)
        else:  # with hosts that are shared it may go round, cheaper each time
            path = self._back(int(changed[0]), before)
            if path.members[0] == path.members[-1]:
                return path
        ends = np.flatnonzero(sinks & (costs < MOST))
        if not ends.size:
            return None
        return self._back(int(ends[costs[ends].argmin()]), before)

    def _back(self, last: int, before: Numbers) -> _Path:
        """The way to a member; where it goes round, one round."""
        passed = [last]
        while (at := int(before[passed[-1]])) >= 0:
            if at in passed:
                passed = [*passed[passed.index(at) :], at]
                break
            passed.append(at)
        passed.reverse()
        return _Path(passed, sum(int(self._steps[at, to]) for at, to in pairwise(passed)))

    def _move(self, moves: Sequence[tuple[int, int, int]]) -> bool:
        """Do all moves of a chain; or none, and bar the one that the others make impossible until a chain was done."""
        done: list[tuple[int, int, int]] = []
        for task, at, to in moves:
            if not self._there[task, at] or not self._fits(task, to, at):
                for undone, came_from, went_to in reversed(done):
                    self._go(undone, went_to, came_from)
                self._barred.add((task, to))
                self._look_again({task}, ())
                return False
            self._go(task, at, to)
            done.append((task, at, to))
        for task, at, to in moves:
            self._has[at] = np.delete(self._has[at], np.searchsorted(self._has[at], task))
            self._has[to] = np.insert(self._has[to], np.searchsorted(self._has[to], task), task)
        self._load[moves[0][1]] -= 1
        self._load[moves[-1][2]] += 1
        return True

    def _go(self, task: int, at: int, to: int) -> None:
        self._put(task, at, -1)
        self._put(task, to)
        self._at[task].remove(at)
        self._at[task].add(to)

    def _look_again(self, tasks: Collection[int], members: Collection[int]) -> None:
        """Find the cheapest moves anew of members, and of those that have some of the tasks."""
        for task in tasks:
            self._price(task)
        for at in {*members, *(at for task in tasks for at in self._at[task])}:
            self._step(at)
