"""The interface of a task for assignment and closing, active or standby."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from statecore.formats.topic_partition import TopicPartition


class Task(Protocol):
    """A task whose stores are open."""

    @property
    def name(self) -> str:
        """Kafka Streams' task id, which is its directory: ``0_1``."""

    def offsets(self) -> Mapping[TopicPartition, int]:
        """The last applied offset of each changelog; absent, or -4, where unknown."""

    def close(self) -> None:
        """Close the stores; idempotent."""
