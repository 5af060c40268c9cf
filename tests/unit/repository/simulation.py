"""Jobs that publish to one application at the same time, over a store that fails, from a seed.

A seed makes an application of a few tasks, whose changelogs grow, and a few requests of three kinds, for some tasks, or
some stores of them, or all:

- a *rebuild* makes them from nothing; some of them have refused what the newest snapshot has, and go back behind it;
- a *checkpoint* puts what came since its base, the newest snapshot when it was planned, above the base's runs;
- a *compaction* makes one run of some that stand side by side; the lowest ones of some stores vanish, because
  all rows up to there were deleted.

A request is tried until a try says how it ended; tries die, give up and are begun again, now and then while the one
before is still at work. Somebody makes the head anew in between, and some only read.

After every step:

- every snapshot that any head has ever named is whole: manifest, task manifests and files exist and match their hashes;
- no head has lost a snapshot of the one before, and none has two of one request;
- every database has each offset up to the end of its store once, and in order; except the first ones, where a published
  compaction has kept no rows of them;
- of no task the newest snapshot goes back, unless it was refused; no store that a job did not touch has changed, and
  none that was compacted holds anything else;
- who was told that it published finds its snapshot, and all tries of a request the same one; who was told that it was
  fenced had none when it last looked; who was told that there was nothing left to publish last saw as much as it had;
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from unittest.mock import patch

from statecore.errors import Corrupted, Fenced, Invalid, NotFound, Retryable
from statecore.faults import COLLECTION_POINTS, PUBLISH_POINTS, FaultPoints
from statecore.objectstore.base import Blobs
from statecore.objectstore.encrypted import EncryptedBlobs, EncryptedPointers
from statecore.objectstore.frames import FrameCipher
from statecore.objectstore.pointers import PointerValue
from statecore.repository import blob_verification as believed
from statecore.repository.application_repository import ApplicationRepository, ReadTaskManifest
from statecore.repository.descriptor import DESCRIPTOR, DESCRIPTOR_NAME
from statecore.repository.head import HEAD, Head, Retention, encoded_head
from statecore.repository.maintenance.collection import Collector
from statecore.repository.maintenance.forget import forget
from statecore.repository.maintenance.head_repair import apply_repair, plan_repair
from statecore.repository.manifest import MANIFEST, ReadPosition, StoredRun, TaskManifest
from statecore.repository.object_store import NOT_ENCRYPTED
from statecore.repository.publish.conflicts import Rebase
from statecore.repository.publish.publication import Publication, Published
from statecore.repository.publish.rebase import Compaction, rebase_advance, rebase_compaction
from tests.harness.scheduler import Scheduler
from tests.harness.simulated_store import (
    Death,
    Network,
    SimulatedBlobs,
    SimulatedDirectory,
    SimulatedPointers,
    Storage,
    version_of,
)
from tests.unit.repository.oracle import Broken, Oracle, ends_in, runs_of, spans_in
from tests.unit.repository.requested import Key, Plan, Request, entry_of
from tests.unit.repository.snapshots import APPLICATION, NOW, STORES, publication, repository, store_of, uploaded_runs

_GROWTH = 50
_MOST_TRIES = 12
_STEPS = 20_000
_DAMAGES = 6

KINDS = ("rebuild", "checkpoint", "compaction")
POINTS = (*PUBLISH_POINTS, *COLLECTION_POINTS)
CIPHER = FrameCipher(bytes(32))


@dataclass
class Points(FaultPoints):
    """Points at which a try may die.

    Attributes:
        network: what decides whether it does.
        met: what happened.
        aimed: a point at which the first try dies, so that a run meets a rare one whenever it gets there.
    """

    network: Network
    met: Counter[str]
    aimed: str = ""

    def reach(self, point: str) -> None:
        """Let others have their turn; perhaps die."""
        super().reach(point)
        self.network.pause()
        is_aimed = point == self.aimed and not self.met[f"death at {point}"]
        if is_aimed or self.network.chance.random() < self.network.rate / 2:
            self.met[f"death at {point}"] += 1
            raise Death


class Watched(SimulatedPointers):
    """Pointers that know what was last read of them.

    Attributes:
        seen: the content of the pointer as it was then.
    """

    seen: bytes | None = None

    def read(self, name: str) -> PointerValue | None:
        """See :meth:`Pointers.read`."""
        found = super().read(name)
        self.seen = self._network.storage.pointers.get(name)
        return found


@dataclass
class Simulation:
    """One run.

    Attributes:
        seed: what decides everything.
        directory: where files of jobs lie.
        is_encrypted: whether what is stored is encrypted.
        met: what happened, and how often.
    """

    seed: int
    directory: Path
    is_encrypted: bool = False
    met: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._chance = Random(self.seed)
        self._now = NOW
        self._storage = Storage(clock=lambda: self._now, swapped=self._swapped, deleted=self._deleted)
        self._turns = Scheduler(self._chance)
        self._network = Network(
            self._storage, self._chance, self._chance.choice((0.0, 0.02, 0.05, 0.1, 0.2)), self._turns.pause
        )
        self._quiet = self._opened(Network(self._storage, Random(0)))
        self._storage.blobs[DESCRIPTOR_NAME] = DESCRIPTOR.encode(self._quiet.repository.descriptor), NOW
        # One run in two is aimed at a point, each point in its turn; in the others tries die by chance alone.
        self._aimed = [*POINTS, *[""] * len(POINTS)][self.seed // 4 % (2 * len(POINTS))]
        self._races = self._chance.random() < 0.4  # jobs of few stores, which get in each other's way
        self._weights, most = ((0, 6, 5), 2) if self._races else ((4, 5, 3), 5)
        is_deep = self.seed % 5 == 3  # runs upon runs of one task, which compactions of compactions lie below
        if is_deep:
            self._weights, most = (1, 6, 6), 1
        tasks = [f"0_{number}" for number in range(self._chance.randint(1, most))]
        self._log = {(task, store): _GROWTH * self._chance.randint(1, 3) for task in tasks for store in STORES}
        self._grown = {key: [(NOW * 1000, end)] for key, end in self._log.items()}
        many = self._chance.randint(2, 6) * (1 + (self._races or is_deep))
        self._requests = [self._request(f"request-{number}") for number in range(many)]
        asked = {request.name: request for request in self._requests}
        self._oracle = Oracle(self._content, self._quiet.names, self.met, asked, self._grown)
        # Whether compactions leave nothing of some stores.
        self._vanishes = self._chance.random() < 0.5 or is_deep
        self._merged: set[tuple[Key, int, int]] = set()
        self._collects = self._chance.random() < 0.5 or self._aimed in COLLECTION_POINTS
        self._collecting = 0
        self._min_age_ms = 0 if self._aimed in COLLECTION_POINTS else self._chance.choice((0, 20_000, 100_000))

    @property
    def trace(self) -> str:
        """Hash of all that the pointers have ever been."""
        return self._oracle.trace

    def _opened(self, network: Network) -> ApplicationRepository:
        return self._over(network, SimulatedBlobs(network))

    def _over(self, network: Network, blobs: Blobs) -> ApplicationRepository:
        pointers = Watched(network)
        if not self.is_encrypted:
            return ApplicationRepository(repository(blobs, pointers), APPLICATION)
        encrypted = EncryptedBlobs(blobs, lambda: CIPHER, NOT_ENCRYPTED)
        return ApplicationRepository(
            repository(encrypted, EncryptedPointers(pointers, lambda: CIPHER, NOT_ENCRYPTED)), APPLICATION
        )

    def _content(self, name: str) -> bytes | None:
        """Content of a blob that is there."""
        found = self._storage.blobs.get(name)
        return None if found is None else self._decrypted(name, found[0])

    def _decrypted(self, name: str, stored: bytes) -> bytes:
        return CIPHER.open_frames(name, stored) if self.is_encrypted else stored

    def _seen(self, app_repository: ApplicationRepository) -> Head | None:
        """The head as a job has read it last."""
        pointers = app_repository.pointers
        watched = pointers._pointers if isinstance(pointers, EncryptedPointers) else pointers
        seen = watched.seen  # type: ignore[attr-defined]
        return None if seen is None else HEAD.decode(self._decrypted(app_repository.names.head, seen))

    def _request(self, name: str) -> Request:
        kind = self._chance.choices(KINDS, self._weights)[0]
        rebases = self._chance.random() < 0.5
        if self._chance.random() < 0.2:
            return Request(name, kind, tuple(self._log), whole=kind == "rebuild", rebases=rebases)
        keys = list(self._log)
        some = self._chance.sample(keys, min(self._chance.choice((1, 1, 2, 8)), len(keys)))
        if self._chance.random() < 0.5:  # all stores of these tasks
            tasks = {task for task, _ in some}
            some = [key for key in keys if key[0] in tasks]
        refused = frozenset(some[:1]) if kind == "rebuild" and self._chance.random() < 0.2 else frozenset()
        return Request(name, kind, tuple(sorted(some)), whole=False, refused=refused, rebases=rebases)

    def run(self) -> Simulation:
        """Let everything happen.

        Raises:
            Broken: an invariant does not hold; the message has the seed.
        """
        try:
            with patch.object(believed, "CONCURRENT_REQUESTS", 1):
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
        for entry in self._oracle.heads[-1].snapshots if self._oracle.heads else ():
            self._oracle.fetch(self._quiet, entry)
        for number in range(_DAMAGES if self._oracle.heads else 0):
            self._network.rate = rate
            self._damage_and_publish_again(f"again-{number}")

    def _damage_and_publish_again(self, name: str) -> None:
        """Damage a blob of the newest snapshot; a job that publishes the same again has all data."""
        self._network.settle()  # what was published before the damage names what was whole then
        newest = self._oracle.heads[-1].snapshots[0]
        spans = spans_in(self._oracle.task_manifests[newest.snapshot])
        as_directory, believing = self.seed % 2 == 0, self.seed % 4 < 2
        kinds = ["missing", "truncated", "flipped"]
        if believing and not as_directory:
            # Of a pack of which some files alone are at hand nobody knows the checksum. If it is encrypted, the files
            # before the cut are in a frame that cannot be opened.
            kinds = ["missing"] if self.is_encrypted else ["missing", "truncated"]
        blob, kind = self._chance.choice(sorted(self._oracle.whole(newest))), self._chance.choice(kinds)
        content = self._storage.blobs.pop(blob)[0]
        if kind != "missing":
            self._storage.blobs[blob] = (self._network.damaged(content, kind), self._now)
        self.met[f"damaged {blob.split('/')[2]}"] += 1
        whole, stores = self._chance.random() < 0.5, tuple(spans)
        # A repair may leave out the newest snapshot; the one before may have been refused, and have more.
        ends = ends_in(self._oracle.task_manifests[newest.snapshot])
        request = Request(name, "rebuild", stores, whole, spans=spans, ends=ends, refused=frozenset(stores))
        self._oracle.asked[name] = request
        blobs = (
            SimulatedDirectory(self._network, self.directory / "blobs")
            if as_directory
            else SimulatedBlobs(self._network)
        )
        app_repository = self._over(self._network, blobs)
        while not request.is_over:
            request.tries += 1
            if request.tries == _MOST_TRIES:
                self._network.rate = 0
            if request.tries > _MOST_TRIES + 5:
                raise Broken(f"{name} does not come to an end")
            try:
                request.is_over = bool(self._published(request, app_repository, believing=believing))
            except Death:
                self.met["died"] += 1
            except Corrupted as error:
                if "repair-head" in error.action:
                    apply_repair(self._quiet, plan_repair(self._quiet, jump=lambda: 1000))
            except (Retryable, Invalid) as error:
                self.met[type(error).__name__] += 1
        self._oracle.whole(self._oracle.heads[-1].snapshots[0])
        self._oracle.fetch(self._quiet, self._oracle.heads[-1].snapshots[0])
        self.met["healed"] += 1

    def _begin(self) -> None:
        """Begin attempts of idle requests, and sometimes a concurrent one."""
        for request in self._requests:
            beside = request.running == 1 and self._chance.random() < 0.003
            if not self._is_ready(request):
                continue
            if not request.is_over and (not request.running or beside) and self._chance.random() < 0.2 + beside:
                if request.tries >= _MOST_TRIES:
                    request.is_over = not request.running
                    self.met["given up"] += request.is_over
                    continue
                self.met["beside"] += beside
                request.tries += 1
                request.running += 1
                self._turns.start(lambda request=request: self._try(request))  # type: ignore[misc]

    def _is_ready(self, request: Request) -> bool:
        """Whether it is time, and there is something to be done, or never will be.

        Few checkpoints begin where nothing is new.
        """
        if self._now < NOW + (20 if self._races else 8) * self._requests.index(request):
            return False
        newest = self._oracle.task_manifests[self._oracle.heads[-1].snapshots[0].snapshot] if self._oracle.heads else {}
        if request.kind == "checkpoint":
            ends = ends_in(newest)
            return any(ends.get(key, 0) < self._log[key] for key in request.stores) or self._chance.random() < 0.1
        if request.kind != "compaction" or all(one.is_over for one in self._requests if one.kind != "compaction"):
            return True
        return any(len(spans) > 1 for key, spans in spans_in(newest).items() if key in request.stores)

    def _happen(self) -> None:
        """What others do: logs grow, heads are recreated, and snapshots are read."""
        if self._chance.random() < 0.01:
            self._turns.start(self._look)
        if self._collects and self._collecting < 2 and self._oracle.heads and self._chance.random() < 0.04:
            self._collecting += 1
            self._turns.start(self._forget if self._chance.random() < 0.3 else self._collect)
        if self._chance.random() < (0.3 if self._races else 0.1):
            lively = list(self._log)[: len(self._log) // 2 if self._chance.random() < 0.9 else None]
            grown = self._chance.choice(lively)
            self._log[grown] += _GROWTH
            self._grown[grown].append((self._now * 1000, self._log[grown]))
        if self._oracle.heads and self._chance.random() < 0.002:
            name = self._quiet.names.head
            now = self._storage.pointers[name]
            found = HEAD.read(self._decrypted(name, now))
            anew = replace(found.value, epoch=found.value.epoch + 1, generation=found.value.generation + 1)
            content = encoded_head(anew, found.raw)
            if self.is_encrypted:
                sealed = CIPHER.sealed(name, content)
                content = sealed.read(0, sealed.size)
            self._storage.swap(name, content, version_of(now))
            self.met["made anew"] += 1

    def _collect(self) -> None:
        app_repository = self._opened(self._network)
        try:
            collector = Collector(
                app_repository,
                min_age_ms=self._min_age_ms,
                unused_ms=50_000,
                faults=Points(self._network, self.met, self._aimed),
            )
            report = collector.run()
        except Death:
            self.met["collector died"] += 1
        except (Retryable, Corrupted, Invalid, Fenced) as error:
            if error.code == "head-reverted":  # nothing puts an older one back
                raise
            self.met[f"collector {error.code}"] += 1
        else:
            self.met["collected"] += bool(report.deleted.blobs)
        finally:
            self._collecting -= 1

    def _forget(self) -> None:
        keep = Retention(last=self._chance.randint(1, 3), hourly=0, daily=0, weekly=0)
        try:
            forget(self._opened(self._network), keep)
        except Death:
            self.met["forget died"] += 1
        except (Retryable, Corrupted, Invalid, Fenced) as error:
            if error.code == "head-reverted":  # nothing puts an older one back
                raise
            self.met[f"forget {error.code}"] += 1
        finally:
            self._collecting -= 1

    def _try(self, request: Request) -> None:
        """One try: all that it knows of earlier ones is the request."""
        app_repository = self._opened(self._network)
        try:
            published = self._published(request, app_repository)
        except Death:
            self.met["died"] += 1
        except (Retryable, Corrupted, Invalid) as error:
            self.met[type(error).__name__] += 1
        except Fenced as error:
            self.met["fenced: " + error.what.partition(": ")[2].partition(" ")[0]] += 1
            seen = self._seen(app_repository)
            if entry_of(request, () if seen is None else seen.snapshots) is not None:
                raise Broken(f"{request.name} was told that it was fenced, and has published") from error
            request.is_over = True
        else:
            self._ended(request, published, app_repository)
        finally:
            request.running -= 1

    def _ended(self, request: Request, published: Published | None, app_repository: ApplicationRepository) -> None:
        """What a try has said, compared with what there is."""
        request.is_over = True
        if published is None:
            self.met[f"nothing left of a {request.kind}"] += 1
            seen = self._seen(app_repository)
            if request.kind != "compaction" and seen is not None:
                there = ends_in(self._oracle.task_manifests[seen.snapshots[0].snapshot])
                if any(there.get(key, 0) < end for key, end in request.least.items()):
                    raise Broken(f"{request.name} was told that nothing was left to publish, and there is {there}")
            return
        self.met["earlier" if published.earlier else "beside others" if published.concurrent else "published"] += 1
        self.met[request.kind] += 1
        entry = next((one for head in self._oracle.heads[::-1] if (one := entry_of(request, head.snapshots))), None)
        if entry is None or entry.snapshot != published.snapshot:
            raise Broken(f"{request.name} was told that it published {published.snapshot}, and has {entry}")
        still = {one.snapshot for one in self._oracle.heads[-1].snapshots}
        if request.told not in (None, published.snapshot) and request.told in still:
            raise Broken(f"{request.name} was told {request.told} and {published.snapshot}")
        request.told = published.snapshot

    def _refuse_old_epochs(self, published: Published | None, epoch: int) -> None:
        """Make sure that who has published began in the epoch that he has published in."""
        if published is not None and not published.earlier:
            name = self._quiet.names.manifest(published.snapshot)
            made = MANIFEST.decode(self._decrypted(name, self._storage.blobs[name][0])).epoch
            if made != epoch:
                raise Broken(f"{published.snapshot} is of epoch {made}, and was begun in {epoch}")

    def _published(
        self, request: Request, app_repository: ApplicationRepository, *, believing: bool = False
    ) -> Published | None:
        met = Points(self._network, self.met, self._aimed)
        begun = publication(
            app_repository,
            request.name,
            clock=lambda: self._now,
            name=lambda: f"{self._chance.randrange(1 << 32):08x}",
            faults=met,
        )
        seen = self._seen(app_repository)
        epoch = 0 if seen is None else seen.epoch
        if found := begun.earlier():
            return found
        plan = request.plan
        if plan is None or self._chance.random() < 0.1:  # one that was too old is made anew
            plan = request.plan = self._planned(request, begun)
            request.least = {key: min(end, request.least.get(key, end)) for key, end in plan.ends.items()}
        for _ in range(self._chance.choice((0, 0, 50))):  # what a job reads takes its time
            self._network.pause()
        if request.kind == "rebuild":
            published = self._rebuild(request, plan, app_repository, begun, believing=believing)
        else:
            published = (self._checkpoint if request.kind == "checkpoint" else self._compaction)(
                request, plan, app_repository, begun
            )
        self._refuse_old_epochs(published, epoch)
        return published

    def _planned(self, request: Request, begun: Publication) -> Plan:
        ends = {key: self._log[key] for key in request.stores}
        if request.spans is not None:
            return Plan(request.ends, {}, {}, 0)
        ends |= {key: self._chance.choice(range(_GROWTH, ends[key] + 1, _GROWTH)) for key in sorted(request.refused)}
        read_at_ms = 0 if request.refused else int(self._now * 1000)
        if request.kind == "rebuild" and not request.rebases:
            return Plan(ends, {}, {}, read_at_ms)
        bases = begun.task_manifests()
        compactions = {}
        for key, spans in sorted(spans_in(bases).items()) if request.kind == "compaction" else ():
            if key in request.stores and len(spans) > 1:
                first = self._chance.randrange(len(spans) - 1) if spans[0][0] == 0 else 0
                compactions[key] = (first, self._chance.randint(first + 2, len(spans)))
        return Plan(ends if request.kind != "compaction" else {}, bases, compactions, read_at_ms)

    def _rebuild(
        self,
        request: Request,
        plan: Plan,
        app_repository: ApplicationRepository,
        begun: Publication,
        *,
        believing: bool,
    ) -> Published | None:
        spans: dict[str, dict[str, list[tuple[int, int]]]] = {}
        for (task, store), end in plan.ends.items():
            of = [(start, start + _GROWTH) for start in range(0, end, _GROWTH)]
            spans.setdefault(task, {})[store] = request.spans[task, store] if request.spans is not None else of
        before = [one.manifest for one in self._there(app_repository).values()] if believing else []
        runs = uploaded_runs(app_repository, self.directory, spans, before=before)
        task_manifests = [_task_manifest(task, stores, plan) for task, stores in runs.items()]
        return begun.publish(
            task_manifests,
            drops_other_tasks=request.whole,
            rebase=self._advancing(plan) if request.rebases else None,
            refused=request.refused,
        )

    def _there(self, app_repository: ApplicationRepository) -> Mapping[str, ReadTaskManifest]:
        found = app_repository.read_head()
        with app_repository.read_to_publish():
            before = None if found is None else found.head.newest
            return (
                {}
                if before is None
                else app_repository.task_manifests(app_repository.manifest(before).value.task_manifests)
            )

    def _checkpoint(
        self, request: Request, plan: Plan, app_repository: ApplicationRepository, begun: Publication
    ) -> Published | None:
        below = {
            (task, store.store): runs_of(store)
            for task, task_manifest in plan.bases.items()
            for store in task_manifest.stores
        }
        begun_at, newest = ends_in(plan.bases), ends_in(begun.task_manifests())
        spans: dict[str, dict[str, list[tuple[int, int]]]] = {}
        for (task, store), end in plan.ends.items():
            start = begun_at.get((task, store), 0)
            if start < end:
                spans.setdefault(task, {})[store] = [(start, end)]
            elif newest.get((task, store), end) < end:  # since an earlier try has planned: it is not passed over
                spans.setdefault(task, {})[store] = []
        tails = uploaded_runs(app_repository, self.directory, spans)
        upon = {(task, store) for task, stores in spans.items() for store, of in stores.items() if of}
        self.met["checkpoint above a compaction that has left nothing"] += any(below.get(key) == () for key in upon)
        task_manifests = [
            _task_manifest(
                task, {store: [*below.get((task, store), ()), *runs] for store, runs in stores.items()}, plan
            )
            for task, stores in tails.items()
        ]
        tasks = {task for task, _ in self._log}
        now = begun.task_manifests()  # an earlier try may have planned upon another one
        quiet = [task for task in tasks if task not in spans and now.get(task) == plan.bases.get(task)]
        quiet = [task for task in quiet if all((task, one) in request.stores for one in STORES)]
        return begun.publish(
            task_manifests,
            drops_other_tasks=False,
            tasks=tasks if self.seed % 2 else None,
            rebase=self._advancing(plan),
            read_positions=dict.fromkeys(quiet, ReadPosition(plan.read_at_ms, None)),
            checks_blobs_hourly=True,
        )

    def _advancing(self, plan: Plan) -> Rebase:
        def rebase(mine: TaskManifest, theirs: TaskManifest) -> TaskManifest | None:
            try:
                done = rebase_advance(mine, theirs, plan.bases.get(mine.task))
            except Fenced:
                self.met["rebase: fenced"] += 1
                raise
            below = {} if mine.task not in plan.bases else spans_in({mine.task: plan.bases[mine.task]})
            there = spans_in({mine.task: theirs})
            for store in done.stores if done is not None else ():
                key = (mine.task, store.store)
                left = store not in theirs.stores and below.get(key) and not there.get(key, [()])
                self.met["rebase: above a compaction that has left nothing"] += bool(left)
                is_new = store not in (*mine.stores, *theirs.stores)
                self.met["rebase: " + ("above theirs" if is_new else "mine" if store in mine.stores else "theirs")] += 1
            self.met["rebase: nothing"] += done is None
            return done

        return rebase

    def _compaction(
        self, request: Request, plan: Plan, app_repository: ApplicationRepository, begun: Publication
    ) -> Published | None:
        newest, compactions = begun.task_manifests(), dict[str, list[Compaction]]()
        for (task, name), (first, behind) in plan.compactions.items():
            (store,) = [store for store in plan.bases[task].stores if store.store == name]
            inputs = [stored.run for stored in runs_of(store)[first:behind]]
            start, end = inputs[0].start, inputs[-1].end
            self.met["compaction of a compaction"] += any(
                ((task, name), one.start, one.end) in self._merged for one in inputs
            )
            self.met["compaction above a compaction that has left nothing"] += first == 0 and start > 0
            output = None
            if first == 0 and self._leaves_nothing((task, name), end):
                request.gone.add(((task, name), end))
            else:
                (output,) = uploaded_runs(app_repository, self.directory, {task: {name: [(start, end)]}})[task][name]
                self._merged.add(((task, name), start, end))
            compactions.setdefault(task, []).append(Compaction(name, None, tuple(inputs), output, is_lowest=first == 0))

        def rebase(mine: TaskManifest, theirs: TaskManifest) -> TaskManifest | None:
            done = rebase_compaction(compactions[mine.task], theirs)
            self.met[
                "rebased compaction: " + ("nothing" if done is None else "mine" if done == mine else "among theirs")
            ] += 1
            return done

        made = [rebase_compaction(of, newest[task]) for task, of in compactions.items() if task in newest]
        return begun.publish(
            [task_manifest for task_manifest in made if task_manifest is not None],
            drops_other_tasks=False,
            rebase=rebase,
            checks_blobs_hourly=True,
        )

    def _swapped(self, name: str, content: bytes) -> None:
        if name == self._quiet.names.head:
            self._oracle.swapped(self._decrypted(name, content))

    def _deleted(self, name: str) -> None:
        self._oracle.deleted(name)

    def _leaves_nothing(self, key: Key, end: int) -> bool:
        """Whether every row up to an offset has been deleted there."""
        return self._vanishes and zlib.crc32(f"{self.seed} {key} {end}".encode()) % 2 == 0

    def _look(self) -> None:
        """Read a snapshot, over the network that fails."""
        app_repository = self._opened(self._network)
        was_none = not self._oracle.heads
        try:
            self._oracle.fetch(app_repository, self._chance.choice(app_repository.head().snapshots))
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


def _task_manifest(task: str, stores: Mapping[str, Sequence[StoredRun]], plan: Plan) -> TaskManifest:
    made = [store_of(task, name, stores[name], end=plan.ends[task, name]) for name in stores]
    made = [store if runs_of(store) else replace(store, databases=()) for store in made]
    return TaskManifest(task, tuple(replace(store, read_at_ms=plan.read_at_ms) for store in made))


EVERYTHING = frozenset(
    {
        *KINDS,
        *(f"nothing left of a {kind}" for kind in KINDS),
        *(f"rebase: {what}" for what in ("mine", "theirs", "above theirs", "nothing", "fenced")),
        *(f"rebased compaction: {what}" for what in ("mine", "nothing", "among theirs")),
        "rebase: above a compaction that has left nothing",
        "checkpoint above a compaction that has left nothing",
        "compaction of a compaction",
        "cut",
        "published",
        "earlier",
        "beside others",
        "beside",
        "died",
        "made anew",
        "forgotten",
        "collected",
        "collector died",
        "healed",
        "repaired",
        *(f"damaged {kind}" for kind in ("packs", "files", "task-manifests", "manifests")),
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
        *(f"death at {point}" for point in POINTS),
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
