"""A simulation of tasks that share machines, brokers and an object store; deterministic given a seed.

A task is a chain of phases. A phase takes so many CPU seconds of one core and moves so many bytes over shared
resources meanwhile, each of which has a rate. All phases that run at once grow alike until a resource is full; those
that use it stay there and the others grow on, up to the speed of their core (max-min fair sharing). Time goes from the
end of a phase, or the loss of a host, to the next; what happens within ``TICK`` happens at once.

Hosts have cores, each of which runs one task at a time, and a network and a disk of their own. Some are stragglers:
everything of theirs is slower. Hosts are lost at random. What they were working on is done again by others, and what
they had finished as well where it lay on their own disks (``durable`` is false). Another host comes after a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

TICK = 0.25
"""Seconds within which events are taken together."""
_FULL = 0.01
_USES = 4
_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Phase:
    """One step of a task.

    Attributes:
        cpu: seconds of one core.
        network: bytes over the network of its host.
        disk: bytes to or from the disk of its host.
        shared: bytes by the name of a shared resource; at most two of them.
        alone: bytes a second of all its network bytes at best, as one connection allows.
    """

    cpu: float
    network: float = 0.0
    disk: float = 0.0
    shared: Mapping[str, float] = field(default_factory=dict)
    alone: float = float("inf")

    @property
    def seconds(self) -> float:
        """What it takes at least."""
        return max(self.cpu, self.network / self.alone, 1e-3)


@dataclass(frozen=True)
class Hosts:
    """Hosts of one sort.

    Attributes:
        count: how many.
        cores: of each.
        network: bytes a second of each.
        disk: bytes a second of each.
        straggling: share of them that are stragglers.
        straggler_speed: how fast these are.
        losses: how many times an hour each is lost.
        replaced_after: seconds until another takes its place.
        durable: whether finished work outlives its host.
    """

    count: int
    cores: int
    network: float
    disk: float
    straggling: float = 0.0
    straggler_speed: float = 0.5
    losses: float = 0.0
    replaced_after: float = 90.0
    durable: bool = True


@dataclass(frozen=True)
class Span:
    """Some time in which nothing changed.

    Attributes:
        seconds: how long it was.
        busy: share of each resource that was used: ``cores``, ``network`` and ``disk`` of all hosts, and the shared
            ones by name.
    """

    seconds: float
    busy: Mapping[str, float]


@dataclass(frozen=True)
class Course:
    """What came out.

    Attributes:
        spans: one after the other.
        lost_hosts: how many were lost.
        lost_core_seconds: time of cores whose work was thrown away.
    """

    spans: Sequence[Span]
    lost_hosts: int
    lost_core_seconds: float

    @property
    def seconds(self) -> float:
        """From the start of the first task to the end of the last one."""
        return sum(span.seconds for span in self.spans)

    def busy(self, resource: str) -> float:
        """The share of a resource that was used, over all the time."""
        return sum(span.seconds * span.busy.get(resource, 0.0) for span in self.spans) / max(self.seconds, 1e-9)


def fair_rates(uses: npt.NDArray[np.int64], demands: _Floats, capacities: _Floats) -> _Floats:
    """How fast each of the running phases goes, as a share of its own best.

    Args:
        uses: the resources of each phase, one row a phase.
        demands: bytes a second that it would move over each of them at its best; 0 where it does not use it.
        capacities: bytes a second of every resource.
    """
    rates = np.zeros(len(uses))
    growing = np.ones(len(uses), bool)
    left, level = capacities.copy(), 0.0
    while growing.any():
        load = np.bincount(uses[growing].ravel(), demands[growing].ravel(), len(capacities))
        wanted = load > 0
        step = min(1.0 - level, float(np.min(left[wanted] / load[wanted], initial=1.0)))
        level += step
        left = left - step * load
        rates[growing] = level
        if level >= 1.0 - 1e-9:
            break
        full = wanted & (left <= _FULL * capacities)
        growing &= ~(full[uses] & (demands > 0)).any(axis=1)
    return rates


class _Pool:
    """The state of a simulation."""

    def __init__(
        self, tasks: Sequence[Sequence[Phase]], hosts: Hosts, shared: Mapping[str, float], random: np.random.Generator
    ) -> None:
        stragglers, self._random = random.spawn(2)
        self._tasks, self._hosts = tasks, hosts
        self._names = {name: 2 * hosts.count + at for at, name in enumerate(shared)}
        self._speed = np.ones(hosts.count)
        self._speed[stragglers.permutation(hosts.count)[: round(hosts.count * hosts.straggling)]] = (
            hosts.straggler_speed
        )
        own = np.concatenate([hosts.network * self._speed, hosts.disk * self._speed])
        self._capacities = np.concatenate([own, np.array([*shared.values()], np.float64)])
        slots = hosts.count * hosts.cores
        self._host_of = np.arange(slots) % hosts.count
        self._task = np.full(slots, -1)
        self._phase = np.zeros(slots, np.int64)
        self._left, self._since = np.zeros(slots), np.zeros(slots)
        self._best = np.ones(slots)
        self._uses, self._demands = np.zeros((slots, _USES), np.int64), np.zeros((slots, _USES))
        self._up_at = np.zeros(hosts.count)
        self._lost_at = self._next_losses(np.arange(hosts.count), 0.0)
        self._waiting = deque(range(len(tasks)))
        self._finished: dict[int, int] = {}
        self._took = np.zeros(len(tasks))
        self.lost_hosts, self.lost_core_seconds = 0, 0.0

    def run(self) -> Iterator[Span]:
        """All spans, until every task is finished."""
        now = 0.0
        while len(self._finished) < len(self._tasks):
            self._lose(now)
            self._give_out(now)
            running = np.flatnonzero(self._task >= 0)
            rates = fair_rates(self._uses[running], self._demands[running], self._capacities)
            pace = rates / self._best[running]
            ends = np.min(self._left[running] / np.maximum(pace, 1e-12), initial=np.inf)
            later = [float(one) for one in (*self._up_at, *self._lost_at) if one > now]
            seconds = max(TICK, min([float(ends), *(one - now for one in later)]))
            yield Span(seconds, self._busy(running, rates))
            now += seconds
            self._left[running] -= pace * seconds
            for slot in running[self._left[running] <= 1e-9]:
                self._phase[slot] += 1
                self._begin(int(slot), now)

    def _next_losses(self, hosts: npt.NDArray[np.int64], now: float) -> _Floats:
        if not self._hosts.losses:
            return np.full(len(hosts), np.inf)
        return now + self._random.exponential(3600 / self._hosts.losses, len(hosts))

    def _lose(self, now: float) -> None:
        for host in np.flatnonzero(self._lost_at <= now):
            self.lost_hosts += 1
            self._up_at[host] = now + self._hosts.replaced_after
            self._lost_at[host] = self._next_losses(np.array([host]), self._up_at[host])[0]
            for slot in np.flatnonzero((self._host_of == host) & (self._task >= 0)):
                self.lost_core_seconds += now - self._since[slot]
                self._waiting.appendleft(int(self._task[slot]))
                self._task[slot] = -1
            if not self._hosts.durable:
                for task in [task for task, where in self._finished.items() if where == host]:
                    self.lost_core_seconds += self._took[task]
                    del self._finished[task]
                    self._waiting.append(task)

    def _give_out(self, now: float) -> None:
        for slot in np.flatnonzero((self._task < 0) & (self._up_at[self._host_of] <= now)):
            if not self._waiting:
                return
            self._task[slot], self._phase[slot], self._since[slot] = self._waiting.popleft(), 0, now
            self._begin(int(slot), now)

    def _begin(self, slot: int, now: float) -> None:
        """Begin the phase that a slot has come to, or let its task go."""
        task, host = int(self._task[slot]), int(self._host_of[slot])
        if self._phase[slot] == len(self._tasks[task]):
            self._finished[task], self._took[task], self._task[slot] = host, now - self._since[slot], -1
            return
        phase = self._tasks[task][self._phase[slot]]
        best = phase.seconds / self._speed[host]
        uses = [(host, phase.network), (self._hosts.count + host, phase.disk)]
        uses += [(self._names[name], amount) for name, amount in phase.shared.items()]
        self._left[slot], self._best[slot] = 1.0, best
        self._uses[slot] = [at for at, _ in uses] + [0] * (_USES - len(uses))
        self._demands[slot] = [amount / best for _, amount in uses] + [0.0] * (_USES - len(uses))

    def _busy(self, running: npt.NDArray[np.int64], rates: _Floats) -> dict[str, float]:
        moved = self._demands[running] * rates[:, None]
        used = np.bincount(self._uses[running].ravel(), moved.ravel(), len(self._capacities))
        count = self._hosts.count
        cores = [self._tasks[self._task[slot]][self._phase[slot]].cpu / self._best[slot] for slot in running]
        own = {
            "cores": float(np.dot(cores, rates)) / len(self._task),
            "network": float(used[:count].sum() / self._capacities[:count].sum()),
            "disk": float(used[count : 2 * count].sum() / self._capacities[count : 2 * count].sum()),
        }
        return own | {name: float(used[at] / self._capacities[at]) for name, at in self._names.items()}


def simulate(
    tasks: Sequence[Sequence[Phase]], hosts: Hosts, shared: Mapping[str, float], random: np.random.Generator
) -> Course:
    """Have the hosts work on all tasks, given out in their order.

    Args:
        tasks: the phases of each.
        hosts: who works.
        shared: bytes a second of each shared resource, by name.
        random: for stragglers and losses.
    """
    pool = _Pool(tasks, hosts, shared, random)
    return Course(list(pool.run()), pool.lost_hosts, pool.lost_core_seconds)
