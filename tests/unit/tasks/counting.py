"""A task that counts by key, its spec, and Kafka clients that keep what they are told, for tests of an active task."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, StoreSpec
from statecore.tasks.active_context import InputRecord, ProcessorContext
from tests.unit.tasks.producing import ListedProducer

COUNTS = "counts"
AGAIN = "again"
"""A second store, with the same rows."""


def spec_of(
    application_id: str,
    guarantee: ProcessingGuarantee,
    servers: str = "nowhere:9092",
    kind: StoreKind = StoreKind.KEY_VALUE,
    names: tuple[str, ...] = (COUNTS,),
) -> ApplicationSpec:
    """An application with stores of counts in subtopology 0."""
    retention_ms = 600_000 if kind.is_segmented else None
    stores = tuple(
        StoreSpec(name, kind, 0, f"{application_id}-{name}-changelog", retention_ms=retention_ms) for name in names
    )
    return ApplicationSpec(application_id, servers, guarantee, stores, ())


@dataclass
class Counting:
    """Counts records by key, and sends each count to a topic; a value ``bad`` it cannot process."""

    output: str
    names: tuple[str, ...] = (COUNTS,)
    happened: list[str] = field(default_factory=list)

    def init(self, context: ProcessorContext) -> None:
        self.happened.append("init")
        self.context = context
        self.stores = [context.store(name) for name in self.names]

    def process(self, record: InputRecord) -> None:
        assert record.key is not None
        count = b"%d" % (int(self.stores[0].get(record.key) or 0) + 1)
        for store in self.stores:
            store.put(record.key, count)
        self.context.forward(self.output, record.key, count, timestamp=record.timestamp)
        if record.value == b"bad":
            raise ArithmeticError("bad")

    def close(self) -> None:
        self.happened.append("close")


@dataclass
class Input:
    """A record of the source topic."""

    offset: int
    key: bytes | None
    value: bytes | None = b"v"
    topic: str = "in"
    partition: int = 0
    timestamp: int = 1_700_000_000_000
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass
class TransactionalListed(ListedProducer):
    """Keeps what it is sent, and what became of its transactions; ``commit_error`` is that of the next commit.

    A call that ``silent`` names waits until ``answered`` is set, as kafka-python does while brokers are away;
    ``reached`` is set when it does.
    """

    commit_error: Exception | None = None
    abort_error: Exception | None = None
    silent: str = ""
    answered: threading.Event = field(default_factory=threading.Event)
    reached: threading.Event = field(default_factory=threading.Event)

    def _reach(self, call: str) -> None:
        if call == self.silent:
            self.reached.set()
            self.answered.wait(60)

    def flush(self, timeout: float | None = None) -> None:
        self._reach("flush")
        super().flush(timeout)

    def init_transactions(self) -> None:
        self._reach("init_transactions")
        self.happened.append("init")

    def begin_transaction(self) -> None:
        self.happened.append("begin")

    def send_offsets_to_transaction(self, offsets: Any, group_metadata: Any) -> None:
        self._reach("send_offsets_to_transaction")
        self.happened.append(f"offsets {[(at.topic, one.offset) for at, one in offsets.items()]} {group_metadata}")

    def commit_transaction(self) -> None:
        self._reach("commit_transaction")
        if self.commit_error is not None:
            raise self.commit_error
        self.happened.append("commit")

    def abort_transaction(self) -> None:
        self._reach("abort_transaction")
        if self.abort_error is not None:
            raise self.abort_error
        self.happened.append("abort")


@dataclass
class ListedMember:
    """What a consumer is to its group."""

    generation_id: int

    def __str__(self) -> str:
        return "group"


@dataclass
class ListedConsumer:
    """Keeps what is committed, in the list of its producer."""

    producer: TransactionalListed
    generation_id: int = -1

    def commit(self, offsets: Any, timeout_ms: int | None = None) -> None:
        self.producer.happened.append(f"consumed {[(at.topic, one.offset) for at, one in offsets.items()]}")

    def group_metadata(self) -> ListedMember:
        return ListedMember(self.generation_id)


def source() -> TopicPartition:
    """The source partition of the task."""
    return TopicPartition("in", 0)
