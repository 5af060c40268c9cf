"""The plan of a restore: which offsets of which changelogs become which stores, frozen before anything is read.

A plan is a pure value. It is written down before the first record is read, so that a retry of the same request reads
the same offset ranges and builds the same rows (the same digest), although the topics go on growing. Its id is a digest
of everything that decides the result, and names the staging directory: what an earlier attempt finished is found there.

Ends, per ``processing.guarantee`` (Kafka Streams, ``StoreChangelogReader.prepareChangelogs``)::

    exactly-once    reads [log start, last stable offset)   read_committed     stores end - 1
    at-least-once   reads [log start, log end offset)       read_uncommitted   stores end - 1

An empty changelog (end 0) stores -4, ``OFFSET_UNKNOWN``: under exactly-once a store without any offset makes Kafka
Streams wipe its whole task, a store with -4 does not.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from statecore.changelog.model import IsolationLevel, LogOffsets, OffsetRange, TopicDescription
from statecore.changelog.ranges import plan_ranges
from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, StoreSpec

PLAN_VERSION = 1


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
        start: first offset of the log when the plan was made.
        end: the read stops before this offset.
        log_end: the log end offset when the plan was made; ``log_end - end`` is the tail left to the application.
        ranges: ``(start, end)`` pairs that cover ``[start, end)``, one Spark task each; none where it is empty.
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

    @property
    def committed_offset(self) -> int:
        """What the image's ``offsets`` family will say: the last applied offset, or -4 for an empty changelog."""
        return self.end - 1 if self.end > 0 else OFFSET_UNKNOWN

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
        """Offsets beyond the end that the application will restore itself: an open transaction was in the way."""
        return self.log_end - self.end


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
        return sum(partition.end - partition.start for partition in self.partitions)

    def to_json(self) -> dict[str, Any]:
        """The plan as a JSON document; ``from_json`` is its inverse."""
        return {
            "version": PLAN_VERSION,
            "application_id": self.application_id,
            "processing_guarantee": str(self.processing_guarantee),
            "partitions": [
                {**asdict(part), "ranges": [list(pair) for pair in part.ranges]} for part in self.partitions
            ],
        }

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> RestorePlan:
        """Read a plan back.

        Raises:
            Invalid: the document is of another version.
        """
        if document.get("version") != PLAN_VERSION:
            raise Invalid(
                f"A plan of version {document.get('version')} was found where version {PLAN_VERSION} was expected.",
                action="Finish the restore with the release that began it, or delete the plan file and start again.",
            )
        return RestorePlan(
            application_id=document["application_id"],
            processing_guarantee=ProcessingGuarantee(document["processing_guarantee"]),
            partitions=tuple(
                PartitionPlan(
                    **{
                        **part,
                        "kind": StoreKind(part["kind"]),
                        "ranges": tuple((start, end) for start, end in part["ranges"]),
                    }
                )
                for part in document["partitions"]
            ),
        )


def isolation_of(guarantee: ProcessingGuarantee) -> IsolationLevel:
    """The isolation of Kafka Streams' restore consumer: read_committed under exactly-once only."""
    if guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2:
        return IsolationLevel.READ_COMMITTED
    return IsolationLevel.READ_UNCOMMITTED


def end_of(offsets: LogOffsets, guarantee: ProcessingGuarantee) -> int:
    """The offset a restore stops before: the last stable offset under exactly-once, else the log end offset."""
    return offsets.last_stable if guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2 else offsets.log_end


def select_stores(spec: ApplicationSpec, names: Sequence[str] = ()) -> tuple[StoreSpec, ...]:
    """The declared stores to restore: those named, or all that can be.

    In-memory stores are left out (Kafka Streams keeps nothing of them on disk).

    Raises:
        Invalid: a name the spec does not declare, a kind nobody has decided (``?``), or one this version cannot build.
    """
    declared = {store.name: store for store in spec.stores}
    unknown = [name for name in names if name not in declared]
    if unknown:
        raise Invalid(
            f"{spec.source} declares no store {', '.join(map(repr, unknown))} for application {spec.application_id!r}; "
            f"it declares {', '.join(sorted(declared)) or 'none'}.",
            action="Name stores of the spec, or add the missing ones to it.",
            stores=unknown,
        )
    wanted = tuple(declared[name] for name in names) if names else spec.stores
    wanted = tuple(store for store in wanted if store.kind is not StoreKind.IN_MEMORY)
    undecided = [store for store in wanted if store.kind is StoreKind.UNKNOWN]
    if undecided:
        raise Invalid(
            "The kind is not decided for "
            + ", ".join(f"store {store.name!r} (line {store.line})" for store in undecided)
            + f" in {spec.source}: plain and timestamped changelogs look alike, and a wrong kind reads as wrong data.",
            action="Replace each '?' by the store's kind, as the application declares it.",
            stores=[store.name for store in undecided],
        )
    unbuildable = [store for store in wanted if not store.kind.can_be_built]
    if unbuildable:
        raise Invalid(
            "This version cannot build "
            + ", ".join(f"store {store.name!r} of kind {store.kind}" for store in unbuildable)
            + ".",
            action="Leave them out with --store, and let Kafka Streams restore them itself.",
            stores=[store.name for store in unbuildable],
        )
    if not wanted:
        raise Invalid(
            f"{spec.source} declares no store that could be restored for application {spec.application_id!r}.",
            action="Declare the stores below 'subtopologies'; `statecore discover` writes them.",
        )
    return wanted


def check_partitions(
    stores: Sequence[StoreSpec], topics: Mapping[str, TopicDescription], partitions: Sequence[int] = ()
) -> dict[int, tuple[int, ...]]:
    """Which partitions of each subtopology are to be restored.

    Every changelog of a subtopology has as many partitions as the subtopology has tasks, so they must agree.

    Returns:
        Subtopology number → partitions, ascending.

    Raises:
        Invalid: changelogs of one subtopology differ in their partition count, or a partition was asked for that no
            subtopology has.
    """
    tasks: dict[int, tuple[int, ...]] = {}
    for number in sorted({store.subtopology for store in stores}):
        counts = {
            store.changelog: topics[store.changelog].partitions for store in stores if store.subtopology == number
        }
        if len(set(counts.values())) > 1:
            raise Invalid(
                f"The changelogs of subtopology {number} differ in their number of partitions: "
                + ", ".join(f"{topic} has {count}" for topic, count in sorted(counts.items()))
                + ".",
                action="Correct the subtopology of these stores in the spec, or the topic that was created by hand.",
                subtopology=number,
                partitions=counts,
            )
        count = next(iter(counts.values()))
        tasks[number] = tuple(part for part in range(count) if not partitions or part in partitions)
    absent = [part for part in partitions if not any(part in tasks[number] for number in tasks)]
    if absent:
        raise Invalid(
            f"No changelog of the chosen stores has partition {', '.join(map(str, absent))}.",
            action="Choose partitions from 0 to the topics' partition count less one.",
            partitions=absent,
        )
    return tasks


def make_plan(
    spec: ApplicationSpec,
    stores: Sequence[StoreSpec],
    tasks: Mapping[int, Sequence[int]],
    topics: Mapping[str, TopicDescription],
    offsets: Mapping[TopicPartition, LogOffsets],
    *,
    parallelism: int,
) -> RestorePlan:
    """Freeze the offsets of a restore and cut them into ranges.

    Args:
        spec: the application.
        stores: the stores to restore.
        tasks: subtopology → partitions, from ``check_partitions``.
        topics: descriptions of the changelogs.
        offsets: one look at the log offsets of all partitions.
        parallelism: Spark tasks that can run at once; decides how far large partitions are split.
    """
    whole: list[tuple[StoreSpec, OffsetRange]] = []
    for store in stores:
        for partition in tasks[store.subtopology]:
            seen = offsets[TopicPartition(store.changelog, partition)]
            end = end_of(seen, spec.processing_guarantee)
            whole.append((store, OffsetRange(store.changelog, partition, min(seen.log_start, end), end)))
    ranges: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
    for part in plan_ranges({span for _, span in whole if span.start < span.end}, parallelism):
        ranges[part.topic_partition].append((part.start, part.end))
    partitions = tuple(
        PartitionPlan(
            store=store.name,
            kind=store.kind,
            task=f"{store.subtopology}_{span.partition}",
            topic=span.topic,
            topic_id=topics[span.topic].topic_id,
            partition=span.partition,
            start=span.start,
            end=span.end,
            log_end=offsets[span.topic_partition].log_end,
            ranges=tuple(sorted(ranges[span.topic_partition])),
        )
        for store, span in whole
    )
    return RestorePlan(spec.application_id, spec.processing_guarantee, partitions)
