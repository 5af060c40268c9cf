"""Task ids as Kafka Streams writes them, which are the names of task directories: ``0_1``.

Global stores belong to no task; their directory ``global`` stands for one here.

``00_1`` is no task here. Kafka Streams parses it as ``0_1``, but never writes that name and opens no store in such a
directory; its cleaner deletes it after ``state.cleanup.delay.ms``. It may be a copy that a person has made, so this
library leaves it as it is. ``0_2147483648`` is no task either: Kafka Streams cannot parse it.

Source: ``org.apache.kafka.streams.processor.TaskId`` and ``StateDirectory.getOrCreateDirectoryForTask``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from statecore.formats.releases import GLOBAL
from statecore.formats.topic_partition import TopicPartition

_GLOBAL_SUBTOPOLOGY = -1
_GREATEST = 2**31 - 1  # Kafka Streams parses both numbers as a Java int
_NAME = re.compile(r"(0|[1-9][0-9]{0,9})_(0|[1-9][0-9]{0,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class TaskId:
    """A task, or the global stores."""

    subtopology: int  # its number in Topology.describe(); -1 for the global stores
    partition: int | None  # partition of its topics; None for the global stores, which hold all partitions

    @classmethod
    def match(cls, name: str) -> TaskId | None:
        """Task with this name; ``None`` if the name is not one that ``TaskId.toString`` writes."""
        if name == GLOBAL:
            return GLOBAL_TASK
        found = _NAME.fullmatch(name)
        if found is None or max(int(found[1]), int(found[2])) > _GREATEST:
            return None
        return cls(int(found[1]), int(found[2]))

    @classmethod
    def parse(cls, name: str) -> TaskId:
        """Task with this name. Raises ``ValueError`` if the name is not a task's."""
        found = cls.match(name)
        if found is None:
            raise ValueError(f"{name!r} is not a task such as 0_1")
        return found

    @property
    def is_global(self) -> bool:
        """Whether this is the task of the global stores."""
        return self.subtopology == _GLOBAL_SUBTOPOLOGY

    @property
    def order(self) -> tuple[bool, int, int]:
        """Sort key: subtopology and partition as numbers, the global stores last."""
        return self.is_global, self.subtopology, self.partition or 0

    def partition_of(self, topic: str) -> TopicPartition:
        """Partition of a topic that this task reads or restores from; not for the global stores."""
        assert self.partition is not None
        return TopicPartition(topic, self.partition)

    def __str__(self) -> str:
        return GLOBAL if self.is_global else f"{self.subtopology}_{self.partition}"


GLOBAL_TASK = TaskId(_GLOBAL_SUBTOPOLOGY, None)  # The global stores
