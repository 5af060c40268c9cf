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
        return self._store.is_open

    @property
    def persistent(self) -> bool:
        return self._store.persistent

    @property
    def manages_offsets(self) -> bool:
        return self._store.manages_offsets

    def open(self) -> None:
        self._store.open()

    def close(self) -> None:
        self._store.close()

    def flush(self) -> None:
        self._store.flush()

    def commit(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        self._store.commit(offsets)

    def forget_offsets(self) -> None:
        self._store.forget_offsets()

    def abort(self) -> None:
        self._store.abort()

    @property
    def commit_number(self) -> int:
        return self._store.commit_number

    @property
    def uncommitted_bytes(self) -> int:
        return self._store.uncommitted_bytes

    @property
    def commit_requested(self) -> bool:
        return self._store.commit_requested

    def committed_offset(self, partition: TopicPartition) -> int | None:
        return self._store.committed_offset(partition)

    @property
    def position(self) -> Position:
        return self._store.position

    def update_position(self, topic: str, partition: int, offset: int) -> None:
        self._store.update_position(topic, partition, offset)

    def query_view(self, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> QueryView:
        return self._store.query_view(isolation)

    def get(self, key: bytes) -> bytes | None:
        return self._store.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._store.get_many(keys)

    def scan(self, lower: bytes | None, upper: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        return self._store.scan(lower, upper, reverse=reverse)

    def put(self, key: bytes, value: bytes | None) -> None:
        self._store.put(key, value)

    def put_all(self, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        self._store.put_all(rows)

    def put_if_absent(self, key: bytes, value: bytes | None) -> bytes | None:
        return self._store.put_if_absent(key, value)

    def approximate_num_entries(self) -> int:
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
