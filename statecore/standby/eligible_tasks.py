"""Finds the tasks that can be followed: those whose changelogs exist and whose stores are all decided.

A missing changelog excludes only its own task. The number of partitions determines the tasks of a subtopology; if none
of its changelogs exists or is known, one entry stands for all its tasks: ``1_?``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import TopicDescription
from statecore.errors import Invalid, NotFound, StatecoreError
from statecore.spec.derived import task_of
from statecore.spec.model import UNKNOWN_CHANGELOG, ApplicationSpec
from statecore.tasks.standby_store import StandbyStoreSpec
from statecore.tasks.task_stores import standby_stores, tasks_of

_ALL = "?"


@dataclass(frozen=True)
class EligibleTasks:
    """The tasks of an application.

    Attributes:
        stores: followed stores of each eligible task; none where Kafka Streams restores all of them.
        refused: why each of the others cannot be followed.
    """

    stores: Mapping[str, tuple[StandbyStoreSpec, ...]]
    refused: Mapping[str, StatecoreError]

    @property
    def names(self) -> list[str]:
        """All known tasks."""
        return [*self.stores, *(task for task in self.refused if not is_subtopology_entry(task))]

    def subtopology_entry(self, task: str) -> str | None:
        """The entry of :attr:`refused` that covers a task; ``None`` if its subtopology's tasks are known."""
        entry = f"{task.rpartition('_')[0]}_{_ALL}"
        return entry if entry in self.refused else None


def is_subtopology_entry(task: str) -> bool:
    """Whether a name stands for all tasks of a subtopology."""
    return task.endswith(f"_{_ALL}")


def find_eligible_tasks(spec: ApplicationSpec, cluster: Cluster) -> EligibleTasks:
    """Read the changelogs of all stores from the brokers."""
    restorable = [store for store in spec.stores if store.is_restorable]
    topics = _described(cluster, sorted({store.changelog for store in restorable} - {UNKNOWN_CHANGELOG}))
    stores: dict[str, tuple[StandbyStoreSpec, ...]] = {}
    refused: dict[str, StatecoreError] = {}
    known = tasks_of(spec, {name: topic.partitions for name, topic in topics.items()})
    known_subtopologies = {task.rpartition("_")[0] for task in known}
    firsts = dict.fromkeys(task_of(store, 0) for store in restorable)
    unknown_firsts = [first for first in firsts if first.rpartition("_")[0] not in known_subtopologies]
    for task in (*known, *unknown_firsts):
        name = f"{task.rpartition('_')[0]}_{_ALL}" if task in unknown_firsts else task
        try:
            of_task = standby_stores(spec, task)
        except Invalid as error:
            refused[name] = error
            continue
        missing = [store.changelog.topic for store in of_task if store.changelog.topic not in topics]
        if task in unknown_firsts and not missing:  # only stores that Kafka Streams restores
            missing = [store.changelog for store in restorable if task_of(store, 0) == task]
        if missing:
            refused[name] = NotFound(
                f"The changelog {missing[0]} of task {name} does not exist.",
                code="changelog-not-found",
                action="Find out what deleted it; Kafka Streams creates it when the application starts.",
                task=name,
                topics=missing,
            )
        else:
            stores[task] = of_task
    return EligibleTasks(stores, refused)


def _described(cluster: Cluster, names: Sequence[str]) -> dict[str, TopicDescription]:
    """The existing changelogs. Raises ``NotFound``: there are none."""
    try:
        return cluster.describe_topics(names)
    except NotFound as error:
        existing = sorted(set(names) - set(error.context.get("topics", names)))
        if not existing:
            raise
        return cluster.describe_topics(existing)
