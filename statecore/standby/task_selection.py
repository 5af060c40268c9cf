"""Selects the standby tasks of a process without a group: the named ones, or all."""

from __future__ import annotations

import time
from collections.abc import Sequence

from statecore.changelog.cluster import Cluster
from statecore.errors import Invalid, NotFound, Retryable, StatecoreError
from statecore.progress import Clock
from statecore.spec.model import ApplicationSpec
from statecore.standby.eligible_tasks import EligibleTasks, find_eligible_tasks, is_subtopology_entry
from statecore.standby.request import StandbyRequest
from statecore.standby.task_manager import FIRST_RETRY
from statecore.statedir.state_directory import StateDirectory
from statecore.words import shortened_list


class TaskSelection:
    """Tasks of a request without a group.

    Attributes:
        names: the tasks.
        left_out: why no task of a subtopology is followed, by the entry that stands for all of them (``1_?``).
    """

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
        self.names: Sequence[str] = request.tasks
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
        """Refuse a task that cannot be followed, before it is opened or a directory is created for it.

        Asks the brokers again after a while, because a missing changelog may have been created.
        """
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
