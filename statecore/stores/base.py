"""``StateStore``, the interface of all stores, with Kafka Streams' names (``StateStore``, KIP-1035, KIP-892).

Rows are raw bytes, as on disk; :mod:`statecore.formats` decodes values and timestamps.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Self

from statecore.errors import Invalid
from statecore.formats.position import Position
from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel
from statecore.stores.query import QueryView
from statecore.stores.rows import TransactionalRows
from statecore.stores.transaction import Running, Transaction


class StateStore(TransactionalRows):
    """One store of one task: rows in key order, and the changelog offset of their last commit.

    Writes are staged: this object's own reads see them at once; the next :meth:`commit` publishes them with the offsets
    atomically: after a crash the store has both or neither.

    One thread writes, commits, opens and closes; any thread may read through :meth:`query_view`. The store's own reads
    (``get``, ``scan`` and derived ones) see staged writes and belong to the writing thread.
    """

    _running: Running | None = None

    @abstractmethod
    def open(self) -> None:
        """Open the store; opening an open store does nothing.

        Raises:
            Fenced: another process has it open.
            NotFound: it does not exist.
            Invalid: it is of another kind, or missing permissions.
            Corrupted: it cannot be read.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the store and drop uncommitted writes; closing a closed store does nothing."""

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
        """Whether the store keeps its own offsets; if not, its caller keeps them in a ``.checkpoint``."""

    @abstractmethod
    def approximate_num_entries(self) -> int:
        """Approximate number of committed rows (a RocksDB estimate: exact for keys written once)."""

    @abstractmethod
    def commit(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Publish everything written since the last commit together with these offsets, atomically.

        A running transaction ends. If this raises, nothing was published and the writes are still staged: commit again,
        or abort. (After a failed write, for instance on a full disk, a database takes no more commits until it is
        closed and reopened at its last commit; until then it can be read.)

        Only an exception raised by a signal handler may come after the commit has happened. The store knows: a note on
        the exception says so, and reads then show what is on disk.

        Args:
            offsets: last applied changelog offset per partition; partitions that are not named keep theirs, and
                ``None`` removes one. An empty mapping changes no offset: rows and position are published. (In Kafka
                Streams it forgets all; use :meth:`forget_offsets`.) Partitions may also be those of kafka-python and
                confluent-kafka, but no plain tuples.

        Raises:
            Invalid: the store is not open or read-only, or a partition or offset is invalid.
            Capacity: no space left on the disk.
        """

    @abstractmethod
    def forget_offsets(self) -> None:
        """Publish everything written since the last commit, and remove all offsets and the position, atomically.

        Afterwards the offset of the rows is unknown: restore the store from the start of its changelog, or wipe it.
        Same as ``commit(Map.of())`` in Kafka Streams; errors as for :meth:`commit`.
        """

    @abstractmethod
    def abort(self) -> None:
        """Drop everything written since the last commit, including position updates; ends a running transaction."""

    @property
    def commit_number(self) -> int:
        """Number of commits published by this store object; 0 from stores that do not count.

        Tells callers that keep data beside the store whether an interrupted commit has happened.
        """
        return 0

    @property
    @abstractmethod
    def commit_requested(self) -> bool:
        """Whether staged writes have reached this store's limit and its task should commit soon.

        A request, as in Kafka Streams (``statestore.uncommitted.max.bytes``): the store keeps accepting writes and
        never commits by itself, because only the caller knows at which offset the rows are complete.
        """

    @abstractmethod
    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The offset last committed for a changelog partition, or ``None``; always ``None`` without managed offsets."""

    @property
    @abstractmethod
    def position(self) -> Position:
        """The last seen offset of each input topic partition, including updates since the last commit; a copy."""

    @abstractmethod
    def update_position(self, topic: str, partition: int, offset: int) -> None:
        """Record that an offset of an input topic has been processed; published by the next commit.

        A position only moves forward: a lower or equal offset changes nothing (``Position.withComponent``). Queries
        with a position bound use it.

        Args:
            topic: an input topic, not the changelog.
            offset: the offset of the record, from 0 on.

        Raises:
            Invalid: the store is not open or read-only, or no such record can exist.
        """

    @abstractmethod
    def flush(self) -> None:
        """Flush committed rows from memory (and log) to the store's files."""

    @abstractmethod
    def query_view(self, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> QueryView:
        """A consistent read view of the store as of now, for a query by any thread.

        Args:
            isolation: READ_COMMITTED shows the last commit; READ_UNCOMMITTED also the writes staged since.

        Raises:
            Invalid: the store is not open, or ``isolation`` is invalid.
        """

    def transaction(self) -> Transaction:
        """Begin a transaction; writes to the store itself belong to it while it runs.

        Raises:
            Invalid: the store is not open, another transaction has not ended, or there are uncommitted writes.
        """
        transaction = Transaction(self)
        self._begin_transaction(transaction.running)
        return transaction

    def _begin_transaction(self, running: Running) -> None:
        """Begin a transaction of this store or of a wrapper around it."""
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
                action="Commit or abort first, on the store or on the transaction; a store has one at a time.",
            )
        self._running = running

    def _end_transaction(self) -> None:
        """Mark the transaction as ended, by a commit, abort or close."""
        if self._running is not None:
            self._running.ended = True
            self._running = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def commit_requested(stores: Iterable[StateStore], max_bytes: int) -> bool:
    """Whether the staged writes of a task's stores together have reached a limit.

    ``max_bytes`` is ``statestore.uncommitted.max.bytes``; -1 for no limit.
    """
    staged = sum(store.uncommitted_bytes for store in stores)
    return staged > 0 and 0 <= max_bytes <= staged
