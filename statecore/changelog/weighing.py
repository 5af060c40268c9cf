"""How large the partitions of a job are, asked as cheaply as the answer is worth.

The brokers are asked once how many bytes the logs have. A look at the records follows where something depends on it:
the cuts of a partition on its own shape, the room on the disk on how far the logs are compressed, for which one
partition of each topic stands for all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import OffsetRange
from statecore.changelog.ranges import ranges_of
from statecore.changelog.shapes import PartitionShape, look_at, unseen_shapes
from statecore.changelog.sizes import log_sizes
from statecore.formats.topic_partition import TopicPartition


@dataclass(frozen=True)
class Weights:
    """What is known of the partitions of a job.

    Attributes:
        shapes: of each partition.
        log_bytes: bytes of all logs as the brokers keep them; ``None`` where they do not say.
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
    look: Callable[[Cluster, Iterable[PartitionShape]], Mapping[TopicPartition, PartitionShape]] = look_at,
    sizes_of: Callable[[Cluster, Collection[TopicPartition]], dict[TopicPartition, int] | None] = log_sizes,
) -> Weights:
    """Weigh partitions.

    Args:
        cluster: where they are.
        spans: one range a partition, as far as it is to be read.
        workers: tasks that run at the same time.
        memory_budget: bytes of records that a task may hold.
        all_of_them: whether large ones that are not cut are looked at, too, for an estimate of them all.
        look: looks at partitions.
        sizes_of: asks for the bytes of their logs.

    Returns:
        Their weights. Those that were not looked at, because they are many or small or not cut, are taken to be like
        the others of their topic that were.
    """
    sizes = sizes_of(cluster, [span.topic_partition for span in spans]) if spans else {}
    shapes = unseen_shapes(spans, sizes)
    seen: set[TopicPartition] = set()
    found: dict[TopicPartition, PartitionShape] = {}
    while True:
        weighed = shapes if sizes is None else shapes | _like_the_others(shapes, found, sizes)
        counts = ranges_of(spans, workers, weighed, memory_budget=memory_budget)
        wanted = {span.topic_partition for span, count in counts.items() if count > 1 or all_of_them}
        if sizes is not None:
            wanted |= _largest_of_others(shapes, seen)
        wanted -= seen
        if not wanted:
            return Weights(weighed, None if sizes is None else sum(sizes.values()))
        seen |= wanted
        found |= look(cluster, [weighed[tp] for tp in wanted])
        shapes |= found  # others weigh more or less now, and may be cut instead


def _largest_of_others(
    shapes: Mapping[TopicPartition, PartitionShape], seen: Collection[TopicPartition]
) -> set[TopicPartition]:
    """The largest partition of each topic that none was looked at of."""
    topics = {tp.topic for tp in seen}
    largest: dict[str, TopicPartition] = {}
    for tp, shape in shapes.items():
        if tp.topic not in topics and (tp.topic not in largest or shape.bytes > shapes[largest[tp.topic]].bytes):
            largest[tp.topic] = tp
    return set(largest.values())


def _like_the_others(
    shapes: Mapping[TopicPartition, PartitionShape],
    found: Mapping[TopicPartition, PartitionShape],
    sizes: Mapping[TopicPartition, int],
) -> dict[TopicPartition, PartitionShape]:
    """Shapes of partitions that were not looked at: to the bytes of their logs as those of their topic that were."""
    of_topic: dict[str, list[TopicPartition]] = defaultdict(list)
    for tp in found:
        of_topic[tp.topic].append(tp)
    alike = {}
    for tp in (shapes.keys() & sizes.keys()) - found.keys():
        others = of_topic[tp.topic]
        if in_log := sum(sizes.get(other, 0) for other in others):
            share = sizes[tp] / in_log
            records = share * sum(sum(found[other].records) for other in others)
            size = share * sum(found[other].bytes for other in others)
            alike[tp] = PartitionShape(shapes[tp].span, (records,), size)
    return alike
