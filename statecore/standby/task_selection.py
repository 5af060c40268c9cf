"""Finds the tasks that can be followed, and selects those of a process without a group: the named ones, or all."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import TopicDescription
from statecore.errors import Invalid, NotFound, Retryable, StatecoreError
from statecore.progress import Clock
from statecore.spec.model import UNKNOWN_CHANGELOG, ApplicationSpec, task_of
from statecore.standby.request import StandbyRequest
from statecore.standby.task_manager import FIRST_RETRY
from statecore.statedir.state_directory import StateDirectory
from statecore.tasks.standby_store import StandbyStoreSpec
from statecore.tasks.task_stores import standby_stores, tasks_of
from statecore.words import shortened_list

_ALL = "?"


@dataclass(frozen=True)
class EligibleTasks:
    """The tasks of an application."""

    # followed stores of each eligible task; none where Kafka Streams restores all of them
    stores: Mapping[str, tuple[StandbyStoreSpec, ...]]
    refused: Mapping[str, StatecoreError]  # why each of the others cannot be followed

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


class TaskSelection:
    """Tasks of a request without a group."""

    def __init__(
        self,
        request: StandbyRequest,
        spec: ApplicationSpec,
        cluster: Cluster,
        directory: StateDirectory,
        clock: Clock = time.monotonic,
    ) -> None:
        self._spec, self._cluster, self._clock = spec, cluster, clock
        self._named = request.tasks
        # why no task of a subtopology is followed, by the entry that stands for all of them (1_?)
        self.left_out: dict[str, StatecoreError] = {}
        self._asked_at = clock()
        found = EligibleTasks({}, {})
        try:
            found = find_eligible_tasks(spec, cluster)
        except NotFound as error:
            if not request.tasks:
                raise
            self._refused: dict[str, StatecoreError] = dict.fromkeys(request.tasks, error)
        except Retryable as error:
            if not request.tasks:
                raise
            # Existing copies are opened already; they are updated as soon as the brokers answer.
            absent = [task for task in request.tasks if not directory.task_path(task).is_dir()]
            self._refused = dict.fromkeys(absent, error)
        else:
            if (unknown := self._unknown(found)) is not None:
                raise unknown
            self._refused = dict(found.refused)
        self.names: Sequence[str] = request.tasks  # the tasks
        if not request.tasks:
            local = [task for task in directory.task_directories() if found.subtopology_entry(task) is not None]
            self.names = [*found.names, *local]
            covered = {found.subtopology_entry(task) for task in local}
            self.left_out = {
                name: why for name, why in found.refused.items() if is_subtopology_entry(name) and name not in covered
            }
            if not self.names and self.left_out:
                raise next(iter(self.left_out.values()))
            if not self.names:
                raise Invalid(
                    f"{spec.application_id} has no task with a store to follow.",
                    code="no-task-selected",
                    action="Declare its stores in the spec; stores in memory and global stores are not followed.",
                )

    def check(self, task: str) -> None:
        """Refuse a task that cannot be followed, before anything is opened; a changelog may be created meanwhile."""
        if self._refusal(task) is None:
            return
        if self._clock() - self._asked_at >= FIRST_RETRY:
            self._asked_at = self._clock()
            found = find_eligible_tasks(self._spec, self._cluster)
            self._refused = dict(found.refused)
            if (unknown := self._unknown(found)) is not None:
                self._refused.update(dict.fromkeys(unknown.context["tasks"], unknown))
        if (why := self._refusal(task)) is not None:
            raise why

    def _unknown(self, found: EligibleTasks) -> NotFound | None:
        """Error for named tasks that the application does not have; ``None`` if it has all."""
        unknown = [name for name in self._named if name not in found.names and found.subtopology_entry(name) is None]
        if not unknown:
            return None
        return NotFound(
            f"{self._spec.application_id} has no task {', '.join(unknown)}: by the spec, and the partitions of its "
            f"changelogs, it has {shortened_list(found.names)}.",
            code="task-not-found",
            action="Name existing tasks; nothing was changed.",
            tasks=unknown,
        )

    def _refusal(self, task: str) -> StatecoreError | None:
        found = EligibleTasks({}, self._refused)
        return self._refused.get(task) or self._refused.get(found.subtopology_entry(task) or "")
