"""``DelegatingStore``: base of wrappers around another store (``WrappedStateStore``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from statecore.formats.position import Position
from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel
from statecore.stores.base import StateStore
from statecore.stores.query import QueryView
from statecore.stores.rows import Row
from statecore.stores.transaction import Running

W = TypeVar("W", bound="DelegatingStore")


class DelegatingStore(StateStore):
    """Forwards everything to the wrapped store; subclasses override what they change."""

    def __init__(self, wrapped: StateStore) -> None:
        self._store = wrapped

    @property
    def wrapped(self) -> StateStore:
        """The store inside."""
        return self._store

    @property
    def is_open(self) -> bool:
        """See :attr:`StateStore.is_open`."""
        return self._store.is_open

    @property
    def persistent(self) -> bool:
        """See :attr:`StateStore.persistent`."""
        return self._store.persistent

    @property
    def manages_offsets(self) -> bool:
        """See :attr:`StateStore.manages_offsets`."""
        return self._store.manages_offsets

    def open(self) -> None:
        """See :meth:`StateStore.open`."""
        self._store.open()

    def close(self) -> None:
        """See :meth:`StateStore.close`."""
        self._store.close()

    def flush(self) -> None:
        """See :meth:`StateStore.flush`."""
        self._store.flush()

    def commit(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """See :meth:`StateStore.commit`."""
        self._store.commit(offsets)

    def forget_offsets(self) -> None:
        """See :meth:`StateStore.forget_offsets`."""
        self._store.forget_offsets()

    def abort(self) -> None:
        """See :meth:`StateStore.abort`."""
        self._store.abort()

    @property
    def commit_number(self) -> int:
        """See :attr:`StateStore.commit_number`."""
        return self._store.commit_number

    @property
    def uncommitted_bytes(self) -> int:
        """See :attr:`StateStore.uncommitted_bytes`."""
        return self._store.uncommitted_bytes

    @property
    def commit_requested(self) -> bool:
        """See :attr:`StateStore.commit_requested`."""
        return self._store.commit_requested

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """See :meth:`StateStore.committed_offset`."""
        return self._store.committed_offset(partition)

    @property
    def position(self) -> Position:
        """See :attr:`StateStore.position`."""
        return self._store.position

    def update_position(self, topic: str, partition: int, offset: int) -> None:
        """See :meth:`StateStore.update_position`."""
        self._store.update_position(topic, partition, offset)

    def query_view(self, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> QueryView:
        """See :meth:`StateStore.query_view`."""
        return self._store.query_view(isolation)

    def get(self, key: bytes) -> bytes | None:
        """See :meth:`StateStore.get`."""
        return self._store.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See :meth:`StateStore.get_many`."""
        return self._store.get_many(keys)

    def scan(self, lower: bytes | None, upper: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        """See :meth:`StateStore.scan`."""
        return self._store.scan(lower, upper, reverse=reverse)

    def put(self, key: bytes, value: bytes | None) -> None:
        """See :meth:`StateStore.put`."""
        self._store.put(key, value)

    def put_all(self, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """See :meth:`StateStore.put_all`."""
        self._store.put_all(rows)

    def put_if_absent(self, key: bytes, value: bytes | None) -> bytes | None:
        """See :meth:`StateStore.put_if_absent`."""
        return self._store.put_if_absent(key, value)

    def approximate_num_entries(self) -> int:
        """See :meth:`StateStore.approximate_num_entries`."""
        return self._store.approximate_num_entries()

    def _begin_transaction(self, running: Running) -> None:
        self._store._begin_transaction(running)  # so that it ends with a commit of either

    def _end_transaction(self) -> None:
        self._store._end_transaction()


def find_wrapper(store: StateStore, kind: type[W]) -> W | None:
    """The outermost wrapper of a class around a store, or ``None``."""
    while isinstance(store, DelegatingStore):
        if isinstance(store, kind):
            return store
        store = store.wrapped
    return None
