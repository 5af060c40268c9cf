"""Stores of a snapshot that are compared with their whole changelogs, without brokers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from statecore.changelog.model import OffsetRange, ReadStatistics, TopicDescription
from statecore.changelog.record_density import PartitionShape
from statecore.changelog.size_estimate import SizeEstimate
from statecore.errors import Capacity
from statecore.images.digest import combined
from statecore.images.model import BaseDatabases, RunFile
from statecore.images.runs import RunBuilder
from statecore.images.runs_digest import merged_digest
from statecore.jobs.bases.base import Base, Refused
from statecore.jobs.checkpoint.plan import CheckpointPlan
from statecore.jobs.checkpoint.reconcile.eligible import plan_whole_logs
from statecore.jobs.checkpoint.reconcile.run import ReconciledStores, Reconciliation
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.context import JobContext
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.ranges import RangeResult
from statecore.jobs.pipeline.read_stage import ReadResult
from statecore.jobs.pipeline.task_manifests import task_manifests
from statecore.jobs.planning.plan import PartitionPlan, ReadPlan
from statecore.repository.download import FILES, RemoteFile, download
from statecore.repository.manifest import StoreSnapshot, TaskManifest
from statecore.spec.model import ProcessingGuarantee
from tests.harness.reference_digest import digest_of
from tests.unit.images.changelog import Record, batches, expected_rows
from tests.unit.jobs.published import TOPIC_ID, Shop, records

END, NEW_END = 300, 500
CLICKS, PLAIN, OTHER = ("0_0", "clicks"), ("0_0", "plain"), ("0_1", "plain")


def sizes(_: Any, spans: Collection[OffsetRange], *__: Any) -> SizeEstimate:
    return SizeEstimate({span.topic_partition: PartitionShape.of_offsets(span) for span in spans}, None)


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
        plan = ReadPlan("orders", ProcessingGuarantee.AT_LEAST_ONCE, tuple(parts))
        frozen = SimpleNamespace(plan=plan, newest_snapshot=self.snapshot)
        return cast(CheckpointPlan, SimpleNamespace(frozen=frozen, bases=parents, topics=topics))

    def refused(self, key: tuple[str, str]) -> Refused:
        return Refused(*key, self.snapshot, "compaction has removed offsets", missed_deletes=True)

    def reconcile(self, *keys: tuple[str, str], **options: Any) -> ReconciledStores:
        planned = self.planned(*keys)
        ends = {part.topic_partition: self.epoch_end for part in planned.frozen.plan.partitions}

        brokers: Any = SimpleNamespace(epoch_ends=lambda wanted: {part: ends[part] for part in wanted})
        context = JobContext.open(
            CheckpointRequest(spec_path="-", repository=self.shop.url, memory_budget=1 << 20),
            spec=self.shop.declared,
            shared_repository=self.shop.app_repository,
            shared_cluster=brokers,
        )
        return Reconciliation(
            context,
            planned,
            lambda _: InProcessEngine(),
            read=self.read,
            plan_logs=partial(plan_whole_logs, estimate=sizes),
            **options,
        ).run([self.refused(key) for key in keys])

    def read(self, workers: Any, plan: ReadPlan, cluster: Any, place: Any, *_: Any) -> Mapping[Any, Any]:
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

    def published(self, key: tuple[str, str], made: ReconciledStores) -> TaskManifest:
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
        databases = [[RunFile.of(one.run, files / FILES / one.run.sha256) for one in of.runs] for of in store.databases]
        found = combined(*(merged_digest(runs, [run.path for run in runs]) for runs in databases))
        return found.rows, found.digest

    def expected(self, key: tuple[str, str]) -> tuple[int, str]:
        """Rows and digest of what its log shows."""
        rows = expected_rows(self.stores[key].kind, self.logs[key])
        return len(rows), digest_of(rows.items())

    def left(self) -> list[Path]:
        return [path for path in self.scratch.rglob("*") if "statecore-reconcile" in str(path)]


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
