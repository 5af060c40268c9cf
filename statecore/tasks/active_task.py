"""An active task: its processor writes to stores, changelogs and output topics, and the task commits.

::

    created --open()--> restoring --catch_up()--> running --process(), commit()--> running
                            ^                        |
                            |                        +-- abort() at-least-once, or a processor that raised
                            +------------------------+
    restoring, running, failed --recycle()--> recycled           created ... failed --close()--> closed
    running --a Kafka client failed--> failed

A store is never ahead of its changelog, and always has the offset that its rows belong to: Kafka is committed to first
(:mod:`statecore.tasks.kafka_commits`), then the stores.

A process that dies, or aborts, leaves its stores at their last commit. What the changelogs have beyond that is applied
by :meth:`ActiveTask.catch_up`, with the columnar reader, as in a standby task. Nothing is wiped for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from enum import Enum

from statecore.changelog.cluster import Cluster
from statecore.changelog.groups import committed_offsets
from statecore.changelog.model import OffsetRange
from statecore.changelog.reader import ChangelogReader, ReaderOptions
from statecore.errors import Fenced, Invalid, Retryable, StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel
from statecore.spec.model import ApplicationSpec
from statecore.tasks.active_context import Consumer, InputRecord, Processor, ProcessorContext, TransactionalProducer
from statecore.tasks.change_logging import ChangeLoggingStore, check_kind
from statecore.tasks.changelog_ends import ChangelogEnd, changelog_ends
from statecore.tasks.checkpoint_policy import CheckpointSettings
from statecore.tasks.commit_policy import CommitPolicy, CommitSettings
from statecore.tasks.kafka_commits import AtLeastOnce, ExactlyOnce, KafkaCommits, kafka_errors
from statecore.tasks.standby_task import StandbySettings, StandbyTask
from statecore.tasks.task_offsets import NextReader
from statecore.tasks.task_stores import TaskStores

_REFRESH_SECONDS = 300.0
"""Interval at which the brokers are asked for the changelogs again, so that the recorded ends stay recent."""


_GAP_BYTES = 64 << 10
"""Bytes that are requested of a gap between two records: one record is enough."""


class TaskState(Enum):
    """State of an active task; see the diagram of the module."""

    CREATED = "created"
    RESTORING = "restoring"
    RUNNING = "running"
    FAILED = "failed"
    RECYCLED = "recycled"
    CLOSED = "closed"


@dataclass(frozen=True)
class CaughtUp:
    """Result of one call of :meth:`ActiveTask.catch_up`.

    Attributes:
        is_complete: whether the stores are at the end of their changelogs, and the task runs.
        records: records read.
        rebuilt: by store why its rows could not be continued: it was emptied, and the next call reads it from the
            start.
    """

    is_complete: bool
    records: int = 0
    rebuilt: Mapping[str, str] = field(default_factory=dict)


class ActiveTask:
    """A task with open stores and a processor; for one thread.

    Args:
        stores: the stores, open (from ``recycle()`` of a standby task) or not yet.
        spec: the application's spec.
        cluster: the cluster with the changelogs.
        processor: processes the records.
        producer: of this task alone; under exactly-once with a ``transactional_id`` that all active instances of the
            task share, such as ``<application>-<task>``, so that a later one fences an earlier one.
        consumer: of the application's group.
        sources: the partitions of the source topics that belong to the task.
        settings: how much is restored at once.
        commits: when to commit; by default Kafka Streams' intervals.
        checkpoints: when to write ``.checkpoint``.
        faults: fault points of tests.
        clock: seconds, monotonic.

    Raises:
        Invalid: a store has a kind that a processor cannot write to record by record, or a source topic as changelog.
            The stores stay with the caller, unchanged.
    """

    def __init__(
        self,
        stores: TaskStores,
        spec: ApplicationSpec,
        cluster: Cluster,
        processor: Processor,
        producer: TransactionalProducer,
        consumer: Consumer,
        sources: Collection[TopicPartition],
        settings: StandbySettings | None = None,
        *,
        commits: CommitSettings | None = None,
        checkpoints: CheckpointSettings | None = None,
        faults: FaultPoints = NO_FAULTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for store in stores.stores:
            check_kind(store.spec.kind)
            if store.spec.is_source:
                raise Invalid(
                    f"The changelog of store {store.name} is the source topic {store.changelog.topic}, to which a "
                    "processor must not write.",
                    code="changelog-is-source",
                    action="Give the store a changelog of its own.",
                    task=stores.name,
                    store=store.name,
                    topic=store.changelog.topic,
                )
        self.stores = stores
        self._spec = spec
        self._cluster = cluster
        self._processor = processor
        self._consumer = consumer
        self._sources = frozenset(sources)
        isolation = spec.processing_guarantee.isolation
        self._exactly_once = isolation is IsolationLevel.READ_COMMITTED
        self._follower = StandbyTask(stores, cluster, isolation, settings or StandbySettings(), checkpoints=checkpoints)
        self._commits = commits or CommitSettings.from_properties({}, spec.processing_guarantee)
        self._faults = faults
        commits_class = ExactlyOnce if self._exactly_once else AtLeastOnce
        self._kafka_commits: KafkaCommits = commits_class(
            stores.name, producer, consumer, self._commits.max_block_ms, faults
        )
        self._clock = clock
        self._ends_read_at = 0.0
        self._state = TaskState.CREATED
        self._logged: dict[str, ChangeLoggingStore] = {}
        self._policy = CommitPolicy(self._commits, clock=clock)
        self._positions: dict[TopicPartition, int | None] = {}
        self._consumed: dict[TopicPartition, int] = {}
        self._generation = -1
        # Partitions whose consumer is known to have begun at the task's position, in this generation of its group.
        self._continued: set[TopicPartition] = set()
        self._is_initialised = False

    @property
    def name(self) -> str:
        """The task id: ``0_1``."""
        return self.stores.name

    @property
    def state(self) -> TaskState:
        """The present state."""
        return self._state

    def offsets(self) -> dict[TopicPartition, int]:
        """The last committed offset of each changelog of the task; -4 where nothing was applied."""
        return self.stores.offsets()

    def positions(self) -> dict[TopicPartition, int | None]:
        """The next offset to process of each source partition; ``None`` where the application has consumed none.

        The caller seeks its consumer to these whenever :meth:`catch_up` has completed.
        """
        return dict(self._positions)

    def open(self) -> None:
        """Open the stores, where they are not open yet, and fence an earlier instance of the task.

        Raises:
            Invalid: it was opened before.
            Retryable, Fenced: the producer could not begin within ``max.block.ms``; the task has failed.
            StatecoreError: see :meth:`TaskStores.open`.
        """
        self._check(TaskState.CREATED)
        self._follower.open()
        self._state = TaskState.RESTORING
        with self._kafka_errors():
            self._kafka_commits.fence()

    def catch_up(self, stopped: Callable[[], bool] = lambda: False) -> CaughtUp:
        """Bring the stores to the end of their changelogs; the task runs once they are there.

        Under exactly-once that requires a time without open transactions on the changelogs, with equal input offsets
        before and after: what another instance is just committing belongs both to the stores and to the input, or to
        neither.

        Args:
            stopped: called between two batches: whether to end early.

        Returns:
            Whether it runs; else call again, after the caller's own pause.

        Raises:
            Invalid: it is not restoring; or a changelog is another topic than it was, which needs an operator.
            Retryable: a broker did not answer.
            StatecoreError: a store could not be updated, or the processor's ``init`` raised.
        """
        self._check(TaskState.RESTORING)
        before = committed_offsets(self._cluster, self._spec.application_id, self._sources)
        ends = self._read_ends()
        done = self._follower.follow(ends, stopped)
        if done.failed:
            raise next(iter(done.failed.values()))
        for store in done.stale:
            self._follower.rebuild(store)
        at_end = all(store.position >= ends[store.changelog].end for store in self.stores.stores)
        if self._exactly_once:
            at_end = at_end and all(end.log.last_stable >= end.log.log_end for end in ends.values())
        after = committed_offsets(self._cluster, self._spec.application_id, self._sources)
        if done.stale or not at_end or before != after:
            return CaughtUp(False, done.records, done.stale)
        self._positions = dict(after)
        self._continued.clear()
        self._start_processor()
        return CaughtUp(True, done.records)

    def _read_ends(self) -> dict[TopicPartition, ChangelogEnd]:
        """Ask the brokers for the changelogs."""
        self._ends_read_at = self._clock()
        specs = [store.spec for store in self.stores.stores]
        return changelog_ends(self._cluster, self._spec, specs, self._follower.epochs())

    def _refresh_ends(self) -> None:
        """Ask the brokers again every :data:`_REFRESH_SECONDS`, which bounds the age of recorded ends."""
        if self._clock() - self._ends_read_at >= _REFRESH_SECONDS:
            with suppress(StatecoreError):  # the earlier answer is still true, and only older
                self._follower.record_ends(self._read_ends())

    def process(self, records: Iterable[InputRecord]) -> None:
        """Process records, in order within each source partition; they count once :meth:`commit` is called.

        Every record of a partition has to come. Transaction markers and compaction leave gaps between offsets, so where
        the first record after :meth:`catch_up`, or after a rebalance, is beyond the task's position, the brokers are
        asked for a committed record between them.

        Raises:
            Invalid: it is not running, or a record is of a partition that is not a source, or was processed before
                (``offset-unexpected``), or records before it were not given to the task (``offset-gap``). The task
                runs on, once the consumer was sought to :meth:`positions`.
            Retryable: the brokers did not answer that question; the task runs on.
            Retryable, Fenced: a Kafka client failed.
            Exception: raised by the processor; what was written since the last commit was aborted.
        """
        self._check(TaskState.RUNNING)
        generation = getattr(self._consumer.group_metadata(), "generation_id", -1)
        if generation != self._generation:  # the partitions may have been another member's meanwhile
            self._generation = generation
            self._continued.clear()
        for record in records:
            self._process(record)

    def _process(self, record: InputRecord) -> None:
        at = TopicPartition(record.topic, record.partition)
        due = self._positions.get(at)
        if at not in self._sources or (due is not None and record.offset < due):
            self._continued.discard(at)
            raise Invalid(
                f"Task {self.name} does not process offset {record.offset} of {at}: "
                + ("it is not one of its sources." if at not in self._sources else f"it continues at offset {due}."),
                code="partition-unexpected" if at not in self._sources else "offset-unexpected",
                action="Seek the consumer to the positions of the task.",
                task=self.name,
                topic=at.topic,
                partition=at.partition,
                offset=record.offset,
                expected=due,
            )
        if at not in self._continued:
            if due is not None and record.offset > due:
                self._check_gap(at, due, record.offset)
            self._continued.add(at)
        if not self._kafka_commits.is_begun:
            with self._kafka_errors():
                self._kafka_commits.begin()
        for store in self._logged.values():
            store.record_timestamp = record.timestamp
        try:
            self._processor.process(record)
        except BaseException:
            with suppress(Exception):  # the first error is the one to raise; where Kafka failed, the task has
                self.abort()
            raise
        self._positions[at] = self._consumed[at] = record.offset + 1

    def _check_gap(self, at: TopicPartition, due: int, offset: int) -> None:
        """Refuse a gap in which the log has a committed record: the consumer did not begin at the task's position."""
        # What an open transaction may still commit proves nothing.
        end = min(offset, self._cluster.log_offsets([at])[at].last_stable)
        reader = ChangelogReader(self._cluster, ReaderOptions(fetch_bytes=_GAP_BYTES))
        missed = (
            next(reader.read(OffsetRange(*at, due, end), IsolationLevel.READ_COMMITTED), None) if due < end else None
        )
        if missed is not None:
            first = missed["offset"][0].as_py()
            raise Invalid(
                f"Task {self.name} was given offset {offset} of {at}, and continues at offset {due}: offset {first} "
                "was not given to it.",
                code="offset-gap",
                action="Seek the consumer to the positions of the task, after each catch_up and each rebalance.",
                task=self.name,
                topic=at.topic,
                partition=at.partition,
                offset=offset,
                expected=due,
                missed=first,
            )

    def commit_due(self) -> bool:
        """Whether the interval has elapsed, the processor has requested a commit, or the stores have staged much."""
        return self._state is TaskState.RUNNING and self._policy.due()

    def commit(self) -> None:
        """Commit to Kafka, then the stores; does nothing where nothing was processed.

        Raises:
            Invalid: it is not running.
            Fenced: another instance runs the task. The stores are at their last commit.
            Retryable: a Kafka client failed, or was not answered within ``max.block.ms``, and it is unknown whether the
                commit has happened. The stores are at their last commit.
            Capacity: the disk is full; the stores are behind their changelogs, and the next instance catches up.
        """
        self._check(TaskState.RUNNING)
        if self._kafka_commits.is_begun:
            with self._kafka_errors():
                self._kafka_commits.commit(self._logged.values(), self._consumed)
            self._faults.reach("active.after-kafka-commit")
            try:
                for number, store in enumerate(self._logged.values()):
                    if number:
                        self._faults.reach("active.between-stores")
                    store.commit()
                self._follower.read_committed_offsets()
            except BaseException:
                self._fail()
                raise
            self._refresh_ends()  # with no transaction open, which slow brokers would let expire
            self._faults.reach("active.after-commit")
        self._consumed.clear()
        self._policy.committed()

    def abort(self) -> None:
        """Drop what was written since the last commit; the task is restoring again.

        The changelogs may have records that the stores lack (at-least-once), and the source records come again, from
        :meth:`positions` on.

        Raises:
            Invalid: it is not running.
            Fenced, Retryable: the transaction could not be aborted, or records sent were not acknowledged; the task has
                failed. The stores were reset.
            Exception: raised by the processor's ``close``; the task is restoring all the same.
        """
        self._check(TaskState.RUNNING)
        self._state = TaskState.RESTORING
        try:
            self._reset_stores()
        finally:
            with self._kafka_errors():
                self._kafka_commits.abort()

    def recycle(self) -> TaskStores:
        """Give the open stores away, to a standby task for instance; nothing is closed, and no lock is released.

        What was not committed is aborted: call :meth:`commit` before. The clients stay the caller's.

        Returns:
            The stores, each at its last commit.

        Raises:
            Invalid: it has no open stores.
            Invalid, Capacity: the changelog ends cannot be recorded; the stores were not given away.
        """
        self._check(TaskState.RUNNING, TaskState.RESTORING, TaskState.FAILED)
        if self._state is TaskState.RUNNING:
            with suppress(Retryable, Fenced):  # the stores are at their last commit whatever Kafka does
                self.abort()
        stores = self._follower.recycle()
        self._state = TaskState.RECYCLED
        return stores

    def close(self, next_reader: NextReader = NextReader.KAFKA_STREAMS_4_3) -> None:
        """Close the stores for the reader ``next_reader``; idempotent, and does nothing where they were given away.

        What was not committed is aborted: call :meth:`commit` before. The clients stay the caller's.

        Raises:
            StatecoreError: see :meth:`TaskStores.close`.
            Exception: raised by the processor's ``close``; the stores were closed all the same.
        """
        if self._state in (TaskState.CLOSED, TaskState.RECYCLED):
            return
        try:
            if self._state is TaskState.RUNNING:
                with suppress(Retryable, Fenced):  # as in recycle()
                    self.abort()
        finally:
            try:
                if self._state is not TaskState.CREATED:
                    # A record of changelog ends that is older than the stores is still valid.
                    with suppress(StatecoreError):
                        self._follower.recycle()
                self.stores.close(next_reader)
            finally:
                if not self.stores.is_open:
                    self._state = TaskState.CLOSED

    def _start_processor(self) -> None:
        """Give the stores to the processor."""
        self._logged = {
            store.name: ChangeLoggingStore(
                store.database, self._kafka_commits.producer, store.changelog, transactional=self._exactly_once
            )
            for store in self.stores.stores
        }
        self._policy = CommitPolicy(self._commits, tuple(self._logged.values()), self._clock)
        self._state = TaskState.RUNNING
        try:
            with self._kafka_errors():
                self._kafka_commits.begin()  # the processor's init may write too
            context = ProcessorContext(
                self.name,
                self._logged,
                self._kafka_commits.producer,
                self._kafka_commits.record_sent,
                self._policy.request,
            )
            self._is_initialised = True
            self._processor.init(context)
        except BaseException:
            if self._state is TaskState.RUNNING:
                with suppress(Exception):
                    self.abort()
            raise

    def _kafka_errors(self) -> AbstractContextManager[None]:
        return kafka_errors(self.name, self._fail)

    def _reset_stores(self) -> None:
        """Take the stores from the processor, and reset them to their last commit."""
        for store in self._logged.values():
            store.abort()
        self._logged = {}
        self._consumed.clear()
        self._kafka_commits.forget()
        if self._is_initialised:
            self._is_initialised = False
            self._processor.close()

    def _fail(self) -> None:
        """Mark the task as failed: only :meth:`recycle` and :meth:`close` remain."""
        self._state = TaskState.FAILED
        try:
            with suppress(Exception):  # of the processor's close; the earlier error is the one to raise
                self._reset_stores()
        finally:
            for store in self.stores.stores:
                with suppress(StatecoreError):  # an unreadable database keeps its last known offset
                    store.read_committed_offset()
            self._kafka_commits.abandon()

    def _check(self, *allowed: TaskState) -> None:
        if self._state not in allowed:
            raise Invalid(
                f"Task {self.name} is {self._state.value}, not {' or '.join(one.value for one in allowed)}.",
                code="task-state-invalid",
                action="Follow the states of a task.",
                task=self.name,
                state=self._state.value,
            )
