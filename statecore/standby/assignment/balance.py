"""Balances copies over members: a most even distribution, and the cheapest of those.

Copies start at their cheapest members. Then chains of moves (a task from one member to the next, another task from
that one to a third) fill the emptiest members from fuller ones, the cheapest chain first. Each chain is a shortest path
between its ends, so the result costs as little as any equally even distribution (successive shortest paths of a minimum
cost flow). Once balanced, chains that reduce the cost and keep the balance follow. Only hosts shared by several members
can block a chain.

Costs of tasks at members and the cheapest move between any two members are tables: a chain costs one search over the
second table and a new row for each of its members, whatever the number of tasks.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

LONGEST_CHAIN = 64
"""Maximum number of moves of a chain."""

MOST = 1 << 60
"""Upper bound of the cost of a chain."""

_FAR = 1 << 61
"""Cost of an impossible move; added to the cost of a chain it still fits into 64 bits."""

Numbers = npt.NDArray[np.int64]


class Shape(NamedTuple):
    """The members, by index.

    Attributes:
        hosts: number of each member's host, from 0.
        capacities: relative weight of each member.
        on_a_host: maximum number of copies of a task on one host.
    """

    hosts: Sequence[int]
    capacities: Sequence[int]
    on_a_host: int


class _Path(NamedTuple):
    """Members of a chain; the first equals the last in a cycle, which only exchanges tasks."""

    members: list[int]
    cost: int


class Balance:
    """Copies of tasks at members; tasks are addressed by their row in the cost table."""

    def __init__(self, shape: Shape, costs: Numbers, taken: Sequence[Collection[int]]) -> None:
        self._costs = costs
        tasks, count = costs.shape
        self._host = np.array(shape.hosts, np.int64)
        self._capacity = np.array(shape.capacities, np.float64)
        self._on_a_host = shape.on_a_host
        self._load = np.zeros(count, np.int64)
        self._members_of: list[set[int]] = [set() for _ in range(tasks)]
        self._has_copy = np.zeros((tasks, count), np.bool_)
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
        self._blocked: set[tuple[int, int]] = set()
        self._tasks_of: list[Numbers] = []
        self._prices = np.empty_like(costs)
        """Cost of a task at members that it may move to from another host."""
        self._steps = np.full((count, count), _FAR, np.int64)
        """Cost of the cheapest move from a member (row) to another (column)."""

    def start(self, copies: int) -> None:
        """Place copies of every task at its cheapest members, of equally cheap ones at the emptier."""
        for task, costs in enumerate(self._costs):
            for at in np.lexsort((self._load / self._capacity, costs)).tolist():
                if len(self._members_of[task]) == copies:
                    break
                if self._fits(task, at):
                    self._put(task, at)
                    self._members_of[task].add(at)
                    self._load[at] += 1
        has: list[list[int]] = [[] for _ in self._load]
        for task, members in enumerate(self._members_of):
            for at in members:
                has[at].append(task)
        self._tasks_of = [np.array(tasks, np.int64) for tasks in has]
        for task in range(len(self._members_of)):
            self._price(task)
        for at in range(len(self._load)):
            self._step(at)

    def even_out(self, is_late: Callable[[], bool]) -> bool:
        """Apply chains until none improves balance or cost; returns whether it finished before ``is_late``."""
        while (path := self._next_path()) is not None:
            if is_late():
                return False
            moves = [(self._cheapest(at, to), at, to) for at, to in pairwise(path.members)]
            if self._move(moves):
                blocked = {task for task, _ in self._blocked}
                self._blocked.clear()
                self._update_moves({task for task, _, _ in moves} | blocked, path.members)
        return True

    def members_of(self, task: int) -> set[int]:
        """Members that have a copy of a task."""
        return self._members_of[task]

    def _fits(self, task: int, to: int, instead_of: int | None = None) -> bool:
        if self._has_copy[task, to]:
            return False
        gone = instead_of is not None and self._host[instead_of] == self._host[to]
        return bool(self._on_host[task, self._host[to]] - gone < self._on_a_host)

    def _put(self, task: int, at: int, copies: int = 1) -> None:
        self._has_copy[task, at] = copies > 0
        self._on_host[task, self._host[at]] += copies

    def _price(self, task: int) -> None:
        may = ~self._has_copy[task] & (self._on_host[task][self._host] < self._on_a_host)
        self._prices[task] = np.where(may, self._costs[task], _FAR)
        for blocked, to in self._blocked:
            if blocked == task:
                self._prices[task, to] = _FAR

    def _near_moves(self, at: int, to: Numbers) -> Numbers:
        """Cost of moving each task of a member to others on its host; the leaving copy makes room."""
        tasks = self._tasks_of[at]
        room = self._on_host[tasks, self._host[at]] <= self._on_a_host
        may = ~self._has_copy[np.ix_(tasks, to)] & room[:, None]
        for task, blocked in self._blocked:
            may[np.ix_(tasks == task, to == blocked)] = False
        moves: Numbers = np.where(may, self._costs[np.ix_(tasks, to)], _FAR) - self._costs[tasks, at][:, None]
        return moves

    def _step(self, at: int) -> None:
        """Update the cheapest moves from a member."""
        if not self._tasks_of[at].size:
            self._steps[at] = _FAR
            return
        moves = self._prices[self._tasks_of[at]]
        moves -= self._costs[self._tasks_of[at], at][:, None]
        self._steps[at] = moves.min(axis=0)
        near = self._neighbours[at]
        if near is not None:
            self._steps[at, near] = self._near_moves(at, near).min(axis=0)

    def _cheapest(self, at: int, to: int) -> int:
        """The task with the cheapest move from one member to another."""
        tasks = self._tasks_of[at]
        if self._neighbours[at] is not None and self._host[at] == self._host[to]:
            moves = self._near_moves(at, np.array([to], np.int64))[:, 0]
        else:
            moves = self._prices[tasks, to] - self._costs[tasks, at]
        return int(tasks[moves.argmin()])

    def _next_path(self) -> _Path | None:
        filled, after = self._load / self._capacity, (self._load + 1) / self._capacity
        levels = np.unique(after)
        for level in levels:  # emptiest first
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
        """Cheapest path from any source to any sink (Bellman-Ford), the shorter one of equal cost."""
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
        else:  # with shared hosts there may be a negative cycle
            path = self._back(int(changed[0]), before)
            if path.members[0] == path.members[-1]:
                return path
        ends = np.flatnonzero(sinks & (costs < MOST))
        if not ends.size:
            return None
        return self._back(int(ends[costs[ends].argmin()]), before)

    def _back(self, last: int, before: Numbers) -> _Path:
        """The path to a member; a cycle once around."""
        passed = [last]
        while (at := int(before[passed[-1]])) >= 0:
            if at in passed:
                passed = [*passed[passed.index(at) :], at]
                break
            passed.append(at)
        passed.reverse()
        return _Path(passed, sum(int(self._steps[at, to]) for at, to in pairwise(passed)))

    def _move(self, moves: Sequence[tuple[int, int, int]]) -> bool:
        """Apply all moves of a chain; or none, and block the move that the others prevent until a chain succeeds."""
        done: list[tuple[int, int, int]] = []
        for task, at, to in moves:
            if not self._has_copy[task, at] or not self._fits(task, to, at):
                for undone, came_from, went_to in reversed(done):
                    self._relocate(undone, went_to, came_from)
                self._blocked.add((task, to))
                self._update_moves({task}, ())
                return False
            self._relocate(task, at, to)
            done.append((task, at, to))
        for task, at, to in moves:
            self._tasks_of[at] = np.delete(self._tasks_of[at], np.searchsorted(self._tasks_of[at], task))
            self._tasks_of[to] = np.insert(self._tasks_of[to], np.searchsorted(self._tasks_of[to], task), task)
        self._load[moves[0][1]] -= 1
        self._load[moves[-1][2]] += 1
        return True

    def _relocate(self, task: int, at: int, to: int) -> None:
        self._put(task, at, -1)
        self._put(task, to)
        self._members_of[task].remove(at)
        self._members_of[task].add(to)

    def _update_moves(self, tasks: Collection[int], members: Collection[int]) -> None:
        """Recompute the cheapest moves of members, and of those that have one of the tasks."""
        for task in tasks:
            self._price(task)
        for at in {*members, *(at for task in tasks for at in self._members_of[task])}:
            self._step(at)
