"""Standby tasks of one process: opened, updated in rounds, retried after failures, closed.

Tasks are independent: one that fails is retried with exponential backoff while the others continue. A store that cannot
continue from its offset is emptied and read from the start of its changelog; it is a copy, so nothing is lost.

A round gives each task a time slice. A task with more to read continues in the next round, which the caller starts at
once (:attr:`TaskManager.is_behind`), so a first read of hours does not block the other tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from statecore.changelog.cluster import Cluster
from statecore.errors import TOKEN_REFUSED, Corrupted, Invalid, NotFound, Retryable, StatecoreError
from statecore.formats.integers import INT64_MAX
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.failures import as_statecore_error
from statecore.metrics import NO_METRICS, Metrics
from statecore.progress import Clock
from statecore.spec.model import ApplicationSpec
from statecore.standby.assignment.model import Role
from statecore.standby.bootstrap import BaseDownloads
from statecore.standby.log_dedup import Messages
from statecore.standby.report import StandbyMetrics, StandbyStoreReport, StandbyTaskReport
from statecore.tasks.changelog_ends import ChangelogEnd, changelog_ends, ends_of_tasks
from statecore.tasks.offset_sums import offset_sum
from statecore.tasks.standby_task import RoundResult, StandbyTask

OpenStandby = Callable[[str], StandbyTask]  # Opens a task, with all its stores

FIRST_RETRY, LAST_RETRY = 5.0, 300.0
"""Retry backoff of a failed task in seconds: the first one and the longest; it doubles each time."""

TIME_SLICE = 5.0  # Time slice of a task in a round, in seconds


class _TimeSlice:
    """Stop condition of a task's time slice; called between two chunks."""

    def __init__(self, stopped: Callable[[], bool], clock: Clock) -> None:
        self._stopped, self._clock, self._until = stopped, clock, clock() + TIME_SLICE
        self.is_over = False  # the slice ended, perhaps with something left to read
        self.error: Exception | None = None  # raised by the round's own stop condition; not an error of the task

    def __call__(self) -> bool:
        self.is_over = self.is_over or self._clock() >= self._until
        try:
            return self.is_over or self.error is not None or self._stopped()
        except Exception as error:
            self.error = error
            return True


@dataclass(frozen=True)
class StorePosition:
    """Position of a store in its changelog."""

    offset: int  # the last applied offset
    is_confirmed: bool  # whether a round has confirmed that the changelog reaches that far


@dataclass
class _Entry:
    """State of one standby task."""

    name: str
    role: Role
    task: StandbyTask | None = None
    failure: StatecoreError | None = None
    retry_at: float = 0.0
    is_behind: bool = False
    pause: float = FIRST_RETRY
    errors: dict[str, StatecoreError] = field(default_factory=dict)
    records: dict[TopicPartition, int] = field(default_factory=dict)
    rebuilt: dict[str, int] = field(default_factory=dict)
    end_metrics: Callable[[], None] = lambda: None

    def fail(self, error: StatecoreError) -> None:
        """Record an error for all its stores; those that can no longer be followed keep theirs."""
        stores, refused = () if self.task is None else self.task.stores.stores, _refused(self.errors)
        self.errors = {store.name: self.errors[store.name] if store.name in refused else error for store in stores}

    def report(self) -> StandbyTaskReport:
        # Also asked from the thread that collects metrics, so each of these is read once.
        task, failed, failure = self.task, self.errors, self.failure
        stores = () if task is None else task.stores.stores
        lag = {} if task is None else task.lag
        errors = [*([failure] if failure else []), *failed.values()]
        return StandbyTaskReport(
            self.name,
            self.role.name.lower(),
            tuple(
                StandbyStoreReport(
                    store.name,
                    str(store.changelog),
                    OFFSET_UNKNOWN if store.offset is None else store.offset,
                    None if store.name in failed else lag.get(store.changelog),
                    self.records.get(store.changelog, 0),
                    self.rebuilt.get(store.name, 0),
                    str(failed[store.name]) if store.name in failed else None,
                )
                for store in stores
            ),
            None if failure is None else str(failure),
            max((error.exit_code for error in errors), default=0),
        )


class TaskManager:
    """Standby tasks of one process. Not thread-safe."""

    def __init__(
        self,
        spec: ApplicationSpec,
        cluster: Cluster,
        open_task: OpenStandby,
        say: Callable[[str], None],
        *,
        check: Callable[[str], object] = lambda _: None,
        bases: BaseDownloads | None = None,
        metrics: Metrics = NO_METRICS,
        clock: Clock = time.monotonic,
        ends: Callable[..., dict[TopicPartition, ChangelogEnd]] = changelog_ends,
    ) -> None:
        self._check, self._bases, self._ask_ends = check, bases, ends
        self._spec, self._cluster, self._open_task, self._say = spec, cluster, open_task, say
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._on_state_loss: Callable[[], None] = lambda: None
        self._messages = Messages(say)
        self._metrics = StandbyMetrics(metrics, spec.application_id, self.report)

    @property
    def names(self) -> tuple[str, ...]:
        """All tasks, including failed ones that wait for a retry."""
        return tuple(self._entries)

    @property
    def is_waiting(self) -> bool:
        """Whether the base of a task is still being fetched."""
        return any(one.task is None and one.failure is None for one in self._entries.values())

    @property
    def is_behind(self) -> bool:
        """Whether a task ran out of its time slice in the last round."""
        return any(one.is_behind for one in self._entries.values())

    def on_state_loss(self, callback: Callable[[], None]) -> None:
        """Set a callback for when a task loses state that other members may count on."""
        self._on_state_loss = callback

    def add(self, name: str, role: Role = Role.STANDBY) -> None:
        """Add a task; an existing one only changes its role."""
        if name in self._entries:
            self._entries[name].role = role
            return
        self._entries[name] = one = _Entry(name, role)
        self._open(one)

    def drop(self, name: str) -> dict[TopicPartition, StorePosition]:
        """Close a task and cancel the fetch of its base; its directory stays. Returns its positions by changelog."""
        one = self._entries.pop(name)
        held = self._counted_positions(one)
        if self._bases is not None:
            self._bases.cancel_fetch(name)
        self._close(one)
        self._messages.forget(name)
        return held

    def sums(self, ends: Mapping[TopicPartition, int] | None = None) -> dict[str, int]:
        """Offset sum of each task over the followed changelogs; 0 for one that could not be opened."""
        known = ends or {}
        return {
            name: offset_sum(
                held.offset
                for changelog, held in self._counted_positions(one).items()
                if held.is_confirmed or held.offset < known.get(changelog, INT64_MAX)
            )
            for name, one in self._entries.items()
        }

    def round(self, stopped: Callable[[], bool]) -> None:
        """Update every task to the current ends of its changelogs, or as far as its time slice allows."""
        for one in self._entries.values():
            if one.task is None and self._clock() >= one.retry_at and not stopped():
                self._open(one)
        for one in self._entries.values():
            one.is_behind = False
        for one, ends in self._ends(stopped):
            if one.task is None or stopped():
                continue
            turn = _TimeSlice(stopped, self._clock)
            try:
                done = one.task.follow(ends, turn)
                self._count(one, done)
                one.is_behind = turn.is_over and bool(done.followed)
                if done.stale:  # even if the round is over: no process may start from them
                    self._rebuild(one, one.task, done.stale)
                    done = one.task.follow(ends, turn)
                    self._count(one, done)
                    self._keep_stale(one, done.stale)
                    one.is_behind = turn.is_over  # the emptied store may not have been read yet
            except Exception as error:
                self._task_failed(one, as_statecore_error(error, f"task {one.name} was followed", task=one.name))
            else:
                one.pause = FIRST_RETRY
            if turn.error is not None:
                raise turn.error
        self._messages.end_round()

    def report(self) -> tuple[StandbyTaskReport, ...]:
        """Reports of all tasks, in task order."""
        return tuple(
            one.report() for one in sorted(self._entries.values(), key=lambda one: TaskId.parse(one.name).order)
        )

    def close(self) -> tuple[StandbyTaskReport, ...]:
        """Close all tasks so that Kafka Streams can start, and return their last reports."""
        for one in self._entries.values():
            failed = self._close(one, forget=False)
            if failed is not None:
                one.failure = failed
        if self._bases is not None:
            self._bases.close()  # last: it waits for a running fetch, and the process may be killed meanwhile
        found = self.report()
        for one in self._entries.values():
            one.task = None
        self._metrics.close()
        return found

    def _open(self, one: _Entry) -> None:
        try:
            self._check(one.name)
            if self._bases is not None and not self._bases.prepare(one.name):
                one.failure = None
                return
            one.task = self._open_task(one.name)
        except Exception as error:
            self._task_failed(one, as_statecore_error(error, f"task {one.name} was opened", task=one.name))
            return
        one.failure = None
        one.end_metrics = self._metrics.add_task(one.name, one.report)

    def _counted_positions(self, one: _Entry) -> dict[TopicPartition, StorePosition]:
        """Positions that count in a group; a store that can no longer be followed has none."""
        if one.task is None:
            return {}
        lag = one.task.lag
        return {
            store.changelog: StorePosition(store.offset, store.changelog in lag)
            for store in one.task.stores.stores
            if store.offset is not None and store.offset != OFFSET_UNKNOWN and store.name not in _refused(one.errors)
        }

    def _ends(self, stopped: Callable[[], bool]) -> Iterable[tuple[_Entry, Mapping[TopicPartition, ChangelogEnd]]]:
        """Read the ends of all open tasks; a task without ends has failed."""
        entries = {one.name: one for one in self._entries.values() if one.task is not None}

        def ask(names: Collection[str]) -> Mapping[TopicPartition, ChangelogEnd]:
            return self._ask([entries[name] for name in names])

        for names, ends in ends_of_tasks({name: _topics(one) for name, one in entries.items()}, ask, stopped):
            if not isinstance(ends, StatecoreError):
                self._messages.brokers_answered()
                for name in names:
                    yield entries[name], ends
                continue
            if ends.code == TOKEN_REFUSED:  # only another process may have another secret
                raise ends
            for name in names:
                entries[name].fail(ends)
            if isinstance(ends, Retryable) and not ends.context.get("topics"):
                self._messages.brokers_unreachable(ends)
            else:
                self._messages.problem(names, str(ends))

    def _ask(self, entries: Sequence[_Entry]) -> dict[TopicPartition, ChangelogEnd]:
        tasks = [one.task for one in entries if one.task is not None]
        stores = [store.spec for task in tasks for store in task.stores.stores]
        if not stores:
            return {}
        epochs = {at: epoch for task in tasks for at, epoch in task.epochs().items()}
        return self._ask_ends(self._cluster, self._spec, stores, epochs)

    def _count(self, one: _Entry, done: RoundResult) -> None:
        has_lost_stores = not _refused(one.errors) >= _refused(done.failed)
        one.errors = {**{store: one.errors[store] for store in one.errors.keys() & done.skipped}, **done.failed}
        for changelog, followed in done.followed.items():
            one.records[changelog] = one.records.get(changelog, 0) + followed.records
        self._metrics.count_records(one.name, done.records)
        if done.failed:
            self._messages.problem(
                [one.name], " ".join(f"Store {store}: {error}" for store, error in done.failed.items())
            )
        elif not done.stale and not one.errors:
            self._messages.task_is_well(one.name)
        if has_lost_stores:
            self._on_state_loss()

    def _rebuild(self, one: _Entry, task: StandbyTask, stale: Mapping[str, str]) -> None:
        for store, why in stale.items():
            self._say(f"Store {store} of task {one.name} is rebuilt from the start of its changelog: {why}.")
            task.rebuild(store)
            one.rebuilt[store] = one.rebuilt.get(store, 0) + 1
            self._on_state_loss()

    def _keep_stale(self, one: _Entry, stale: Mapping[str, str]) -> None:
        """Mark stores that the next round has to rebuild again; no process may start from them until then."""
        for store, why in stale.items():
            error = Corrupted(
                f"Store {store} of task {one.name} has to be rebuilt, and was not yet: {why}.",
                code="rebuild-pending",
                action="Run statecore standby again before an instance starts from this copy.",
                task=one.name,
                store=store,
            )
            one.errors[store] = error
            self._say(str(error))

    def _task_failed(self, one: _Entry, error: StatecoreError) -> None:
        one.failure = error
        one.retry_at = self._clock() + one.pause
        one.pause = min(2 * one.pause, LAST_RETRY)
        self._messages.task_failed(one.name, error)
        had = one.task is not None
        self._close(one)
        if had:
            self._on_state_loss()

    def _close(self, one: _Entry, *, forget: bool = True) -> StatecoreError | None:
        one.end_metrics()
        task = one.task
        if forget:
            one.task = None
        if task is None:
            return None
        try:
            task.close()
        except Exception as error:
            failed = as_statecore_error(error, f"task {one.name} was closed", task=one.name)
            self._say(f"Task {one.name} could not be closed: {failed}")
            return failed
        return None


def _refused(errors: Mapping[str, StatecoreError]) -> set[str]:
    """Stores that can no longer be followed."""
    return {name for name, error in errors.items() if isinstance(error, (Corrupted, Invalid, NotFound))}


def _topics(one: _Entry) -> set[str]:
    return set() if one.task is None else {store.changelog.topic for store in one.task.stores.stores}
