"""Copies that are spread in the plainest way: every chain between any two members is looked at before each move.

It takes the cube of the members for each move, and is what the fast one is held against.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush

from statecore.standby.assignment.model import Member

Move = tuple[str, int, int]
"""A task, whose copy goes from one member to another."""

_NOWHERE: set[int] = set()


class SlowSpread:
    """Copies at members, and how they are evened out."""

    def __init__(
        self,
        members: Sequence[Member],
        costs: Mapping[str, Sequence[int]],
        taken: Mapping[str, set[int]],
        on_a_host: int,
    ) -> None:
        self._members, self._costs, self._taken, self._on_a_host = members, costs, taken, on_a_host
        self.at: dict[str, set[int]] = {}
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
