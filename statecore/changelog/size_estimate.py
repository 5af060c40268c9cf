"""Estimates the size of a job's partitions with as few requests as possible.

The brokers are asked once for the bytes of the logs. Records are sampled only where a decision depends on them: for
partitions to be split, their shape; for the disk estimate, the compression ratio, sampled at one partition of each
topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import OffsetRange
from statecore.changelog.ranges import ranges_of
from statecore.changelog.record_density import PartitionShape, sample_shapes, unsampled_shapes
from statecore.errors import StatecoreError
from statecore.formats.topic_partition import TopicPartition


def log_sizes(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int] | None:
    """Bytes of each log's largest replica; ``None`` if forbidden or unanswered, since only a preliminary check asks."""
    found: dict[TopicPartition, int] = {}
    leaders: dict[int, list[TopicPartition]] = {}
    try:
        for tp in partitions:
            leaders.setdefault(cluster.leader(tp).node, []).append(tp)
        for node, led in leaders.items():
            found |= cluster.run(_ask, cluster, node, led)
    except StatecoreError:
        return None
    return found


async def _ask(cluster: Cluster, node: int, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    from kafka.protocol.admin import DescribeLogDirsRequest

    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)

    def request() -> Any:
        topic = DescribeLogDirsRequest.DescribableLogDirTopic
        return DescribeLogDirsRequest(topics=[topic(topic=name, partitions=parts) for name, parts in by_topic.items()])

    response = await cluster.ask(lambda: [node], request, cluster.deadline())
    sizes: dict[TopicPartition, int] = {}
    for result in response.results:
        for topic in result.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                sizes[tp] = max(sizes.get(tp, 0), partition.partition_size)
    return sizes


@dataclass(frozen=True)
class SizeEstimate:
    """Estimated sizes of a job's partitions."""

    shapes: Mapping[TopicPartition, PartitionShape]  # shape of each partition
    log_bytes: int | None  # stored bytes of all logs; None where the brokers do not report them


def estimate_sizes(
    cluster: Cluster,
    spans: Collection[OffsetRange],
    workers: int,
    memory_budget: int,
    *,
    complete: bool = False,
    sample: Callable[[Cluster, Iterable[PartitionShape]], Mapping[TopicPartition, PartitionShape]] = sample_shapes,
    sizes_of: Callable[[Cluster, Collection[TopicPartition]], dict[TopicPartition, int] | None] = log_sizes,
) -> SizeEstimate:
    """Estimate sizes of partitions; those that are not sampled are taken to be like the sampled ones of their topic."""
    sizes = sizes_of(cluster, [span.topic_partition for span in spans]) if spans else {}
    shapes = unsampled_shapes(spans, sizes)
    sampled: set[TopicPartition] = set()
    found: dict[TopicPartition, PartitionShape] = {}
    while True:
        weighed = shapes if sizes is None else shapes | _extrapolated(shapes, found, sizes)
        counts = ranges_of(spans, workers, weighed, memory_budget=memory_budget)
        wanted = {span.topic_partition for span, count in counts.items() if count > 1 or complete}
        if sizes is not None:
            wanted |= _largest_unsampled(shapes, sampled)
        wanted -= sampled
        if not wanted:
            return SizeEstimate(weighed, None if sizes is None else sum(sizes.values()))
        sampled |= wanted
        found |= sample(cluster, [weighed[tp] for tp in wanted])
        shapes |= found  # the weights of others have changed, and they may be split instead


def _largest_unsampled(
    shapes: Mapping[TopicPartition, PartitionShape], sampled: Collection[TopicPartition]
) -> set[TopicPartition]:
    """Largest partition of each topic without a sampled partition."""
    topics = {tp.topic for tp in sampled}
    largest: dict[str, TopicPartition] = {}
    for tp, shape in shapes.items():
        if tp.topic not in topics and (tp.topic not in largest or shape.bytes > shapes[largest[tp.topic]].bytes):
            largest[tp.topic] = tp
    return set(largest.values())


def _extrapolated(
    shapes: Mapping[TopicPartition, PartitionShape],
    found: Mapping[TopicPartition, PartitionShape],
    sizes: Mapping[TopicPartition, int],
) -> dict[TopicPartition, PartitionShape]:
    """Shapes of unsampled partitions: those of the sampled partitions of their topic, scaled by log bytes."""
    of_topic: dict[str, list[TopicPartition]] = defaultdict(list)
    for tp in found:
        of_topic[tp.topic].append(tp)
    extrapolated = {}
    for tp in (shapes.keys() & sizes.keys()) - found.keys():
        others = of_topic[tp.topic]
        if in_log := sum(sizes.get(other, 0) for other in others):
            share = sizes[tp] / in_log
            records = share * sum(sum(found[other].records) for other in others)
            size = share * sum(found[other].bytes for other in others)
            extrapolated[tp] = PartitionShape(shapes[tp].span, (records,), size)
    return extrapolated
