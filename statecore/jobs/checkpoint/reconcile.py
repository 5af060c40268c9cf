"""Reconcile stores that may have missed deletes with their whole changelogs, and publish only the differences.

If compaction may have removed deletes from a tail, the whole log still shows them, provided only compaction removes its
records. So it is read, as for a rebuild, but into runs that stay on this machine::

    the whole log      ──▶ runs in TMPDIR ───────────────┐
    the base's runs    ──▶ downloaded and hashed ────────┴─▶ differences: one run per database, published above the
                                                             base's own runs

Databases are compared one by one (:mod:`statecore.images.reconcile`). Stores are processed in batches, so that the disk
holds no more than :data:`BATCH_BYTES` or the largest store, with its base; memory is bounded as in any read.

A store that cannot be reconciled is rebuilt, and the reason is reported: by :func:`divided` before anything is read, or
later (damaged runs, no room, a log that lost its start).
"""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from statecore.changelog.delete_retention import is_purely_compacted
from statecore.changelog.model import OffsetRange, TopicDescription
from statecore.changelog.ranges import plan_ranges
from statecore.changelog.size_estimate import SizeEstimate, estimate_sizes
from statecore.changelog.soundness import start_moved
from statecore.errors import Capacity, Corrupted, Invalid
from statecore.formats.segments import first_live_segment
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import RunFile, segment_order
from statecore.jobs.bases.base import Base, Key, Refused
from statecore.jobs.bases.tail_check import truncations
from statecore.jobs.checkpoint.plan import CheckpointPlan
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.context import JobContext
from statecore.jobs.engine import Engine, Workers
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.ranges import RangeResult
from statecore.jobs.pipeline.read_stage import cluster_settings, read_runs
from statecore.jobs.pipeline.run_sink import ApplicationAddress, Publisher
from statecore.jobs.pipeline.staging_place import PassingPlace
from statecore.jobs.planning.plan import PartitionPlan
from statecore.objectstore.base import Blobs
from statecore.repository.download import FILES, RemoteFile, download
from statecore.repository.manifest import Extent, StoredDatabase, TaskManifest
from statecore.repository.rebase import rebase_advance
from statecore.statedir.state_directory import ensure_free_space

BATCH_BYTES = 1 << 30
"""Most bytes of logs and bases on the disk at one time, unless one store alone has more."""


@dataclass(frozen=True)
class Reconciled:
    """A reconciled store.

    Attributes:
        refused: why its tail was not enough.
        parts: what was read: its whole changelog.
        results: statistics of the read, with the runs that were published above the base.
    """

    refused: Refused
    parts: tuple[PartitionPlan, ...]
    results: tuple[RangeResult, ...]

    def __str__(self) -> str:
        one, runs = self.refused, [run for result in self.results for run in result.runs]
        return (
            f"Store {one.store} of task {one.task} was compared with its whole changelog, and the differences, "
            f"{sum(run.rows for run in runs):,} rows and {sum(run.deletes for run in runs):,} deletes, were appended "
            f"to {one.base}: {one.why}."
        )


@dataclass
class Reconciliation:
    """Result of reconciling stores.

    Attributes:
        stores: reconciled stores.
        refused: the others, with the reason.
    """

    stores: dict[Key, Reconciled] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)


def divided(planned: CheckpointPlan, found: Iterable[Refused]) -> tuple[list[Refused], list[Refused]]:
    """Divide refused bases into those that can be reconciled and those that cannot, with the reason."""
    reconcilable, refused = [], []
    for one in found:
        parts, base = planned.frozen.plan.stores[one.key], planned.bases[one.key]
        why = None
        if one.missed_deletes:
            is_newest = one.base == planned.frozen.newest_snapshot
            why = _why_not_reconcilable(base, parts, planned.topics[parts[0].topic], is_newest=is_newest)
        if one.missed_deletes and why is None:
            reconcilable.append(one)
        else:
            refused.append(one if why is None else _not_reconcilable(one, why))
    return reconcilable, refused


def _why_not_reconcilable(
    base: Base, parts: Sequence[PartitionPlan], topic: TopicDescription, *, is_newest: bool
) -> str | None:
    """Why a base in whose tail deletes may be missing cannot be reconciled; ``None`` if it can."""
    if not is_newest or base.snapshot is None:
        return "it is not in the newest snapshot"
    if parts[0].kind.is_versioned:
        return "rows of a versioned store depend on every record"
    if not is_purely_compacted(topic):
        policy = topic.configs.get("cleanup.policy") or "unknown"
        return f"the cleanup.policy of {topic.name} is {policy}, so rows without a record may be live"
    if len(parts) != 1:
        return f"it is built from {len(parts)} partitions of {topic.name}"
    if any(database.base for database in base.snapshot.databases):
        return "its runs are based on RocksDB files"
    return None


def _not_reconcilable(one: Refused, why: str) -> Refused:
    return replace(one, why=f"{one.why}; it cannot be compared with the whole log, because {why}")


def rebased(
    mine: TaskManifest, theirs: TaskManifest, below: TaskManifest | None, stores: Collection[Key]
) -> TaskManifest | None:
    """Rebase a task that another job may have published as well; see :func:`advanced`.

    A reconciled store is valid only above the runs that it was compared with. Above other runs it counts as rebuilt,
    with all its runs its own.
    """
    there = {store.store: store.identity for store in theirs.stores}

    def is_parent(task: str, name: str, identity: str) -> bool:
        return (task, name) not in stores or there.get(name, identity) == identity

    if below is not None:
        kept = (one for one in below.stores if is_parent(below.task, one.store, one.identity))
        below = replace(below, stores=tuple(kept))
    return rebase_advance(mine, theirs, below)


class Reconciler:
    """Reconciles stores."""

    def __init__(
        self,
        context: JobContext[CheckpointRequest],
        planned: CheckpointPlan,
        engine: Callable[[int], Engine],
        *,
        batch_bytes: int = BATCH_BYTES,
        read: Callable[..., Mapping[Key, Sequence[RangeResult]]] = read_runs,
        weigh: Callable[..., SizeEstimate] = estimate_sizes,
    ) -> None:
        self._batch_bytes, self._read, self._weigh = batch_bytes, read, weigh
        self._context, self._planned, self._engine = context, planned, engine
        self._spec, self._progress, self._faults = context.spec, context.progress, context.faults
        self._repository, self._budget = context.repository, context.request.memory_budget
        self._publisher = Publisher(ApplicationAddress(self._repository.url, self._repository.application_id))
        self._made = Reconciliation()
        self._count = 0

    def run(self, found: Sequence[Refused]) -> Reconciliation:
        """Reconcile stores that :func:`divided` allows; all published runs are durable on return."""
        plan = self._planned.frozen.plan
        engine = self._engine(sum(part.end - part.log_start for one in found for part in plan.stores[one.key]))
        sized = self._whole([plan.stores[one.key][0] for one in found], engine.expected(self._spec))
        with (
            engine.start("reconcile", self._spec) as workers,
            tempfile.TemporaryDirectory(prefix="statecore-reconcile-", ignore_cleanup_errors=True) as scratch,
        ):
            for batch in _batches(found, sized, self._batch_bytes):
                self._reconcile_batch(workers, batch, [sized[one.key].part for one in batch], Path(scratch))
            self._publisher.flush()
        self._faults.reach("reconcile.after-files")
        with self._context.cluster() as cluster:
            truncated = truncations(plan, list(self._made.stores), cluster.epoch_ends)
        for key, why in truncated.items():
            self._made.refused.append(
                replace(self._made.stores.pop(key).refused, why=why, missed_deletes=False, is_passing=True)
            )
        return self._made

    def _whole(self, parts: Sequence[PartitionPlan], workers: int) -> dict[Key, _Sized]:
        """The plan of the whole log of each partition, and the disk space it needs with its base."""
        spans = {part: OffsetRange(part.topic, part.partition, part.log_start, part.end) for part in parts}
        with self._context.cluster() as cluster:
            shapes = self._weigh(cluster, set(spans.values()), workers, self._budget).shapes
        ranges: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
        for one in plan_ranges(set(spans.values()), workers, shapes, memory_budget=self._budget):
            ranges[one.topic_partition].append((one.start, one.end))
        return {
            (part.task, part.store): _Sized(
                replace(part, start=span.start, ranges=tuple(sorted(ranges[span.topic_partition]))),
                int(shapes[span.topic_partition].bytes) + self._parent_bytes((part.task, part.store)),
            )
            for part, span in spans.items()
        }

    def _parent_bytes(self, key: Key) -> int:
        return sum(stored.run.file_bytes for one in self._databases(key) for stored in one.runs)

    def _databases(self, key: Key) -> Sequence[StoredDatabase]:
        snapshot = self._planned.bases[key].snapshot
        assert snapshot is not None  # `divided` lets no other through
        return snapshot.databases

    def _reconcile_batch(
        self, workers: Workers, batch: Sequence[Refused], parts: Sequence[PartitionPlan], scratch: Path
    ) -> None:
        """Reconcile a batch; afterwards only small runs that wait to share a pack are left on the disk."""
        plan = replace(self._planned.frozen.plan, partitions=tuple(parts))
        with tempfile.TemporaryDirectory(dir=scratch, ignore_cleanup_errors=True) as directory:
            place = PassingPlace(str(Path(directory, "log")))
            try:
                # The runs of the log are about as large as the base; more is not known before it is read.
                ensure_free_space(scratch, 2 * sum(self._parent_bytes(one.key) for one in batch))
                logs = self._read(workers, plan, cluster_settings(self._context), place, self._budget, self._progress)
            except Capacity as error:
                self._made.refused += [_not_reconcilable(one, _reason_text(error)) for one in batch]
                return
            self._faults.reach("reconcile.after-logs")
            self._progress.phase("compare", len(batch), "stores")
            for one in batch:
                downloaded = Path(directory, "parent")
                try:
                    self._compare(one, plan.stores[one.key], logs.get(one.key, ()), place.blobs(), downloaded, scratch)
                except (Corrupted, Invalid, Capacity) as error:
                    self._made.refused.append(_not_reconcilable(one, _reason_text(error)))
                shutil.rmtree(downloaded, ignore_errors=True)
                self._progress.advance(1)
            self._progress.done()

    def _compare(
        self,
        one: Refused,
        parts: tuple[PartitionPlan, ...],
        results: Sequence[RangeResult],
        log: Blobs,
        downloaded: Path,
        output: Path,
    ) -> None:
        """Compare a store with the runs of its log, and publish the differences."""
        from statecore.images.reconcile import reconciled_run  # rarely needed by a checkpoint

        part, base, databases = parts[0], self._planned.bases[one.key], self._databases(one.key)
        end = base.ends[part.topic_partition]
        if (moved := start_moved(end, [result.statistics for result in results])) is not None:
            self._made.refused.append(replace(one, why=moved, missed_deletes=False))
            return
        what = f"a run of store {one.store} of task {one.task}"
        whose = {"task": one.task, "store": one.store}
        download(
            self._repository,
            [RemoteFile(stored.run.sha256, stored.extent, what, whose) for of in databases for stored in of.runs],
            downloaded,
            keeps=False,
        )
        below = {
            of.segment: [RunFile.of(stored.run, downloaded / FILES / stored.run.sha256) for stored in of.runs]
            for of in databases
        }
        above: dict[int | None, list[RunFile]] = defaultdict(list)
        for run in (run for result in results for run in result.runs):
            if not staging.is_whole(log, run):
                raise Corrupted(
                    f"{what} that was just written does not match its hash.",
                    code="staged-file-corrupted",
                    action="Check the disk.",
                    task=one.task,
                    store=one.store,
                    file=run.sha256,
                )
            above[run.segment].append(staging.at_hand(log, run, downloaded))
        first = _first_live(part, base, results)
        files: list[RunFile] = []
        for segment in sorted(below.keys() | above.keys(), key=segment_order):
            if segment is not None and segment < first:
                continue
            self._count += 1
            path = output / str(self._count)
            made = reconciled_run(path, below.get(segment, []), above[segment], start=end.end, end=part.end)
            files += [] if made is None else [made]

        def published(extents: tuple[Extent, ...]) -> None:
            *others, last = (replace(result, runs=(), extents=()) for result in results)
            with_runs = replace(last, runs=tuple(file.run for file in files), extents=extents)
            self._made.stores[one.key] = Reconciled(one, parts, (*others, with_runs))
            for file in files:
                file.path.unlink()

        self._publisher.publish(files, published)


class _Sized(NamedTuple):
    """A partition that is read, and the most bytes that its log and base take on the disk."""

    part: PartitionPlan
    bytes: int


def _batches(found: Iterable[Refused], sized: Mapping[Key, _Sized], batch_bytes: int) -> Iterator[list[Refused]]:
    """Group stores into batches of at most so many bytes."""
    batch: list[Refused] = []
    size = 0
    for one in found:
        if batch and size + sized[one.key].bytes > batch_bytes:
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += sized[one.key].bytes
    if batch:
        yield batch


def _first_live(part: PartitionPlan, base: Base, results: Iterable[RangeResult]) -> int:
    """The first segment that has not expired, by all that the base and the log have seen."""
    of = part.segmentation if part.kind.is_segmented else None
    seen = max((result.stream_time for result in results), default=-1)
    return 0 if of is None else first_live_segment(max(seen, base.stream_time), of.retention_ms, of.interval_ms)


def _reason_text(error: Corrupted | Invalid | Capacity) -> str:
    return error.what.rstrip(".")
