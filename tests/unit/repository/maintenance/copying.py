"""A replica beside its primary, over stores that fail, from a seed.

Jobs publish to the primary, snapshots are pinned, forgotten and collected there, and its head is lost and rebuilt.
Copies go into the replica, some at the same time, and its garbage is collected. After each swap of the replica's head
its newest snapshot is whole, and the others but for files that were damaged when they were read; nothing that it
reaches is ever deleted. At last the replica is as the primary is, and has nothing that the primary has not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from statecore.errors import Corrupted, Fenced, Invalid, NotFound, Retryable
from statecore.faults import FaultPoints
from statecore.repository import blob_verification
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.descriptor import DESCRIPTOR, DESCRIPTOR_NAME, Role
from statecore.repository.head import HEAD, Retention
from statecore.repository.maintenance.collection import Collector
from statecore.repository.maintenance.copier import DIVERGED, Copier
from statecore.repository.maintenance.forget import forget
from statecore.repository.maintenance.garbage import reachable_names
from statecore.repository.maintenance.head_repair import apply_repair, plan_repair
from statecore.repository.maintenance.pins import pin, unpin
from statecore.repository.maintenance.retention_record import read_retention
from tests.harness.scheduler import Scheduler
from tests.harness.simulated_store import Death, Network, SimulatedBlobs, SimulatedPointers, Storage, flipped
from tests.unit.repository.oracle import Broken
from tests.unit.repository.snapshots import APPLICATION, NOW, fetched, publication, repository, uploaded

_STEPS = 1500
_LAST = 12_000
_DAY = 24 * 3600.0


@dataclass
class Points(FaultPoints):
    """Points at which a copy may die."""

    network: Network
    met: Counter[str]

    def reach(self, point: str) -> None:
        super().reach(point)
        self.network.pause()
        if self.network.chance.random() < self.network.rate / 4:
            self.met[f"death at {point}"] += 1
            raise Death


class WatchedCopier(Copier):
    """A copier that tells what it leaves out before it swaps the head."""

    told: set[str]

    def _check_left_out(self, read: Any, left_out: Mapping[str, Corrupted]) -> None:
        super()._check_left_out(read, left_out)
        self.told.update(left_out)


@dataclass
class Copying:
    """One run; ``met`` counts what happened."""

    seed: int
    directory: Path
    met: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._chance = Random(self.seed)
        self._now = NOW
        self._turns = Scheduler(self._chance)
        rate = self._chance.choice((0.0, 0.005, 0.02, 0.05))
        self._primary = Storage(clock=lambda: self._now)
        self._replica = Storage(clock=lambda: self._now, swapped=self._swapped, deleted=self._deleted)
        self._networks = {
            storage is self._replica: Network(storage, self._chance, rate, self._turns.pause)
            for storage in (self._primary, self._replica)
        }
        for is_replica, storage in ((False, self._primary), (True, self._replica)):
            descriptor = self._opened(Network(storage, Random(0)), is_replica=is_replica).repository.descriptor
            storage.put(DESCRIPTOR_NAME, DESCRIPTOR.encode(descriptor))
        self._end = {"0_0": 50, "0_1": 50}
        self._min_age_ms = self._chance.choice((0, 20_000))
        self._reached: set[str] = set()
        self._left_out: set[str] = set()
        self._rotten: set[str] = set()
        self._order = (-1, -1)
        self._numbers = self._publishing = 0
        self._is_lost = False

    def _opened(self, network: Network, *, is_replica: bool) -> ApplicationRepository:
        role = Role.REPLICA if is_replica else Role.PRIMARY
        return ApplicationRepository(
            repository(SimulatedBlobs(network), SimulatedPointers(network), role=role), APPLICATION
        )

    def primary(self, *, is_quiet: bool = False) -> ApplicationRepository:
        return self._opened(Network(self._primary, Random(0)) if is_quiet else self._networks[False], is_replica=False)

    def replica(self, *, is_quiet: bool = False) -> ApplicationRepository:
        return self._opened(Network(self._replica, Random(0)) if is_quiet else self._networks[True], is_replica=True)

    def run(self) -> Copying:
        """Let everything happen. Raises ``Broken``; the message has the seed."""
        try:
            with patch.object(blob_verification, "CONCURRENT_REQUESTS", 1):
                self._run()
        except Exception as error:
            raise Broken(f"seed {self.seed}: {error!r}") from error
        return self

    def _run(self) -> None:
        actions = (
            self._publish,
            self._forget,
            self._collect,
            self._prune,
            self._copy,
            self._lose,
            self._rot,
            self._pin,
            self._unpin,
        )
        weights = (10, 4, 3, 3, 6, 1.5, 2, 1, 1)
        for _ in range(_STEPS):
            if self._chance.random() < 0.06:
                (action,) = self._chance.choices(actions, weights)
                self._turns.start(lambda action=action: self._act(action))  # type: ignore[misc]
            self._turns.step()
            self._now += self._chance.random() * 3
        for _ in range(_LAST):
            if not self._turns.step():
                break
        else:
            raise Broken("it does not come to an end")
        for network in self._networks.values():
            network.settle()
        self._finish()

    def _act(self, action: Callable[[], object]) -> None:
        name = action.__name__.removeprefix("_")
        try:
            action()
        except Death:
            self.met[f"{name} died"] += 1
        except (Retryable, Corrupted, Invalid, Fenced, NotFound) as error:
            if error.code == "head-reverted":  # nothing puts an older one back
                raise Broken(f"{name} takes a head for an older one") from error
            self.met[f"{name} {error.code}"] += 1
        else:
            self.met[name] += 1

    def _publish(self) -> None:
        self._numbers += 1
        if self._is_lost:
            return
        name, task = f"{self._numbers:08x}", self._chance.choice(list(self._end))
        if self._chance.random() < 0.7:
            self._end[task] += 50
        end = {task: {"left": self._end[task], "right": self._end[task]}}
        self._publishing += 1
        try:
            job = publication(self.primary(), f"request-{name}", clock=lambda: self._now, name=lambda: name)
            made = uploaded(self.primary(), self.directory, end)
            job.publish(made, drops_other_tasks=False, refused={(task, "left")})
        finally:
            self._publishing -= 1

    def _forget(self) -> None:
        forget(self.primary(), Retention(last=self._chance.randint(1, 3), hourly=0, daily=0, weekly=0))

    def _collect(self) -> None:
        Collector(self.primary(), min_age_ms=self._min_age_ms, unused_ms=50_000).run()

    def _pin(self) -> None:
        entries = self.primary(is_quiet=True).head().snapshots
        pin(self.primary(), self._chance.choice(entries).snapshot)

    def _unpin(self) -> None:
        """Unpin what the head pins, or what only the retention record does, after a pin that failed."""
        if pinned := read_retention(self.primary(is_quiet=True)).notes:
            unpin(self.primary(), self._chance.choice([*pinned]))

    def _prune(self) -> None:
        done = Collector(self.replica(), min_age_ms=self._min_age_ms, unused_ms=50_000).run()
        self.met["pruned"] += bool(done.deleted.blobs)

    def _copy(self) -> None:
        network = self._networks[True]
        copier = WatchedCopier(self.primary(), self.replica(), faults=Points(network, self.met), piece_bytes=60)
        copier.told = self._left_out
        done = copier.run()
        self.met[f"copy {done.outcome}"] += 1
        self.met["listed"] += bool(done.listed.blobs)

    def _lose(self) -> None:
        """The primary's head is lost, and rebuilt from the manifests, some of which it had forgotten.

        No job publishes then, and one has published since the last time: else the epoch would be the same again.
        """
        quiet = self.primary(is_quiet=True)
        read = quiet.read_head()
        if read is None or self._publishing or quiet.manifest(read.head.snapshots[0]).value.epoch < read.head.epoch:
            return
        self._networks[False].settle()
        del self._primary.pointers[quiet.names.head]
        self._is_lost = True
        for _ in range(self._chance.randint(0, 20)):
            self._networks[False].pause()
        self._is_lost = False
        plan = plan_repair(quiet, jump=lambda: 1000)
        self.met["revived"] += len(plan.head.snapshots) > len(read.head.snapshots)
        apply_repair(quiet, plan)

    def _rot(self) -> None:
        """For a time the primary has a damaged file that only older snapshots need, if possible one to be copied."""
        quiet = self.primary(is_quiet=True)
        head = quiet.head()
        newest = set(reachable_names(quiet, replace(head, snapshots=head.snapshots[:1])))
        older = set(reachable_names(quiet, head)) - newest
        needed = sorted(older, key=lambda one: (one in self._replica.blobs, one))
        (name, *_) = [one for one in needed if quiet.names.kind_of(one) in ("files", "packs")] or [""]
        if name not in self._primary.blobs or name in self._rotten:
            return
        self._rotten.add(name)
        content, made = self._primary.blobs[name]
        self._primary.blobs[name] = (flipped(content, 1), made)
        for _ in range(self._chance.randint(0, 1000)):
            self._networks[False].pause()
        if name in self._primary.blobs:
            self._primary.blobs[name] = (content, made)

    def _swapped(self, _: str, content: bytes) -> None:
        head = HEAD.decode(content)
        if (head.epoch, head.generation) <= self._order:
            raise Broken("the replica's head went back")
        self._order = (head.epoch, head.generation)
        replica = self.replica(is_quiet=True)
        try:
            self._reached = set(reachable_names(replica, head))
            if head.snapshots:
                fetched(replica, self._left_out)
        except (Corrupted, AssertionError) as error:
            raise Broken(f"the replica's head names what is not there: {error}") from error

    def _deleted(self, name: str) -> None:
        if name in self._reached:
            raise Broken(f"{name} was deleted, and the replica's head reaches it")

    def _finish(self) -> None:
        primary, replica = self.primary(is_quiet=True), self.replica(is_quiet=True)
        if self._primary.pointers.get(primary.names.head) is None:
            return
        for _ in range(5):
            self._now += 8 * _DAY
            Collector(primary).run()
            self._copy_at_last(primary, replica)
            Collector(replica).run()
        if self._primary.pointers[primary.names.head] != self._replica.pointers[primary.names.head]:
            raise Broken("the replica has another head")
        if more := self._names(self._replica) - self._names(self._primary):
            raise Broken(f"the replica has more: {sorted(more)[:3]}")
        fetched(replica)
        self.met["equal"] += 1

    def _copy_at_last(self, primary: ApplicationRepository, replica: ApplicationRepository) -> None:
        """Copy; where a repair has left out the replica's newest snapshot, and it is collected, as the error says."""
        error = Copier(primary, replica).run().error
        if error is not None and error.code == DIVERGED:
            before = HEAD.decode(self._replica.pointers[replica.names.head])
            is_repaired = before.epoch < primary.head().epoch
            newest = before.snapshots[0].snapshot
            if not is_repaired or primary.names.manifest(newest) in self._primary.blobs:
                raise error
            del self._replica.pointers[replica.names.head]
            self.met["head deleted"] += 1
            error = Copier(primary, replica).run().error
        if error is not None:
            raise error

    @staticmethod
    def _names(storage: Storage) -> set[str]:
        return {name for name in storage.blobs if name.startswith("apps/") and "/garbage/" not in name}
