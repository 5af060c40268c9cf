"""A task over an empty changelog, and what its fake brokers say, for tests of an active task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.placement.state_directory import StateDirectory
from statecore.processor.active_task import ActiveTask, TaskState
from statecore.processor.commit_policy import CommitSettings
from statecore.runtime.changelog_ends import ChangelogEnd, isolation_of
from statecore.runtime.standby_task import StandbyTask
from statecore.runtime.task_stores import TaskStores
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee
from tests.unit.processor.counting import (
    COUNTS,
    Counting,
    ListedConsumer,
    TransactionalListed,
    source,
    spec_of,
)

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

    def committed(self, cluster: Cluster, group: str, partitions: Any) -> dict[TopicPartition, int | None]:
        """In place of the brokers: what the group has consumed; each answer once, the last one forever."""
        assert group == "app"
        answer = self.consumed.pop(0) if len(self.consumed) > 1 else self.consumed[0]
        return dict.fromkeys(partitions, answer)

    def ends(
        self, cluster: Cluster, spec: Any, stores: Any, *_: Any, **__: Any
    ) -> Mapping[TopicPartition, ChangelogEnd]:
        """In place of the brokers: where the changelogs end."""
        log = LogOffsets(0, self.last_stable, self.end, self.epoch)
        end = self.last_stable if spec.processing_guarantee is EXACTLY_ONCE else self.end
        topics = {one.changelog: TopicDescription(one.changelog.topic, "0" * 31 + "1", 1, {}) for one in stores}
        return {at: ChangelogEnd(end, log, topic, None, 0) for at, topic in topics.items()}

    def stores(self) -> TaskStores:
        return TaskStores(self.spec, self.directory, "0_0")

    def standby(self, stores: TaskStores) -> StandbyTask:
        task = StandbyTask(stores, self.cluster, isolation_of(self.spec))
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


def rows(stores: TaskStores) -> dict[bytes, bytes]:
    return dict(stores.store(COUNTS).database.all())
