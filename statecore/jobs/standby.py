"""Warm copies as a service: tasks that follow their changelogs in rounds, until the process is told to stop.

The application's lock is held from before the first database is opened until after the last one is closed. Which tasks
they are is said by the request, or by a consumer group that the process shares with others (`standby_fleet.py`). What
becomes of a task that fails is the business of `kept_tasks.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

from statecore.changelog.cluster import Cluster
from statecore.errors import Invalid, NotFound, Retryable
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.formats.releases import GLOBAL
from statecore.jobs.job import nobody, spec_of
from statecore.jobs.kept_tasks import KeptTasks
from statecore.jobs.standby_bases import Bases
from statecore.jobs.standby_fleet import StandbyFleet
from statecore.jobs.standby_report import StandbyReport, StandbyTaskReport
from statecore.jobs.standby_request import StandbyRequest
from statecore.metrics import NO_METRICS, Metrics
from statecore.placement.apply import recover
from statecore.placement.moved_aside import delete_expired
from statecore.placement.state_directory import StateDirectory
from statecore.placement.work_directory import CORRUPT, UNOWNED
from statecore.repository.shelf import Shelf
from statecore.runtime.changelog_ends import isolation_of
from statecore.runtime.standby_task import StandbySettings, StandbyTask
from statecore.runtime.startup import StartupSettings, StartupTasks
from statecore.runtime.task_stores import TaskStores, tasks_of
from statecore.spec.model import ApplicationSpec
from statecore.words import number_of, some_of

_SLICE = 0.5


def run_standby(
    request: StandbyRequest,
    stop: Event,
    *,
    told: Callable[[StandbyReport], object] = lambda _: None,
    say: Callable[[str], None] = nobody,
    metrics: Metrics = NO_METRICS,
    faults: FaultPoints = NO_FAULTS,
) -> StandbyReport:
    """Keep warm copies until ``stop`` is set, or for one round; then close them, so that Kafka Streams can start.

    Args:
        request: which.
        stop: set to end the job; the piece that is being read is applied before.
        told: told after each round how the copies stand.
        say: told what an operator should read at once.
        metrics: who is told of records, lag and tasks.
        faults: where tests let the process die.

    Returns:
        How the copies stood when they were closed.

    Raises:
        Fenced: the application, or another job, has the directory; or another process has taken this one's instance id.
        NotFound: a changelog does not exist, or none of the tasks.
        Invalid: the spec, or the directory, is wrong, or the group belongs to others.
        Retryable: no broker answered when the job began.
    """
    spec = spec_of(request)
    if request.group == spec.application_id:
        raise Invalid(
            f"{request.group} is the application's own consumer group.",
            action="Give the fleet a group id that nothing else uses.",
            group=request.group,
        )
    directory = StateDirectory(Path(request.state_dir), spec.application_id)
    settings = StandbySettings(memory_bytes=request.memory_budget, timeout=request.timeout)
    with Cluster(spec.bootstrap_servers, spec.kafka, timeout=request.timeout) as cluster:

        def open_task(name: str) -> StandbyTask:
            task = StandbyTask(TaskStores(spec, directory, name, faults=faults), cluster, isolation_of(spec), settings)
            task.open()
            return task

        _look_at_repository(request, spec, say)
        names = () if request.group is not None else _tasks(request, spec, cluster)
        with directory.lock():
            if recovered := str(recover(directory, faults)):
                say(recovered)
            for below in (CORRUPT, UNOWNED):
                delete_expired(directory, below, int(time.time() * 1000))
            bases = None
            if request.repository is not None:
                bases = Bases(spec, directory, request.repository, say, faults=faults)
            tasks = StartupTasks(
                directory,
                spec,
                open_task,
                settings=StartupSettings(request.max_open_stores),
                find_copy=None if bases is None else bases.find,
                faults=faults,
            )
            kept = KeptTasks(spec, cluster, tasks.take, say, bases=bases, metrics=metrics)
            job = _Standby(request, spec, kept, told)
            if request.group is None:
                return job.run_static(names, stop)
            return job.run_fleet(StandbyFleet(request, spec, cluster, directory, kept, tasks, say, faults=faults), stop)


def _look_at_repository(request: StandbyRequest, spec: ApplicationSpec, say: Callable[[str], None]) -> None:
    """Raises ``NotFound``, ``Invalid``: there is no repository at the URL. One that is away may come back."""
    if request.repository is not None:
        try:
            Shelf.at(request.repository, spec.application_id).read_head()
        except Retryable as error:
            say(str(error))


def _tasks(request: StandbyRequest, spec: ApplicationSpec, cluster: Cluster) -> Sequence[str]:
    if request.tasks:
        _refuse_unknown(request.tasks, spec, cluster)
        return request.tasks
    changelogs = {store.changelog for store in spec.stores if store.is_logged and not store.is_undecided}
    topics = cluster.describe_topics(sorted(changelogs))
    every = tasks_of(spec, {name: topic.partitions for name, topic in topics.items()})
    wanted = [task for task in every if request.wants(task)]
    if not wanted:
        raise Invalid(
            f"None of the {number_of(len(every), 'task')} of {spec.application_id} is wanted.",
            action="Name tasks that there are, or more of them.",
        )
    return wanted


def _refuse_unknown(names: Sequence[str], spec: ApplicationSpec, cluster: Cluster) -> None:
    """Raises ``Invalid``, ``NotFound`` for a task that there cannot be, before a directory is made for it.

    Where brokers are away, or a topic is gone, the tasks are taken up all the same, and each says what it lacks.
    """
    if GLOBAL in names:
        raise Invalid(
            "Global stores are not kept warm: every instance reads them from their topics.",
            action="Leave --task global out.",
        )
    changelogs = {store.changelog for store in spec.stores if store.is_logged and not store.is_undecided}
    try:
        topics = cluster.describe_topics(sorted(changelogs))
    except (NotFound, Retryable):
        return
    every = tasks_of(spec, {name: topic.partitions for name, topic in topics.items()})
    if unknown := [name for name in names if name not in every]:
        raise NotFound(
            f"{spec.application_id} has no task {', '.join(unknown)}: by the spec, and the partitions of its "
            f"changelogs, it has {some_of(every)}.",
            action="Name tasks that there are; nothing was changed.",
            tasks=unknown,
        )


class _Standby:
    """One run."""

    def __init__(
        self,
        request: StandbyRequest,
        spec: ApplicationSpec,
        kept: KeptTasks,
        told: Callable[[StandbyReport], object],
    ) -> None:
        self._request, self._spec, self._told = request, spec, told
        self.kept = kept
        self._rounds = 0

    def run_static(self, names: Sequence[str], stop: Event) -> StandbyReport:
        """The tasks that the request says."""
        try:
            for name in names:
                self.kept.take_up(name)
            while not stop.is_set():
                self._round(stop.is_set)
                if self.kept.is_behind:
                    continue
                if self._request.once and not self.kept.is_waiting:
                    break
                stop.wait(_SLICE if self.kept.is_waiting else self._request.interval / 1000)
        finally:
            tasks = self.kept.close()
        return self._report(tasks)

    def run_fleet(self, fleet: StandbyFleet, stop: Event) -> StandbyReport:
        """The tasks that the group gives to this process."""
        try:
            fleet.start()
            while not stop.is_set():
                fleet.take_up()
                self._round(lambda: stop.is_set() or fleet.attend(0))
                if fleet.is_told:
                    continue
                fleet.publish()
                fleet.look_for_unowned()
                until = time.monotonic() + (0 if self.kept.is_behind else self._request.interval / 1000)
                while not stop.is_set() and (left := until - time.monotonic()) > 0:
                    if fleet.attend(min(_SLICE, left)):
                        break
        finally:
            try:
                fleet.close()
            finally:
                tasks = self.kept.close()
        return self._report(tasks)

    def _round(self, stopped: Callable[[], bool]) -> None:
        self._rounds += 1
        self.kept.round(stopped)
        self._told(self._report(self.kept.report()))

    def _report(self, tasks: tuple[StandbyTaskReport, ...]) -> StandbyReport:
        return StandbyReport(self._spec.application_id, self._request.state_dir, self._rounds, tasks)
