"""Warm copies as a service: tasks that follow their changelogs in rounds, until the process is told to stop.

The application's lock is held from before the first database is opened until after the last one is closed. Each task
stands for itself: one that cannot be opened, or that fails, is said and left, and the others go on. A store whose rows
cannot be continued is emptied, which loses nothing, because it is a copy, and is read from the start of its changelog.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from statecore.changelog.cluster import Cluster
from statecore.errors import Invalid, StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.job import nobody, spec_of
from statecore.jobs.standby_request import StandbyRequest
from statecore.placement.state_directory import StateDirectory
from statecore.runtime.changelog_ends import ChangelogEnd, changelog_ends, isolation_of
from statecore.runtime.standby_task import Round, StandbySettings, StandbyTask
from statecore.runtime.task_stores import TaskStores, tasks_of
from statecore.spec.model import ApplicationSpec
from statecore.words import number_of


@dataclass(frozen=True)
class StandbyStore:
    """A store that follows its changelog.

    Attributes:
        store: its name.
        changelog: its changelog partition, ``<topic>-<partition>``.
        offset: the last applied offset; -4 where nothing was.
        lag: how many offsets it was behind when the brokers were asked last; ``None`` before.
        records: how many records were read since the job began.
        rebuilt: how often it was emptied and read from the start.
        error: what stopped it in the last round, or ``None``.
    """

    store: str
    changelog: str
    offset: int
    lag: int | None
    records: int
    rebuilt: int
    error: str | None


@dataclass(frozen=True)
class StandbyTaskReport:
    """A task that is kept warm.

    Attributes:
        task: the task.
        stores: its stores; none where it could not be opened.
        error: why it was left, or ``None``.
        exit_code: of the worst error of the task's last round; 0 without one.
    """

    task: str
    stores: tuple[StandbyStore, ...]
    error: str | None
    exit_code: int

    @property
    def lag(self) -> int | None:
        """How many offsets its stores were behind together; ``None`` where that is not known of one."""
        lags = [store.lag for store in self.stores]
        return None if None in lags or not lags else sum(lag for lag in lags if lag is not None)


@dataclass(frozen=True)
class StandbyReport:
    """How the copies stand.

    Attributes:
        application_id: whose.
        state_dir: where they lie.
        rounds: how many rounds there were.
        tasks: the tasks.
    """

    application_id: str
    state_dir: str
    rounds: int
    tasks: tuple[StandbyTaskReport, ...]

    @property
    def exit_code(self) -> int:
        """That of the worst error; 0 without one."""
        return max((task.exit_code for task in self.tasks), default=0)

    def to_json(self) -> dict[str, Any]:
        """The report as one JSON object."""
        return {**asdict(self), "exit_code": self.exit_code}


@dataclass
class _Kept:
    """A task of the job, and what became of it."""

    name: str
    task: StandbyTask | None = None
    left: StatecoreError | None = None
    errors: dict[str, StatecoreError] = field(default_factory=dict)
    records: dict[TopicPartition, int] = field(default_factory=dict)
    rebuilt: dict[str, int] = field(default_factory=dict)

    def report(self) -> StandbyTaskReport:
        stores = () if self.task is None else self.task.stores.stores
        lag = {} if self.task is None else self.task.lag
        errors = [*([self.left] if self.left else []), *self.errors.values()]
        return StandbyTaskReport(
            self.name,
            tuple(
                StandbyStore(
                    store.name,
                    str(store.changelog),
                    OFFSET_UNKNOWN if store.offset is None else store.offset,
                    lag.get(store.changelog),
                    self.records.get(store.changelog, 0),
                    self.rebuilt.get(store.name, 0),
                    str(self.errors[store.name]) if store.name in self.errors else None,
                )
                for store in stores
            ),
            None if self.left is None else str(self.left),
            max((error.exit_code for error in errors), default=0),
        )


def run_standby(
    request: StandbyRequest,
    stop: Event,
    *,
    told: Callable[[StandbyReport], object] = lambda _: None,
    say: Callable[[str], None] = nobody,
    faults: FaultPoints = NO_FAULTS,
) -> StandbyReport:
    """Keep warm copies until ``stop`` is set, or for one round; then close them, so that Kafka Streams can start.

    Args:
        request: which.
        stop: set to end the job; the piece that is being read is applied before.
        told: told after each round how the copies stand.
        say: told what an operator should read at once.
        faults: where tests let the process die.

    Returns:
        How the copies stood when they were closed.

    Raises:
        Fenced: the application, or another job, has the directory.
        NotFound: a changelog does not exist, or none of the tasks.
        Invalid: the spec, or the directory, is wrong.
        Retryable: no broker answered when the job began.
    """
    spec = spec_of(request)
    directory = StateDirectory(Path(request.state_dir), spec.application_id)
    with Cluster(spec.bootstrap_servers, spec.kafka, timeout=request.timeout) as cluster:
        names = _tasks(request, spec, cluster)
        with directory.lock():
            job = _Standby(request, spec, cluster, [_Kept(name) for name in names], say)
            try:
                job.open(directory, faults)
                while not stop.is_set():
                    job.round(stop)
                    told(job.report())
                    if request.once or stop.wait(request.interval / 1000):
                        break
            finally:
                job.close()
            return job.report()


def _tasks(request: StandbyRequest, spec: ApplicationSpec, cluster: Cluster) -> list[str]:
    if request.tasks:
        return list(request.tasks)
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


class _Standby:
    """The tasks of one job."""

    def __init__(
        self,
        request: StandbyRequest,
        spec: ApplicationSpec,
        cluster: Cluster,
        kept: Sequence[_Kept],
        say: Callable[[str], None],
    ) -> None:
        self._request, self._spec, self._cluster, self._kept, self._say = request, spec, cluster, kept, say
        self._rounds = 0
        self._said: dict[str, str] = {}
        self._closed: StandbyReport | None = None

    def open(self, directory: StateDirectory, faults: FaultPoints) -> None:
        settings = StandbySettings(memory_bytes=self._request.memory_budget, timeout=self._request.timeout)
        for one in self._kept:
            try:
                stores = TaskStores(self._spec, directory, one.name, faults=faults)
                task = StandbyTask(stores, self._cluster, isolation_of(self._spec), settings)
                task.open()
            except StatecoreError as error:
                self._leave(one, error)
            else:
                one.task = task

    def round(self, stop: Event) -> None:
        self._rounds += 1
        for one, ends in self._ends():
            if one.task is None or stop.is_set():
                continue
            try:
                done = one.task.follow(ends, stop.is_set)
                self._count(one, done)
                if done.stale:
                    self._rebuild(one, one.task, done.stale)
                    self._count(one, one.task.follow(ends, stop.is_set))
            except StatecoreError as error:
                self._leave(one, error)

    def report(self) -> StandbyReport:
        if self._closed is not None:
            return self._closed
        tasks = tuple(one.report() for one in self._kept)
        return StandbyReport(self._spec.application_id, self._request.state_dir, self._rounds, tasks)

    def close(self) -> None:
        for one in self._kept:
            if one.task is not None:
                try:
                    one.task.close()
                except StatecoreError as error:
                    one.left = error
                    self._say(f"Task {one.name} could not be closed: {error}")
        self._closed = self.report()

    def _ends(self) -> list[tuple[_Kept, Mapping[TopicPartition, ChangelogEnd]]]:
        """The ends of the changelogs of all tasks, asked for at once; task by task where some of them has none."""
        open_ones = [one for one in self._kept if one.task is not None]
        try:
            ends = self._ask(open_ones)
        except StatecoreError:
            found: list[tuple[_Kept, Mapping[TopicPartition, ChangelogEnd]]] = []
            for one in open_ones:
                try:
                    found.append((one, self._ask([one])))
                except StatecoreError as error:
                    names = [store.name for store in one.task.stores.stores] if one.task else []
                    one.errors = dict.fromkeys(names, error)
                    self._say_once(one.name, f"Task {one.name}: {error}")
            return found
        return [(one, ends) for one in open_ones]

    def _ask(self, kept: Sequence[_Kept]) -> dict[TopicPartition, ChangelogEnd]:
        tasks = [one.task for one in kept if one.task is not None]
        stores = [store.spec for task in tasks for store in task.stores.stores]
        if not stores:
            return {}
        epochs = {at: epoch for task in tasks for at, epoch in task.epochs().items()}
        return changelog_ends(self._cluster, self._spec, stores, epochs)

    def _count(self, one: _Kept, done: Round) -> None:
        one.errors = dict(done.failed)
        for changelog, followed in done.followed.items():
            one.records[changelog] = one.records.get(changelog, 0) + followed.records
        words = " ".join(f"Store {store}: {error}" for store, error in done.failed.items())
        self._say_once(one.name, f"Task {one.name}: {words}" if words else "")

    def _rebuild(self, one: _Kept, task: StandbyTask, stale: Mapping[str, str]) -> None:
        for store, why in stale.items():
            self._say(f"Store {store} of task {one.name} is made anew from the start of its changelog: {why}.")
            task.rebuild(store)
            one.rebuilt[store] = one.rebuilt.get(store, 0) + 1

    def _leave(self, one: _Kept, error: StatecoreError) -> None:
        one.left = error
        self._say(f"Task {one.name} is left as it is: {error}")
        if one.task is not None:
            task, one.task = one.task, None
            try:
                task.close()
            except StatecoreError as failed:
                self._say(f"Task {one.name} could not be closed: {failed}")

    def _say_once(self, key: str, words: str) -> None:
        if words and self._said.get(key) != words:
            self._say(words)
        self._said[key] = words
