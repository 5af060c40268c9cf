"""Bases as a real cluster tells them: how far a store has come, and whether something may be put above it."""

from __future__ import annotations

from collections.abc import Sequence

from statecore.changelog.cluster import Cluster
from statecore.changelog.delete_retention import recorded_retention_ms
from statecore.changelog.model import LogOffsets, OffsetRange, ReadStatistics
from statecore.changelog.soundness import BaseEnd, refusal
from statecore.errors import Reason
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import Base
from statecore.jobs.pipeline.ranges import RangeResult
from statecore.jobs.pipeline.tail_check import unsound
from statecore.jobs.planning.plan import PartitionPlan, ReadPlan
from statecore.spec.model import ProcessingGuarantee


def log_of(cluster: Cluster, topic: str) -> LogOffsets:
    """The offsets of partition 0."""
    tp = TopicPartition(topic, 0)
    return cluster.log_offsets([tp])[tp]


def base_of(cluster: Cluster, topic: str, *, stable: bool = False, known: bool = True) -> BaseEnd:
    """A base that has come to the end of partition 0: the log end, or the last stable offset.

    Args:
        cluster: where it is.
        topic: the changelog.
        stable: whether it was read committed.
        known: whether its age is known.
    """
    described = cluster.describe_topics([topic])[topic]
    read_at = cluster.time_ms() if known else None
    log = log_of(cluster, topic)
    end = log.last_stable if stable else log.log_end
    retention_ms = recorded_retention_ms(described) if known else None
    return BaseEnd(TopicPartition(topic, 0), described.topic_id, end, log.leader_epoch, read_at, retention_ms)


def why_hopeless(cluster: Cluster, base: BaseEnd) -> Reason | None:
    """What is asked before anything is read."""
    tp = base.topic_partition
    described = cluster.describe_topics([tp.topic])[tp.topic]
    log = log_of(cluster, tp.topic)
    return refusal(base, described, log, cluster.epoch_ends({tp: base.leader_epoch})[tp])


def why_unsound(cluster: Cluster, base: BaseEnd, seen: Sequence[ReadStatistics]) -> Reason | None:
    """What is decided when the tail has been read, of all that was seen."""
    tp = base.topic_partition
    log, topic = log_of(cluster, tp.topic), cluster.describe_topics([tp.topic])[tp.topic]
    end, epoch = log.log_end, log.leader_epoch
    span = OffsetRange(tp.topic, tp.partition, base.end, end)
    part = PartitionPlan(
        store="store",
        kind=StoreKind.KEY_VALUE,
        task="0_0",
        topic=tp.topic,
        topic_id=topic.topic_id,
        partition=tp.partition,
        start=base.end,
        end=end,
        log_end=end,
        ranges=((base.end, end),),
        leader_epoch=epoch,
        base="base",
    )
    key = part.task, part.store
    found = unsound(
        ReadPlan("application", ProcessingGuarantee.EXACTLY_ONCE_V2, (part,)),
        {key: Base("base", {tp: base}, frozenset([None]))},
        {key: [RangeResult(*key, span, (), one, 0.0, {}, {}) for one in seen]},
        {tp.topic: topic},
        cluster.epoch_ends,
        cluster.time_ms(),
    )
    return found.refused[0].why if found.refused else None
