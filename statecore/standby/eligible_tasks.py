"""Which tasks of an application can be followed: those whose changelogs are there, and whose stores are all decided.

What a task lacks refuses that one, and no other. Its number of partitions tells the tasks of a subtopology; where none
of its changelogs is there, or known, one entry stands for all of them: ``1_?``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import TopicDescription
from statecore.errors import Invalid, NotFound, StatecoreError
from statecore.spec.derived import task_of
from statecore.spec.model import UNKNOWN_CHANGELOG, ApplicationSpec
from statecore.tasks.standby_store import FollowedSpec
from statecore.tasks.task_stores import followed_in, tasks_of

_ALL = "?"


@dataclass(frozen=True)
class EligibleTasks:
    """The tasks of an application.

    Attributes:
        stores: the stores that are followed, of each task that can be; none where Kafka Streams restores all of them.
        refused: why each of the others cannot be.
    """

    stores: Mapping[str, tuple[FollowedSpec, ...]]
    refused: Mapping[str, StatecoreError]

    @property
    def names(self) -> list[str]:
        """Every task that is known."""
        return [*self.stores, *(task for task in self.refused if not is_all(task))]

    def all_of(self, task: str) -> str | None:
        """The entry of :attr:`refused` that stands for a task; ``None`` where its subtopology's tasks are known."""
        entry = f"{task.rpartition('_')[0]}_{_ALL}"
        return entry if entry in self.refused else None


def is_all(task: str) -> bool:
    """Whether a name stands for all tasks of a subtopology."""
    return task.endswith(f"_{_ALL}")


def followed_tasks(spec: ApplicationSpec, cluster: Cluster) -> EligibleTasks:
    """Ask the brokers for the changelogs of all stores.

    Args:
        spec: the application.
        cluster: where its changelogs are.

    Raises:
        NotFound: none of the changelogs exists.
        Retryable: no broker answered.
        Invalid: this client may not see a topic.
    """
    kept = [store for store in spec.stores if store.is_restorable]
    topics = _described(cluster, sorted({store.changelog for store in kept} - {UNKNOWN_CHANGELOG}))
    stores: dict[str, tuple[FollowedSpec, ...]] = {}
    refused: dict[str, StatecoreError] = {}
    known = tasks_of(spec, {name: topic.partitions for name, topic in topics.items()})
    told = {task.rpartition("_")[0] for task in known}
    firsts = dict.fromkeys(task_of(store, 0) for store in kept)
    untold = [first for first in firsts if first.rpartition("_")[0] not in told]
    for task in (*known, *untold):
        name = f"{task.rpartition('_')[0]}_{_ALL}" if task in untold else task
        try:
            of_task = followed_in(spec, task)
        except Invalid as error:
            refused[name] = error
            continue
        gone = [store.changelog.topic for store in of_task if store.changelog.topic not in topics]
        if task in untold and not gone:  # nothing but stores that Kafka Streams restores itself
            gone = [store.changelog for store in kept if task_of(store, 0) == task]
        if gone:
            refused[name] = NotFound(
                f"The changelog {gone[0]} of task {name} does not exist.",
                code="changelog-not-found",
                action="Find out who deleted it; Kafka Streams makes it when the application starts.",
                task=name,
                topics=gone,
            )
        else:
            stores[task] = of_task
    return EligibleTasks(stores, refused)


def _described(cluster: Cluster, names: Sequence[str]) -> dict[str, TopicDescription]:
    """The changelogs that there are. Raises ``NotFound``: there is none of them."""
    try:
        return cluster.describe_topics(names)
    except NotFound as error:
        there = sorted(set(names) - set(error.context.get("topics", names)))
        if not there:
            raise
        return cluster.describe_topics(there)
