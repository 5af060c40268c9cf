"""The plan of a restore: which offsets of which changelogs become which stores, frozen before anything is read.

A plan is a pure value. It is written down before the first record is read, so that a retry of the same request reads
the same offset ranges and builds the same rows (the same digest), although the topics go on growing. Its id is a digest
of everything that decides the result, and names the staging directory: what an earlier attempt finished is found there.

Ends, per ``processing.guarantee`` (Kafka Streams, ``StoreChangelogReader.prepareChangelogs``)::

    exactly-once    reads [log start, last stable offset)   read_committed     stores end - 1
    at-least-once   reads [log start, log end offset)       read_uncommitted   stores end - 1

An empty changelog (end 0) stores -4, ``OFFSET_UNKNOWN``: under exactly-once a store without any offset makes Kafka
Streams wipe its whole task, a store with -4 does not.

Global stores are one database over all partitions of their source topic, in the "task" ``global``. They store the next
offset, ``end``; -4 would make every start of the application fail.

Versioned stores are left to Kafka Streams unless it is asked otherwise (:class:`VersionedStart`): nothing of their
changelogs is read, and what is placed is an empty database with -4.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from statecore.changelog.horizon import horizon_seen
from statecore.changelog.model import IsolationLevel, LogOffsets, OffsetRange, TopicDescription
from statecore.changelog.ranges import plan_ranges
from statecore.changelog.shapes import PartitionShape
from statecore.documents import DocumentType
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import GLOBAL
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import Segmentation
from statecore.jobs.bases.base import Base, Key
from statecore.jobs.versioned_start import VersionedStart
from statecore.spec.derived import retention_of, segment_interval_of, task_of
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, StoreSpec


@dataclass(frozen=True)
class PartitionPlan:
    """One partition of one store: what is read, and the offset its image will carry.

    Attributes:
        store: the store.
        kind: its kind, as in the spec.
        task: Kafka Streams' task id, ``<subtopology>_<partition>``.
        topic: the changelog topic.
        topic_id: its id when the plan was made.
        partition: the partition (of topic and task).
        start: first offset that is read: where the parent ends, or the first of the log when the plan was made.
        end: the read stops before this offset.
        log_end: the log end offset when the plan was made; ``log_end - end`` is the tail left to the application.
        ranges: ``(start, end)`` pairs that cover ``[start, end)``, one task each; none where it is empty, and
            where the store is left to Kafka Streams.
        retention_ms: how long rows are kept; ``None`` where they do not expire.
        segment_interval_ms: time that one segment spans; ``None`` where the store has none.
        left_to_restore: nothing is read and the image is empty, its offset unknown: Kafka Streams restores the store.
        leader_epoch: the leader's epoch when the plan was made; -1 where the brokers do not tell it.
        log_start: first offset of the log when the plan was made.
        parent: what lies below the runs that are read (:attr:`statecore.jobs.bases.base.Base.name`); empty where
            nothing does, and the whole log is read.
        was_all: whether nothing lay behind ``end`` when the plan was made that compaction could have touched. An open
            transaction does not count, because the cleaner does not go beyond the last stable offset; a record of a
            source topic that the application had still to process does.
        horizon_ms: how long deletes were kept in the topic when the plan was made, as a snapshot records it
            (:attr:`statecore.repository.manifest.StoreSnapshot.horizon_ms`).
    """

    store: str
    kind: StoreKind
    task: str
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    log_end: int
    ranges: tuple[tuple[int, int], ...]
    retention_ms: int | None = None
    segment_interval_ms: int | None = None
    left_to_restore: bool = False
    leader_epoch: int = -1
    log_start: int = -1
    parent: str = ""
    was_all: bool = True
    horizon_ms: int | None = None

    @property
    def is_global(self) -> bool:
        """Whether this is a partition of a global store."""
        return self.task == GLOBAL

    @property
    def committed_offset(self) -> int:
        """What the image's ``offsets`` family will say: the last applied offset, or -4 for an empty changelog.

        Of a global store the next offset.
        """
        if self.is_global:
            return self.end
        return self.end - 1 if self.end > 0 and not self.left_to_restore else OFFSET_UNKNOWN

    @property
    def segmentation(self) -> Segmentation | None:
        """How the store is divided by time, if it is."""
        if self.retention_ms is None or self.segment_interval_ms is None:
            return None
        return Segmentation(self.retention_ms, self.segment_interval_ms)

    @property
    def topic_partition(self) -> TopicPartition:
        """The changelog partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def offset_ranges(self) -> tuple[OffsetRange, ...]:
        """The ranges as values the reader takes."""
        return tuple(OffsetRange(self.topic, self.partition, start, end) for start, end in self.ranges)

    @property
    def tail_left(self) -> int:
        """Offsets beyond the end that the application will restore itself: an open transaction was in the way.

        0 where the whole store is left to it.
        """
        return 0 if self.left_to_restore else self.log_end - self.end


@dataclass(frozen=True)
class RestorePlan:
    """Everything that decides the result of a restore.

    Attributes:
        application_id: Kafka Streams' ``application.id``.
        processing_guarantee: the application's own.
        partitions: every store partition to build.
    """

    application_id: str
    processing_guarantee: ProcessingGuarantee
    partitions: tuple[PartitionPlan, ...]

    @property
    def stores(self) -> dict[tuple[str, str], tuple[PartitionPlan, ...]]:
        """The partitions that make one image, by task and store: one of them, or all of a global store."""
        grouped: dict[tuple[str, str], list[PartitionPlan]] = defaultdict(list)
        for part in self.partitions:
            grouped[part.task, part.store].append(part)
        return {key: tuple(sorted(parts, key=lambda part: part.partition)) for key, parts in grouped.items()}

    def of(self, keys: Collection[Key]) -> RestorePlan:
        """The plan of some stores, by task and name."""
        return replace(self, partitions=tuple(one for one in self.partitions if (one.task, one.store) in keys))

    def of_tasks(self, tasks: Collection[str]) -> RestorePlan:
        """The plan of some tasks."""
        return replace(self, partitions=tuple(one for one in self.partitions if one.task in tasks))

    @property
    def tasks(self) -> frozenset[str]:
        """All tasks of it."""
        return frozenset(part.task for part in self.partitions)

    @property
    def isolation(self) -> IsolationLevel:
        """How changelogs are read: as Kafka Streams' restore consumer would."""
        return isolation_of(self.processing_guarantee)

    @property
    def plan_id(self) -> str:
        """Sixteen hex digits over all that decides the result."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def offsets(self) -> int:
        """Offsets to read, an upper bound of the records."""
        return sum(end - start for partition in self.partitions for start, end in partition.ranges)

    def to_json(self) -> dict[str, Any]:
        """The plan as a JSON document; ``from_json`` is its inverse."""
        return PLAN.to_json(self)

    @staticmethod
    def from_json(document: Any) -> RestorePlan:
        """Read a plan back.

        Raises:
            Invalid: it is no plan, or one of another version.
        """
        return PLAN.from_json(document)


@dataclass(frozen=True)
class NotedPlan(RestorePlan):
    """The plan that was asked for alone, with what there is to be known of it.

    Attributes:
        notes: for an operator; they decide nothing, and the plan's id is without them.
    """

    notes: tuple[str, ...] = ()

    @staticmethod
    def of_plan(plan: RestorePlan, notes: Sequence[str]) -> NotedPlan:
        """A plan with notes."""
        return NotedPlan(plan.application_id, plan.processing_guarantee, plan.partitions, tuple(notes))

    @property
    def plan_id(self) -> str:
        """See :attr:`RestorePlan.plan_id`."""
        return RestorePlan(self.application_id, self.processing_guarantee, self.partitions).plan_id

    def to_json(self) -> dict[str, Any]:
        """The plan as a JSON document, with its notes."""
        plan = RestorePlan(self.application_id, self.processing_guarantee, self.partitions)
        return {**plan.to_json(), "notes": list(self.notes)}


PLAN = DocumentType(
    "plan",
    4,
    RestorePlan,
    "Finish the restore with the release that began it, or delete the plan file and start again.",
)


def isolation_of(guarantee: ProcessingGuarantee) -> IsolationLevel:
    """The isolation of Kafka Streams' restore consumer: read_committed under exactly-once only."""
    if guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2:
        return IsolationLevel.READ_COMMITTED
    return IsolationLevel.READ_UNCOMMITTED


def end_of(offsets: LogOffsets, guarantee: ProcessingGuarantee) -> int:
    """The offset a restore stops before: the last stable offset under exactly-once, else the log end offset."""
    return offsets.last_stable if guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2 else offsets.log_end


def consumed(seen: LogOffsets, committed: int | None) -> LogOffsets:
    """A source topic as far as the application has consumed it; beyond that it is input still to be processed.

    What it has consumed may all be gone: then nothing is known, and no offset before the log's start is given, at which
    Kafka Streams would find the store corrupted.

    Args:
        seen: the log.
        committed: what the application's group has committed; ``None`` for nothing.
    """
    end = committed if committed is not None and committed >= seen.log_start else 0
    return replace(seen, last_stable=min(seen.last_stable, end), log_end=min(seen.log_end, end))


def ended(seen: LogOffsets, end: int | None) -> LogOffsets:
    """A log as far as an offset, where it goes on; all of it without one."""
    if end is None:
        return seen
    return replace(seen, last_stable=min(seen.last_stable, end), log_end=min(seen.log_end, end))


def _nothing_known(_: Collection[OffsetRange]) -> Mapping[TopicPartition, PartitionShape]:
    return {}


def make_plan(
    spec: ApplicationSpec,
    wanted: Mapping[StoreSpec, Sequence[int]],
    topics: Mapping[str, TopicDescription],
    offsets: Mapping[TopicPartition, LogOffsets],
    *,
    parallelism: int,
    memory_budget: int | None = None,
    versioned: VersionedStart = VersionedStart.HISTORY,
    shapes: Callable[[Collection[OffsetRange]], Mapping[TopicPartition, PartitionShape]] = _nothing_known,
    epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    parents: Mapping[Key, Base] = MappingProxyType({}),
    log_ends: Mapping[TopicPartition, int] = MappingProxyType({}),
    is_timed: bool = False,
) -> RestorePlan:
    """Freeze the offsets of a restore and cut them into ranges.

    Args:
        spec: the application.
        wanted: the stores to restore and their partitions, from ``check_partitions``.
        topics: descriptions of the changelogs.
        offsets: one look at the log offsets of all partitions.
        parallelism: tasks that can run at once; decides how far large partitions are split.
        memory_budget: bytes of records that a task may hold; ``None`` for any number.
        versioned: what versioned stores are to find when the application starts.
        shapes: tells of partitions that are read what is known of their records; decides where they are split.
        epochs: the epochs of the leaders, as far as they are known.
        parents: (task, store) → what its runs are put upon; the others are read whole.
        log_ends: where all of each log ends, where ``offsets`` do not say it: source topics are consumed in part.
        is_timed: whether the cluster has told when this was; else no horizon is known.
    """
    whole: list[tuple[StoreSpec, OffsetRange]] = []
    for store, numbers in wanted.items():
        for partition in numbers:
            changelog = TopicPartition(store.changelog, partition)
            seen, parent = offsets[changelog], parents.get((task_of(store, partition), store.name))
            end = end_of(seen, spec.processing_guarantee)
            start = min(seen.log_start, end) if parent is None else parent.ends[changelog].end
            if parent is not None and store.kind.is_versioned:
                end = start  # it is taken over as it is, because no tail advances it
            whole.append((store, OffsetRange(store.changelog, partition, start, end)))
    read = {span for store, span in whole if span.start < span.end and not is_left(store, versioned)}
    counts = Counter(span.topic_partition for span in read)
    alone = {span for span in read if counts[span.topic_partition] == 1}
    # Of stores that share a changelog and begin at different offsets each reads its own range.
    ranges = {span: [(span.start, span.end)] for span in read - alone}
    of = {span.topic_partition: span for span in alone}
    for part in plan_ranges(alone, parallelism, shapes(alone), memory_budget=memory_budget):
        ranges.setdefault(of[part.topic_partition], []).append((part.start, part.end))
    partitions = tuple(
        PartitionPlan(
            store=store.name,
            kind=store.kind,
            task=task_of(store, span.partition),
            topic=span.topic,
            topic_id=topics[span.topic].topic_id,
            partition=span.partition,
            start=span.start,
            end=span.end,
            log_end=offsets[span.topic_partition].log_end,
            ranges=() if is_left(store, versioned) else tuple(sorted(ranges.get(span, ()))),
            retention_ms=retention_of(store),
            segment_interval_ms=segment_interval_of(store),
            left_to_restore=is_left(store, versioned),
            leader_epoch=epochs.get(span.topic_partition, -1),
            log_start=offsets[span.topic_partition].log_start,
            parent=_name(parents.get((task_of(store, span.partition), store.name))),
            was_all=span.end >= log_ends.get(span.topic_partition, span.end),
            horizon_ms=horizon_seen(topics[span.topic]) if is_timed else None,
        )
        for store, span in whole
    )
    return RestorePlan(spec.application_id, spec.processing_guarantee, partitions)


def _name(parent: Base | None) -> str:
    return "" if parent is None else parent.name


def is_left(store: StoreSpec, versioned: VersionedStart) -> bool:
    """Whether Kafka Streams is to restore a store itself, from the start."""
    return store.kind.is_versioned and versioned is VersionedStart.HISTORY
