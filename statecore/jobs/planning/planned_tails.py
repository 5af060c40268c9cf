"""Plans that append tails to bases, and whether the frozen plan of an earlier attempt is still valid.

A plan becomes stale (:func:`why_plan_stale`). Once the changelogs have grown, deletes beyond the plan's ends are
compacted away after ``delete.retention.ms``, and a store rebuilt up to those ends would keep deleted keys. When a log's
start has passed an end, the application cannot continue from there and, under exactly-once, would wipe the task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from statecore.changelog.cluster import Cluster
from statecore.changelog.delete_retention import CLOCK_MARGIN_MS, delete_retention_ms
from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.changelog.soundness import NO_TIME
from statecore.errors import Invalid
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition, is_same_topic
from statecore.jobs.bases.base import Base, Key, Refused
from statecore.jobs.fields.catalog import VersionedStart
from statecore.jobs.planning.frozen_plan import FrozenPlan
from statecore.jobs.planning.plan import PartitionPlan, PlanRequest, ReadPlan, is_restored_by_kafka_streams
from statecore.jobs.planning.selection import select_stores
from statecore.spec.model import ApplicationSpec, StoreSpec, retention_of, segment_interval_of

RESUMED_NOTE = "The plan of an earlier attempt of this request was resumed."


@dataclass(frozen=True, kw_only=True)
class PlannedTails:
    """A plan with its bases.

    Attributes:
        is_resumed: whether an earlier attempt had frozen it.
        cluster_id: of the cluster that was asked; empty if its brokers have none.
    """

    frozen: FrozenPlan
    bases: Mapping[Key, Base]
    refused: tuple[Refused, ...]
    topics: Mapping[str, TopicDescription]
    notes: tuple[str, ...]
    is_resumed: bool = False
    cluster_id: str = ""

    @property
    def plan(self) -> ReadPlan:
        return self.frozen.plan

    @property
    def not_newest(self) -> frozenset[Key]:
        """Stores for which the newest snapshot was refused, so that its ends are not valid."""
        return frozenset(one.key for one in self.refused if one.base == self.frozen.newest_snapshot)


class NamedBases(Protocol):
    """Finds the bases that a frozen plan names."""

    def named(self, key: Key, name: str) -> Base | None:
        """The base of a store; ``None`` if it is not available any more."""


def topics_of(cluster: Cluster, plan: ReadPlan) -> dict[str, TopicDescription]:
    """The changelogs of a plan as they are now. Raises as :meth:`Cluster.describe_topics`."""
    return cluster.describe_topics(sorted({part.topic for part in plan.partitions}))


def valid_bases(
    cluster: Cluster, frozen: FrozenPlan, topics: Mapping[str, TopicDescription], candidates: NamedBases
) -> dict[Key, Base] | str:
    """The bases of a frozen plan; or why it must be recreated."""
    plan = frozen.plan
    offsets = cluster.log_offsets({part.topic_partition for part in plan.partitions})
    if (stale := why_plan_stale(frozen, topics, offsets, cluster.time_ms())) is not None:
        return stale
    bases: dict[Key, Base] = {}
    for key, parts in plan.stores.items():
        name = parts[0].base
        if not name:
            continue
        base = candidates.named(key, name)
        ends = {} if base is None else {part: end.end for part, end in base.ends.items()}
        if base is None or any(ends.get(part.topic_partition) != part.start for part in parts):
            return f"{name}, the base of store {key[1]} of task {key[0]}, has changed"
        bases[key] = base
    return bases


def why_plan_stale(
    frozen: FrozenPlan,
    topics: Mapping[str, TopicDescription],
    offsets: Mapping[TopicPartition, LogOffsets],
    now_ms: int | None,
) -> str | None:
    """Why a frozen plan must be recreated; ``None`` while it is valid."""
    for part in frozen.plan.partitions:
        seen = offsets.get(part.topic_partition)
        name = f"{part.topic}-{part.partition}"
        if seen is None:
            return f"partition {name} does not exist any more"
        if part.restored_by_kafka_streams:
            continue
        if seen.log_end < part.end:
            return f"{name} ends at {seen.log_end} now, before the plan's end {part.end}"
        if part.end > 0 and seen.log_start > part.end:
            return f"{name} begins at {seen.log_start} now, after the plan's end {part.end}"
        if part.base and seen.log_start > part.start:
            return f"{name} begins at {seen.log_start} now, after the end {part.start} of {part.base}"
        if seen.log_end > part.log_end and (why := _why_too_old(frozen, part, topics[part.topic], now_ms)) is not None:
            return f"{name} has grown since and {why}"
    if not frozen.partitions and not frozen.is_partial:
        for topic in {part.topic for part in frozen.plan.partitions}:
            planned = len({part.partition for part in frozen.plan.partitions if part.topic == topic})
            if planned != topics[topic].partitions:
                return f"{topic} has {topics[topic].partitions} partitions now and had {planned}"
    return None


def _why_too_old(frozen: FrozenPlan, part: PartitionPlan, topic: TopicDescription, now_ms: int | None) -> str | None:
    """Why deletes beyond a plan's end may be gone; ``None`` while none can be."""
    if now_ms is None or frozen.broker_read_at_ms is None or part.delete_retention_ms is None:
        return f"the age of the plan is unknown: {NO_TIME}"
    age_ms = now_ms - frozen.broker_read_at_ms
    retention_ms = min(delete_retention_ms(topic), part.delete_retention_ms)
    # Not the limit of `soundness.missed_deletes`, which is for a tail whose read has ended: beyond this end the
    # application reads, after the restore, so half of the retention is left to it. The topic's value counts also while
    # it is not compacted: a plan that is made again for nothing loses only what was read.
    if -CLOCK_MARGIN_MS <= age_ms <= retention_ms / 2:
        return None
    return (
        f"the plan is {age_ms / 1000:.0f} s old; deletes written since may be compacted away after "
        f"{retention_ms / 1000:.0f} s (delete.retention.ms)"
    )


def check_unchanged(plan: ReadPlan, topics: Mapping[str, TopicDescription]) -> None:
    """Refuse a frozen plan whose topics were recreated. Raises ``Invalid``."""
    changed = sorted(
        {part.topic for part in plan.partitions if not is_same_topic(topics[part.topic].topic_id, part.topic_id)}
    )
    if changed:
        raise Invalid(
            f"Topics were recreated since the plan was made: {', '.join(changed)}.",
            code="topic-recreated",
            action="Start a new restore (under a new request id), which makes a new plan.",
            topics=changed,
        )


def covers(frozen: FrozenPlan, spec: ApplicationSpec, request: PlanRequest) -> bool:
    """Whether a frozen plan answers this request: same application, guarantee, partitions, and declared stores."""
    plan = frozen.plan
    if plan.application_id != spec.application_id or plan.processing_guarantee is not spec.processing_guarantee:
        return False
    stores = select_stores(spec, request.stores, request.partitions)
    asked = {_identity(store, request.versioned) for store in stores if store.name not in frozen.excluded_stores}
    planned = {
        (
            part.store,
            part.kind,
            part.topic,
            TaskId.parse(part.task).subtopology,
            part.retention_ms,
            part.segment_interval_ms,
            part.restored_by_kafka_streams,
        )
        for part in plan.partitions
    }
    return asked == planned and set(request.partitions) == set(frozen.partitions)


def _identity(store: StoreSpec, versioned: VersionedStart) -> tuple[object, ...]:
    return (
        store.name,
        store.kind,
        store.changelog,
        store.subtopology,
        retention_of(store),
        segment_interval_of(store),
        is_restored_by_kafka_streams(store, versioned),
    )
