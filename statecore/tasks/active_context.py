"""What an active task, its processor and its Kafka clients are to each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from statecore.errors import NotFound
from statecore.stores.base import StateStore
from statecore.tasks.change_logging import Acknowledgement, ChangeLoggingStore, Producer


class InputRecord(Protocol):
    """A record of a source topic; kafka-python's ``ConsumerRecord`` is one."""

    @property
    def topic(self) -> str:
        """The source topic."""

    @property
    def partition(self) -> int:
        """Its partition."""

    @property
    def offset(self) -> int:
        """The record's offset."""

    @property
    def timestamp(self) -> int:
        """Its time, in ms since the epoch."""

    @property
    def key(self) -> bytes | None:
        """Its key."""

    @property
    def value(self) -> bytes | None:
        """Its value."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes]]:
        """Its headers."""


class Processor(Protocol):
    """What an application does with its records."""

    def init(self, context: ProcessorContext) -> None:
        """The stores are at the end of their changelogs; called before the first record, and again after an abort."""

    def process(self, record: InputRecord) -> None:
        """Process one record."""

    def close(self) -> None:
        """No record comes any more, until :meth:`init` is called again. Nothing may be written."""


class TransactionalProducer(Producer, Protocol):
    """kafka-python's ``KafkaProducer``, of one task alone; without a ``transactional_id`` under at-least-once."""

    def init_transactions(self) -> None:
        """End what a predecessor with this id has left open, and fence it."""

    def begin_transaction(self) -> None:
        """Begin."""

    def send_offsets_to_transaction(self, offsets: Any, group_metadata: Any) -> None:
        """Have input offsets committed with the transaction."""

    def commit_transaction(self) -> None:
        """Commit."""

    def abort_transaction(self) -> None:
        """Abort."""


class Consumer(Protocol):
    """What is needed of kafka-python's ``KafkaConsumer``; who polls it is the caller's business."""

    def commit(self, offsets: Any, timeout_ms: int | None = None) -> Any:
        """Commit input offsets, at-least-once, within so many ms."""

    def group_metadata(self) -> Any:
        """Who this member is to its group, so that the brokers refuse one that was thrown out."""


class ProcessorContext:
    """What a processor may use; one for each time that a task begins to run.

    Args:
        task: the task.
        stores: its stores by name.
        producer: where output goes.
        sent: told of each record sent.
        request_commit: asks for a commit after the record that is processed.
    """

    def __init__(
        self,
        task: str,
        stores: Mapping[str, ChangeLoggingStore],
        producer: Producer,
        sent: Callable[[Acknowledgement], None],
        request_commit: Callable[[], None],
    ) -> None:
        self.task = task
        self._stores = stores
        self._producer = producer
        self._sent = sent
        self._request_commit = request_commit

    def store(self, name: str) -> StateStore:
        """A store of the task, open for reading and writing.

        Raises:
            NotFound: the task has no such store that a processor can have.
        """
        if name not in self._stores:
            raise NotFound(
                f"Task {self.task} has no store {name} for a processor; it has {', '.join(self._stores)}.",
                code="store-not-found",
                action="Name one of them.",
                task=self.task,
                store=name,
            )
        return self._stores[name]

    def forward(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Send a record to an output topic; it counts when the task commits."""
        self._sent(
            self._producer.send(
                topic, value=value, key=key, headers=list(headers), partition=partition, timestamp_ms=timestamp
            )
        )

    def commit(self) -> None:
        """Have the task commit soon (``ProcessorContext.commit``)."""
        self._request_commit()
