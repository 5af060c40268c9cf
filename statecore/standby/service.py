"""Standby service: tasks that follow their changelogs in rounds until the process is stopped.

The application's lock is held from before the first database is opened until the last one is closed. The tasks are
selected by the request, or assigned by a consumer group (`assigned_tasks.py`). `task_manager.py` handles failed tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from statecore.changelog.cluster import Cluster
from statecore.errors import Invalid
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.jobs.context import ignore, spec_of
from statecore.jobs.failures import refused_later
from statecore.metrics import BLOCK_CACHE_CAPACITY, BLOCK_CACHE_USAGE, NO_METRICS, STANDBY_FAILED, Metrics
from statecore.objectstore.base import RetryPolicy
from statecore.spec.model import ApplicationSpec
from statecore.standby.assigned_tasks import AssignedTasks
from statecore.standby.assignment.model import Role
from statecore.standby.bootstrap import BaseDownloads, sweep_bases
from statecore.standby.log_dedup import RoundReports
from statecore.standby.report import StandbyReport, StandbyTaskReport
from statecore.standby.request import StandbyRequest
from statecore.standby.task_manager import TaskManager
from statecore.standby.task_selection import TaskSelection
from statecore.statedir.quarantine import delete_expired
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.work_directory import UNOWNED
from statecore.stores.rocksdb.memory import memory_of
from statecore.stores.settings import MemorySettings, StoreSettings
from statecore.tasks.standby_task import StandbySettings, StandbyTask
from statecore.tasks.startup_tasks import StartupSettings, StartupTasks
from statecore.tasks.task_stores import TaskStores
from statecore.words import number_of

_SLICE = 0.5

_ATTEMPTS = 2  # Attempts of a repository request; few, because stopping a standby waits for the current request


def run_standby(
    request: StandbyRequest,
    stop: Event,
    *,
    on_report: Callable[[StandbyReport], object] = lambda _: None,
    say: Callable[[str], None] = ignore,
    metrics: Metrics = NO_METRICS,
    faults: FaultPoints = NO_FAULTS,
    connect: Callable[..., Cluster] = Cluster,
) -> StandbyReport:
    """Follow tasks until ``stop`` is set, or for one round; close them for Kafka Streams; return the report of then."""
    spec = spec_of(request)
    if request.group == spec.application_id:
        raise Invalid(
            f"{request.group} is the application's own consumer group.",
            code="group-of-another-application",
            action="Choose a group id that nothing else uses.",
            group=request.group,
        )
    directory = StateDirectory(Path(request.state_dir), spec.application_id)
    settings = StandbySettings(memory_bytes=request.memory_budget, timeout=request.timeout)
    # A standby ingests files and serves no reads, so the default of a store would only keep blocks of deleted files.
    memory = MemorySettings(request.block_cache, request.block_cache // 2)
    stores = StoreSettings(memory=memory)
    with connect(spec.bootstrap_servers, spec.kafka, timeout=request.timeout) as cluster:

        def open_task(name: str) -> StandbyTask:
            task = StandbyTask(
                TaskStores(spec, directory, name, settings=stores, faults=faults),
                cluster,
                spec.processing_guarantee.isolation,
                settings,
            )
            task.open()
            return task

        bases = None
        if request.repository is not None:
            patience = RetryPolicy(_ATTEMPTS, request.timeout / _ATTEMPTS)
            bases = BaseDownloads(spec, directory, request.repository, say, patience=patience, faults=faults)
            bases.check_repository(stop)
        selection = None if request.group is not None else TaskSelection(request, spec, cluster, directory)
        with directory.lock(), _block_cache_metrics(metrics, memory, spec.application_id):
            tasks = StartupTasks(
                directory,
                spec,
                open_task,
                settings=StartupSettings(request.max_open_databases),
                find_snapshot=None if bases is None else bases.find_snapshot,
                faults=faults,
            )
            tasks.recover(say)
            now_ms = int(time.time() * 1000)
            delete_expired(directory, UNOWNED, now_ms)
            sweep_bases(directory, now_ms, faults=faults)
            check = ignore if selection is None else selection.check
            manager = TaskManager(spec, cluster, tasks.take, say, bases=bases, check=check, metrics=metrics)
            job = _Standby(request, spec, directory, manager, on_report, metrics, say)
            try:
                if selection is not None:
                    return job.run_static(selection, stop)
                return job.run_group(
                    AssignedTasks(request, spec, cluster, directory, manager, tasks, say, faults=faults), stop
                )
            except Invalid as error:
                if job.has_followed:
                    raise refused_later(error) from error
                raise


@contextmanager
def _block_cache_metrics(metrics: Metrics, memory: MemorySettings, application_id: str) -> Iterator[None]:
    cache, tags = memory_of(memory).cache, {"application-id": application_id}
    ends = (
        metrics.observe(BLOCK_CACHE_USAGE, lambda: float(cache.get_usage()), tags),
        metrics.observe(BLOCK_CACHE_CAPACITY, lambda: float(memory.total_bytes), tags),
    )
    try:
        yield
    finally:
        for end in ends:
            end()


class _Standby:
    """One run of the service."""

    def __init__(
        self,
        request: StandbyRequest,
        spec: ApplicationSpec,
        directory: StateDirectory,
        task_manager: TaskManager,
        on_report: Callable[[StandbyReport], object],
        metrics: Metrics,
        say: Callable[[str], None],
    ) -> None:
        self._say = say
        self._request, self._spec, self._directory = request, spec, directory
        self._round_reports = RoundReports(on_report, request.interval / 1000)
        self._manager, self._metrics = task_manager, metrics
        self._rounds = 0
        self._left_out: tuple[StandbyTaskReport, ...] = ()

    @property
    def has_followed(self) -> bool:
        """Whether a round has ended, so the brokers have let this process in."""
        return self._rounds > 1

    def run_static(self, selection: TaskSelection, stop: Event) -> StandbyReport:
        """Follow the tasks that the request selects."""
        self._left_out = tuple(
            StandbyTaskReport(name, Role.STANDBY.name.lower(), (), str(why), why.exit_code)
            for name, why in selection.left_out.items()
        )
        tags = {"application-id": self._spec.application_id}
        end = self._metrics.observe(STANDBY_FAILED, lambda: float(len(self._left_out)), tags)
        self._say_begin(number_of(len(selection.names), "task"))
        try:
            for name in selection.names:
                self._manager.add(name)
            while not stop.is_set():
                self._round(stop.is_set)
                if self._manager.is_behind:
                    continue
                if self._request.once and not self._manager.is_waiting:
                    break
                stop.wait(_SLICE if self._manager.is_waiting else self._request.interval / 1000)
        finally:
            end()
            tasks = self._manager.close()
        return self._report(tasks)

    def run_group(self, assigned: AssignedTasks, stop: Event) -> StandbyReport:
        """Follow the tasks that the group assigns."""
        self._say_begin(f"the tasks that the group {self._request.group} assigns")
        try:
            assigned.start()
            while not stop.is_set():
                assigned.apply_assignment()
                self._round(lambda: stop.is_set() or assigned.poll(0))
                if assigned.has_pending_assignment:
                    continue
                assigned.publish()
                assigned.probe_for_cleanup()
                until = time.monotonic() + (0 if self._manager.is_behind else self._request.interval / 1000)
                while not stop.is_set() and (left := until - time.monotonic()) > 0:
                    if assigned.poll(min(_SLICE, left)):
                        break
        finally:
            try:
                assigned.close()
            finally:
                tasks = self._manager.close()
        return self._report(tasks)

    def _say_begin(self, tasks: str) -> None:
        self._say(
            f"Following {tasks} of {self._spec.application_id} in {self._request.state_dir}. Progress is printed every "
            f"{self._request.interval / 1000:g} s while there is something to read, then what changes."
        )

    def _round(self, stopped: Callable[[], bool]) -> None:
        self._directory.check_locked()  # without the lock every task would fail and be retried forever
        self._rounds += 1
        self._manager.round(stopped)
        is_complete = not (self._manager.is_behind or self._manager.is_waiting)
        self._round_reports.end_round(self._report(self._manager.report()), is_complete=is_complete)

    def _report(self, tasks: tuple[StandbyTaskReport, ...]) -> StandbyReport:
        return StandbyReport(
            self._spec.application_id, self._request.state_dir, self._rounds, (*tasks, *self._left_out)
        )
