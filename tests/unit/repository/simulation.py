"""Jobs that publish to one application at the same time, over a store that fails, from a seed.

A seed makes an application of a few tasks, whose changelogs grow, and a few requests: each to advance some tasks, or
some stores of them, or all. A request is tried until a try says how it ended; tries die, give up and are begun again,
now and then while the one before is still at work. Somebody makes the head anew in between, and some only read.

After every step:

- every snapshot that any head has ever named is whole: manifest, parts and files are there, and are what their hashes
  say;
- no head has lost a snapshot of the one before, and none has two of one request;
- of no task the newest snapshot goes back, and none of a store or task that a job did not touch has changed;
- who was told that it published finds its snapshot, and all tries of a request the same one; who was told that it was
  fenced had none when it last looked;
- who reads gets what was published, or an error; none is to say that there is nothing where there is something.

At last blobs of the newest snapshot are damaged, one after the other, and each time somebody publishes the same again:
the newest snapshot is whole then, whatever was damaged.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from random import Random
from unittest.mock import patch

from statecore.blobs.pointers import Pointed
from statecore.errors import Corrupted, Fenced, Invalid, NotFound, Retryable
from statecore.faults import PUBLISH_POINTS, FaultPoints
from statecore.repository import believed
from statecore.repository.head import HEAD, Head, SnapshotEntry, encoded_head
from statecore.repository.manifest import MANIFEST, PART, TaskPart, checked
from statecore.repository.publication import Published
from statecore.repository.repair import apply_repair, plan_repair
from statecore.repository.shelf import Shelf
from tests.harness.simulated_store import (
    Death,
    Network,
    SimulatedBlobs,
    SimulatedDirectory,
    SimulatedPointers,
    Storage,
    version_of,
)
from tests.harness.turns import Turns
from tests.unit.repository.snapshots import APPLICATION, NOW, STORES, publication, repository, uploaded

_GROWTH = 50
_MOST_TRIES = 12
_STEPS = 20_000
_DAMAGES = 3

Key = tuple[str, str]
"""A task and a store."""


@dataclass
class Request:
    """What somebody asked for: some stores, up to ends that the first try has frozen."""

    name: str
    stores: tuple[Key, ...]
    whole: bool
    ends: dict[Key, int] | None = None
    tries: int = 0
    running: int = 0
    told: str | None = None
    is_over: bool = False


@dataclass
class Points(FaultPoints):
    """Points at which a try may die."""

    network: Network
    met: Counter[str]

    def reach(self, point: str) -> None:
        """Let others have their turn; perhaps die."""
        super().reach(point)
        self.network.pause()
        if self.network.chance.random() < self.network.rate / 2:
            self.met[f"death at {point}"] += 1
            raise Death


class Watched(SimulatedPointers):
    """Pointers that know what was last read of them.

    Attributes:
        seen: the content of the pointer as it was then.
    """

    seen: bytes | None = None

    def read(self, name: str) -> Pointed | None:
        """See :meth:`Pointers.read`."""
        found = super().read(name)
        self.seen = self._network.storage.pointers.get(name)
        return found


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass
class Simulation:
    """One run.

    Attributes:
        seed: what decides everything.
        directory: where files of jobs lie.
        met: what happened, and how often.
        trace: hash of all that the pointers have ever been.
    """

    seed: int
    directory: Path
    met: Counter[str] = field(default_factory=Counter)
    trace: str = ""

    def __post_init__(self) -> None:
        self._chance = Random(self.seed)
        self._now = NOW
        self._storage = Storage(clock=lambda: self._now, swapped=self._swapped, deleted=self._deleted)
        self._turns = Turns(self._chance)
        self._network = Network(
            self._storage, self._chance, self._chance.choice((0.0, 0.02, 0.05, 0.1, 0.2)), self._turns.pause
        )
        self._quiet = self._opened(Network(self._storage, Random(0)))
        tasks = [f"0_{number}" for number in range(self._chance.randint(1, 5))]
        self._log = {(task, store): _GROWTH for task in tasks for store in STORES}
        self._requests = [self._request(f"request-{number}") for number in range(self._chance.randint(2, 6))]
        self._heads: list[Head] = []
        self._named: dict[str, str] = {}  # blobs that a head has named, and the hash of what of them it named
        self._parts: dict[str, dict[str, TaskPart]] = {}
        self._asked: dict[str, Request] = {request.name: request for request in self._requests}

    def _opened(self, network: Network) -> Shelf:
        return Shelf(repository(SimulatedBlobs(network), Watched(network)), APPLICATION)

    def _request(self, name: str) -> Request:
        if self._chance.random() < 0.2:
            return Request(name, tuple(self._log), whole=True)
        keys = list(self._log)
        some = self._chance.sample(keys, min(self._chance.choice((1, 1, 2, 8)), len(keys)))
        if self._chance.random() < 0.5:  # all stores of these tasks
            tasks = {task for task, _ in some}
            some = [key for key in keys if key[0] in tasks]
        return Request(name, tuple(sorted(some)), whole=False)

    def run(self) -> Simulation:
        """Let everything happen.

        Raises:
            Broken: an invariant does not hold; the message has the seed.
        """
        try:
            with patch.object(believed, "AT_ONCE", 1):
                self._run()
        except Exception as error:
            raise Broken(f"seed {self.seed}: {error!r}") from error
        for (request, fault), count in self._network.met.items():
            self.met[f"{request} {fault}"] += count
        return self

    def _run(self) -> None:
        for _ in range(_STEPS):
            self._begin()
            if not self._turns.step() and all(request.is_over for request in self._requests):
                break
            self._now += self._chance.random() * 3
            self._happen()
        else:
            raise Broken("the jobs do not come to an end")
        rate, self._network.rate = self._network.rate, 0
        for entry in {entry.snapshot: entry for head in self._heads for entry in head.snapshots}.values():
            self._fetch(self._quiet, entry)
        for number in range(_DAMAGES if self._heads else 0):
            self._network.rate = rate
            self._damage_and_publish_again(f"again-{number}")

    def _damage_and_publish_again(self, name: str) -> None:
        """Damage a blob of the newest snapshot; whoever publishes the same again has everything at hand."""
        self._network.settle()  # what was published before the damage names what was whole then
        newest = self._heads[-1].snapshots[0]
        ends = _ends(self._parts[newest.snapshot])
        as_directory, believing = self.seed % 2 == 0, self.seed % 4 < 2
        kinds = ["missing", "truncated", "flipped"]
        if believing and not as_directory:
            kinds.pop()  # of a pack of which some files alone are at hand nobody knows the checksum
        blob, kind = self._chance.choice(sorted(self._whole(newest))), self._chance.choice(kinds)
        content = self._storage.blobs.pop(blob)[0]
        if kind != "missing":
            self._storage.blobs[blob] = (self._network.damaged(content, kind), self._now)
        self.met[f"damaged {blob.split('/')[2]}"] += 1
        request = Request(name, tuple(ends), whole=self._chance.random() < 0.5, ends=ends)
        self._asked[name] = request
        blobs = (
            SimulatedDirectory(self._network, self.directory / "blobs")
            if as_directory
            else SimulatedBlobs(self._network)
        )
        shelf = Shelf(repository(blobs, Watched(self._network)), APPLICATION)
        while not request.is_over:
            request.tries += 1
            if request.tries == _MOST_TRIES:
                self._network.rate = 0
            if request.tries > _MOST_TRIES + 5:
                raise Broken(f"{name} does not come to an end")
            try:
                request.is_over = bool(self._published(request, shelf, believing=believing))
            except Death:
                self.met["died"] += 1
            except Corrupted as error:
                if "repair head" in error.action:
                    apply_repair(self._quiet, plan_repair(self._quiet))
            except (Retryable, Invalid) as error:
                self.met[type(error).__name__] += 1
        self._whole(self._heads[-1].snapshots[0])
        self._fetch(self._quiet, self._heads[-1].snapshots[0])
        self.met["healed"] += 1

    def _begin(self) -> None:
        """Begin tries of requests that nobody is at work on, and now and then another one beside."""
        for request in self._requests:
            beside = request.running == 1 and self._chance.random() < 0.003
            if not request.is_over and (not request.running or beside) and self._chance.random() < 0.2 + beside:
                if request.tries >= _MOST_TRIES:
                    request.is_over = not request.running
                    self.met["given up"] += request.is_over
                    continue
                self.met["beside"] += beside
                request.tries += 1
                request.running += 1
                self._turns.start(lambda request=request: self._try(request))  # type: ignore[misc]

    def _happen(self) -> None:
        """What others do: logs grow, heads are made anew, and somebody reads."""
        if self._chance.random() < 0.01:
            self._turns.start(self._look)
        if self._chance.random() < 0.1:
            self._log[self._chance.choice(list(self._log))] += _GROWTH
        if self._heads and self._chance.random() < 0.002:
            now = self._storage.pointers[self._quiet.names.head]
            found = HEAD.read(now)
            anew = replace(found.value, epoch=found.value.epoch + 1, generation=found.value.generation + 1)
            self._storage.swap(self._quiet.names.head, encoded_head(anew, found.raw), version_of(now))
            self.met["made anew"] += 1

    def _try(self, request: Request) -> None:
        """One try: all that it knows of earlier ones is the request."""
        shelf = self._opened(self._network)
        try:
            published = self._published(request, shelf)
        except Death:
            self.met["died"] += 1
        except (Retryable, Corrupted, Invalid) as error:
            self.met[type(error).__name__] += 1
        except Fenced as error:
            self.met["fenced: " + error.what.partition(": ")[2].partition(" ")[0]] += 1
            seen = shelf.pointers.seen  # type: ignore[attr-defined]
            if _entry_of(request, () if seen is None else HEAD.decode(seen).snapshots) is not None:
                raise Broken(f"{request.name} was told that it was fenced, and has published") from error
            request.is_over = True
        else:
            self.met["earlier" if published.earlier else "beside others" if published.beside else "published"] += 1
            entry = _entry_of(request, self._heads[-1].snapshots)
            if entry is None or entry.snapshot != published.snapshot:
                raise Broken(f"{request.name} was told that it published {published.snapshot}, and has {entry}")
            if request.told not in (None, published.snapshot):
                raise Broken(f"{request.name} was told {request.told} and {published.snapshot}")
            request.told, request.is_over = published.snapshot, True
        finally:
            request.running -= 1

    def _published(self, request: Request, shelf: Shelf, *, believing: bool = False) -> Published:
        met = Points(self._network, self.met)
        begun = publication(
            shelf,
            request.name,
            clock=lambda: self._now,
            name=lambda: f"{self._chance.randrange(1 << 32):08x}",
            faults=met,
        )
        if found := begun.earlier():
            return found
        if request.ends is None or (
            request in self._requests and self._chance.random() < 0.1
        ):  # a plan that was too old is made anew
            request.ends = {key: self._log[key] for key in request.stores}
        ends: dict[str, dict[str, int]] = {}
        for (task, store), end in request.ends.items():
            ends.setdefault(task, {})[store] = end
        found = shelf.read_head() if believing else None
        with shelf.read_to_publish():
            before = None if found is None else found.head.newest
            there = {} if before is None else shelf.parts(shelf.manifest(before).value.parts)
        parts = uploaded(shelf, self.directory, ends, every=_GROWTH, before=[one.part for one in there.values()])
        return begun.publish(parts, whole=request.whole)

    def _look(self) -> None:
        """Read a snapshot, over the network that fails."""
        shelf = self._opened(self._network)
        was_none = not self._heads
        try:
            self._fetch(shelf, self._chance.choice(shelf.head().snapshots))
        except Death:
            self.met["reader died"] += 1
        except NotFound as error:
            self.met["none there"] += 1
            if not was_none:
                raise Broken("somebody was told that there is no snapshot, and there is one") from error
        except (Retryable, Corrupted, Invalid) as error:
            self.met[f"reader {type(error).__name__}"] += 1
        else:
            self.met["read"] += 1

    def _swapped(self, _: str, content: bytes) -> None:
        """Look at a new head."""
        self.trace = sha256(self.trace.encode() + content).hexdigest()
        head = HEAD.decode(content)
        before = self._heads[-1] if self._heads else None
        known = before.snapshots if before else ()
        requests = [entry.request for entry in head.snapshots]
        if len(set(requests)) < len(requests):
            raise Broken(f"two snapshots of one request: {requests}")
        if before is not None and head.generation <= before.generation:
            raise Broken(f"generation {head.generation} after {before.generation}")
        self._heads.append(head)
        if head.snapshots == known:
            return
        if head.snapshots != known and before is not None and head.epoch > before.epoch:
            if not set(head.snapshots) < set(known):
                raise Broken("a repair has named what did not count")
            self.met["repaired"] += 1
            return
        if head.snapshots[1:] != known:
            raise Broken(f"a snapshot was lost: {[entry.snapshot for entry in (*known, *head.snapshots)]}")
        self._named |= self._whole(head.snapshots[0])
        self._compare(head.snapshots[0], known[0] if known else None)

    def _whole(self, entry: SnapshotEntry) -> dict[str, str]:
        """All blobs that a snapshot needs, after they were compared with their hashes."""
        name = self._quiet.names.manifest(entry.snapshot)
        named: dict[str, str] = {}
        manifest = MANIFEST.decode(self._piece(named, name, 0, None, entry.sha256))
        parts = {}
        for one in manifest.parts:
            content = self._piece(named, one.extent.blob, one.extent.start, one.extent.bytes, one.sha256)
            parts[one.task] = PART.decode(zlib.decompress(content))
            for store in parts[one.task].stores:
                for digest, extent in store.extents:
                    self._piece(named, extent.blob, extent.start, extent.bytes, digest)
        self._parts[entry.snapshot] = parts
        return named

    def _piece(self, named: dict[str, str], name: str, start: int, size: int | None, digest: str) -> bytes:
        if name not in self._storage.blobs:
            raise Broken(f"a head names {name}, which is not there")
        content = self._storage.blobs[name][0][start : None if size is None else start + size]
        if sha256(content).hexdigest() != digest:
            raise Broken(f"a head names {name}, which is not what it says")
        named[name] = digest
        return content

    def _compare(self, newest: SnapshotEntry, before: SnapshotEntry | None) -> None:
        request = self._asked[newest.request]
        assert request.ends is not None
        now, then = _ends(self._parts[newest.snapshot]), _ends(self._parts[before.snapshot]) if before else {}
        for key in {**then, **now}:
            if now.get(key, 0) < then.get(key, 0):
                raise Broken(f"{key} goes back from {then[key]} to {now.get(key)}")
            if key not in request.stores and now.get(key) != then.get(key):
                raise Broken(f"{key} was not touched, and goes from {then.get(key)} to {now.get(key)}")
        if not set(request.stores) <= set(now):
            raise Broken(f"{request.name} has published {sorted(now)}, and was asked for {request.stores}")

    def _deleted(self, name: str) -> None:
        if name in self._named:
            raise Broken(f"{name} was deleted, and counts")

    def _fetch(self, shelf: Shelf, entry: SnapshotEntry) -> None:
        """Read a snapshot as everybody does, and compare it with what was published.

        Raises:
            Corrupted: a file is not what its hash says.
        """
        read = shelf.parts(shelf.manifest(entry).value.parts)
        if {task: one.part for task, one in read.items()} != self._parts[entry.snapshot]:
            raise Broken(f"{entry.snapshot} was read as something else")
        for one in read.values():
            for store in one.part.stores:
                for digest, extent in store.extents:
                    checked(shelf.read(extent, "A file"), digest, "A file", "Look.")


def _entry_of(request: Request, entries: Iterable[SnapshotEntry]) -> SnapshotEntry | None:
    return next((entry for entry in entries if entry.request == request.name), None)


def _ends(parts: Mapping[str, TaskPart]) -> dict[Key, int]:
    return {(task, store.store): store.changelogs[0].end for task, part in parts.items() for store in part.stores}


EVERYTHING = frozenset(
    {
        "published",
        "earlier",
        "beside others",
        "beside",
        "died",
        "made anew",
        "healed",
        "repaired",
        *(f"damaged {kind}" for kind in ("packs", "files", "parts", "manifests")),
        *(f"replace {fault}" for fault in ("refused", "timeout", "death")),
        "read",
        "reader died",
        "reader Retryable",
        "reader Corrupted",
        "none there",
        "Retryable",
        "Corrupted",
        "fenced: another",
        "fenced: the",
        *(f"death at {point}" for point in PUBLISH_POINTS),
        *(f"put {fault}" for fault in ("refused", "conflict", "timeout", "late", "death")),
        *(f"swap {fault}" for fault in ("refused", "conflict", "timeout", "late", "death")),
        *(f"get {fault}" for fault in ("refused", "flipped", "truncated", "missing", "death")),
        *(f"read {fault}" for fault in ("refused", "flipped", "death")),
        *(f"head {fault}" for fault in ("refused", "missing", "death")),
        *(f"list {fault}" for fault in ("refused", "stale", "death")),
        *(f"delete {fault}" for fault in ("refused", "timeout", "late", "death")),
    }
)
"""What has to happen in a few hundred runs, or they would say little."""


def main() -> None:
    """Run one seed and say what came of it: ``python -m tests.unit.repository.simulation SEED``."""
    with tempfile.TemporaryDirectory() as directory:
        done = Simulation(int(sys.argv[1]), Path(directory)).run()
    print(json.dumps([done.trace, done.met]))


if __name__ == "__main__":
    main()
