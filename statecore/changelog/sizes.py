"""Stored size of partitions: a lower bound of the disk space that their stores need."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from statecore.changelog.cluster import Cluster
from statecore.errors import StatecoreError
from statecore.formats.topic_partition import TopicPartition


def log_sizes(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int] | None:
    """Stored bytes of each partition's log, compressed if the topic is (DescribeLogDirs).

    Returns:
        Partition → bytes of its largest replica; ``None`` where the principal lacks permission or a broker does not
        answer: the sizes serve a preliminary check, so missing ones must not fail a job.
    """
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
