"""The tasks that a process keeps warm: taken up, followed in rounds, reopened when they failed, dropped and closed.

Each task stands for itself. One that cannot be opened, or that fails, is said, left for a while and tried again, later
each time; the others go on. A store whose rows cannot be continued is emptied, which loses nothing, because it is a
copy, and is read from the start of its changelog.

A round gives each task a turn. One that has much to read goes on in the next round, which the caller begins at once
(:attr:`TaskManager.is_behind`), so a first read of hours keeps no other task from being followed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from statecore.changelog.cluster import Cluster
from statecore.errors import Corrupted, Invalid, NotFound, Retryable, StatecoreError
from statecore.formats.integers import INT64_MAX
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.failures import as_statecore_error
from statecore.metrics import NO_METRICS, Metrics
from statecore.progress import Clock
from statecore.spec.model import ApplicationSpec
from statecore.standby.assignment.model import Role
from statecore.standby.bootstrap import Bases
from statecore.standby.messages import Messages
from statecore.standby.metrics import StandbyMetrics
from statecore.standby.report import StandbyStoreReport, StandbyTaskReport
from statecore.tasks.changelog_ends import ChangelogEnd, changelog_ends
from statecore.tasks.offset_sums import offset_sum
from statecore.tasks.standby_task import Round, StandbyTask

OpenStandby = Callable[[str], StandbyTask]
"""Opens a task, with all its stores."""

FIRST_RETRY, LAST_RETRY = 5.0, 300.0
"""Seconds after which a task that failed is tried again, the first time, and at most; doubled each time."""

TURN = 5.0
"""Seconds after which a task that has more to read lets the others have their turn."""


class _Turn:
    """Asked between two pieces whether a task's turn is over, or the round.

    Attributes:
        is_over: whether the turn ended with something left to read, perhaps.
        error: what was raised by whoever knows whether the round is over; it is none of the task's.
    """

    def __init__(self, stopped: Callable[[], bool], clock: Clock) -> None:
        self._stopped, self._clock, self._until = stopped, clock, clock() + TURN
        self.is_over = False
        self.error: Exception | None = None

    def __call__(self) -> bool:
        self.is_over = self.is_over or self._clock() >= self._until
        try:
            return self.is_over or self.error is not None or self._stopped()
        except Exception as error:
            self.error = error
            return True


@dataclass(frozen=True)
class Held:
    """How far a store of a task is that was closed.

    Attributes:
        offset: the last one applied.
        was_seen: whether a round has seen that its changelog reaches so far.
    """

    offset: int
    was_seen: bool


@dataclass
class _Kept:
    """A task, and what became of it."""

    name: str
    role: Role
    task: StandbyTask | None = None
    left: StatecoreError | None = None
    retry_at: float = 0.0
    is_behind: bool = False
    pause: float = FIRST_RETRY
    errors: dict[str, StatecoreError] = field(default_factory=dict)
    records: dict[TopicPartition, int] = field(default_factory=dict)
    rebuilt: dict[str, int] = field(default_factory=dict)
    end_metrics: Callable[[], None] = lambda: None

    def fail(self, error: StatecoreError) -> None:
        """None of its stores could be followed."""
        stores = () if self.task is None else self.task.stores.stores
        self.errors = {store.name: error for store in stores}

    def report(self) -> StandbyTaskReport:
        # Also asked from the thread that collects metrics, so each of these is read once.
        task, failed, left = self.task, self.errors, self.left
        stores = () if task is None else task.stores.stores
        lag = {} if task is None else task.lag
        errors = [*([left] if left else []), *failed.values()]
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
            None if left is None else str(left),
            max((error.exit_code for error in errors), default=0),
        )


class TaskManager:
    """The tasks of one process; for one thread.

    Args:
        spec: the application.
        cluster: where the changelogs are.
        open_task: opens a task that is taken up, or tried again.
        say: told what an operator should read at once.
        check: asked before a task is opened, or its base fetched; raises why it cannot be followed.
        bases: where a new copy begins; ``None`` for the start of its changelogs. They are closed with the tasks.
        metrics: who is told.
        clock: seconds that never go back.
        ends: asks for the ends of changelogs.
    """

    def __init__(
        self,
        spec: ApplicationSpec,
        cluster: Cluster,
        open_task: OpenStandby,
        say: Callable[[str], None],
        *,
        check: Callable[[str], object] = lambda _: None,
        bases: Bases | None = None,
        metrics: Metrics = NO_METRICS,
        clock: Clock = time.monotonic,
        ends: Callable[..., dict[TopicPartition, ChangelogEnd]] = changelog_ends,
    ) -> None:
        self._check, self._bases, self._ask_ends = check, bases, ends
        self._spec, self._cluster, self._open_task, self._say = spec, cluster, open_task, say
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._less: Callable[[], None] = lambda: None
        self._news = Messages(say)
        self._metrics = StandbyMetrics(metrics, spec.application_id, self.report)

    @property
    def names(self) -> tuple[str, ...]:
        """The tasks, also those that are left for a while."""
        return tuple(self._kept)

    @property
    def is_waiting(self) -> bool:
        """Whether the base of a task is still on its way."""
        return any(one.task is None and one.left is None for one in self._kept.values())

    @property
    def is_behind(self) -> bool:
        """Whether a task had more to read in the last round than its turn had time for."""
        return any(one.is_behind for one in self._kept.values())

    def when_less(self, told: Callable[[], None]) -> None:
        """From now on say at once when a task has less than before, because others may count on it."""
        self._less = told

    def take_up(self, name: str, role: Role = Role.STANDBY) -> None:
        """Keep a task from now on; one that is kept already is as it was, but for its role."""
        if name in self._kept:
            self._kept[name].role = role
            return
        self._kept[name] = one = _Kept(name, role)
        self._open(one)

    def drop(self, name: str) -> dict[TopicPartition, Held]:
        """Keep a task no longer: close it, and leave it on the disk. A base that is on its way to it is given up.

        Returns:
            What it has of each changelog that can be followed.
        """
        one = self._kept.pop(name)
        held = self._held(one)
        if self._bases is not None:
            self._bases.give_up(name)
        self._close(one)
        self._news.forget(name)
        return held

    def sums(self, ends: Mapping[TopicPartition, int] | None = None) -> dict[str, int]:
        """The offset sum of each task over the changelogs that are followed; 0 for one that could not be opened.

        Args:
            ends: where the changelogs end, as far as is known. A store that no round has looked at yet and that is
                beyond the end counts nothing: its topic was created again, or has lost records.
        """
        known = ends or {}
        return {
            name: offset_sum(
                held.offset
                for changelog, held in self._held(one).items()
                if held.was_seen or held.offset < known.get(changelog, INT64_MAX)
            )
            for name, one in self._kept.items()
        }

    def round(self, stopped: Callable[[], bool]) -> None:
        """Bring every task to the ends that its changelogs have now, or as near as its turn allows.

        Args:
            stopped: asked between two pieces: whether the round is to end early. What it raises ends the round.
        """
        for one in self._kept.values():
            if one.task is None and self._clock() >= one.retry_at and not stopped():
                self._open(one)
        for one in self._kept.values():
            one.is_behind = False
        for one, ends in self._ends(stopped):
            if one.task is None or stopped():
                continue
            turn = _Turn(stopped, self._clock)
            try:
                done = one.task.follow(ends, turn)
                self._count(one, done)
                one.is_behind = turn.is_over and bool(done.followed)
                if done.stale:  # also where the round is over: nobody may start from them
                    self._rebuild(one, one.task, done.stale)
                    done = one.task.follow(ends, turn)
                    self._count(one, done)
                    self._leave_stale(one, done.stale)
                    one.is_behind = turn.is_over  # the store that was emptied may have had no time yet
            except Exception as error:
                self._leave(one, as_statecore_error(error, f"task {one.name} was followed", task=one.name))
            else:
                one.pause = FIRST_RETRY
            if turn.error is not None:
                raise turn.error
        self._news.round_is_over()

    def report(self) -> tuple[StandbyTaskReport, ...]:
        """How the tasks stand."""
        return tuple(one.report() for one in sorted(self._kept.values(), key=lambda one: TaskId.parse(one.name).order))

    def close(self) -> tuple[StandbyTaskReport, ...]:
        """Close all tasks, so that Kafka Streams can start; how they stood then."""
        for one in self._kept.values():
            failed = self._close(one, forget=False)
            if failed is not None:
                one.left = failed
        if self._bases is not None:
            self._bases.close()  # last: a fetch ends between two steps, and whoever waits for that may kill the process
        found = self.report()
        for one in self._kept.values():
            one.task = None
        self._metrics.close()
        return found

    def _open(self, one: _Kept) -> None:
        try:
            self._check(one.name)
            if self._bases is not None and self._bases.is_coming(one.name):
                one.left = None
                return
            one.task = self._open_task(one.name)
        except Exception as error:
            self._leave(one, as_statecore_error(error, f"task {one.name} was opened", task=one.name))
            return
        one.left = None
        one.end_metrics = self._metrics.opened(one.name, one.report)

    def _held(self, one: _Kept) -> dict[TopicPartition, Held]:
        """What the task counts for in a group: a store that cannot be followed any more counts nothing."""
        if one.task is None:
            return {}
        lag = one.task.lag
        return {
            store.changelog: Held(store.offset, store.changelog in lag)
            for store in one.task.stores.stores
            if store.offset is not None and store.offset != OFFSET_UNKNOWN and store.name not in _refused(one.errors)
        }

    def _ends(self, stopped: Callable[[], bool]) -> Iterable[tuple[_Kept, Mapping[TopicPartition, ChangelogEnd]]]:
        """The ends of the changelogs of all tasks, asked for at once; task by task where some of them has none.

        Tasks whose changelogs have no leader are left out of the next try, and the others are followed.
        """
        asked = [one for one in self._kept.values() if one.task is not None]
        while asked and not stopped():
            try:
                ends = self._ask(asked)
            except Retryable as error:
                away = set(error.context.get("topics", ()))
                stuck = [one.name for one in asked if away & _topics(one)]  # none: the brokers are away for all of them
                for one in asked:
                    if not stuck or one.name in stuck:
                        one.fail(error)
                if stuck:
                    self._news.wrong(stuck, str(error))
                else:
                    self._news.away(error)
                asked = [one for one in asked if stuck and one.name not in stuck]
            except StatecoreError:
                yield from self._ends_of_each(asked, stopped)
                return
            else:
                self._news.answered()
                for one in asked:
                    yield one, ends
                return

    def _ends_of_each(
        self, asked: Sequence[_Kept], stopped: Callable[[], bool]
    ) -> Iterable[tuple[_Kept, Mapping[TopicPartition, ChangelogEnd]]]:
        for one in asked:
            if stopped():
                return
            try:
                found = self._ask([one])
            except StatecoreError as error:
                one.fail(error)
                self._news.wrong([one.name], str(error))
            else:
                self._news.answered()
                yield one, found

    def _ask(self, kept: Sequence[_Kept]) -> dict[TopicPartition, ChangelogEnd]:
        tasks = [one.task for one in kept if one.task is not None]
        stores = [store.spec for task in tasks for store in task.stores.stores]
        if not stores:
            return {}
        epochs = {at: epoch for task in tasks for at, epoch in task.epochs().items()}
        return self._ask_ends(self._cluster, self._spec, stores, epochs)

    def _count(self, one: _Kept, done: Round) -> None:
        has_less = not _refused(one.errors) >= _refused(done.failed)
        one.errors = {**{store: one.errors[store] for store in one.errors.keys() & done.passed_over}, **done.failed}
        for changelog, followed in done.followed.items():
            one.records[changelog] = one.records.get(changelog, 0) + followed.records
        self._metrics.updated(one.name, done.records)
        if done.failed:
            self._news.wrong([one.name], " ".join(f"Store {store}: {error}" for store, error in done.failed.items()))
        elif not done.stale and not one.errors:
            self._news.follows(one.name)
        if has_less:
            self._less()

    def _rebuild(self, one: _Kept, task: StandbyTask, stale: Mapping[str, str]) -> None:
        for store, why in stale.items():
            self._say(f"Store {store} of task {one.name} is made anew from the start of its changelog: {why}.")
            task.rebuild(store)
            one.rebuilt[store] = one.rebuilt.get(store, 0) + 1
            self._less()

    def _leave_stale(self, one: _Kept, stale: Mapping[str, str]) -> None:
        """Stores that were made anew, and are to be again, by the next round: nobody may start from them until then."""
        for store, why in stale.items():
            error = Corrupted(
                f"Store {store} of task {one.name} has to be made anew, and was not yet: {why}.",
                code="rebuild-pending",
                action="Let statecore standby run again before anybody starts from this copy.",
                task=one.name,
                store=store,
            )
            one.errors[store] = error
            self._say(str(error))

    def _leave(self, one: _Kept, error: StatecoreError) -> None:
        one.left = error
        one.retry_at = self._clock() + one.pause
        one.pause = min(2 * one.pause, LAST_RETRY)
        self._news.left(one.name, error)
        had = one.task is not None
        self._close(one)
        if had:
            self._less()

    def _close(self, one: _Kept, *, forget: bool = True) -> StatecoreError | None:
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
    """The stores that cannot be followed any more."""
    return {name for name, error in errors.items() if isinstance(error, (Corrupted, Invalid, NotFound))}


def _topics(one: _Kept) -> set[str]:
    return set() if one.task is None else {store.changelog.topic for store in one.task.stores.stores}
