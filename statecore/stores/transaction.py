"""A transaction of a store as an object: writes that are published together, or dropped (KIP-892).

    with store.transaction() as transaction:
        transaction.put(b"word", b"3")
        transaction.commit({changelog: 41})      # leaving without commit aborts

A store always stages what is written to it until the next commit; the transaction only says where that begins and ends,
and that nobody's earlier writes are in it. A store has one writer, so it has one transaction at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from statecore.errors import Invalid
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rows import Row, WritableRows

if TYPE_CHECKING:
    from statecore.stores.base import StateStore


class Transaction(WritableRows):
    """The writes of one store between two commits; made by :meth:`StateStore.transaction`.

    Reads see the store with these writes. It ends with :meth:`commit`, :meth:`abort` or the ``with`` block.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether it was committed or aborted."""
        return self._ended

    def get(self, key: bytes) -> bytes | None:
        """The row of a key as this transaction leaves it, or ``None``."""
        return self._running().get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The rows of many keys as this transaction leaves them."""
        return self._running().get_many(keys)

    def scan(self, lower: bytes | None, upper: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        """Staged and stored rows of this moment, merged in key order; see :meth:`ReadableRows.scan`."""
        return self._running().scan(lower, upper, reverse=reverse)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Stage the row of a key; ``None`` deletes it."""
        self._running().put(key, value)

    def put_all(self, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Stage many rows."""
        self._running().put_all(rows)

    @property
    def uncommitted_bytes(self) -> int:
        """Memory that the staged writes take, about; see :attr:`StateStore.uncommitted_bytes`."""
        return self._running().uncommitted_bytes

    def commit(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Publish the writes together with these offsets; see :meth:`StateStore.commit`.

        When it raises, nothing was published, the transaction goes on, and it can be committed again or aborted.
        """
        self._running().commit(offsets)
        self.end()

    def abort(self) -> None:
        """Drop the writes. Aborting a transaction that has ended does nothing."""
        if not self._ended:
            self.end()
            self._store.abort()

    def end(self) -> None:
        """Take no more writes; the store's part of ending (a store that closes has dropped what was staged)."""
        self._ended = True

    def _running(self) -> StateStore:
        if self._ended:
            raise Invalid("This transaction has ended.", action="Begin another with transaction() of its store.")
        return self._store

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()
