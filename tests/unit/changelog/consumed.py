"""What a consumer group has consumed, for fake clusters."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from statecore.errors import Retryable
from statecore.formats.topic_partition import TopicPartition

Consumed = Callable[[str, TopicPartition], int | None]
"""What a group has committed of a partition; ``None`` for nothing."""


class GroupCoordinator:
    """The part of a fake cluster that is asked what a group has committed; other requests get no answer.

    Args:
        consumed: what is answered.
    """

    def __init__(self, consumed: Consumed) -> None:
        self.consumed = consumed

    def metadata_brokers(self) -> list[int]:
        return [0]

    def deadline(self) -> float:
        return math.inf

    def leader(self, tp: TopicPartition, **_: Any) -> Any:
        return SimpleNamespace(node=0, where="b:9", epoch=0)

    def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return asyncio.run(work(*arguments))

    async def ask(self, nodes: Any, request: Callable[[], Any], deadline: float) -> Any:
        asked = request()
        kind = type(asked).__name__
        if kind.startswith("FindCoordinator"):
            return SimpleNamespace(error_code=0, node_id=0)
        if not kind.startswith("OffsetFetch"):
            raise Retryable(f"Nobody answers a {kind}.", code="test-error", action="Wait.")

        def part(topic: str, number: int) -> SimpleNamespace:
            offset = self.consumed(asked.group_id, TopicPartition(topic, number))
            return SimpleNamespace(
                partition_index=number, error_code=0, committed_offset=-1 if offset is None else offset
            )

        topics = [
            SimpleNamespace(name=topic.name, partitions=[part(topic.name, one) for one in topic.partition_indexes])
            for topic in asked.topics
        ]
        return SimpleNamespace(error_code=0, topics=topics)
