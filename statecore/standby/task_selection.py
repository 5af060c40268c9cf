"""Which tasks are kept warm where no group says it: those that were named, a share of them, or all."""

from __future__ import annotations

import time
from collections.abc import Sequence

from statecore.changelog.cluster import Cluster
from statecore.errors import Invalid, NotFound, Retryable, StatecoreError
from statecore.progress import Clock
from statecore.spec.model import ApplicationSpec
from statecore.standby.eligible_tasks import EligibleTasks, followed_tasks, is_all
from statecore.standby.request import StandbyRequest
from statecore.standby.task_manager import FIRST_RETRY
from statecore.statedir.state_directory import StateDirectory
from statecore.words import number_of, some_of


class TaskSelection:
    """The tasks that a request without a group wants.

    Args:
        request: which.
        spec: the application.
        cluster: where its changelogs are.
        directory: where copies may lie; they tell tasks that no changelog tells.
        clock: seconds that never go back.

    Raises:
        NotFound: a task was named that there cannot be, or there is none of the changelogs.
        Invalid: no task is wanted.
        Retryable: no broker answered, and no task was named.

    Attributes:
        names: the tasks.
        left_out: why no task of some subtopology is kept, by the entry that stands for all of them.
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
            found = followed_tasks(spec, cluster)
        except NotFound as error:
            if not request.tasks:
                raise
            self._refused: dict[str, StatecoreError] = dict.fromkeys(request.tasks, error)
        except Retryable as error:
            if not request.tasks:
                raise
            # A copy that is there is opened meanwhile; it is followed as soon as the brokers answer.
            absent = [task for task in request.tasks if not directory.task_path(task).is_dir()]
            self._refused = dict.fromkeys(absent, error)
        else:
            if (unknown := self._unknown(found)) is not None:
                raise unknown
            self._refused = dict(found.refused)
        self.names: Sequence[str] = request.tasks
        if not request.tasks:
            there = [task for task in directory.task_directories() if found.all_of(task) is not None]
            self.names = [task for task in (*found.names, *there) if request.wants(task)]
            told = {found.all_of(task) for task in there}
            self.left_out = {name: why for name, why in found.refused.items() if is_all(name) and name not in told}
            if not self.names and self.left_out:
                raise next(iter(self.left_out.values()))
            if not self.names:
                raise Invalid(
                    f"None of the {number_of(len(found.names), 'task')} of {spec.application_id} is wanted.",
                    code="no-task-selected",
                    action="Name tasks that there are, or more of them.",
                )

    def check(self, task: str) -> None:
        """Refuse a task that cannot be followed, before it is opened, or a directory is made for it.

        The brokers are asked again after a while: a changelog may have come.

        Raises:
            NotFound: a changelog of it does not exist, or there cannot be such a task.
            Invalid: a store of it is undecided.
            Retryable: no broker answered.
        """
        if self._why(task) is None:
            return
        if self._clock() - self._asked_at >= FIRST_RETRY:
            self._asked_at = self._clock()
            found = followed_tasks(self._spec, self._cluster)
            self._refused = dict(found.refused)
            if (unknown := self._unknown(found)) is not None:
                self._refused.update(dict.fromkeys(unknown.context["tasks"], unknown))
        if (why := self._why(task)) is not None:
            raise why

    def _unknown(self, found: EligibleTasks) -> NotFound | None:
        """Why tasks that were named cannot be; ``None`` where all can."""
        unknown = [name for name in self._named if name not in found.names and found.all_of(name) is None]
        if not unknown:
            return None
        return NotFound(
            f"{self._spec.application_id} has no task {', '.join(unknown)}: by the spec, and the partitions of its "
            f"changelogs, it has {some_of(found.names)}.",
            code="task-not-found",
            action="Name tasks that there are; nothing was changed.",
            tasks=unknown,
        )

    def _why(self, task: str) -> StatecoreError | None:
        found = EligibleTasks({}, self._refused)
        return self._refused.get(task) or self._refused.get(found.all_of(task) or "")
