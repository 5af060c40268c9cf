"""What a state store is to the rest of the library, with Kafka Streams' names (``StateStore``, KIP-1035, KIP-892).

Rows here are raw bytes, as on disk; :mod:`statecore.formats` turns them into values and timestamps.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from statecore.errors import Invalid
from statecore.formats.position import Position
from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel
from statecore.stores.query import QueryView
from statecore.stores.rows import TransactionalRows
from statecore.stores.transaction import Running, Transaction


class StateStore(TransactionalRows):
    """One store of one task: rows in key order, and the changelog offset they stand at.

    Writes are staged: visible to this object's own reads at once, to others and to the disk with the next
    :meth:`commit`, which publishes them and the offsets as one: after a crash the store has both or neither.

    One thread writes, commits, opens and closes; any thread may read through :meth:`query_view`. The reads of the store
    itself (``get``, ``scan`` and what is made of them) see staged writes and belong to the writing thread.
    """

    _running: Running | None = None

    @abstractmethod
    def open(self) -> None:
        """Open the store; opening an open store does nothing.

        Raises:
            Fenced: another process has it open.
            NotFound: it does not exist.
            Invalid: it is of another kind, or this user has no right to it.
            Corrupted: it cannot be read.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the store; what was not committed is dropped. Closing a closed store does nothing."""

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether the store is open."""

    @property
    @abstractmethod
    def persistent(self) -> bool:
        """Whether the store survives its process."""

    @property
    @abstractmethod
    def manages_offsets(self) -> bool:
        """Whether the store keeps its own offsets; if not, somebody keeps them for it in a ``.checkpoint``."""

    @abstractmethod
    def approximate_num_entries(self) -> int:
        """Committed rows, about (RocksDB estimates: exact for keys that were written once)."""

    @abstractmethod
    def commit(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Publish everything written since the last commit together with these offsets, all or nothing.

        A transaction that is running ends. When it raises, nothing was published and the writes are still staged:
        commit again, or abort. (A database that could not be written to, its disk being full, takes no more commits
        until it was closed and opened again, when it stands at its last commit; until then it can be read.)

        Only what a signal handler raises can come when the commit has happened. The store knows which it was: a note on
        the exception says so, and what it answers afterwards is what is on the disk.

        Args:
            offsets: last applied changelog offset per partition; partitions that are not named keep theirs, and
                ``None`` forgets one. An empty mapping says nothing of any offset: rows and position are published. (In
                Kafka Streams it forgets them all; that is :meth:`forget_offsets`.) Partitions may also be those of
                kafka-python and confluent-kafka; a plain tuple is none.

        Raises:
            Invalid: the store is not open or read-only, or a partition or an offset is none.
            Capacity: no room on the disk.
        """

    @abstractmethod
    def forget_offsets(self) -> None:
        """Publish everything written since the last commit, and forget all offsets and the position, all or nothing.

        Afterwards nobody knows how far the rows are: the store is restored from the start of its changelog, or wiped.
        What Kafka Streams means by ``commit(Map.of())``; errors as for :meth:`commit`.
        """

    @abstractmethod
    def abort(self) -> None:
        """Drop everything written since the last commit, updates of the position too; a running transaction ends."""

    @property
    def commit_number(self) -> int:
        """How many commits were published since the store object was made.

        For whoever keeps something beside the store: it tells whether a commit that was interrupted has happened. 0
        from stores that cannot tell.
        """
        return 0

    @property
    @abstractmethod
    def commit_requested(self) -> bool:
        """Whether staged writes have reached this store's limit and its task should commit soon.

        A request, as in Kafka Streams (``statestore.uncommitted.max.bytes``): the store goes on taking writes, and
        never commits by itself, because only the caller knows at which offset the rows are whole.
        """

    @abstractmethod
    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The offset last committed for a changelog partition, or ``None``; always ``None`` without managed offsets."""

    @property
    @abstractmethod
    def position(self) -> Position:
        """How far each input topic has been seen, updates since the last commit included; a copy.

        :meth:`update_position` changes it.
        """

    @abstractmethod
    def update_position(self, topic: str, partition: int, offset: int) -> None:
        """Say that the record at an offset of an input topic has been seen; published by the next commit.

        A position only moves forward: an offset that is not greater than the one known changes nothing
        (``Position.withComponent``). Queries with a bound on the position go by it.

        Args:
            topic: an input topic, not the changelog.
            partition: its partition.
            offset: the offset of the record, from 0 on.

        Raises:
            Invalid: the store is not open or read-only, or there can be no such record.
        """

    @abstractmethod
    def flush(self) -> None:
        """Move committed rows from memory (and log) into the store's files."""

    @abstractmethod
    def query_view(self, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> QueryView:
        """The store at this instant, for a query by any thread.

        Args:
            isolation: READ_COMMITTED shows the last commit; READ_UNCOMMITTED also the writes staged since.

        Raises:
            Invalid: the store is not open, or that is no isolation level.
        """

    def transaction(self) -> Transaction:
        """Begin a transaction; what is written to the store itself while it runs belongs to it.

        Raises:
            Invalid: the store is not open, another one has not ended, or there are writes that were not committed.
        """
        transaction = Transaction(self)
        self._begin_transaction(transaction.running)
        return transaction

    def _begin_transaction(self, running: Running) -> None:
        """Let a transaction of this store, or of a wrapper around it, run from now on."""
        if not self.is_open:
            raise Invalid(
                "A store that is not open has no transactions.", code="store-not-open", action="Open it first."
            )
        earlier = self._running
        if earlier is not None and earlier.lost and not earlier.joined:
            self.abort()
            self._end_transaction()
            earlier = None
        unended = earlier is not None and not earlier.ended
        if unended or self.uncommitted_bytes:
            raise Invalid(
                "This store has a transaction that has not ended." if unended else "This store has uncommitted writes.",
                code="transaction-open" if unended else "writes-not-committed",
                action="Commit or abort them first, by the store or by the transaction; a store has one at a time.",
            )
        self._running = running

    def _end_transaction(self) -> None:
        """The part of a commit, an abort or a close that its transaction sees."""
        if self._running is not None:
            self._running.ended = True
            self._running = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def commit_requested(stores: Iterable[StateStore], max_bytes: int) -> bool:
    """Whether the staged writes of a task's stores together have reached a limit; what a processor's loop asks.

    Args:
        stores: the stores that are committed together.
        max_bytes: ``statestore.uncommitted.max.bytes``; -1 for no limit.
    """
    staged = sum(store.uncommitted_bytes for store in stores)
    return staged > 0 and 0 <= max_bytes <= staged
