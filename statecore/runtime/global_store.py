"""One global store: opened, brought up to its topic, followed, and built anew where its offsets are none any more.

A round asks where the topic's logs are, reads what is new, and commits it with the next offsets of all partitions as
one. What makes a round impossible decides what comes next:

- an offset that is none of the topic's logs, a topic with another id, a damaged store: the store is set aside and built
  anew, here, by the rounds that follow;
- brokers that do not answer, a topic that is gone: asked again, with growing pauses; the topic not for ever;
- no room, no rights, records of another kind: ``ERROR``.
"""

from __future__ import annotations

import statecore.extras.pipeline

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from statecore.changelog.cluster import Cluster
from statecore.changelog.compaction import check_compacted
from statecore.changelog.model import OffsetRange, TopicDescription
from statecore.errors import Corrupted, Invalid, NotFound, Retryable, StatecoreError
from statecore.faults import FaultPoints
from statecore.formats.topic_partition import TopicPartition
from statecore.metrics import (
    GLOBAL_STATE,
    RECORDS_LAG,
    RECOVERIES,
    RETRIES,
    Metrics,
    RestoreMetrics,
    store_tags,
)
from statecore.placement.state_directory import StateDirectory
from statecore.runtime.global_offsets import Invalidity, why_invalid, why_unknown
from statecore.runtime.global_places import GlobalPlaces, RememberedTopics
from statecore.runtime.global_reading import LogStartMoved, Look, Round
from statecore.runtime.global_settings import GlobalSettings, GlobalTable
from statecore.runtime.global_state import GlobalState, RecoveryReason, StateListener, StateMachine
from statecore.runtime.global_views import GlobalView, HeldStore
from statecore.stores.rocksdb import RocksDBStore

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Surroundings:
    """What all global stores of a process share.

    Attributes:
        directory: the application's state directory, locked.
        cluster: where the topics are.
        settings: how the stores are kept.
        topics: the ids of the topics that they are built of.
        listener: told every change of state.
        metrics: who is told what is measured.
        faults: points at which a test lets the process die.
        clock: seconds that never go back.
    """

    directory: StateDirectory
    cluster: Cluster
    settings: GlobalSettings
    topics: RememberedTopics
    listener: StateListener | None
    metrics: Metrics
    faults: FaultPoints
    clock: Callable[[], float]


class _Doing(Enum):
    """What a round was doing when it failed."""

    ASKING = auto()
    READING = auto()
    STORING = auto()


class GlobalStore:
    """One global store of a process; :class:`GlobalStores` has them all.

    One thread opens, polls and closes; any thread may query.

    Args:
        table: what it is.
        around: what it shares with others.
    """

    def __init__(self, table: GlobalTable, around: Surroundings) -> None:
        self.table = table
        self._around, self._settings = around, around.settings
        self._places = GlobalPlaces(around.directory, table.name, table.kind, around.faults)
        self._machine = StateMachine(table.name, around.listener)
        self._tags = store_tags("global", table.name)
        self._serving = threading.RLock()  # over the state and which store answers
        self._live: HeldStore | None = None
        self._old: HeldStore | None = None
        self._is_aside = False  # whether something was set aside and is still there
        self._retired: list[HeldStore] = []
        self._building: RocksDBStore | None = None
        self._pending: Invalidity | None = None
        self._topic: TopicDescription | None = None
        self._described_at: float | None = None
        self._built_of: str | None = None
        self._positions: dict[int, int] = {}
        self._targets: dict[int, int] | None = None
        self._committed = False
        self._epochs: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._doing = _Doing.ASKING
        self._suspected = False
        self._failures, self._not_before = 0, 0.0
        self._gone_since: float | None = None
        self._restoring: RestoreMetrics | None = None
        self._unobserve: list[Callable[[], None]] = []
        self.error: StatecoreError | None = None
        """What it cannot recover from, in ``ERROR``; else what the brokers last failed with, until they answer."""
        self.recoveries: list[Invalidity] = []
        """Why it was built anew, each time since it was opened."""

    @property
    def state(self) -> GlobalState:
        """What it is doing."""
        return self._machine.state

    @property
    def lag(self) -> int:
        """Offsets that it is behind the end of its topic, as of the last look."""
        return sum(max(0, end - self._positions.get(at, 0)) for at, end in self._ends.items())

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The next offset of each partition, as far as known."""
        return {TopicPartition(self.table.topic, at): offset for at, offset in self._positions.items()}

    def open(self) -> None:
        """Open what is on the disk. Nothing is asked of brokers.

        Raises:
            Invalid: it is of another kind, of an older release, or this user has no right to it.
            Fenced: another process has it open.
            Capacity: no room.
        """
        self._places.clear()
        live = self._places.live
        if live.exists():
            self._open_live()
        before = self._places.set_aside_before()
        self._is_aside = True
        if self._live is not None and self._pending is None:
            self._discard_aside()
        elif before is not None:
            self._open_old(before)
        with self._serving:
            self._machine.to(GlobalState.RESTORING)
        metrics = self._around.metrics
        self._unobserve = [
            metrics.observe(GLOBAL_STATE, lambda: self.state.number, self._tags),
            metrics.observe(RECORDS_LAG, lambda: self.lag, self._tags),
        ]

    def check_topic(self) -> None:
        """Ask for the topic, so that one that is refused is refused at once; brokers that are away are asked later.

        Raises:
            Invalid: the topic is not compacted, or this client may not read it.
        """
        try:
            self._describe()
        except (Retryable, NotFound) as error:
            self._again(error)

    def poll(self) -> int:
        """One round, if it is time for one.

        Returns:
            Records that were applied.
        """
        self._reap()
        now = self._around.clock()
        if self.state not in (GlobalState.RESTORING, GlobalState.RUNNING) or now < self._not_before:
            return 0
        self._doing = _Doing.ASKING
        try:
            applied = self._round()
        except LogStartMoved:
            self._pending = Invalidity(
                RecoveryReason.BELOW_LOG_START, "records were deleted while they were to be read next"
            )
            return 0
        except Retryable as error:
            self._again(error)
        except StatecoreError as error:
            self._failed(error)
        else:
            self._failures, self._suspected, self._gone_since, self.error = 0, False, None, None
            return applied
        return 0

    def query_view(self, *, stale: bool = False) -> GlobalView:
        """The store at this instant; see :meth:`GlobalStores.query_view`."""
        with self._serving:
            state = self.state
            if state is GlobalState.RUNNING and self._live is not None:
                return self._live.view(stale=False)
            if state in (GlobalState.CREATED, GlobalState.CLOSED):
                raise Invalid(
                    f"The global store {self.table.name} is not open.", action="Open it first.", store=self.table.name
                )
            held = self._live if self._live is not None and self._pending is None else self._old
            if stale and held is not None:
                return held.view(stale=True)
            if state is GlobalState.ERROR and self.error is not None:
                failed = self.error
                raise type(failed)(failed.what, action=failed.action, **failed.context)
        has_old = "Try again later, or ask for the rows of before (stale=True)."
        raise Retryable(
            f"The global store {self.table.name} is being restored from topic {self.table.topic} "
            f"({self.lag} offsets are left).",
            action="Try again later; there are no older rows of it." if held is None else has_old,
            store=self.table.name,
            topic=self.table.topic,
        )

    def close(self) -> None:
        """Close everything; views end. Closing again does nothing.

        Raises:
            StatecoreError: a store could not be closed; the others were.
        """
        with self._serving:
            live, old, building = self._live, self._old, self._building
            self._live = self._old = self._building = None
            self._machine.to(GlobalState.CLOSED)
        for end in self._unobserve:
            end()
        self._unobserve = []
        self._end_restore()
        failures: list[StatecoreError] = []
        for held in (live, old, *self._retired):
            if held is not None:
                _close(held.store, failures)
        self._retired = []
        if building is not None:
            _close(building, failures)
            self._places.clear()
        if failures:
            raise failures[0]

    # A round.

    def _round(self) -> int:
        self._around.directory.check_locked()
        now = self._around.clock()
        due = self._described_at is None or now - self._described_at >= self._settings.metadata_interval
        if due or self._topic is None:
            self._describe()
        assert self._topic is not None
        table = self.table
        look = Look(
            self._around.cluster,
            table.topic,
            self._topic.partitions,
            self._epochs,
            exactly_once=self._settings.exactly_once,
        )
        self._gone_since = None
        invalid = (
            self._pending or self._why_another(self._topic) or why_invalid(self._positions, look.logs, look.epoch_ends)
        )
        if invalid is not None:
            self._recover(invalid)
        self._epochs, self._ends = look.epochs, look.ends
        if self._targets is None:
            self._begin(look)
        applied = self._advance(look)
        if self.state is GlobalState.RESTORING and self._has_reached():
            self._restored()
        return applied

    def _describe(self) -> None:
        """Look at the topic, and refuse one that deletes rows."""
        table = self.table
        topic = self._around.cluster.describe_topics([table.topic])[table.topic]
        if self._topic is None or self._topic.topic_id != topic.topic_id:
            check_compacted(
                topic,
                table.name,
                accept=self._settings.accept_uncompacted,
                how_to_accept="GlobalSettings(accept_uncompacted=True)",
            )
        self._topic, self._described_at = topic, self._around.clock()

    def _why_another(self, topic: TopicDescription) -> Invalidity | None:
        """Why the rows are not of this topic; ``None`` where they are, or nobody knows of which they are."""
        if self._built_of is None or self._built_of == topic.topic_id:
            return None
        return Invalidity(
            RecoveryReason.TOPIC_RECREATED,
            f"topic {topic.name} was deleted and created again: its id is {topic.topic_id}, and was {self._built_of}",
        )

    def _begin(self, look: Look) -> None:
        """Begin to restore: from the offsets of the live store, or a new one from the earliest."""
        assert self._topic is not None
        self._doing = _Doing.STORING
        self._built_of = self._topic.topic_id
        self._committed = False
        if self._live is None:
            self._places.clear()
            self._building = RocksDBStore(self._places.new, self.table.kind, create=True, settings=self._settings.store)
            self._building.open()
        else:
            self._around.topics.remember(self.table.name, self.table.topic, self._built_of)
        for at, log in look.logs.items():
            self._positions.setdefault(at, log.log_start)
        self._targets = dict(look.ends)
        self._restoring = RestoreMetrics(self._around.metrics, self.lag, self._tags)

    def _advance(self, look: Look) -> int:
        """Apply what one round reads, and commit it with the next offsets."""
        table, most = self.table, self._settings.round_offsets
        assert self._built_of is not None
        wanted = {}
        for at, end in sorted(look.ends.items()):
            start = self._positions.setdefault(at, look.logs[at].log_start)
            wanted[at] = max(start, min(end, start + most))
        spans = [
            OffsetRange(table.topic, at, self._positions[at], end)
            for at, end in wanted.items()
            if end > self._positions[at]
        ]
        if not spans and self._committed:
            return 0
        self._doing = _Doing.READING
        read = Round(table, self._settings, self._around.cluster, self._places.runs)
        first = self._building is not None and not self._committed
        runs = read.read(spans, self._built_of, first=first) if spans else []
        self._around.faults.reach("global.after-read")
        self._doing = _Doing.STORING
        offsets = {TopicPartition(table.topic, at): end for at, end in wanted.items()}
        if self._building is not None:
            self._store(self._building, runs, offsets)
        elif self._live is not None:
            with self._live.commits:
                self._store(self._live.store, runs, offsets)
        self._positions, self._committed = dict(wanted), True
        if self._restoring is not None:
            self._restoring.restored(read.records)
        return read.records

    def _store(self, store: RocksDBStore, runs: list[Path], offsets: dict[TopicPartition, int]) -> None:
        store.ingest(runs)
        self._around.faults.reach("global.after-ingest")
        store.commit(offsets)
        self._around.faults.reach("global.after-commit")

    def _has_reached(self) -> bool:
        targets = self._targets or {}
        return all(self._positions.get(at, 0) >= end for at, end in targets.items())

    def _restored(self) -> None:
        """Everything that there was is applied: a store that was built goes to its place, and the store answers."""
        self._doing = _Doing.STORING
        if self._building is not None:
            self._put_in_place(self._building)
        assert self._built_of is not None
        self._around.topics.remember(self.table.name, self.table.topic, self._built_of)
        with self._serving:
            if self._old is not None:
                self._retired.append(self._old)
            self._old = None
            self._machine.to(GlobalState.RUNNING)
        self._end_restore()
        self._reap()
        self._around.faults.reach("global.recovered")

    def _put_in_place(self, built: RocksDBStore) -> None:
        built.verify()
        expected = {TopicPartition(self.table.topic, at): offset for at, offset in self._positions.items()}
        if built.committed_offsets() != expected:
            raise Corrupted(
                f"The global store {self.table.name} was built, and does not have the offsets that were committed.",
                action="It is built again; look at the disk if this happens twice.",
                store=self.table.name,
            )
        built.close()
        self._building = None
        self._places.place()
        self._live = HeldStore(self._opened(self._places.live))

    # What goes wrong.

    def _recover(self, invalid: Invalidity) -> None:
        """Set aside what is there, so that the next step builds the store anew."""
        _LOG.warning(
            "The global store %s is built anew from the start of topic %s: %s.",
            self.table.name,
            self.table.topic,
            invalid.what,
        )
        self.recoveries.append(invalid)
        self._around.metrics.add(RECOVERIES, 1, {**self._tags, "reason": invalid.reason.value})
        self._doing = _Doing.STORING
        self._end_restore()
        with self._serving:
            self._machine.to(GlobalState.RESTORING)
            live, self._live = self._live, None
            if live is not None and invalid.trusted:
                if self._old is not None:
                    self._retired.append(self._old)
                self._old = live
            elif live is not None:
                self._retired.append(live)
        if self._building is not None:
            building, self._building = self._building, None
            building.close()
        if self._places.live.exists():
            self._is_aside = True
            self._places.set_aside(trusted=invalid.trusted)
        self._pending = self._targets = self._built_of = None
        self._positions, self._epochs = {}, {}

    def _failed(self, error: StatecoreError) -> None:
        """Decide what an error of a round means."""
        self._described_at = None
        if self._doing is _Doing.STORING and isinstance(error, Corrupted | NotFound):
            self._pending = Invalidity(RecoveryReason.STORE_UNUSABLE, error.what.rstrip("."), trusted=False)
            self._again(error)
        elif isinstance(error, NotFound):
            self._gone(error)
        elif isinstance(error, Corrupted):
            self._again(error)  # the broker's log, which another replica may have whole
        elif isinstance(error, Invalid) and self._doing is _Doing.READING and not self._suspected:
            self._suspected = True  # truncated, or created again: the next look tells
        else:
            self._give_up(error)

    def _gone(self, error: NotFound) -> None:
        now = self._around.clock()
        since = now if self._gone_since is None else self._gone_since
        self._gone_since = since
        if now - since < self._settings.topic_gone_timeout:
            self._again(error)
            return
        self._give_up(
            NotFound(
                f"{error.what} It has been so for {now - since:.0f} s, and the global store {self.table.name} has "
                "nothing to follow.",
                action="Create the topic and start again; the store is built anew then.",
                **{**error.context, "store": self.table.name},
            )
        )

    def _again(self, error: StatecoreError) -> None:
        """Try later; nothing else changes."""
        settings = self._settings
        pause = min(settings.retry_backoff_max, settings.retry_backoff * 2 ** min(self._failures, 30))
        if isinstance(error, NotFound) and self._gone_since is None:
            self._gone_since = self._around.clock()
        self._failures += 1
        self._not_before = self._around.clock() + pause
        self.error = error
        self._described_at = None
        self._around.metrics.add(RETRIES, 1, self._tags)
        _LOG.info("The global store %s waits %.1f s: %s", self.table.name, pause, error)

    def _give_up(self, error: StatecoreError) -> None:
        _LOG.error("The global store %s cannot be followed: %s", self.table.name, error)
        with self._serving:
            self.error = error
            self._machine.to(GlobalState.ERROR)
        self._end_restore()

    def fail(self, error: StatecoreError) -> None:
        """Go to ``ERROR``, for something that happened around the store; one that is closed stays so."""
        if self.state is not GlobalState.CLOSED:
            self._give_up(error)

    # Stores that are open.

    def _open_live(self) -> None:
        try:
            store = self._opened(self._places.live)
        except (Corrupted, NotFound) as error:
            self._pending = Invalidity(RecoveryReason.STORE_UNUSABLE, error.what.rstrip("."), trusted=False)
            return
        self._live = HeldStore(store)
        offsets = store.committed_offsets()
        stored = {at.partition: offset for at, offset in offsets.items() if at.topic == self.table.topic}
        self._pending = why_unknown(stored)
        if self._pending is None and self._around.topics.unreadable:
            self._pending = Invalidity(
                RecoveryReason.TOPIC_UNKNOWN, "what was remembered of its topic's id cannot be read"
            )
        if self._pending is None:
            self._positions = stored
            self._built_of = self._around.topics.of(self.table.name, self.table.topic)

    def _open_old(self, path: Path) -> None:
        store = RocksDBStore(path, self.table.kind, read_only=True, settings=self._settings.store)
        try:
            store.open()
        except StatecoreError as error:
            _LOG.warning("The rows that the global store %s had before cannot be read: %s", self.table.name, error)
            return
        self._old = HeldStore(store)

    def _opened(self, path: Path) -> RocksDBStore:
        store = RocksDBStore(
            path, self.table.kind, exactly_once=self._settings.exactly_once, settings=self._settings.store
        )
        store.open()
        return store

    def _reap(self) -> None:
        """Close stores that were replaced and are not read any more, then delete what was set aside."""
        done = [held for held in self._retired if not held.is_read]
        self._retired = [held for held in self._retired if held not in done]
        failures: list[StatecoreError] = []
        for held in done:
            _close(held.store, failures)
        for error in failures:
            _LOG.warning("A global store that was replaced could not be closed: %s", error)
        if self._is_aside and not self._retired and self.state is GlobalState.RUNNING:
            self._discard_aside()

    def _discard_aside(self) -> None:
        self._places.discard_aside()
        self._is_aside = False

    def _end_restore(self) -> None:
        if self._restoring is not None:
            self._restoring.close()
            self._restoring = None


def _close(store: RocksDBStore, failures: list[StatecoreError]) -> None:
    try:
        store.close()
    except StatecoreError as error:
        failures.append(error)
