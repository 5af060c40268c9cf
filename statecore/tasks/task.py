"""What a task is to whoever assigns, counts or closes it, whether it is active or a standby."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from statecore.formats.topic_partition import TopicPartition


class Task(Protocol):
    """A task whose stores are open."""

    @property
    def name(self) -> str:
        """Kafka Streams' task id, which is its directory: ``0_1``, or ``__north__/0_1`` in a named topology."""

    def offsets(self) -> Mapping[TopicPartition, int]:
        """The last applied offset of each changelog; absent, or -4, where it is not known."""

    def close(self) -> None:
        """Close the stores and leave the directory for whoever comes next; again is fine."""
