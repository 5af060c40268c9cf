"""Stores that may have missed deletes, made right against their whole changelogs: what differs is published, no more.

Where compaction may have taken deletes out of a tail, the whole log still tells of them, if nothing but compaction
removes its records. So it is read, as for a rebuild, but into runs that stay on this machine::

    the whole log        ──▶ runs in TMPDIR ─────────────┐
    the parent's runs    ──▶ brought, hashes compared ───┴─▶ what differs: a run for each database, put, and
                                                             published above the parent's own

Each database is held against its own (:mod:`statecore.images.reconcile`). Stores are taken a few at a time, so that the
disk holds no more than :data:`BATCH_BYTES` or the largest of them, with its parent; memory is bounded as in any read.

Whatever speaks against it has the store rebuilt, and is said: :func:`divided` before anything is read, and what is
found on the way (damaged runs, no room, a log that lost its start).
"""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from statecore.changelog.cluster import Cluster
from statecore.changelog.horizon import is_purely_compacted
from statecore.changelog.model import OffsetRange, TopicDescription
from statecore.changelog.ranges import plan_ranges
from statecore.changelog.soundness import start_moved
from statecore.changelog.weighing import Weights, weigh
from statecore.errors import Capacity, Corrupted, Invalid
from statecore.faults import FaultPoints
from statecore.formats.segments import first_live_segment
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import RunFile, segment_order
from statecore.jobs.bases.base import Base, Key, Refused
from statecore.jobs.bases.tail_check import truncations
from statecore.jobs.checkpoint.plan import CheckpointPlan
from statecore.jobs.engine import Engine, Workers
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.range_tasks import ClusterSettings, RangeResult
from statecore.jobs.pipeline.run_sink import ApplicationAddress, Publisher
from statecore.jobs.pipeline.stages import read_runs
from statecore.jobs.pipeline.staging_place import PassingPlace
from statecore.jobs.planning.plan import PartitionPlan
from statecore.objectstore.base import Blobs
from statecore.progress import Progress
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.download import FILES, Wanted, download
from statecore.repository.manifest import Extent, StoredDatabase, TaskManifest
from statecore.repository.rebase import advanced
from statecore.spec.model import ApplicationSpec
from statecore.statedir.state_directory import ensure_room

BATCH_BYTES = 1 << 30
"""Bytes of logs and parents that are on the disk at once, unless one store alone has more."""


@dataclass(frozen=True)
class Reconciled:
    """A store that was made right.

    Attributes:
        refused: why its tail was not enough.
        parts: what was read of its changelog: all of it.
        results: what was seen there, with the runs that lie above the parent now.
    """

    refused: Refused
    parts: tuple[PartitionPlan, ...]
    results: tuple[RangeResult, ...]

    def __str__(self) -> str:
        one, runs = self.refused, [run for result in self.results for run in result.runs]
        return (
            f"Store {one.store} of task {one.task} was compared with its whole changelog, and what differs, "
            f"{sum(run.rows for run in runs):,} rows and {sum(run.deletes for run in runs):,} deletes, was put above "
            f"{one.parent}: {one.why}."
        )


@dataclass
class Reconciliation:
    """What became of stores.

    Attributes:
        stores: those that were made right.
        refused: those that were not, with the reason.
    """

    stores: dict[Key, Reconciled] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)


def divided(planned: CheckpointPlan, found: Iterable[Refused]) -> tuple[list[Refused], list[Refused]]:
    """The refused parents that can be made right, and those that cannot, with the reason where it is not their own.

    Args:
        planned: the plan by which their tails were read.
        found: those that turned out not to be sound.
    """
    right, wrong = [], []
    for one in found:
        parts, parent = planned.frozen.plan.stores[one.key], planned.parents[one.key]
        why = None
        if one.missed_deletes:
            is_newest = one.parent == planned.frozen.newest
            why = _why_not(parent, parts, planned.topics[parts[0].topic], is_newest=is_newest)
        if one.missed_deletes and why is None:
            right.append(one)
        else:
            wrong.append(one if why is None else _no(one, why))
    return right, wrong


def _why_not(parent: Base, parts: Sequence[PartitionPlan], topic: TopicDescription, *, is_newest: bool) -> str | None:
    """Why a parent above which deletes may be missing cannot be made right; ``None`` where it can."""
    if not is_newest or parent.snapshot is None:
        return "it is not of the newest snapshot"
    if parts[0].kind.is_versioned:
        return "rows of a versioned store depend on every record"
    if not is_purely_compacted(topic):
        policy = topic.configs.get("cleanup.policy") or "one that nobody told"
        return f"the cleanup.policy of {topic.name} is {policy}, so what that does not have may be live"
    if len(parts) != 1:
        return f"it is made of the {len(parts)} partitions of {topic.name}"
    if any(database.base for database in parent.snapshot.databases):
        return "files of RocksDB lie below its runs"
    return None


def _no(one: Refused, why: str) -> Refused:
    return replace(one, why=f"{one.why}; and it is not compared with the whole log, because {why}")


def rebased(
    mine: TaskManifest, theirs: TaskManifest, below: TaskManifest | None, stores: Collection[Key]
) -> TaskManifest | None:
    """What to publish of a task that others may have published as well; see :func:`advanced`.

    A store that was made right is no tail: it fits above the very runs that it was compared with, and no others that
    end there. Above others it counts as made from nothing, with all its runs its own.

    Args:
        mine: what the job has made.
        theirs: the task in the newest snapshot.
        below: the task in the snapshot that was the newest when the job was planned.
        stores: those that were made right.

    Raises:
        Fenced: they do not fit together.
    """
    there = {store.store: store.identity for store in theirs.stores}

    def is_parent(task: str, name: str, identity: str) -> bool:
        return (task, name) not in stores or there.get(name, identity) == identity

    if below is not None:
        kept = (one for one in below.stores if is_parent(below.task, one.store, one.identity))
        below = replace(below, stores=tuple(kept))
    return advanced(mine, theirs, below)


class Reconciler:
    """Makes stores right.

    Args:
        planned: the plan by which their tails were read; its ends are theirs.
        spec: the application.
        shelf: where the snapshots are, and the runs are put.
        settings: how workers reach the brokers.
        connect: how this process does.
        engine: gives one of this machine that reads so many offsets.
        memory_budget: bytes of records that a task may hold.
        progress: told how far it is.
        faults: points at which tests let the process die.
        batch_bytes: bytes of logs and parents that are on the disk at once.
        read: reads the logs of a plan.
        weigh: says how large they are.
    """

    def __init__(
        self,
        planned: CheckpointPlan,
        *,
        spec: ApplicationSpec,
        shelf: ApplicationRepository,
        settings: ClusterSettings,
        connect: Callable[[], AbstractContextManager[Cluster]],
        engine: Callable[[int], Engine],
        memory_budget: int,
        progress: Progress,
        faults: FaultPoints,
        batch_bytes: int = BATCH_BYTES,
        read: Callable[..., Mapping[Key, Sequence[RangeResult]]] = read_runs,
        weigh: Callable[..., Weights] = weigh,
    ) -> None:
        self._batch_bytes, self._read, self._weigh = batch_bytes, read, weigh
        self._planned, self._spec, self._shelf = planned, spec, shelf
        self._settings, self._connect, self._engine = settings, connect, engine
        self._budget, self._progress, self._faults = memory_budget, progress, faults
        self._publisher = Publisher(ApplicationAddress(shelf.url, shelf.application_id))
        self._made = Reconciliation()
        self._count = 0

    def run(self, found: Sequence[Refused]) -> Reconciliation:
        """Make stores right, those of :func:`divided`; all that is published of them is durable when this returns.

        Raises:
            Invalid, Retryable: the logs cannot be read, or the repository not be reached.
            StatecoreError: what stopped a worker.
        """
        plan = self._planned.frozen.plan
        engine = self._engine(sum(part.end - part.log_start for one in found for part in plan.stores[one.key]))
        sized = self._whole([plan.stores[one.key][0] for one in found], engine.expected(self._spec))
        with (
            engine.start("reconcile", self._spec) as workers,
            tempfile.TemporaryDirectory(prefix="statecore-reconcile-", ignore_cleanup_errors=True) as scratch,
        ):
            for batch in _batches(found, sized, self._batch_bytes):
                self._take(workers, batch, [sized[one.key].part for one in batch], Path(scratch))
            self._publisher.flush()
        self._faults.reach("reconcile.after-files")
        with self._connect() as cluster:
            truncated = truncations(plan, list(self._made.stores), cluster.epoch_ends)
        for key, why in truncated.items():
            self._made.refused.append(
                replace(self._made.stores.pop(key).refused, why=why, missed_deletes=False, is_passing=True)
            )
        return self._made

    def _whole(self, parts: Sequence[PartitionPlan], workers: int) -> dict[Key, _Sized]:
        """The plan of the whole log of each of some partitions, and what it takes of the disk with its parent."""
        spans = {part: OffsetRange(part.topic, part.partition, part.log_start, part.end) for part in parts}
        with self._connect() as cluster:
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
        snapshot = self._planned.parents[key].snapshot
        assert snapshot is not None  # `divided` lets no other through
        return snapshot.databases

    def _take(self, workers: Workers, batch: Sequence[Refused], parts: Sequence[PartitionPlan], scratch: Path) -> None:
        """Make a few stores right; the disk is as it was afterwards, but for small runs that wait to share a pack."""
        plan = replace(self._planned.frozen.plan, partitions=tuple(parts))
        with tempfile.TemporaryDirectory(dir=scratch, ignore_cleanup_errors=True) as directory:
            place = PassingPlace(str(Path(directory, "log")))
            try:
                # What the log left is about as large as the parent; more than that nobody knows before it is read.
                ensure_room(scratch, 2 * sum(self._parent_bytes(one.key) for one in batch))
                logs = self._read(workers, plan, self._settings, place, self._budget, self._progress)
            except Capacity as error:
                self._made.refused += [_no(one, _words(error)) for one in batch]
                return
            self._faults.reach("reconcile.after-logs")
            self._progress.phase("compare", len(batch), "stores")
            for one in batch:
                brought = Path(directory, "parent")
                try:
                    self._compare(one, plan.stores[one.key], logs.get(one.key, ()), place.blobs(), brought, scratch)
                except (Corrupted, Invalid, Capacity) as error:
                    self._made.refused.append(_no(one, _words(error)))
                shutil.rmtree(brought, ignore_errors=True)
                self._progress.advance(1)
            self._progress.done()

    def _compare(
        self,
        one: Refused,
        parts: tuple[PartitionPlan, ...],
        results: Sequence[RangeResult],
        log: Blobs,
        brought: Path,
        output: Path,
    ) -> None:
        """Compare a store with what its log left, and put what differs.

        Raises:
            Corrupted: a run is not what it should be.
            Invalid, Capacity: the runs cannot be compared, or there is no room.
        """
        from statecore.images.reconcile import reconciled_run  # which a checkpoint mostly does without

        part, parent, databases = parts[0], self._planned.parents[one.key], self._databases(one.key)
        end = parent.ends[part.topic_partition]
        if (moved := start_moved(end, [result.statistics for result in results])) is not None:
            self._made.refused.append(replace(one, why=moved, missed_deletes=False))
            return
        what = f"a run of store {one.store} of task {one.task}"
        whose = {"task": one.task, "store": one.store}
        download(
            self._shelf,
            [Wanted(stored.run.sha256, stored.extent, what, whose) for of in databases for stored in of.runs],
            brought,
            keeps=False,
        )
        below = {
            of.segment: [RunFile.of(stored.run, brought / FILES / stored.run.sha256) for stored in of.runs]
            for of in databases
        }
        above: dict[int | None, list[RunFile]] = defaultdict(list)
        for run in (run for result in results for run in result.runs):
            if not staging.is_whole(log, run):
                raise Corrupted(
                    f"{what} that was just read is not what was written.",
                    code="staged-file-corrupted",
                    action="Look at the disk.",
                    task=one.task,
                    store=one.store,
                    file=run.sha256,
                )
            above[run.segment].append(staging.at_hand(log, run, brought))
        first = _first_live(part, parent, results)
        files: list[RunFile] = []
        for segment in sorted(below.keys() | above.keys(), key=segment_order):
            if segment is not None and segment < first:
                continue
            self._count += 1
            path = output / str(self._count)
            made = reconciled_run(path, below.get(segment, []), above[segment], start=end.end, end=part.end)
            files += [] if made is None else [made]

        def lie(extents: tuple[Extent, ...]) -> None:
            *others, last = (replace(result, runs=(), extents=()) for result in results)
            with_runs = replace(last, runs=tuple(file.run for file in files), extents=extents)
            self._made.stores[one.key] = Reconciled(one, parts, (*others, with_runs))
            for file in files:
                file.path.unlink()

        self._publisher.publish(files, lie)


class _Sized(NamedTuple):
    """A partition that is read, and the bytes that its log and its parent take of the disk at most."""

    part: PartitionPlan
    bytes: int


def _batches(found: Iterable[Refused], sized: Mapping[Key, _Sized], batch_bytes: int) -> Iterator[list[Refused]]:
    """The stores, as many together as have so many bytes."""
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


def _first_live(part: PartitionPlan, parent: Base, results: Iterable[RangeResult]) -> int:
    """The first segment that has not expired, by all that the parent and the log have seen."""
    of = part.segmentation if part.kind.is_segmented else None
    seen = max((result.stream_time for result in results), default=-1)
    return 0 if of is None else first_live_segment(max(seen, parent.stream_time), of.retention_ms, of.interval_ms)


def _words(error: Corrupted | Invalid | Capacity) -> str:
    return error.what.rstrip(".")
