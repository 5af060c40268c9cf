"""Distributes copies of tasks over members: greedy, even, and with few moves.

Each copy starts at its cheapest member, where its task is or is furthest; copies that no member has go to the emptiest.
Then the emptiest member takes tasks of the fullest ones, one at a time and the cheapest first, until no such move makes
the distribution more even. A task has at most one copy at a member, and a host as many as it may.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
_FAR = np.iinfo(np.int64).max >> 1


class Shape(NamedTuple):
    """The members, by index."""

    hosts: Sequence[int]  # number of each member's host, from 0
    on_a_host: int  # maximum number of copies of a task on one host


class Balance:
    """Copies of tasks at members; tasks are rows of the cost table, members its columns."""

    def __init__(self, shape: Shape, costs: Numbers) -> None:
        self._costs = costs
        self._host = np.array(shape.hosts, np.int64)
        self._on_a_host = shape.on_a_host
        self._load = np.zeros(costs.shape[1], np.int64)
        self._has_copy = np.zeros(costs.shape, np.bool_)
        self._on_host = np.zeros((len(costs), int(self._host.max(initial=0)) + 1), np.int64)
        self._copies: list[tuple[int, int]] = []

    def start(self, copies: int) -> None:
        """Place copies of every task at its cheapest members; tasks that cost nothing anywhere else choose first."""
        for _ in range(copies):
            room = ~self._has_copy & (self._on_host[:, self._host] < self._on_a_host)
            free = np.where(room, self._costs, _FAR)
            for task in free.min(axis=1).argsort(kind="stable").tolist():
                at = int(np.lexsort((self._load, free[task]))[0])
                if free[task, at] < _FAR:
                    self._put(task, at)
                    self._copies.append((task, at))
                    self._load[at] += 1

    def even_out(self, is_late: Callable[[], bool]) -> bool:
        """Move copies until no move improves the balance; returns whether it finished before ``is_late``."""
        # Copies that the new member has a part of move first, so that later rounds choose the same members.
        nothing = self._costs.max(axis=1, initial=0)
        copies = np.array(self._copies, np.int64).reshape(-1, 2)
        for limit in (nothing, nothing + 1):
            while (move := self._next_move(copies, limit)) is not None:
                if is_late():
                    return False
                number, to = move
                task, at = copies[number].tolist()
                self._put(task, at, -1)
                self._put(task, to)
                self._load[[at, to]] += (-1, 1)
                copies[number, 1] = to
                self._copies[number] = task, to
        return True

    def members(self) -> list[set[int]]:
        """Members of the placed copies, by task."""
        found: list[set[int]] = [set() for _ in self._costs]
        for task, at in self._copies:
            found[task].add(at)
        return found

    def _put(self, task: int, at: int, copies: int = 1) -> None:
        self._has_copy[task, at] = copies > 0
        self._on_host[task, self._host[at]] += copies

    def _next_move(self, copies: Numbers, limit: Numbers) -> tuple[int, int] | None:
        """The cheapest copy, by number, from one of the fullest members to the emptiest that may take one."""
        task, at = copies.T
        load = self._load
        for to in load.argsort(kind="stable").tolist():
            may = (load[at] > load[to] + 1) & ~self._has_copy[task, to] & (self._costs[task, to] < limit[task])
            may &= self._on_host[task, self._host[to]] - (self._host[at] == self._host[to]) < self._on_a_host
            if may.any():
                may &= load[at] == load[at][may].max()
                costs = np.where(may, self._costs[task, to] - self._costs[task, at], _FAR)
                return int(costs.argmin()), to
        return None
