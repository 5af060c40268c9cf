"""Plan of a restore or a checkpoint: which offsets of which changelogs become which stores, frozen before any is read.

A plan is a pure value, written before the first record is read, so that a retry reads the same offset ranges and builds
the same rows (same digest) although the topics grow. Its id is a digest of everything that decides the result, and
names the staging directory, where a retry finds what an earlier attempt finished.

End offsets per ``processing.guarantee`` (Kafka Streams, ``StoreChangelogReader.prepareChangelogs``)::

    exactly-once    reads [log start, last stable offset)   read_committed     stores end - 1
    at-least-once   reads [log start, log end offset)       read_uncommitted   stores end - 1

An empty changelog (end 0) stores -4, ``OFFSET_UNKNOWN``: under exactly-once a store without any offset makes Kafka
Streams wipe its whole task, a store with -4 does not.

Global stores are one database over all partitions of their source topic, in the "task" ``global``. They store the next
offset, ``end``; -4 would make every start of the application fail.

Versioned stores are by default restored by Kafka Streams (:class:`VersionedStart`): their changelogs are not read, and
an empty database with -4 is placed.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

from statecore.changelog.delete_retention import recorded_retention_ms
from statecore.changelog.model import IsolationLevel, LogOffsets, OffsetRange, TopicDescription
from statecore.changelog.ranges import plan_ranges
from statecore.changelog.record_density import PartitionShape
from statecore.documents import DocumentType
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import GLOBAL
from statecore.formats.segments import Segmentation
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import Base, Key
from statecore.jobs.fields.catalog import VersionedStart
from statecore.spec.model import (
    ApplicationSpec,
    ProcessingGuarantee,
    StoreSpec,
    retention_of,
    segment_interval_of,
    task_of,
)


class PlanRequest(Protocol):
    """Fields of every request that reads changelogs (:mod:`statecore.jobs.restore.request`)."""

    @property
    def stores(self) -> tuple[str, ...]:
        """Only these stores; none for all."""

    @property
    def partitions(self) -> tuple[int, ...]:
        """Only these partitions; none for all."""

    @property
    def transaction_wait(self) -> float:
        """Seconds to wait for open transactions."""

    @property
    def memory_budget(self) -> int:
        """Bytes of records that a task may hold."""

    @property
    def plan_only(self) -> bool:
        """Whether only the plan is made."""

    @property
    def versioned(self) -> VersionedStart:
        """What versioned stores contain when the application starts."""


@dataclass(frozen=True)
class PartitionPlan:
    """One partition of one store: what is read, and the offset its image will carry.

    Attributes:
        task: Kafka Streams' task id, ``<subtopology>_<partition>``, or ``global``.
        topic_id: the changelog's id when the plan was made.
        start: first offset that is read: the base's end, or the log start when the plan was made.
        end: reading stops before this offset.
        log_end: log end offset when the plan was made; ``log_end - end`` is the tail left to the application.
        ranges: ``(start, end)`` pairs that cover ``[start, end)``, one task each; none if it is empty, or the store is
            restored by Kafka Streams.
        retention_ms: how long rows are kept; ``None`` if they do not expire.
        segment_interval_ms: time span of one segment; ``None`` without segments.
        restored_by_kafka_streams: nothing is read and an empty image with unknown offset is placed.
        leader_epoch: the leader's epoch when the plan was made; -1 if unknown.
        log_start: first offset of the log when the plan was made.
        base: name of the base (:attr:`statecore.jobs.bases.base.Base.name`); empty if the whole log is read.
        reaches_log_end: whether nothing lay beyond ``end`` when the plan was made that compaction could have touched.
            An open transaction does not count, because the cleaner stops at the last stable offset; a record of a
            source topic that the application had not processed yet does.
        delete_retention_ms: delete retention of the topic when the plan was made, as a snapshot records it
            (:attr:`statecore.repository.manifest.StoreSnapshot.delete_retention_ms`).
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
    restored_by_kafka_streams: bool = False
    leader_epoch: int = -1
    log_start: int = -1
    base: str = ""
    reaches_log_end: bool = True
    delete_retention_ms: int | None = None

    @property
    def is_global(self) -> bool:
        return self.task == GLOBAL

    @property
    def committed_offset(self) -> int:
        """Offset for the ``offsets`` family: the last applied one (a global store: the next), -4 without any."""
        if self.is_global:
            return self.end
        return self.end - 1 if self.end > 0 and not self.restored_by_kafka_streams else OFFSET_UNKNOWN

    @property
    def segmentation(self) -> Segmentation | None:
        """Retention and interval of the store's segments, if it has any."""
        return Segmentation.of(self.retention_ms, self.segment_interval_ms)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def offset_ranges(self) -> tuple[OffsetRange, ...]:
        return tuple(OffsetRange(self.topic, self.partition, start, end) for start, end in self.ranges)

    @property
    def tail_left(self) -> int:
        """Offsets that the application restores itself because of an open transaction; 0 if it restores all."""
        return 0 if self.restored_by_kafka_streams else self.log_end - self.end


@dataclass(frozen=True)
class ReadPlan:
    """Everything that decides the rows that a job reads."""

    application_id: str
    processing_guarantee: ProcessingGuarantee
    partitions: tuple[PartitionPlan, ...]

    @property
    def stores(self) -> dict[tuple[str, str], tuple[PartitionPlan, ...]]:
        """The partitions of each image, by task and store: one, or all of a global store."""
        grouped: dict[tuple[str, str], list[PartitionPlan]] = defaultdict(list)
        for part in self.partitions:
            grouped[part.task, part.store].append(part)
        return {key: tuple(sorted(parts, key=lambda part: part.partition)) for key, parts in grouped.items()}

    def of(self, keys: Collection[Key]) -> ReadPlan:
        return replace(self, partitions=tuple(one for one in self.partitions if (one.task, one.store) in keys))

    def of_tasks(self, tasks: Collection[str]) -> ReadPlan:
        return replace(self, partitions=tuple(one for one in self.partitions if one.task in tasks))

    @property
    def largest_first(self) -> list[PartitionPlan]:
        """Its partitions, so that the last tasks of a stage are short."""
        return sorted(self.partitions, key=lambda part: (part.start - part.end, part.task, part.store))

    @property
    def tasks(self) -> frozenset[str]:
        return frozenset(part.task for part in self.partitions)

    @property
    def isolation(self) -> IsolationLevel:
        """Isolation level of Kafka Streams' restore consumer."""
        return self.processing_guarantee.isolation

    @property
    def plan_id(self) -> str:
        """Sixteen hex digits of a hash over everything that decides the result."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def offsets(self) -> int:
        """Number of offsets to read, an upper bound of the records."""
        return sum(end - start for partition in self.partitions for start, end in partition.ranges)

    def to_json(self) -> dict[str, Any]:
        return PLAN.to_json(self)

    @staticmethod
    def from_json(document: Any) -> ReadPlan:
        """Read a plan back. Raises ``Invalid`` if it is not a plan of this version."""
        return PLAN.from_json(document)


@dataclass(frozen=True)
class NotedPlan(ReadPlan):
    """The result of a request for a plan only: with notes for the operator, which its id does not cover."""

    notes: tuple[str, ...] = ()

    @staticmethod
    def of_plan(plan: ReadPlan, notes: Sequence[str]) -> NotedPlan:
        return NotedPlan(plan.application_id, plan.processing_guarantee, plan.partitions, tuple(notes))

    @property
    def plan_id(self) -> str:
        return ReadPlan(self.application_id, self.processing_guarantee, self.partitions).plan_id

    def to_json(self) -> dict[str, Any]:
        """The plan as a JSON document, with its notes."""
        plan = ReadPlan(self.application_id, self.processing_guarantee, self.partitions)
        return {**plan.to_json(), "notes": list(self.notes)}


PLAN = DocumentType(
    "plan",
    4,
    ReadPlan,
    "Finish the restore with the release that began it, or delete the plan file and start again.",
)


def make_plan(
    spec: ApplicationSpec,
    wanted: Mapping[StoreSpec, Sequence[int]],
    topics: Mapping[str, TopicDescription],
    offsets: Mapping[TopicPartition, LogOffsets],
    *,
    parallelism: int,
    memory_budget: int | None = None,
    versioned: VersionedStart = VersionedStart.HISTORY,
    shapes: Callable[[Collection[OffsetRange]], Mapping[TopicPartition, PartitionShape]] = lambda _: {},
    epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    bases: Mapping[Key, Base] = MappingProxyType({}),
    log_ends: Mapping[TopicPartition, int] = MappingProxyType({}),
    is_timed: bool = False,
) -> ReadPlan:
    """Freeze the offsets of a restore and divide them into ranges."""
    whole: list[tuple[StoreSpec, OffsetRange]] = []
    for store, numbers in wanted.items():
        for partition in numbers:
            changelog = TopicPartition(store.changelog, partition)
            log, base = offsets[changelog], bases.get((task_of(store, partition), store.name))
            end = log.end(spec.processing_guarantee.isolation)
            start = min(log.log_start, end) if base is None else base.ends[changelog].end
            if base is not None and store.kind.is_versioned:
                end = start  # inherited unchanged: a tail cannot advance it
            whole.append((store, OffsetRange(store.changelog, partition, start, end)))
    read = {
        span for store, span in whole if span.start < span.end and not is_restored_by_kafka_streams(store, versioned)
    }
    counts = Counter(span.topic_partition for span in read)
    alone = {span for span in read if counts[span.topic_partition] == 1}
    # Stores that share a changelog and begin at different offsets each read their own range.
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
            ranges=() if is_restored_by_kafka_streams(store, versioned) else tuple(sorted(ranges.get(span, ()))),
            retention_ms=retention_of(store),
            segment_interval_ms=segment_interval_of(store),
            restored_by_kafka_streams=is_restored_by_kafka_streams(store, versioned),
            leader_epoch=epochs.get(span.topic_partition, -1),
            log_start=offsets[span.topic_partition].log_start,
            base=_name(bases.get((task_of(store, span.partition), store.name))),
            reaches_log_end=span.end >= log_ends.get(span.topic_partition, span.end),
            delete_retention_ms=recorded_retention_ms(topics[span.topic]) if is_timed else None,
        )
        for store, span in whole
    )
    return ReadPlan(spec.application_id, spec.processing_guarantee, partitions)


def _name(base: Base | None) -> str:
    return "" if base is None else base.name


def is_restored_by_kafka_streams(store: StoreSpec, versioned: VersionedStart) -> bool:
    """Whether Kafka Streams restores a store itself, from the start."""
    return store.kind.is_versioned and versioned is VersionedStart.HISTORY
