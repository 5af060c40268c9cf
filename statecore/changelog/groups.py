"""Committed offsets of a consumer group: how far an application has read its source topics.

Needed where a source topic is reused as changelog. Kafka Streams restores such a store only up to the group's committed
offset (``StoreChangelogReader``: the end is the smaller of log end and committed offset), because later records are
still to be processed and must not be in the store yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from statecore.changelog.cluster import Cluster
from statecore.errors import Invalid, Retryable
from statecore.formats.topic_partition import TopicPartition

_LOADING, _NOT_AVAILABLE, _NOT_COORDINATOR, _UNSTABLE = 14, 15, 16, 88
_PASSING = (_LOADING, _NOT_AVAILABLE, _NOT_COORDINATOR, _UNSTABLE)
_GROUP_DENIED, _GROUP_NOT_FOUND = 30, 69


def committed_offsets(
    cluster: Cluster, group: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int | None]:
    """Committed offsets of a group; waits for open transactions over them.

    Args:
        group: the consumer group; a Kafka Streams application's id.

    Returns:
        Partition → next offset to consume, ``None`` where nothing was committed.

    Raises:
        Invalid: this client may not describe the group.
        Retryable: the group's coordinator did not answer in time, or a transaction over its offsets stays open.
    """
    if not partitions:
        return {}
    cluster.leader(min(partitions))  # fetches the broker addresses
    return cluster.run(_committed, cluster, group, sorted(partitions), cluster.deadline())


def all_committed_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, int]:
    """Committed offsets of a group, of all partitions that have one. Raises as :func:`committed_offsets`.

    Some topic must have been described before: that tells the addresses of the brokers.
    """
    found = cluster.run(_committed, cluster, group, None, cluster.deadline())
    return {partition: offset for partition, offset in found.items() if offset is not None}


async def _committed(
    cluster: Cluster, group: str, partitions: list[TopicPartition] | None, deadline: float
) -> dict[TopicPartition, int | None]:
    """Committed offsets of some partitions, or with ``None`` of all that have one."""
    from kafka.protocol.consumer.group import OffsetFetchRequest

    by_topic: dict[str, list[int]] = {}
    for tp in partitions or ():
        by_topic.setdefault(tp.topic, []).append(tp.partition)

    def fetch() -> Any:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic
        topics = [topic(name=name, partition_indexes=numbers) for name, numbers in by_topic.items()]
        wanted = None if partitions is None else topics
        # Under exactly-once offsets are committed by transactions: those of an open transaction do not count yet.
        return OffsetFetchRequest(group_id=group, topics=wanted, require_stable=True, min_version=7, max_version=7)

    def code_of(response: Any) -> int:
        of_parts = (part.error_code for topic in response.topics for part in topic.partitions)
        return int(next(filter(None, of_parts), response.error_code))

    code, response = await ask_coordinator(cluster, group, fetch, code_of, deadline)
    if code in (0, _GROUP_NOT_FOUND) and response is not None:
        found = [(topic.name, part) for topic in response.topics for part in topic.partitions]
        committed = {TopicPartition(name, part.partition_index): part.committed_offset for name, part in found}
        known = {tp: offset for tp, offset in committed.items() if offset >= 0}
        return {tp: known.get(tp) for tp in (known if partitions is None else partitions)}
    if code == _GROUP_DENIED:
        raise Invalid(
            f"The user of this client lacks the right Describe on the consumer group {group}.",
            code="group-authorization-failed",
            action="Grant Describe on the group: a source topic reused as changelog is restored up to "
            "the offset that the application has committed.",
            group=group,
            right="Describe",
        )
    raise Retryable(
        f"The committed offsets of the consumer group {group} could not be read: Kafka error {code}.",
        code="broker-error",
        action="Try again; if the error persists, check the broker's log.",
        group=group,
        error_code=code,
    )


async def ask_coordinator(
    cluster: Cluster, group: str, request: Callable[[], Any], code_of: Callable[[Any], int], deadline: float
) -> tuple[int, Any]:
    """Ask a group's coordinator until the deadline, under `Cluster.run`; return code and response, if any."""
    from kafka.protocol.metadata.find_coordinator import FindCoordinatorRequest

    def find() -> Any:
        return FindCoordinatorRequest(key=group, key_type=0, max_version=3)

    pause = 0.05
    while True:
        coordinator, response = await cluster.ask(cluster.metadata_brokers, find, deadline), None
        code = coordinator.error_code
        if code == 0:
            response = await cluster.ask(partial(list, [coordinator.node_id]), request, deadline)
            code = code_of(response)
        if code not in _PASSING or time.monotonic() + pause >= deadline:
            return code, response
        await cluster.sleep(pause)
        pause = min(2 * pause, 1.0)
