"""Commits a task's work to Kafka, by its guarantee; the task commits its stores after that.

==================  ==================================================================================================
exactly-once        changelogs, output and input offsets in one Kafka transaction; when that is committed, the stores
at-least-once       the producer is flushed, the input offsets are committed, then the stores, as in Kafka Streams
==================  ==================================================================================================

Input offsets are never committed before the changelogs and output topics have acknowledged all that was made of the
input. A call that fails, or is not answered in time (``max.block.ms``), never counts as a commit: the next owner of the
stores finds in the changelogs whether it was one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from statecore.errors import Fenced, Retryable, StatecoreError
from statecore.faults import FaultPoints
from statecore.formats.topic_partition import TopicPartition
from statecore.tasks.active_context import Consumer, TransactionalProducer
from statecore.tasks.bounded_producer import BoundedProducer, unanswered
from statecore.tasks.change_logging import FENCING, Acknowledgement, ChangeLoggingStore

_FENCING = (*FENCING, "CommitFailedError", "IllegalGenerationError", "UnknownMemberIdError", "FencedInstanceIdError")
_TIMEOUT = "KafkaTimeoutError"


class KafkaCommits(ABC):
    """What a task has sent since its last commit, and the clients that commit it; raises what the clients raise."""

    def __init__(
        self, task: str, producer: TransactionalProducer, consumer: Consumer, max_block_ms: int, faults: FaultPoints
    ) -> None:
        self.producer = BoundedProducer(producer, task, max_block_ms)  # the producer to send with; its calls time out
        self._task = task
        self._consumer = consumer
        self._max_block_ms = max_block_ms
        self._faults = faults
        self._sent: list[Acknowledgement] = []
        self._has_begun = False

    @property
    def is_begun(self) -> bool:
        """Whether there may be something to commit: :meth:`begin` was called since the last commit or abort."""
        return self._has_begun

    def record_sent(self, record: Acknowledgement) -> None:
        """Record a record that was sent to an output topic, whether :meth:`begin` was called or not."""
        self._sent.append(record)
        self._has_begun = True

    def forget(self) -> None:
        """Drop what was sent to output topics since the last commit."""
        self._sent.clear()

    def commit(self, stores: Collection[ChangeLoggingStore], consumed: Mapping[TopicPartition, int]) -> None:
        """Commit what was sent, and the input offsets."""
        from kafka import TopicPartition as KafkaPartition
        from kafka.structs import OffsetAndMetadata

        self.producer.flush()
        for sent in self._sent:
            sent.get(0)
        self._sent.clear()
        for store in stores:
            # Input whose changes the changelog has not acknowledged must not be committed.
            store.await_acknowledgements()
        self._faults.reach("active.before-kafka-commit")
        self._end({KafkaPartition(*at): OffsetAndMetadata(offset, "", -1) for at, offset in consumed.items()})
        self._has_begun = False

    def begin(self) -> None:
        """Begin before anything is sent, to a changelog or an output topic; idempotent until the next commit."""
        if not self._has_begun:
            self._begin()
            self._has_begun = True

    def abort(self) -> None:
        """Abort what was sent since the last commit, as far as the guarantee allows; waits for acknowledgements."""
        has_begun, self._has_begun = self._has_begun, False
        if has_begun:
            self._abort()

    @abstractmethod
    def fence(self) -> None:
        """Fence an earlier instance of the task, once."""

    @abstractmethod
    def abandon(self) -> None:
        """As :meth:`abort` where a client has failed: what cannot be done is left to the brokers."""

    @abstractmethod
    def _begin(self) -> None:
        """Begin; see :meth:`begin`."""

    @abstractmethod
    def _abort(self) -> None:
        """Abort; see :meth:`abort`."""

    @abstractmethod
    def _end(self, offsets: Mapping[Any, Any]) -> None:
        """Commit with these input offsets; everything sent was acknowledged."""


class ExactlyOnce(KafkaCommits):
    """Records and input offsets in one transaction."""

    _was_member = False

    def fence(self) -> None:
        self._was_member = getattr(self._consumer.group_metadata(), "generation_id", -1) >= 0
        self.producer.init_transactions()

    def abandon(self) -> None:
        with suppress(Exception):  # the brokers abort it in any case, when it has timed out or is fenced
            self.abort()

    def _begin(self) -> None:
        self.producer.begin_transaction()

    def _abort(self) -> None:
        self.producer.abort_transaction()

    def _end(self, offsets: Mapping[Any, Any]) -> None:
        if offsets:
            member = self._consumer.group_metadata()
            is_member = getattr(member, "generation_id", -1) >= 0
            if self._was_member and not is_member:
                # Without a generation brokers take offsets as those of a consumer that has never been in a group.
                raise Fenced(
                    f"The consumer of task {self._task} was removed from its group; the task's stores are at their "
                    "last commit.",
                    code="consumer-fenced",
                    action="Give the stores to a standby task, or close them, until the group assigns the task again.",
                    task=self._task,
                )
            self._was_member = is_member
            self.producer.send_offsets_to_transaction(offsets, member)
        self.producer.commit_transaction()


class AtLeastOnce(KafkaCommits):
    """Records first, then the input offsets."""

    def fence(self) -> None:
        """See :meth:`KafkaCommits.fence`; fences no other instance."""
        self.producer.check()

    def abandon(self) -> None:
        """See :meth:`KafkaCommits.abandon`."""

    def _begin(self) -> None:
        self.producer.check()

    def _abort(self) -> None:
        self.producer.flush()  # else these records would come after the end that catch_up finds

    def _end(self, offsets: Mapping[Any, Any]) -> None:
        if not offsets:
            return
        try:
            self._consumer.commit(offsets, timeout_ms=self._max_block_ms)
        except Exception as error:
            if type(error).__name__ != _TIMEOUT:
                raise
            raise unanswered(self._task, "its input offsets to be committed", self._max_block_ms) from error


@contextmanager
def kafka_errors(task: str, fail: Callable[[], None]) -> Iterator[None]:
    """Fail the task on an error of a client, and convert the error."""
    try:
        yield
    except BaseException as error:
        fail()
        if isinstance(error, StatecoreError) or not isinstance(error, Exception):
            raise
        kind = Fenced if type(error).__name__ in _FENCING else Retryable
        raise kind(
            f"Task {task} was not acknowledged by Kafka: {type(error).__name__} {error}".rstrip(". ")
            + ". Its stores are at their last commit.",
            code="producer-fenced" if kind is Fenced else "commit-not-acknowledged",
            action="Another instance runs the task; give the stores to a standby task, or close them."
            if kind is Fenced
            else "Check the brokers; then give the stores to a new active task with a new producer.",
            task=task,
        ) from error
