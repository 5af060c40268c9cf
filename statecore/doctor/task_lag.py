"""Offset sums of a directory's tasks, with the end sums of their changelogs if brokers are available.

A versioned store without an offset is not counted: a standby task leaves it empty and does not follow it, so with its
changelog a standby that is caught up would seem to lag for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from statecore.doctor.inspection_reader import check_names
from statecore.errors import Corrupted, Invalid, NotFound, StatecoreError
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec
from statecore.statedir.state_directory import StateDirectory
from statecore.tasks.offset_sums import StoreSum, TaskDirectoryState, TaskSum, declared_stores, read_offset_sums


@dataclass(frozen=True)
class OffsetSums:
    """Offset sums of the tasks of a directory.

    Attributes:
        ends: end of each changelog partition that the brokers know; empty if they were not asked.
        why_no_ends: why there are no ends; empty if there are.
        versioned: the versioned stores of each task, by the spec.
    """

    directory: StateDirectory
    tasks: tuple[TaskSum, ...]
    ends: Mapping[TopicPartition, int]
    why_no_ends: str
    versioned: Mapping[str, Set[str]] = field(default_factory=dict)

    def is_followed(self, task: TaskSum, store: StoreSum) -> bool:
        """Whether a store of a task counts in its end sum and its lag."""
        has_offset = store.offset is not None and store.offset >= 0
        return has_offset or store.store not in self.versioned.get(task.task, ())

    def end_sum(self, task: TaskSum) -> int | None:
        """The sum of the ends of the counted changelogs; ``None`` if one of them is unknown."""
        counted = [one for one in task.stores if self.is_followed(task, one)]
        ends = [self.ends.get(one.changelog) for one in counted if one.changelog is not None]
        known = [end for end in ends if end is not None]
        return sum(known) if known and len(known) == len(counted) else None

    def lag(self, task: TaskSum) -> int | None:
        """The lag of a task in offsets, as Kafka Streams counts it; a task past its end lags by its whole end sum."""
        end = self.end_sum(task)
        if end is None:
            return None
        return end - task.sum if task.sum <= end else end

    @property
    def exit_code(self) -> int:
        """That of ``Corrupted`` if a task is damaged, of ``Invalid`` if one is foreign or unreadable; else 0."""
        states = {one.state for one in self.tasks}
        if TaskDirectoryState.DAMAGED in states:
            return Corrupted.exit_code
        return Invalid.exit_code if states & {TaskDirectoryState.FOREIGN, TaskDirectoryState.UNREADABLE} else 0

    def to_json(self) -> dict[str, Any]:
        return {
            "application_id": self.directory.application_id,
            "path": str(self.directory.path),
            "not_asked": self.why_no_ends,
            "exit_code": self.exit_code,
            "tasks": [self._task(one) for one in self.tasks],
        }

    def _task(self, task: TaskSum) -> dict[str, Any]:
        return {
            "task": task.task,
            "state": str(task.state),
            "reason": task.reason,
            "offset_sum": task.sum,
            "end_offset_sum": self.end_sum(task),
            "lag": self.lag(task),
            "stores": [
                {
                    "store": one.store,
                    "changelog": None if one.changelog is None else str(one.changelog),
                    "offset": one.offset,
                    "end_offset": None if one.changelog is None else self.ends.get(one.changelog),
                    "source": str(one.source),
                    "is_followed": self.is_followed(task, one),
                    "databases_differ": one.databases_differ,
                    "reason": one.reason,
                }
                for one in task.stores
            ],
        }


def inspect_offset_sums(
    directory: StateDirectory,
    spec: ApplicationSpec | None = None,
    tasks: Sequence[str] = (),
    ends: Callable[[ApplicationSpec, Set[TopicPartition], float], Mapping[TopicPartition, int]] | None = None,
    *,
    timeout: float = 30.0,
) -> OffsetSums:
    """Read the offset sums of a directory's tasks; with a spec also the ends of their changelogs, if brokers answer."""
    every = directory.task_directories()
    check_names("task", tasks, set(every), directory)
    sums = read_offset_sums(directory, spec, tasks=[one for one in every if not tasks or one in tasks])
    if spec is None:
        return OffsetSums(directory, tuple(sums.values()), {}, "Without a spec no brokers are known.")
    versioned = {task: {one.name for one in declared_stores(spec, task) if one.kind.is_versioned} for task in sums}
    changelogs = {one.changelog for task in sums.values() for one in task.stores if one.changelog is not None}
    try:
        return OffsetSums(directory, tuple(sums.values()), (ends or _ends)(spec, changelogs, timeout), "", versioned)
    except StatecoreError as error:
        return OffsetSums(directory, tuple(sums.values()), {}, error.what, versioned)


def _ends(spec: ApplicationSpec, changelogs: Set[TopicPartition], timeout: float) -> dict[TopicPartition, int]:
    """The log ends of existing changelogs, transaction markers counted, as Kafka Streams asks for them."""
    from statecore.changelog.cluster import Cluster

    with Cluster(spec.bootstrap_servers, spec.kafka, timeout=timeout) as cluster:
        names = {at.topic for at in changelogs}
        try:
            topics = cluster.describe_topics(names)
        except NotFound as error:
            topics = cluster.describe_topics(names - set(error.context["topics"]))
        there = [at for at in changelogs if at.topic in topics and at.partition < topics[at.topic].partitions]
        return {at: log.log_end for at, log in cluster.log_offsets(there).items()}
