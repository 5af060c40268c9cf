"""The name of a changelog partition."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic.

    ``str()`` is Kafka's own form, ``<topic>-<partition>``, which is also the key in the ``offsets`` column family.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
