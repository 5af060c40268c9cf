"""``Transaction``: writes of a store that are published together, or dropped (KIP-892).

    with store.transaction() as transaction:
        transaction.put(b"word", b"3")
        transaction.commit({changelog: 41})      # leaving without commit aborts

A store always stages writes until the next commit; the transaction only marks where that begins and ends, and
guarantees that it contains no earlier writes. A store keeps only a weak reference to its one transaction, and drops the
writes of a lost one before its next operation; if it was written to itself meanwhile, it then requires ``abort``.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Self

from statecore.errors import Invalid
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rows import Row, TransactionalRows


class Running:
    """A store's reference to its transaction, which does not keep it alive."""

    __slots__ = ("_transaction", "ended", "joined", "writing")

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = weakref.ref(transaction)
        self.ended = False  # Whether it was committed or aborted, or its store closed
        self.writing = False  # Whether the current write comes through the transaction
        self.joined = False  # Whether the store itself was written to meanwhile

    @property
    def lost(self) -> bool:
        """Whether it was garbage-collected before its end."""
        return not self.ended and self._transaction() is None


class Transaction(TransactionalRows):
    """The writes of one store between two commits; created by :meth:`StateStore.transaction`.

    Reads see the store with these writes. It ends with :meth:`commit`, :meth:`abort` or the ``with`` block, and with
    ``commit``, ``abort`` or ``close`` of its store.
    """

    def __init__(self, store: TransactionalRows) -> None:
        self._store = store
        self.running = Running(self)
        """The store's reference to it."""

    @property
    def ended(self) -> bool:
        """Whether it was committed or aborted."""
        return self.running.ended

    def get(self, key: bytes) -> bytes | None:
        """The row of a key, including this transaction's writes, or ``None``."""
        return self._open_store().get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The rows of many keys, including this transaction's writes."""
        return self._open_store().get_many(keys)

    def scan(self, lower: bytes | None, upper: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        """Staged and stored rows, merged in key order, as of now; see :meth:`ReadableRows.scan`."""
        return self._open_store().scan(lower, upper, reverse=reverse)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Stage the row of a key; ``None`` deletes it."""
        store = self._open_store()
        running = self.running
        running.writing = True
        try:
            store.put(key, value)
        finally:
            running.writing = False

    def put_all(self, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Stage many rows."""
        if not isinstance(rows, list | tuple):  # a generator may use the store while it is read
            super().put_all(rows)
            return
        store = self._open_store()
        running = self.running
        running.writing = True
        try:
            store.put_all(rows)
        finally:
            running.writing = False

    @property
    def uncommitted_bytes(self) -> int:
        """Approximate memory of staged writes; see :attr:`StateStore.uncommitted_bytes`."""
        return self._open_store().uncommitted_bytes

    def commit(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Publish the writes together with these offsets; see :meth:`StateStore.commit`.

        If this raises, nothing was published, and the transaction can be committed again or aborted. (An exception of a
        signal handler may come after the commit; then :attr:`ended` is true.)
        """
        self._open_store().commit(offsets)
        self.end()

    def abort(self) -> None:
        """Drop the writes; does nothing after the end."""
        if not self.ended:
            self._store.abort()
            self.end()

    def end(self) -> None:
        """Reject further writes, once the store has committed or dropped them."""
        self.running.ended = True

    def _open_store(self) -> TransactionalRows:
        if self.running.ended:
            raise Invalid(
                "This transaction has ended.",
                code="transaction-ended",
                action="Begin another with transaction() of its store.",
            )
        return self._store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.abort()
