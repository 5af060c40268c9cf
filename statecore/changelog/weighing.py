"""Estimates the size of a job's partitions with as few requests as possible.

The brokers are asked once for the bytes of the logs. Records are sampled only where a decision depends on them: for
partitions to be split, their shape; for the disk estimate, the compression ratio, sampled at one partition of each
topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import OffsetRange
from statecore.changelog.ranges import ranges_of
from statecore.changelog.record_density import PartitionShape, sample_shapes, unsampled_shapes
from statecore.changelog.sizes import log_sizes
from statecore.formats.topic_partition import TopicPartition


@dataclass(frozen=True)
class Weights:
    """Estimated sizes of a job's partitions.

    Attributes:
        shapes: shape of each partition.
        log_bytes: stored bytes of all logs; ``None`` where the brokers do not report them.
    """

    shapes: Mapping[TopicPartition, PartitionShape]
    log_bytes: int | None


def weigh(
    cluster: Cluster,
    spans: Collection[OffsetRange],
    workers: int,
    memory_budget: int,
    *,
    all_of_them: bool = False,
    sample: Callable[[Cluster, Iterable[PartitionShape]], Mapping[TopicPartition, PartitionShape]] = sample_shapes,
    sizes_of: Callable[[Cluster, Collection[TopicPartition]], dict[TopicPartition, int] | None] = log_sizes,
) -> Weights:
    """Estimate the sizes of partitions.

    Returns:
        Their weights. Partitions that were not sampled (too many, small or not split) are assumed to be like the
        sampled ones of their topic.
    """
    sizes = sizes_of(cluster, [span.topic_partition for span in spans]) if spans else {}
    shapes = unsampled_shapes(spans, sizes)
    sampled: set[TopicPartition] = set()
    found: dict[TopicPartition, PartitionShape] = {}
    while True:
        weighed = shapes if sizes is None else shapes | _extrapolated(shapes, found, sizes)
        counts = ranges_of(spans, workers, weighed, memory_budget=memory_budget)
        wanted = {span.topic_partition for span, count in counts.items() if count > 1 or all_of_them}
        if sizes is not None:
            wanted |= _largest_unsampled(shapes, sampled)
        wanted -= sampled
        if not wanted:
            return Weights(weighed, None if sizes is None else sum(sizes.values()))
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
