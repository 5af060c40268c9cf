"""A task over an empty changelog, and what its fake brokers say, for tests of an active task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee
from statecore.statedir.state_directory import StateDirectory
from statecore.tasks.active_task import ActiveTask, TaskState
from statecore.tasks.commit_policy import CommitSettings
from statecore.tasks.standby_task import StandbyTask
from statecore.tasks.task_stores import TaskStores
from tests.unit.changelog.consumed import GroupCoordinator
from tests.unit.tasks.counting import COUNTS, Counting, ListedConsumer, TransactionalListed, source, spec_of

EXACTLY_ONCE, AT_LEAST_ONCE = ProcessingGuarantee.EXACTLY_ONCE_V2, ProcessingGuarantee.AT_LEAST_ONCE
BOTH = [EXACTLY_ONCE, AT_LEAST_ONCE]


class World:
    """A task over an empty changelog, and what its fake brokers say."""

    def __init__(self, tmp_path: Path, guarantee: ProcessingGuarantee, kind: StoreKind = StoreKind.KEY_VALUE) -> None:
        self.spec: ApplicationSpec = spec_of("app", guarantee, kind=kind)
        self.directory = StateDirectory(tmp_path, "app")
        self.cluster: Any = None
        self.producer = TransactionalListed()
        self.consumer = ListedConsumer(self.producer)
        self.processor = Counting("out")
        self.consumed: list[int | None] = [None]
        self.end, self.last_stable, self.epoch = 0, 0, -1

    def stores(self) -> TaskStores:
        return TaskStores(self.spec, self.directory, "0_0")

    def standby(self, stores: TaskStores) -> StandbyTask:
        task = StandbyTask(stores, self.cluster, self.spec.processing_guarantee.isolation)
        task.open()
        return task

    def active(self, stores: TaskStores | None = None, commits: CommitSettings | None = None) -> ActiveTask:
        return ActiveTask(
            stores or self.stores(),
            self.spec,
            self.cluster,
            self.processor,
            self.producer,
            self.consumer,
            [source()],
            commits=commits,
        )

    def running(self, stores: TaskStores | None = None, commits: CommitSettings | None = None) -> ActiveTask:
        task = self.active(stores, commits)
        task.open()
        assert task.catch_up().is_complete
        assert task.state is TaskState.RUNNING
        return task


class Brokers(GroupCoordinator, Cluster):
    """Brokers that say what the world has.

    Args:
        world: where the changelogs end, and what the group has consumed: each answer once, the last one forever.
    """

    def __init__(self, world: World) -> None:
        Cluster.__init__(self, "localhost:1")
        GroupCoordinator.__init__(self, self._consumed)
        self._world = world

    def _consumed(self, group: str, _: TopicPartition) -> int | None:
        assert group == "app"
        answers = self._world.consumed
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def time_ms(self) -> int:
        return 0

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        return {name: TopicDescription(name, "0" * 31 + "1", 1, {}) for name in names}

    def log_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, LogOffsets]:
        world = self._world
        return dict.fromkeys(tps, LogOffsets(0, world.last_stable, world.end, world.epoch))

    def epoch_ends(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return dict.fromkeys(wanted)


def rows(stores: TaskStores) -> dict[bytes, bytes]:
    return dict(stores.store(COUNTS).database.all())
