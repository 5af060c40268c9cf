"""Campaigns of snapshots: random histories of stores of every kind, published and fetched, step after step.

A campaign is one application whose changelogs are written at random (``tests.harness.snapshot_histories``). It goes
through its steps again and again, and everything that a step leaves is compared with a plain restore of the same
offsets. At its end real Kafka Streams restores the same changelogs by itself, opens what was fetched, and goes on::

    campaign = Campaign(seed, broker, jvm, scratch, url)
    campaign.live(3, STEPS)             # each round: every one of STEPS, or not, as chance has it
    validate(campaign)                  # Kafka Streams
    go_on(campaign)                     # and what it leaves is published and fetched, too

The seed decides everything but the clock, so a campaign that fails is run again by its seed. Whoever makes another step
(a snapshot advanced, compacted, expired) adds it to ``tests.harness.snapshot_steps.STEPS``; it says in
``Campaign.expected`` what its snapshot holds.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from statecore.changelog.ranges import OffsetRange, split_range
from statecore.errors import Fenced
from statecore.formats.releases import GLOBAL
from statecore.formats.task_id import TaskId
from statecore.jobs.backup.report import BackupOutcome, BackupReport
from statecore.jobs.backup.request import BackupRequest
from statecore.jobs.backup.run import run_backup
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.engine.processes import ProcessEngine
from statecore.jobs.engine.protocol import Engine
from statecore.jobs.fetch.report import FetchReport
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.jobs.fields.catalog import VersionedStart
from statecore.jobs.pipeline.build_stage import build_images
from statecore.jobs.pipeline.run_publisher import Publisher
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.request import NOTHING, RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import StoreSnapshot
from statecore.repository.publish.upload import put_files
from tests.harness.broker import Broker
from tests.harness.snapshot_application import RandomApplication
from tests.harness.snapshot_content import Content, content_of
from tests.harness.streams import StreamsJvm

Key = tuple[str, str]
"""Task and store."""


class Campaign(RandomApplication):
    """One application, its repository, and what each of its snapshots must hold.

    Attributes:
        expected: by snapshot that the head names, by task and store: what is to be on disk of it.
        newest: the newest snapshot; empty before there is one.
        round: how often it has gone through its steps.
        whole: the snapshots that have all stores of all tasks.
        more: decides what the histories do not depend on.
    """

    def __init__(self, seed: int, broker: Broker, jvm: StreamsJvm, scratch: Path, url: str) -> None:
        super().__init__(seed, broker, jvm, scratch)
        self.seed, self.url, self._scratch = seed, url, scratch
        self.expected: dict[str, dict[Key, Content]] = {}
        self.newest = ""
        self.round = 0
        self.whole: set[str] = set()
        self.more = Random(f"more of {seed}")
        self._directories = 0
        self.tell(url)

    def directory(self) -> Path:
        """A new directory."""
        self._directories += 1
        return self._scratch / f"state-{self._directories}"

    def live(self, rounds: int, steps: Sequence[Callable[[Campaign], None]]) -> None:
        """Go through the steps so many times."""
        for self.round in range(rounds):
            self.tell(f"round {self.round}")
            for step in steps:
                step(self)

    # ---- snapshots

    def publish(self) -> None:
        """A snapshot, of all or of some, by one of the ways there are; compared with a plain restore."""
        chance = self.chance
        what: dict[str, Any] = {"versioned": VersionedStart.LATEST}
        if chance.random() < 0.1:
            what["versioned"] = VersionedStart.HISTORY
        if chance.random() < 0.15:
            what["partitions"] = (chance.randrange(self.partitions),)
        if chance.random() < 0.15:
            built = [store for store, kind in sorted(self.kinds.items()) if kind != "in-memory"]
            what["stores"] = tuple(chance.sample(built, min(2, len(built))))
        with self.open_transaction():
            self.publish_of(what)

    def publish_of(self, what: Mapping[str, Any], into: Path | None = None) -> dict[Key, Content]:
        """A snapshot of what these fields of a request say; what it has of them.

        Args:
            what: fields of a request.
            into: the directory whose stores are replaced by it; chance decides where there is none.
        """
        ways = self.chance.getrandbits(32)
        report = self._published(what, ways, into=into)
        snapshot, touched = report.published.snapshot, self.rebuilt(what)
        assert {(one.task, one.store) for one in report.stores} == touched.keys()
        self.counts(snapshot, touched, whole=not what.get("stores") and not what.get("partitions"))
        if report.state_dir:
            self._compare(Path(report.state_dir), report.stores, touched, f"what publishing {snapshot} has placed")
        if into is None and self.chance.random() < 0.25:
            self._publish_again(what, ways)
        return touched

    def counts(self, snapshot: str, content: Mapping[Key, Content], *, whole: bool) -> None:
        """A snapshot is the newest now, and this is what it must hold; of all else what the one before it has.

        Args:
            snapshot: its id.
            content: what a job has put into it.
            whole: whether that is all.
        """
        self.expected[snapshot] = {**({} if whole else self.expected.get(self.newest, {})), **content}
        if whole or self.newest in self.whole:
            self.whole.add(snapshot)
        self.newest = snapshot
        self._compare_manifest(snapshot)
        head = ApplicationRepository.open(self.url, self.application_id).head()
        forgotten = self.expected.keys() - {entry.snapshot for entry in head.snapshots}
        self.whole -= forgotten
        for one in forgotten:
            del self.expected[one]

    def take(self) -> None:
        """A snapshot of a directory that was fetched, of the newest or an older one, or of some of it; now and then."""
        if self.chance.random() < 0.5 or self.newest not in self.whole:
            return
        snapshot = self.newest if self.more.random() < 0.7 else self.more.choice(sorted(self.whole))
        state_dir = self.directory()
        self.tell(f"take {state_dir}, fetched of {snapshot}")
        self.fetch_into(state_dir, snapshot, snapshot=snapshot)
        content = self.expected[snapshot]
        what: dict[str, Any] = {}
        way = self.more.choice(("all", "all", "tasks", "stores", "partitions"))
        if way == "tasks":
            what["tasks"] = tuple(self.more.sample(tasks := sorted({task for task, _ in content}), min(2, len(tasks))))
        elif way == "stores":
            what["stores"] = tuple(self.more.sample(names := sorted({name for _, name in content}), min(3, len(names))))
        elif way == "partitions":
            what["partitions"] = (self.more.randrange(self.partitions),)
        self.take_from(state_dir, content, **what)
        shutil.rmtree(state_dir)

    def take_from(self, state_dir: Path, content: Mapping[Key, Content], *, planned: bool = True, **what: Any) -> bool:
        """A snapshot of a directory that has this; whether there is one.

        A directory that is behind the newest snapshot is refused, and nothing has changed then; but of a global store,
        which every instance has, the furthest is kept.

        Args:
            state_dir: the directory.
            content: all that it has.
            planned: whether a plan, which does not look for damage, says the same before.
            what: fields of the request that say less than all.
        """
        taken = {key: one for key, one in content.items() if _is_taken(key, what)}
        request = BackupRequest(
            spec=self.spec, state_dir=str(state_dir), repository=self.url, offline=self.chance.random() < 0.3, **what
        )
        newest = self.expected[self.newest]
        behind = {
            key
            for key, one in taken.items()
            for partition, offset in (newest[key].offsets if key in newest else {}).items()
            if max(offset, -1) > max(one.offsets[partition], -1)
        }
        kept = {key for key in behind if key[0] == GLOBAL}
        taken = {**taken, **{key: newest[key] for key in kept}}
        behind -= kept
        self.tell(f"snapshot of {state_dir} {what or 'with all'}{', which is behind' if behind else ''}")
        if behind:
            with pytest.raises(Fenced):
                run_backup(request)
            assert ApplicationRepository.open(self.url, self.application_id).head().snapshots[0].snapshot == self.newest
            return False
        with self.packing():
            plan = run_backup(replace(request, plan_only=True)) if planned else None
            report = run_backup(request)
        said, done = _told(plan or report), _told(report)
        different = {key: (said[key], done[key]) for key in done if said[key] != done[key]}
        assert not different, f"planned, and done: {different}"
        assert (report.outcome is BackupOutcome.UNCHANGED) == (report.snapshot == self.newest)
        self.counts(report.snapshot, taken, whole=not what and content.keys() >= newest.keys())
        return True

    @contextmanager
    def packing(self) -> Iterator[None]:
        """Which files share a blob is decided by chance: none, some, or all that come together."""
        small, pack = self.more.choice((0, 1500, 1 << 20)), self.more.choice((3000, 64 << 20))
        with ExitStack() as around:
            for put in (put_files, Publisher.__init__):
                around.enter_context(patch.dict(put.__kwdefaults__, small=small, pack_bytes=pack))
            around.enter_context(patch("statecore.jobs.backup.files.SMALL", small))
            yield

    def _published(
        self, what: Mapping[str, Any], ways: int, *, again: bool = False, into: Path | None = None
    ) -> ReadReport:
        """Publish; ``ways`` decide the ranges and the budget, on which the runs depend, and chance all else."""
        chance, of_runs = self.chance, Random(ways)
        engine: Engine = chance.choice((InProcessEngine(), InProcessEngine(), ProcessEngine(1), ProcessEngine(3)))
        state_dir = str(into) if into else "" if chance.random() < 0.6 else str(self.directory())
        budget = of_runs.choice((1 << 20, 4 << 20, 512 << 20))
        most = of_runs.choice((1, 2, 5, 9))
        self.tell(
            f"publish{' again' if again else ''} {dict(what)} by {called(engine)}, at most {most} ranges, "
            f"{budget} bytes, into {state_dir or 'the repository alone'}"
        )
        request = RestoreRequest(
            spec=self.spec,
            repository=self.url,
            state_dir=state_dir,
            replace=into is not None,
            memory_budget=budget,
            transaction_wait=self.transaction_wait,
            start_from=NOTHING,
            **what,
        )
        with ExitStack() as around:
            around.enter_context(self.packing())
            around.enter_context(patch("statecore.jobs.planning.plan.plan_ranges", cut_at_random(of_runs, most)))
            if chance.random() < 0.5:
                around.enter_context(patch.dict(build_images.__kwdefaults__, slice_bytes=4000))
            report = run_restore(request, engine)
        assert isinstance(report, ReadReport)
        assert report.published is not None
        return report

    def _publish_again(self, what: Mapping[str, Any], ways: int) -> None:
        """Whoever makes the same runs publishes the same identities; what was compacted meanwhile has other runs."""
        before = self.stores_of(self.newest)
        report = self._published(what, ways, again=True)
        assert report.published is not None
        snapshot = report.published.snapshot
        self.counts(snapshot, self.expected[self.newest], whole=False)
        for key, store in self.stores_of(snapshot).items():
            if key[1] not in self.compacted:
                assert (key, store.identity) == (key, before[key].identity)
                assert [digest for digest, _ in store.extents] == [digest for digest, _ in before[key].extents]

    def rebuilt(self, what: Mapping[str, Any]) -> dict[Key, Content]:
        """What a restore that publishes nothing makes of the same offsets."""
        state_dir = self.directory()
        request = RestoreRequest(
            spec=self.spec,
            state_dir=str(state_dir),
            transaction_wait=self.transaction_wait,
            start_from=NOTHING,
            **what,
        )
        report = run_restore(request, InProcessEngine())
        assert isinstance(report, ReadReport)
        found = {(one.task, one.store): self.content_in(state_dir, one) for one in report.stores}
        for one in report.stores:
            content = found[one.task, one.store]
            assert (one.rows, one.digest, one.offsets) == (content.rows, content.digest, content.offsets)
        shutil.rmtree(state_dir)
        return found

    def content_in(self, state_dir: Path, one: Any) -> Content:
        """What is on disk of a store, of which a report has this."""
        return content_of(state_dir, self.application_id, one.task, one.store, one.kind, one.offsets)

    def stores_of(self, snapshot: str) -> dict[Key, StoreSnapshot]:
        """The stores of a snapshot, as its manifest has them."""
        app_repository = ApplicationRepository.open(self.url, self.application_id)
        entry = app_repository.head().entry(snapshot)
        assert entry is not None
        task_manifests = app_repository.task_manifests(app_repository.manifest(entry).value.task_manifests)
        return {(task, store.store): store for task, read in task_manifests.items() for store in read.manifest.stores}

    def _compare_manifest(self, snapshot: str) -> None:
        expected, found = self.expected[snapshot], self.stores_of(snapshot)
        assert found.keys() == expected.keys()
        for key, store in found.items():
            assert {str(part): offset for part, offset in store.offsets.items()} == expected[key].offsets, key
            if store.content is not None:
                content = store.content
                assert (content.rows, content.digest) == (expected[key].rows, expected[key].digest), key

    def content(self, state_dir: Path, keys: Iterable[Key]) -> dict[Key, Content]:
        """What is on disk of these stores."""
        named = {key: self.expected[self.newest][key].offsets for key in keys}
        return {
            (task, store): content_of(state_dir, self.application_id, task, store, self.kinds[store], offsets)
            for (task, store), offsets in named.items()
        }

    def _compare(self, state_dir: Path, stores: Iterable[Any], expected: Mapping[Key, Content], what: str) -> None:
        found = {(one.task, one.store): self.content_in(state_dir, one) for one in stores}
        different = {key: (found[key], expected.get(key)) for key in found if found[key] != expected.get(key)}
        assert not different, f"{what}: {different}"

    # ---- fetches

    def fetch(self) -> None:
        """Fetch the newest snapshot or an older one, in one or several ways, into new directories."""
        for _ in range(self.chance.choice((1, 1, 2))):
            snapshot = self.newest if self.chance.random() < 0.6 else self.chance.choice(sorted(self.expected))
            named = snapshot != self.newest or self.chance.random() < 0.2
            more: dict[str, Any] = {"snapshot": snapshot} if named else {}
            if self.chance.random() < 0.3:
                more["bootstrap_servers"] = self.world.servers
            shares = self._shares(snapshot)
            self.tell(f"fetch {snapshot} {more} {shares}")
            keys: set[Key] = set()
            for state_dir, share in shares:
                report = self.fetch_into(state_dir, snapshot, **more, **share)
                keys |= {(one.task, one.store) for one in report.stores}
            assert keys == self.expected[snapshot].keys()
            for state_dir, _ in shares:
                shutil.rmtree(state_dir, ignore_errors=True)

    def _shares(self, snapshot: str) -> list[tuple[Path, dict[str, Any]]]:
        """Directories and requests that together have all of a snapshot."""
        way = self.chance.choice(("all", "tasks", "instances"))
        if way == "all":
            return [(self.directory(), {})]
        if way == "instances":
            count = self.chance.choice((1, 2, 3))
            return [(self.directory(), {"instance": f"{number}/{count}"}) for number in range(count)]
        tasks = sorted({task for task, _ in self.expected[snapshot]})
        self.chance.shuffle(tasks)
        cut = self.chance.randint(1, len(tasks))
        together = self.directory()
        return [(together, {"tasks": tuple(some)}) for some in (tasks[:cut], tasks[cut:]) if some]

    def fetch_into(
        self, state_dir: Path, expected: str, *, skipped: Sequence[str] = (), planned: bool = False, **more: Any
    ) -> FetchReport:
        """Fetch into a directory; what is there then is what this snapshot must hold.

        Args:
            state_dir: the directory.
            expected: the snapshot that is to be taken.
            skipped: those that are to be found damaged before it.
            planned: whether a plan is asked first, which must say the same.
            more: fields of the request.
        """
        request = FetchRequest(
            repository=self.url,
            application_id=self.application_id,
            state_dir=str(state_dir),
            memory_budget=self.chance.choice((1 << 20, 512 << 20)),
            processes=self.chance.choice((None, None, 1, 2)),
            **{"versioned": VersionedStart.LATEST, **more},
        )
        plan = run_fetch(replace(request, plan_only=True)) if planned else None
        report = run_fetch(request)
        if plan is not None:
            come = (report.kept, report.downloaded_bytes, report.at_hand_bytes)
            assert (plan.kept, plan.downloaded_bytes, plan.at_hand_bytes) == come
        assert report.snapshot == expected
        assert [one.snapshot for one in report.skipped_snapshots] == list(skipped)
        asked = [one for one in report.stores if not one.restored_by_kafka_streams]
        self._compare(state_dir, asked, self.expected[expected], f"what was fetched of {expected}")
        stored = self.stores_of(expected)
        for one in asked:
            key = one.task, one.store
            content = self.expected[expected][key]
            assert one.offsets == content.offsets, key
            if one.digest is not None:
                assert (one.rows, one.digest) == (content.rows, content.digest), key
            else:  # nobody reads a base through
                assert any(database.base for database in stored[key].databases), key
        return report


def cut_at_random(chance: Random, most: int) -> Callable[..., list[Any]]:
    """In place of ``plan_ranges``: every partition in up to so many ranges, whatever its size is."""

    def plan_ranges(partitions: Iterable[Any], *_: Any, **__: Any) -> list[Any]:
        counts = {whole: chance.randint(1, most) for whole in sorted(partitions, key=_named)}
        return [part for whole, count in counts.items() for part in split_range(whole, count)]

    return plan_ranges


def _is_taken(key: Key, what: Mapping[str, Any]) -> bool:
    task, store = key
    return (
        task in what.get("tasks", (task,))
        and store in what.get("stores", (store,))
        and ("partitions" not in what or TaskId.parse(task).partition in what["partitions"])
    )


def _told(report: BackupReport) -> dict[Key, tuple[object, ...]]:
    """What a plan says, too."""
    return {
        (one.task, one.store): (one.offsets, one.tail, one.files, one.bytes, one.new_files, one.new_bytes)
        for one in report.stores
    }


def called(engine: Engine) -> str:
    """What a campaign calls it."""
    return f"{engine.processes} processes" if isinstance(engine, ProcessEngine) else "this process"


def _named(whole: OffsetRange) -> tuple[str, int]:
    return whole.topic, whole.partition


@contextmanager
def replayable(seed: int, campaign: list[Campaign]) -> Iterator[None]:
    """Whatever fails inside says what had been done, and by which seed."""
    try:
        yield
    except BaseException as error:
        told = "\n".join(one for made in campaign for one in made.told)
        error.add_note(f"The campaign of seed {seed}:\n{told}")
        raise
