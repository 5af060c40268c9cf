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
from statecore.stores.rows import WritableRows
from statecore.stores.transaction import Transaction


class StateStore(WritableRows):
    """One store of one task: rows in key order, and the changelog offset they stand at.

    Writes are staged: visible to this object's own reads at once, to others and to the disk with the next
    :meth:`commit`, which publishes them and the offsets as one: after a crash the store has both or neither.

    One thread writes, commits, opens and closes; any thread may read through :meth:`query_view`. The reads of the store
    itself (``get``, ``scan`` and what is made of them) see staged writes and belong to the writing thread.
    """

    _transaction: Transaction | None = None

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

        When it raises, nothing was published and the writes are still staged: commit again, or abort. (A database that
        could not be written to, its disk being full, takes no more commits until it was closed and opened again, when
        it stands at its last commit; until then it can be read.)

        Args:
            offsets: last applied changelog offset per partition; partitions that are not named keep theirs, ``None``
                forgets one, and an empty mapping forgets all offsets and the position, as Kafka Streams has it.

        Raises:
            Invalid: the store is not open or read-only, or an offset or the position is none.
            Capacity: no room on the disk.
        """

    @abstractmethod
    def abort(self) -> None:
        """Drop everything written since the last commit, changes to :attr:`position` too."""

    @property
    @abstractmethod
    def uncommitted_bytes(self) -> int:
        """Memory that staged writes take, about, in bytes (``approximateNumUncommittedBytes`` of KIP-892)."""

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
        """How far each input topic has been seen; changes made to it are written by the next commit."""

    @abstractmethod
    def flush(self) -> None:
        """Move committed rows from memory (and log) into the store's files."""

    @abstractmethod
    def query_view(self, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> QueryView:
        """The store at this instant, for a query by any thread.

        Args:
            isolation: READ_COMMITTED shows the last commit; READ_UNCOMMITTED also the writes staged since.

        Raises:
            Invalid: the store is not open.
        """

    def transaction(self) -> Transaction:
        """Begin a transaction.

        Raises:
            Invalid: the store is not open, another one has not ended, or there are writes that were not committed.
        """
        if not self.is_open:
            raise Invalid("A store that is not open has no transactions.", action="Open it first.")
        running = self._transaction is not None and not self._transaction.ended
        if running or self.uncommitted_bytes:
            raise Invalid(
                "This store has a transaction that has not ended." if running else "This store has uncommitted writes.",
                action="Commit or abort them first; a store has one transaction at a time.",
            )
        self._transaction = Transaction(self)
        return self._transaction

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
