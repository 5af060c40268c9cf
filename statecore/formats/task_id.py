"""Task ids as Kafka Streams writes them, which are the names of task directories: ``0_1``.

The directory of a task in a named topology is inside the topology's, ``__north__/0_1``. Global stores belong to no
task; their directory ``global`` stands for one here.

Source: ``org.apache.kafka.streams.processor.TaskId`` and ``StateDirectory.getOrCreateDirectoryForTask``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from statecore.formats.releases import GLOBAL
from statecore.formats.topic_partition import TopicPartition

_GLOBAL_SUBTOPOLOGY = -1
_NAME = re.compile(r"(?:__([a-zA-Z0-9._-]+)__/)?([0-9]+)_([0-9]+)")


@dataclass(frozen=True, slots=True)
class TaskId:
    """A task, or the global stores.

    Attributes:
        subtopology: its number in ``Topology.describe()``; -1 for the global stores.
        partition: partition of its topics; ``None`` for the global stores, which hold all partitions.
        topology: the named topology, or ``None``.
    """

    subtopology: int
    partition: int | None
    topology: str | None = None

    @classmethod
    def match(cls, name: str) -> TaskId | None:
        if name == GLOBAL:
            return GLOBAL_TASK
        found = _NAME.fullmatch(name)
        return None if found is None else cls(int(found[2]), int(found[3]), found[1])

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
    def subtopology_id(self) -> tuple[str | None, int]:
        """Topology and number of the subtopology, shared by all its tasks."""
        return self.topology, self.subtopology

    @property
    def order(self) -> tuple[bool, str, int, int]:
        """Sort key: topology, subtopology and partition as numbers, the global stores last."""
        return self.is_global, self.topology or "", self.subtopology, self.partition or 0

    def partition_of(self, topic: str) -> TopicPartition:
        """Partition of a topic that this task reads or restores from; not for the global stores."""
        assert self.partition is not None
        return TopicPartition(topic, self.partition)

    def __str__(self) -> str:
        if self.is_global:
            return GLOBAL
        name = f"{self.subtopology}_{self.partition}"
        return f"__{self.topology}__/{name}" if self.topology else name


GLOBAL_TASK = TaskId(_GLOBAL_SUBTOPOLOGY, None)
"""The global stores."""
