"""A store that sends every write to its changelog too (``ChangeLoggingKeyValueBytesStore`` and its like).

The changelog always comes first, so that the store can be behind it and never ahead::

    exactly-once     producer.begin_transaction()      at-least-once    store.put(...)
                     store.put(...)                                     store.commit()      flushes the producer first
                     producer.commit_transaction()
                     store.commit()

A kill between Kafka's commit and the store's leaves the store behind by exactly the records between its offset and the
end; :func:`~statecore.tasks.restoration.restore.restore` applies them at the next start. The record is that of Kafka
Streams: the value without the timestamp and headers in front of it in the row, which become the record's own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, Protocol

from statecore.errors import Corrupted, Fenced, Invalid, Retryable
from statecore.formats.kinds import StoreKind
from statecore.formats.rows.values import StoredValue, decode_value
from statecore.formats.topic_partition import TopicPartition, as_topic_partition
from statecore.stores.base import StateStore
from statecore.stores.delegating_store import DelegatingStore, find_wrapper
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.rows import check_key

_MOST_IN_FLIGHT = 10_000
FENCING = ("ProducerFencedError", "InvalidProducerEpochError", "InvalidPidMappingError")
"""Names of a producer's errors which mean that it was fenced."""


class Acknowledgement(Protocol):
    """What a producer returns for a sent record."""

    def get(self, timeout: float | None = None) -> Any:
        """Wait for the acknowledgement; the result's ``offset`` is the record's."""


class Producer(Protocol):
    """The methods used of a producer such as kafka-python's ``KafkaProducer``."""

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Acknowledgement:
        """Send a record, without waiting for its acknowledgement."""

    def flush(self, timeout: float | None = None) -> Any:
        """Wait until everything sent is acknowledged."""


class ChangeLoggingStore(DelegatingStore):
    """A store and its changelog; the caller ends the producer's transactions.

    Args:
        store: the store.
        producer: sends the records.
        changelog: the changelog partition.
        transactional: whether the records are part of transactions of the producer. Then the caller calls
            ``commit_transaction()`` before :meth:`commit`, and ``abort_transaction()`` with :meth:`abort`.
        kind: the store's kind; by default that of a :class:`RocksDBStore`, else ``key-value``.
        timeout: seconds to wait for an acknowledgement.

    Attributes:
        record_timestamp: ms since the epoch of the record being processed, for records whose row has no timestamp, and
            for deletes; ``None`` leaves it to the producer's clock.

    Raises:
        Invalid: rows of the kind are not made of one record each.
    """

    def __init__(
        self,
        store: StateStore,
        producer: Producer,
        changelog: TopicPartition,
        *,
        transactional: bool = False,
        kind: StoreKind | None = None,
        timeout: float = 60.0,
        most_in_flight: int = _MOST_IN_FLIGHT,
    ) -> None:
        super().__init__(store)
        self._most_in_flight = most_in_flight
        self._kind = kind or kind_of(store)
        check_kind(self._kind)
        self._producer = producer
        self._changelog = as_topic_partition(changelog)
        self._transactional = transactional
        self._timeout = timeout
        self._sent: deque[Acknowledgement] = deque()
        self._acknowledged: int | None = None
        self._is_changelog_ahead = False
        self.record_timestamp: int | None = None

    @property
    def changelog(self) -> TopicPartition:
        """The changelog partition."""
        return self._changelog

    def open(self) -> None:
        """Open the wrapped store; nothing is sent yet."""
        if not self._store.is_open:
            self._forget()
            self._is_changelog_ahead = False
        self._store.open()

    def close(self) -> None:
        """Close the wrapped store; uncommitted writes are dropped, and the next restore applies what was sent."""
        self._forget()
        super().close()

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write the row, and send it.

        Raises:
            Invalid: see :meth:`StateStore.put`; or the value is not a row of the store's kind, or cannot be sent.
            Retryable: the producer does not take the record.
            Fenced: another producer has the transactional id.
        """
        self._check_not_ahead()
        record = self._record_of(value) if type(value) is bytes else None
        self._store.put(key, value)
        timestamp = self.record_timestamp if record is None or record.timestamp is None else record.timestamp
        headers = list(record.headers or ()) if record is not None else []
        try:
            sent = self._producer.send(
                self._changelog.topic,
                key=key,
                value=None if record is None else record.value,
                headers=headers,
                partition=self._changelog.partition,
                timestamp_ms=timestamp,
            )
        except (TypeError, ValueError) as error:
            self._is_changelog_ahead = True
            raise Invalid(
                f"The producer cannot send a record of {self._changelog}: {error}.",
                code="record-not-sendable",
                action="Abort, close the store and restore it; correct what is written (kafka-python sends no header "
                "without a value).",
                topic=self._changelog.topic,
                partition=self._changelog.partition,
            ) from error
        except BaseException as error:
            self._is_changelog_ahead = True
            if isinstance(error, Exception):
                self._refuse(error)
            raise  # from a signal handler: it is unknown whether the record was sent
        self._sent.append(sent)
        if len(self._sent) > self._most_in_flight:
            self._await_offset(self._sent.popleft())

    def put_all(self, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """:meth:`put` for each of the rows."""
        for key, value in rows:
            self.put(key, value)

    def put_if_absent(self, key: bytes, value: bytes | None) -> bytes | None:
        """:meth:`put` where there is no row yet; else nothing is sent."""
        check_key(key)
        present = self._store.get(key)
        if present is None:
            self.put(key, value)
        return present

    def await_acknowledgements(self) -> None:
        """Wait until every sent record is acknowledged, before input is committed.

        Raises:
            Retryable, Fenced: one was not; see :meth:`commit`.
        """
        self._check_not_ahead()
        if self._sent and not self._transactional:
            try:
                self._producer.flush(self._timeout)
            except Exception as error:
                self._refuse(error)
        while self._sent:
            self._await_offset(self._sent[0])
            self._sent.popleft()

    def commit(self, offsets: Mapping[TopicPartition, int | None] | None = None) -> None:
        """Commit the store at the greatest offset that the changelog has acknowledged.

        Without transactions the producer is flushed first. With them Kafka's transaction must have been committed: the
        store would otherwise be ahead of a transaction that may still be aborted.

        Args:
            offsets: further offsets; one given for the changelog itself takes precedence.

        Raises:
            Retryable, Fenced: a record was not acknowledged. Nothing was committed; the changelog may have the records,
                so close the store and restore it.
            Invalid, Capacity: see :meth:`StateStore.commit`; the call may be repeated.
        """
        self.await_acknowledgements()
        known = dict(offsets or {})
        if self._acknowledged is not None:
            known.setdefault(self._changelog, self._acknowledged)
        elif offsets is None:
            return
        self._store.commit(known)
        self._acknowledged = None

    def forget_offsets(self) -> None:
        """See :meth:`StateStore.forget_offsets`; waits for acknowledgements, as :meth:`commit`."""
        self.await_acknowledgements()
        self._store.forget_offsets()
        self._acknowledged = None

    def abort(self) -> None:
        """Drop what was written since the last commit.

        With transactions, abort the producer's too. Without, records that were sent stay in the changelog and the store
        lacks them: it refuses writes until it is closed, opened and restored.
        """
        self._store.abort()
        if self._transactional:
            self._is_changelog_ahead = False
        elif self._sent or self._acknowledged is not None:
            self._is_changelog_ahead = True
        self._forget()

    def _record_of(self, row: bytes) -> StoredValue:
        """The record of a row, as Kafka Streams logs it."""
        if self._kind is StoreKind.LIST:
            return StoredValue(row)
        try:
            return decode_value(self._kind, row)
        except Corrupted as error:
            raise Invalid(
                f"Nothing was written: a value is not a row of a {self._kind.value} store. {error.what}",
                code="row-format-invalid",
                action="Put the timestamp (and the headers) in front of the value, as encode_value does.",
                kind=self._kind.value,
            ) from error

    def _forget(self) -> None:
        self._sent.clear()
        self._acknowledged = None

    def _await_offset(self, sent: Acknowledgement) -> None:
        try:
            offset = int(sent.get(self._timeout).offset)
        except Exception as error:
            self._is_changelog_ahead = True
            self._refuse(error)
        if offset < 0:
            self._is_changelog_ahead = True
            raise Invalid(
                f"The producer does not learn the offsets of its records in {self._changelog}; nothing was committed.",
                code="acks-insufficient",
                action="Give it acks='all', then close the store, open it, and restore it.",
                topic=self._changelog.topic,
                partition=self._changelog.partition,
            )
        self._acknowledged = offset if self._acknowledged is None else max(offset, self._acknowledged)

    def _check_not_ahead(self) -> None:
        if self._is_changelog_ahead:
            raise Invalid(
                f"The changelog {self._changelog} may have records that the store lacks: writes were dropped, or not "
                "acknowledged, after they had been sent.",
                code="changelog-ahead",
                action="Close the store, open it, and restore it.",
                topic=self._changelog.topic,
                partition=self._changelog.partition,
            )

    def _refuse(self, error: Exception) -> NoReturn:
        kind = Fenced if type(error).__name__ in FENCING else Retryable
        raise kind(
            f"A record of {self._changelog} was not acknowledged: {type(error).__name__} {error}".rstrip(". ") + ".",
            code="producer-fenced" if kind is Fenced else "record-not-acknowledged",
            action="Another producer has this transactional id; stop this one."
            if kind is Fenced
            else "Check the brokers; close the store, open it, and restore it: nothing was committed.",
            topic=self._changelog.topic,
            partition=self._changelog.partition,
        ) from error


def logged_store(store: StateStore) -> StateStore:
    """The store inside a :class:`ChangeLoggingStore`, which a restore writes to; the store itself without one."""
    logging = find_wrapper(store, ChangeLoggingStore)
    return store if logging is None else logging.wrapped


_KINDS = (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.HEADERS_KEY_VALUE, StoreKind.LIST)


def kind_of(store: StateStore) -> StoreKind:
    """The kind of the RocksDB store inside any wrappers; ``key-value`` for other stores."""
    while isinstance(store, DelegatingStore):
        store = store.wrapped
    return store.kind if isinstance(store, RocksDBStore) else StoreKind.KEY_VALUE


def check_kind(kind: StoreKind) -> None:
    """Refuse, with ``Invalid``, kinds that one database cannot maintain record by record."""
    if kind not in _KINDS:
        raise Invalid(
            f"A store of kind {kind.value} cannot be updated from its changelog record by record: its rows are in "
            "segments and expire, or keep old versions.",
            code="kind-unsupported",
            action="Rebuild it with statecore restore, which supports every kind; your processor can have stores "
            "of the kinds " + ", ".join(one.value for one in _KINDS) + ".",
            kind=kind.value,
        )
