"""Warm copies as a service: tasks that follow their changelogs in rounds, until the process is told to stop.

The application's lock is held from before the first database is opened until after the last one is closed. Which tasks
they are is said by the request, or by a consumer group that the process shares with others (`standby_fleet.py`). What
becomes of a task that fails is the business of `kept_tasks.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

from statecore.changelog.cluster import Cluster
from statecore.errors import Invalid
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.jobs.job import nobody, spec_of
from statecore.metrics import NO_METRICS, STANDBY_FAILED, Metrics
from statecore.objectstore.base import Patience
from statecore.spec.model import ApplicationSpec
from statecore.standby.assignment.model import Role
from statecore.standby.bootstrap import Bases, sweep_bases
from statecore.standby.group_member import GroupMember
from statecore.standby.report import StandbyReport, StandbyTaskReport
from statecore.standby.request import StandbyRequest
from statecore.standby.round_messages import RoundMessages
from statecore.standby.task_manager import TaskManager
from statecore.standby.task_selection import TaskSelection
from statecore.statedir.apply import recover
from statecore.statedir.quarantine import delete_expired
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.work_directory import CORRUPT, UNOWNED
from statecore.tasks.changelog_ends import isolation_of
from statecore.tasks.standby_task import StandbySettings, StandbyTask
from statecore.tasks.startup_tasks import StartupSettings, StartupTasks
from statecore.tasks.task_stores import TaskStores

_SLICE = 0.5

_ATTEMPTS = 2
"""How often a request to the repository is sent: whoever stops a standby waits for the one that is on its way."""


def run_standby(
    request: StandbyRequest,
    stop: Event,
    *,
    told: Callable[[StandbyReport], object] = lambda _: None,
    say: Callable[[str], None] = nobody,
    metrics: Metrics = NO_METRICS,
    faults: FaultPoints = NO_FAULTS,
    connect: Callable[..., Cluster] = Cluster,
) -> StandbyReport:
    """Keep warm copies until ``stop`` is set, or for one round; then close them, so that Kafka Streams can start.

    Args:
        request: which.
        stop: set to end the job; the piece that is being read is applied before.
        told: told how the copies stand: after each round; while a first read is on its way, when it changed what
            becomes of a task, and each time that the interval is over.
        say: told what an operator should read at once.
        metrics: who is told of records, lag and tasks.
        faults: where tests let the process die.
        connect: makes the client of the brokers.

    Returns:
        How the copies stood when they were closed.

    Raises:
        Fenced: the application, or another job, has the directory; or another process has taken this one's instance id.
        NotFound: none of the changelogs exists, none of the tasks, or there is no repository at the URL.
        Invalid: the spec, or the directory, is wrong, or the group belongs to others; or the repository cannot be used,
            and there is no copy to be followed without it.
        Retryable: no broker answered when the job began.
    """
    spec = spec_of(request)
    if request.group == spec.application_id:
        raise Invalid(
            f"{request.group} is the application's own consumer group.",
            code="group-of-another-application",
            action="Give the fleet a group id that nothing else uses.",
            group=request.group,
        )
    directory = StateDirectory(Path(request.state_dir), spec.application_id)
    settings = StandbySettings(memory_bytes=request.memory_budget, timeout=request.timeout)
    with connect(spec.bootstrap_servers, spec.kafka, timeout=request.timeout) as cluster:

        def open_task(name: str) -> StandbyTask:
            task = StandbyTask(TaskStores(spec, directory, name, faults=faults), cluster, isolation_of(spec), settings)
            task.open()
            return task

        bases = None
        if request.repository is not None:
            patience = Patience(_ATTEMPTS, request.timeout / _ATTEMPTS)
            bases = Bases(spec, directory, request.repository, say, patience=patience, faults=faults)
            bases.look(stop)
        wanted = None if request.group is not None else TaskSelection(request, spec, cluster, directory)
        with directory.lock():
            if recovered := str(recover(directory, faults)):
                say(recovered)
            now_ms = int(time.time() * 1000)
            for below in (CORRUPT, UNOWNED):
                delete_expired(directory, below, now_ms)
            sweep_bases(directory, now_ms, faults=faults)
            tasks = StartupTasks(
                directory,
                spec,
                open_task,
                settings=StartupSettings(request.max_open_stores),
                find_copy=None if bases is None else bases.find,
                faults=faults,
            )
            check = nobody if wanted is None else wanted.check
            kept = TaskManager(spec, cluster, tasks.take, say, bases=bases, check=check, metrics=metrics)
            job = _Standby(request, spec, directory, kept, told, metrics)
            if wanted is not None:
                return job.run_static(wanted, stop)
            return job.run_fleet(GroupMember(request, spec, cluster, directory, kept, tasks, say, faults=faults), stop)


class _Standby:
    """One run."""

    def __init__(
        self,
        request: StandbyRequest,
        spec: ApplicationSpec,
        directory: StateDirectory,
        kept: TaskManager,
        told: Callable[[StandbyReport], object],
        metrics: Metrics,
    ) -> None:
        self._request, self._spec, self._directory = request, spec, directory
        self._news = RoundMessages(told, request.interval / 1000)
        self.kept, self._metrics = kept, metrics
        self._rounds = 0
        self._left_out: tuple[StandbyTaskReport, ...] = ()

    def run_static(self, wanted: TaskSelection, stop: Event) -> StandbyReport:
        """The tasks that the request says."""
        self._left_out = tuple(
            StandbyTaskReport(name, Role.STANDBY.name.lower(), (), str(why), why.exit_code)
            for name, why in wanted.left_out.items()
        )
        tags = {"application-id": self._spec.application_id}
        end = self._metrics.observe(STANDBY_FAILED, lambda: float(len(self._left_out)), tags)
        try:
            for name in wanted.names:
                self.kept.take_up(name)
            while not stop.is_set():
                self._round(stop.is_set)
                if self.kept.is_behind:
                    continue
                if self._request.once and not self.kept.is_waiting:
                    break
                stop.wait(_SLICE if self.kept.is_waiting else self._request.interval / 1000)
        finally:
            end()
            tasks = self.kept.close()
        return self._report(tasks)

    def run_fleet(self, fleet: GroupMember, stop: Event) -> StandbyReport:
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
        self._directory.check_locked()  # without it every task would fail, and be tried again, for ever
        self._rounds += 1
        self.kept.round(stopped)
        is_whole = not (self.kept.is_behind or self.kept.is_waiting)
        self._news.round(self._report(self.kept.report()), is_whole=is_whole)

    def _report(self, tasks: tuple[StandbyTaskReport, ...]) -> StandbyReport:
        return StandbyReport(
            self._spec.application_id, self._request.state_dir, self._rounds, (*tasks, *self._left_out)
        )
