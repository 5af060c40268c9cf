"""Stores that are compared with their whole changelogs: which can be, what is put, and what becomes of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from statecore.changelog.model import ReadStatistics, TopicDescription
from statecore.changelog.record_density import PartitionShape
from statecore.changelog.size_estimate import SizeEstimate
from statecore.errors import Capacity, Fenced
from statecore.images.digest import EMPTY, combined
from statecore.images.model import BaseDatabases, RunFile, StoreDigest
from statecore.images.runs import RunBuilder
from statecore.images.runs_digest import merged_digest
from statecore.jobs.bases.base import Base, Refused
from statecore.jobs.checkpoint.plan import CheckpointPlan
from statecore.jobs.checkpoint.reconcile import Reconciler, Reconciliation, divided, rebased
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.context import JobContext
from statecore.jobs.in_process_engine import InProcessEngine
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.ranges import RangeResult
from statecore.jobs.pipeline.read_stage import ReadResult
from statecore.jobs.pipeline.task_manifests import task_manifests
from statecore.jobs.planning.plan import PartitionPlan, RestorePlan
from statecore.repository.download import FILES, RemoteFile, download
from statecore.repository.manifest import BaseFile, Extent, StoreSnapshot, TaskManifest
from statecore.spec.model import ProcessingGuarantee
from tests.harness.filesystems import with_free_room
from tests.harness.reference_digest import digest_of
from tests.unit.images.changelog import Record, batches, expected_rows
from tests.unit.jobs.published import TOPIC_ID, Shop, records

END, NEW_END = 300, 500
CLICKS, PLAIN, OTHER = ("0_0", "clicks"), ("0_0", "plain"), ("0_1", "plain")


@dataclass
class World:
    """A plan by which tails were read above the newest snapshot, and what the whole logs leave, without brokers.

    Attributes:
        shop: the repository.
        scratch: TMPDIR.
        logs: what is written in the whole log of each store, deletes left out by compaction.
        seen: what a read of a log sees.
        epoch_end: where epochs end when it is asked for the last time.
    """

    shop: Shop
    scratch: Path
    logs: dict[tuple[str, str], list[Record]] = field(default_factory=dict)
    seen: ReadStatistics = field(default_factory=lambda: ReadStatistics(records=9))
    epoch_end: int = NEW_END
    batches: list[list[tuple[str, str]]] = field(default_factory=list)
    files_before: list[int] = field(default_factory=list)
    full: bool = False
    turned: bool = False

    @property
    def stores(self) -> dict[tuple[str, str], StoreSnapshot]:
        (entry, *_) = self.shop.app_repository.head().snapshots
        parts = self.shop.app_repository.task_manifests(self.shop.app_repository.manifest(entry).value.task_manifests)
        return {(task, store.store): store for task, read in parts.items() for store in read.manifest.stores}

    @property
    def snapshot(self) -> str:
        return self.shop.app_repository.head().snapshots[0].snapshot

    def planned(self, *keys: tuple[str, str], **config: str) -> CheckpointPlan:
        parents = {key: Base.of_snapshot(self.snapshot, self.stores[key], None) for key in keys}
        parts = []
        for key, parent in parents.items():
            store = parent.snapshot
            assert store is not None
            parts += [
                PartitionPlan(
                    store.store,
                    store.kind,
                    key[0],
                    end.topic,
                    TOPIC_ID,
                    end.partition,
                    END,
                    NEW_END,
                    NEW_END,
                    ((END, NEW_END),),
                    store.retention_ms,
                    store.segment_interval_ms,
                    leader_epoch=3,
                    log_start=0,
                    base=self.snapshot,
                )
                for end in store.changelogs
            ]
        configs = {"cleanup.policy": "compact", **config}
        topics = {part.topic: TopicDescription(part.topic, TOPIC_ID, 2, configs) for part in parts}
        plan = RestorePlan("orders", ProcessingGuarantee.AT_LEAST_ONCE, tuple(parts))
        frozen = SimpleNamespace(plan=plan, newest_snapshot=self.snapshot)
        return cast(CheckpointPlan, SimpleNamespace(frozen=frozen, bases=parents, topics=topics))

    def refused(self, key: tuple[str, str]) -> Refused:
        return Refused(*key, self.snapshot, "compaction has removed offsets", missed_deletes=True)

    def reconcile(self, *keys: tuple[str, str], **options: Any) -> Reconciliation:
        planned = self.planned(*keys)
        ends = {part.topic_partition: self.epoch_end for part in planned.frozen.plan.partitions}

        brokers: Any = SimpleNamespace(epoch_ends=lambda wanted: {part: ends[part] for part in wanted})
        context = JobContext.open(
            CheckpointRequest(spec_path="-", repository=self.shop.url, memory_budget=1 << 20),
            spec=self.shop.declared,
            shared_repository=self.shop.app_repository,
            shared_cluster=brokers,
        )
        return Reconciler(
            context,
            planned,
            lambda _: InProcessEngine(),
            read=self.read,
            weigh=lambda _, spans, *__: SizeEstimate(
                {span.topic_partition: PartitionShape.of_offsets(span) for span in spans}, None
            ),
            **options,
        ).run([self.refused(key) for key in keys])

    def read(self, workers: Any, plan: RestorePlan, cluster: Any, place: Any, *_: Any) -> Mapping[Any, Any]:
        """In place of the stage that reads: what the logs leave, in two runs."""
        if self.full:
            raise Capacity("The disk is full.", code="test-error", action="Make room.")
        self.batches.append(list(plan.stores))
        self.files_before.append(sum(path.is_file() for path in self.left()))
        place.prepare()
        found = {}
        for key, (part,) in plan.stores.items():
            assert (part.start, part.end, part.ranges) == (0, NEW_END, ((0, NEW_END),))
            with place.scratch() as attempt:
                builder = RunBuilder(
                    part.kind, attempt, memory_budget=1 << 30, base=BaseDatabases.NONE, segmentation=part.segmentation,
                    changelog=part.topic_partition, store=part.store, start=0,
                )  # fmt: skip
                for batch in batches(self.logs[key], 50):
                    builder.add(batch)
                files = builder.finish(NEW_END)
                for file in files:
                    staging.keep(place.blobs(), file)
                    if self.turned:
                        path = place.blobs().local_path(staging.run_name(file))
                        path.write_bytes(bytes(file.file_bytes))
            span = part.offset_ranges[0]
            runs = tuple(file.run for file in files)
            stream_time = builder.statistics.stream_time
            found[key] = (RangeResult(*key, span, runs, self.seen, 1.0, {}, {}, stream_time),)
        return found

    def published(self, key: tuple[str, str], made: Reconciliation) -> TaskManifest:
        """The part with a store that was made right."""
        planned = self.planned(key)
        (part,) = task_manifests(
            planned.frozen.plan, ReadResult({key: made.stores[key].results}, {}), {}, bases=planned.bases
        )
        return part

    def content(self, store: StoreSnapshot) -> tuple[int, str]:
        """Rows and digest of a store."""
        files = self.scratch / "brought"
        download(
            self.shop.app_repository,
            [RemoteFile(one.run.sha256, one.extent, "") for of in store.databases for one in of.runs],
            files,
        )
        found = StoreDigest(0, 0, EMPTY)
        for of in store.databases:
            runs = [RunFile.of(one.run, files / FILES / one.run.sha256) for one in of.runs]
            found = combined(found, merged_digest(runs, [run.path for run in runs]))
        return found.rows, found.digest

    def expected(self, key: tuple[str, str]) -> tuple[int, str]:
        """Rows and digest of what its log shows."""
        rows = expected_rows(self.stores[key].kind, self.logs[key])
        return len(rows), digest_of(rows.items())

    def left(self) -> list[Path]:
        return [path for path in self.scratch.rglob("*") if "statecore-reconcile" in str(path)]


@pytest.fixture
def world(own_shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    made = World(own_shop, tmp_path / "scratch")
    for key in (CLICKS, PLAIN, OTHER):
        made.logs[key] = later(key)
    return made


def later(key: tuple[str, str]) -> list[Record]:
    """What a log has when it has gone on: every third row of the parent was deleted, and its delete is gone; others
    are newer.
    """
    last = dict(records(key[1], int(key[0][-1]), END))
    found: list[Record] = []
    for number, (name, value) in enumerate(sorted(last.items())):
        if number % 3 and value is not None:
            found.append((name, b"newer" if number % 3 == 1 else value))
    return found


@pytest.mark.parametrize("key", [PLAIN, OTHER, CLICKS])
def test_a_store_shows_what_its_log_shows_and_the_parents_runs_stay(world: World, key: tuple[str, str]) -> None:
    before = world.stores[key]
    made = world.reconcile(key)
    assert made.refused == []
    (store,) = world.published(key, made).stores
    assert world.content(store) == world.expected(key) != world.content(before)
    for old in before.databases:
        new = next((one for one in store.databases if one.segment == old.segment), None)
        assert new is None or (new.runs[: len(old.runs)] == old.runs and len(new.runs) <= len(old.runs) + 1)
    runs = [run for result in made.stores[key].results for run in result.runs]
    assert {(run.start, run.end) for run in runs} == {(END, NEW_END)}
    assert sum(run.deletes for run in runs) > 0
    assert store.changelogs[0].end == NEW_END
    assert (made.stores[key].parts[0].start, made.stores[key].parts[0].base) == (0, world.snapshot)


def test_what_differs_is_put_and_said_and_nothing_else_is_left(world: World) -> None:
    made = world.reconcile(PLAIN, OTHER, CLICKS)
    assert sorted(made.stores) == sorted([PLAIN, OTHER, CLICKS])
    assert world.left() == []
    extents = [one for store in made.stores.values() for result in store.results for one in result.extents]
    assert len({one.blob for one in extents}) == 1, "small ones share a pack"
    (run,) = [run for result in made.stores[PLAIN].results for run in result.runs]
    told = str(made.stores[PLAIN])
    assert all(one in told for one in (f"{run.rows:,} rows", f"{run.deletes:,} deletes", world.snapshot))


def test_a_store_that_is_as_its_log_says_needs_no_run_and_ends_later_all_the_same(world: World) -> None:
    world.logs[PLAIN] = records("plain", 0, END)
    made = world.reconcile(PLAIN)
    (store,) = world.published(PLAIN, made).stores
    assert store.databases == world.stores[PLAIN].databases
    assert (store.changelogs[0].end, store.content) == (NEW_END, world.stores[PLAIN].content)
    assert store.identity != world.stores[PLAIN].identity


def test_stores_are_taken_a_few_at_a_time_and_the_disk_is_empty_in_between(world: World) -> None:
    made = world.reconcile(PLAIN, OTHER, CLICKS, batch_bytes=1)
    assert world.batches == [[PLAIN], [OTHER], [CLICKS]]
    assert world.files_before == [0, 1, 2], "what differs waits to share a pack"
    assert len(made.stores) == 3


def test_a_damaged_run_of_the_parent_has_its_store_rebuilt_and_no_other(world: World) -> None:
    (stored,) = world.stores[OTHER].databases[0].runs[:1]
    blob = world.shop.root / "repository" / stored.extent.blob
    content = bytearray(blob.read_bytes())
    content[stored.extent.start + 9] ^= 1
    blob.chmod(0o600)
    blob.write_bytes(content)
    made = world.reconcile(PLAIN, OTHER)
    assert list(made.stores) == [PLAIN]
    (one,) = made.refused
    assert (one.key, one.missed_deletes) == (OTHER, True)
    assert one.why.startswith("compaction has removed offsets;")
    assert stored.extent.blob in one.why


def test_where_there_is_no_room_stores_are_rebuilt(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.full = True
    assert [one.key for one in world.reconcile(PLAIN, OTHER).refused] == [PLAIN, OTHER]
    world.full = False

    with_free_room(monkeypatch, sum(stored.run.file_bytes for stored in world.stores[PLAIN].databases[0].runs))
    (one,) = world.reconcile(PLAIN).refused
    assert one.why.endswith(" are needed")
    assert world.batches == []


def test_a_log_that_loses_its_start_or_its_end_meanwhile_tells_nothing(world: World) -> None:
    world.seen = ReadStatistics(records=9, log_start_moved_to=400)
    (one,) = world.reconcile(PLAIN).refused
    assert (one.missed_deletes, one.is_passing, "began at 400" in one.why) == (False, False, True)
    world.seen, world.epoch_end = ReadStatistics(records=9), 450
    made = world.reconcile(PLAIN)
    assert made.stores == {}
    (one,) = made.refused
    assert (one.missed_deletes, one.is_passing) == (False, True)
    assert ("truncated at 450" in one.why, "end 500" in one.why) == (True, True)


def test_a_run_that_this_disk_has_changed_is_not_compared(world: World) -> None:
    world.turned = True
    (one,) = world.reconcile(PLAIN).refused
    assert "does not match its hash" in one.why


def why_not(world: World, key: tuple[str, str], change: Callable[[Any], None] = lambda _: None, **config: str) -> str:
    planned = world.planned(key, **config)
    change(planned)
    right, wrong = divided(planned, [world.refused(key)])
    assert (len(right), len(wrong)) in ((1, 0), (0, 1))
    return "" if right else wrong[0].why


def test_only_what_compaction_alone_cleans_can_be_compared(world: World) -> None:
    assert why_not(world, PLAIN) == ""
    for policy in ("compact,delete", "delete,compact", "delete", ""):
        why = why_not(world, PLAIN, **{"cleanup.policy": policy})
        assert "cleanup.policy of orders-plain-changelog" in why
        assert policy in why


def test_only_a_store_of_runs_and_of_one_partition_in_the_newest_snapshot_can_be_compared(world: World) -> None:
    assert "2 partitions of names" in why_not(world, ("global", "names"))

    def older(planned: Any) -> None:
        planned.frozen.newest_snapshot = "another"

    def based(planned: Any) -> None:
        store = planned.bases[PLAIN].snapshot
        (database,) = store.databases
        database = replace(database, base=(BaseFile("1.sst", "0" * 64, Extent("b", 0, 1)),))
        planned.bases[PLAIN] = replace(planned.bases[PLAIN], snapshot=replace(store, databases=(database,)))

    assert "newest snapshot" in why_not(world, PLAIN, older)
    assert "RocksDB files" in why_not(world, PLAIN, based)


def test_what_else_is_wrong_with_a_parent_is_left_as_it_is_said(world: World) -> None:
    one = replace(world.refused(PLAIN), why="the log was truncated", missed_deletes=False)
    assert divided(world.planned(PLAIN), [one]) == ([], [one])


def test_what_was_compared_is_put_upon_the_parent_alone(world: World) -> None:
    below = TaskManifest("0_0", (world.stores[PLAIN],))
    mine = world.published(PLAIN, world.reconcile(PLAIN))
    (made,) = mine.stores
    assert rebased(mine, below, below, {PLAIN}) == mine
    (database,) = below.stores[0].databases
    other = replace(below.stores[0], identity="f" * 64, databases=(replace(database, runs=database.runs[:1]),))
    theirs = TaskManifest("0_0", (other,))
    assert rebased(mine, theirs, below, {PLAIN}) == mine, "with the runs that it was compared with"
    assert rebased(mine, theirs, below, {}) != mine, "which is what a tail becomes"
    further = replace(other, changelogs=tuple(replace(one, end=NEW_END, offset=NEW_END - 1) for one in made.changelogs))
    assert rebased(mine, TaskManifest("0_0", (further,)), below, {PLAIN}) is None
    with pytest.raises(Fenced):
        rebased(mine, TaskManifest("0_0", ()), below, {PLAIN})
