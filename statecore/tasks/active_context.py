"""Protocols between an active task, its processor and its Kafka clients."""

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
    """An application's processing of its records."""

    def init(self, context: ProcessorContext) -> None:
        """Called before the first record, and again after an abort, with the stores at the end of their changelogs."""

    def process(self, record: InputRecord) -> None:
        """Process one record."""

    def close(self) -> None:
        """Called after the last record, until :meth:`init` is called again. Nothing may be written."""


class TransactionalProducer(Producer, Protocol):
    """kafka-python's ``KafkaProducer`` of one task alone; without a ``transactional_id`` under at-least-once."""

    def init_transactions(self) -> None:
        """End the open transaction of an earlier producer with this id, and fence it."""

    def begin_transaction(self) -> None:
        """Begin a transaction."""

    def send_offsets_to_transaction(self, offsets: Any, group_metadata: Any) -> None:
        """Commit input offsets with the transaction."""

    def commit_transaction(self) -> None:
        """Commit the transaction."""

    def abort_transaction(self) -> None:
        """Abort the transaction."""


class Consumer(Protocol):
    """The methods used of kafka-python's ``KafkaConsumer``; polling is the caller's business."""

    def commit(self, offsets: Any, timeout_ms: int | None = None) -> Any:
        """Commit input offsets, at-least-once, within so many ms."""

    def group_metadata(self) -> Any:
        """The member's generation in its group, by which brokers refuse an expelled member."""


class ProcessorContext:
    """What a processor may use; a new one each time that a task begins to run.

    Args:
        task: the task.
        stores: its stores by name.
        producer: sends output records.
        sent: called for each record sent.
        request_commit: requests a commit after the present record.
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
            NotFound: the task has no such store for a processor.
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
        """Send a record to an output topic; it counts once the task commits."""
        self._sent(
            self._producer.send(
                topic, value=value, key=key, headers=list(headers), partition=partition, timestamp_ms=timestamp
            )
        )

    def commit(self) -> None:
        """Request a commit of the task soon (``ProcessorContext.commit``)."""
        self._request_commit()
