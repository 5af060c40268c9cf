"""One global store: opened, caught up with its topic, followed, and rebuilt where its offsets are invalid.

A round asks for the topic's logs, reads what is new, and commits it atomically with the next offsets of all partitions.
An error of a round decides what comes next (:mod:`.retry_policy`):

- an offset outside the topic's logs, a topic with another id, a damaged store: the following rounds rebuild the
  store, which is set aside;
- brokers that do not answer, a disk that fails, an absent topic: retried with growing pauses; the topic not for ever;
- a full disk, no rights, records of another kind: ``ERROR``.
"""

from __future__ import annotations

import statecore.extras.pipeline

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from statecore.changelog.cleanup_policy import check_compacted
from statecore.changelog.cluster import Cluster
from statecore.changelog.model import OffsetRange, TopicDescription
from statecore.errors import Invalid, NotFound, Retryable, StatecoreError
from statecore.faults import FaultInjected, FaultPoints
from statecore.formats.topic_partition import TopicPartition
from statecore.global_stores.backups import GlobalBackups
from statecore.global_stores.databases import GlobalDatabases, why_unusable
from statecore.global_stores.offset_validation import InvalidOffsets, why_invalid, why_recreated, why_unknown
from statecore.global_stores.reader import LogStartMoved, RoundReader, TopicEnds
from statecore.global_stores.retry_policy import Decision, Phase, RetryPolicy
from statecore.global_stores.settings import GlobalSettings, GlobalTable
from statecore.global_stores.state import GlobalState, RecoveryReason, StateListener, StateMachine
from statecore.global_stores.topic_ids import TopicIds
from statecore.global_stores.views import GlobalView
from statecore.metrics import GLOBAL_STATE, RECORDS_LAG, RECOVERIES, RETRIES, Metrics, RestoreMetrics, store_tags
from statecore.statedir.state_directory import StateDirectory
from statecore.system_errors import RUN_AS_APPLICATION, system_error


@dataclass(frozen=True)
class GlobalContext:
    """What all global stores of a process share."""

    directory: StateDirectory  # the application's state directory, locked
    cluster: Cluster  # the cluster with the topics
    settings: GlobalSettings  # how the stores are kept
    topics: TopicIds  # the ids of the topics that they are built of
    backups: GlobalBackups  # backups of former rows
    listener: StateListener | None  # called for every change of state, while locks are held
    metrics: Metrics  # gets the measurements
    faults: FaultPoints  # fault points of tests
    clock: Callable[[], float]  # seconds, monotonic


_LOG = logging.getLogger(__name__)


class GlobalStore:
    """One global store of a process. One thread opens, polls and closes it; any thread may query it."""

    def __init__(self, table: GlobalTable, context: GlobalContext) -> None:
        self.table = table
        self._context, self._settings = context, context.settings
        self._databases = GlobalDatabases(table, context.directory, context.settings, context.backups, context.faults)
        self._machine = StateMachine(table.name, context.listener)
        self._retry_policy = RetryPolicy(context.settings, context.clock)
        self._tags = store_tags("global", table.name)
        self._pending: InvalidOffsets | None = None
        self._topic: TopicDescription | None = None
        self._described_at: float | None = None
        self._built_of: str | None = None
        self._positions: dict[int, int] = {}  # replaced and never changed: other threads look at it
        self._targets: dict[int, int] | None = None
        self._committed = False
        self._epochs: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._phase = Phase.QUERYING
        self._restoring: RestoreMetrics | None = None
        self._unobserve: list[Callable[[], None]] = []
        self.error: StatecoreError | None = None
        """The error of state ``ERROR``; else the last error of the brokers, until they answer."""
        self.recoveries: list[InvalidOffsets] = []  # Why it was rebuilt, each time since it was opened

    @property
    def state(self) -> GlobalState:
        """The present state."""
        return self._machine.state

    @property
    def lag(self) -> int:
        """Offsets that it is behind the end of its topic, as of the last round."""
        positions = self._positions
        return sum(max(0, end - positions.get(at, 0)) for at, end in self._ends.items())

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The next offset of each partition, as far as known."""
        return {TopicPartition(self.table.topic, at): offset for at, offset in self._positions.items()}

    def open(self) -> None:
        """Open what is on the disk, without asking brokers."""
        stored, self._pending = self._databases.open()
        if self._databases.live is not None:
            self._pending = why_unknown(stored)
            if self._pending is None and self._context.topics.unreadable:
                self._pending = InvalidOffsets(RecoveryReason.TOPIC_UNKNOWN, "the saved id of its topic cannot be read")
            if self._pending is None:
                self._positions = stored
                self._built_of = self._context.topics.get(self.table.name, self.table.topic, self._databases.identity)
        self._databases.open_old(valid=self._databases.live is not None and self._pending is None)
        self._machine.change_to(GlobalState.RESTORING)
        metrics = self._context.metrics
        self._unobserve = [
            metrics.observe(GLOBAL_STATE, lambda: self.state.number, self._tags),
            metrics.observe(RECORDS_LAG, lambda: self.lag, self._tags),
        ]

    def check_topic(self) -> None:
        """Ask for the topic, to refuse an unsuitable one at once; brokers that do not answer are asked later."""
        try:
            self._describe()
        except (Retryable, NotFound) as error:
            self._failed(error)

    def poll(self) -> int:
        """Run one round, if it is due; returns the records that were applied."""
        if self.state not in (GlobalState.RESTORING, GlobalState.RUNNING):
            return 0
        self._databases.discard_replaced(valid=self.state is GlobalState.RUNNING)
        if not self._retry_policy.is_due:
            return 0
        self._phase = Phase.QUERYING
        try:
            applied = self._round()
        except LogStartMoved:
            self._lost_records()
        except StatecoreError as error:
            self._failed(error)
        except OSError as error:
            what = f"A round of the global store {self.table.name} failed"
            self._failed(system_error(error, what, action=RUN_AS_APPLICATION, store=self.table.name))
        except FaultInjected:
            raise
        except Exception as error:
            _LOG.exception("A round of the global store %s failed.", self.table.name)
            self._give_up(_defect(self.table.name, error))
        else:
            self._retry_policy.succeeded(running=self.state is GlobalState.RUNNING)
            self.error = None
            return applied
        return 0

    def query_view(self, *, stale: bool = False) -> GlobalView:
        """A view of the store now; see :meth:`GlobalStores.query_view`."""
        databases = self._databases
        with databases.serving:
            state = self.state
            if state is GlobalState.RUNNING and databases.live is not None:
                return databases.live.view(stale=False)
            if state in (GlobalState.CREATED, GlobalState.CLOSED):
                raise Invalid(
                    f"The global store {self.table.name} is not open.",
                    code="store-not-open",
                    action="Open it first.",
                    store=self.table.name,
                )
            held = databases.live if databases.live is not None and self._pending is None else databases.old
            if stale and held is not None:
                return held.view(stale=True)
            if state is GlobalState.ERROR and self.error is not None:
                failed = self.error
                raise failed.restated(failed.what)
        has_old = "Try again later, or ask for the former rows (stale=True)."
        raise Retryable(
            f"The global store {self.table.name} is being restored from topic {self.table.topic} "
            f"({self.lag:,} offsets are left).",
            code="store-restoring",
            action="Try again later; there are no older rows of it." if held is None else has_old,
            store=self.table.name,
            topic=self.table.topic,
        )

    def close(self) -> None:
        """Close everything; views end. Idempotent."""
        with self._databases.serving:
            is_valid = self.state is GlobalState.RUNNING
            self._machine.change_to(GlobalState.CLOSED)
            failures = self._databases.close(valid=is_valid)
        for end in self._unobserve:
            end()
        self._unobserve = []
        self._end_restore()
        if failures:
            raise failures[0]

    # A round.

    def _round(self) -> int:
        self._context.directory.check_locked()
        now = self._context.clock()
        due = self._described_at is None or now - self._described_at >= self._settings.metadata_interval
        if due or self._topic is None:
            self._describe()
        assert self._topic is not None
        table = self.table
        topic_ends = TopicEnds(
            self._context.cluster,
            table.topic,
            self._topic.partitions,
            self._epochs,
            exactly_once=self._settings.exactly_once,
        )
        self._retry_policy.topic_answered()
        invalid = (
            self._pending
            or why_recreated(self._built_of, self._topic)
            or why_invalid(self._positions, topic_ends.logs, topic_ends.epoch_ends)
        )
        if invalid is not None:
            self._recover(invalid)
        self._epochs, self._ends = topic_ends.epochs, topic_ends.ends
        if self._targets is None:
            self._start_restore(topic_ends)
        if self._databases.is_built:
            self._finish_restore()  # its earlier error is over; nothing is read until it is in its place
        applied = self._advance(topic_ends)
        if self.state is GlobalState.RESTORING and self._has_reached(topic_ends):
            self._finish_restore()
        return applied

    def _describe(self) -> None:
        """Ask for the topic, and refuse one that deletes rows."""
        table = self.table
        topic = self._context.cluster.describe_topics([table.topic])[table.topic]
        if self._topic is None or self._topic.topic_id != topic.topic_id:
            check_compacted(
                topic,
                table.name,
                accept=self._settings.accept_uncompacted,
                how_to_accept="GlobalSettings(accept_uncompacted=True)",
            )
        self._topic, self._described_at = topic, self._context.clock()

    def _start_restore(self, topic_ends: TopicEnds) -> None:
        """Begin to restore: from the offsets of the live store, or a new one from the earliest."""
        assert self._topic is not None
        self._phase = Phase.STORING
        self._built_of = self._topic.topic_id
        self._committed = False
        if self._databases.live is None:
            self._databases.start_build()
        else:
            self._save_topic_id(self._databases.identity)
        self._positions = {**{at: log.log_start for at, log in topic_ends.logs.items()}, **self._positions}
        self._targets = dict(topic_ends.ends)
        self._restoring = RestoreMetrics(self._context.metrics, self.lag, self._tags)

    def _advance(self, topic_ends: TopicEnds) -> int:
        """Apply what one round reads, and commit it with the next offsets."""
        table, most = self.table, self._settings.round_offsets
        assert self._built_of is not None
        starts = {at: self._positions.get(at, log.log_start) for at, log in sorted(topic_ends.logs.items())}
        wanted = {at: max(start, min(topic_ends.ends[at], start + most)) for at, start in starts.items()}
        spans = [OffsetRange(table.topic, at, starts[at], end) for at, end in wanted.items() if end > starts[at]]
        if not spans and self._committed:
            return 0
        self._phase = Phase.READING
        self._context.faults.reach("global.before-read")
        read = RoundReader(table, self._settings, self._context.cluster, self._databases.runs)
        first = self._databases.is_building and not self._committed
        runs = read.read(spans, self._built_of, first=first) if spans else []
        self._context.faults.reach("global.after-read")
        self._phase = Phase.STORING
        self._databases.write(runs, self._next_offsets(wanted))
        self._positions, self._committed = wanted, True
        if self._restoring is not None:
            self._restoring.restored(read.records)
        return read.records

    def _next_offsets(self, positions: Mapping[int, int]) -> dict[TopicPartition, int]:
        return {TopicPartition(self.table.topic, at): offset for at, offset in positions.items()}

    def _save_topic_id(self, identity: str) -> None:
        """Save the topic that a database of this store is built of."""
        assert self._built_of is not None
        self._context.topics.save(self.table.name, self.table.topic, self._built_of, identity)

    def _has_reached(self, topic_ends: TopicEnds) -> bool:
        """Whether all that the topic held at first is applied, as far as the logs still have it."""
        targets = self._targets or {}
        return all(self._positions.get(at, 0) >= min(end, topic_ends.ends.get(at, 0)) for at, end in targets.items())

    def _finish_restore(self) -> None:
        """Finish the restore: put a built database in its place, and serve it."""
        self._phase = Phase.STORING
        try:
            self._databases.finish_build(self._next_offsets(self._positions))
        except StatecoreError:
            self._reset_restore()
            raise
        self._databases.put_in_place(self._save_topic_id)
        with self._databases.serving:
            self._databases.retire_old()
            self._machine.change_to(GlobalState.RUNNING)
        self._end_restore()
        self._databases.discard_replaced(valid=True)
        self._context.faults.reach("global.recovered")

    def _reset_restore(self) -> None:
        """Reset the restore: the next round begins again."""
        self._targets = self._built_of = None
        self._positions, self._epochs = {}, {}

    # Errors.

    def _recover(self, invalid: InvalidOffsets) -> None:
        """Set aside what is there, so that the following rounds rebuild the store."""
        if not self.recoveries or self.recoveries[-1] is not invalid:  # not where it is retried
            _LOG.warning(
                "The global store %s is rebuilt from the start of topic %s: %s.",
                self.table.name,
                self.table.topic,
                invalid.text,
            )
            self.recoveries.append(invalid)
            self._context.metrics.add(RECOVERIES, 1, {**self._tags, "reason": invalid.reason.value})
        self._pending = invalid  # until it is done, whatever fails below
        self._phase = Phase.STORING
        self._end_restore()
        self._retry_policy.restart()
        with self._databases.serving:
            self._machine.change_to(GlobalState.RESTORING)
            self._databases.stop_serving(trusted=invalid.trusted)
        self._databases.set_aside(trusted=invalid.trusted)
        self._reset_restore()
        self._pending = None

    def _failed(self, error: StatecoreError) -> None:
        """Retry, rebuild or give up after an error of a round."""
        self._described_at = None
        decision = self._retry_policy.classify(error, self._phase)
        if decision is Decision.GIVE_UP:
            self._give_up(self._retry_policy.give_up_error(error, self._phase, self.table.name))
            return
        if decision is Decision.REBUILD:
            self._pending = why_unusable(error)
        self.error = error
        self._context.metrics.add(RETRIES, 1, self._tags)
        _LOG.info("The global store %s tries again: %s", self.table.name, error)

    def _lost_records(self) -> None:
        what = "records were deleted before they were read"
        if self._retry_policy.lost_records() is Decision.REBUILD:
            self._pending = InvalidOffsets(RecoveryReason.BELOW_LOG_START, what)
            return
        error = Retryable(
            f"Topic {self.table.topic}: {what}.",
            code="retention-too-short",
            action="Give the topic a longer retention, or the store a faster disk; then start again.",
            store=self.table.name,
            topic=self.table.topic,
        )
        self._give_up(self._retry_policy.give_up_error(error, self._phase, self.table.name))

    def _give_up(self, error: StatecoreError) -> None:
        _LOG.error("The global store %s cannot be followed: %s", self.table.name, error)
        with self._databases.serving:
            self.error = error
            self._machine.change_to(GlobalState.ERROR)
        self._end_restore()

    def fail(self, error: StatecoreError) -> None:
        """Go to ``ERROR`` for a failure outside the store, unless it is closed."""
        with self._databases.serving:
            if self.state is not GlobalState.CLOSED:
                self._give_up(error)

    def _end_restore(self) -> None:
        if self._restoring is not None:
            self._restoring.close()
            self._restoring = None


def _defect(store: str, error: Exception) -> StatecoreError:
    return Retryable(
        f"Following the global store {store} failed: {type(error).__name__}: {error}.",
        code="background-thread-failed",
        action="Start again; report it if it happens twice.",
        store=store,
    )
