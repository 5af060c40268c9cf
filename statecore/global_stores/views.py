"""Views of a global store that stay readable while the store is set aside and replaced.

A :class:`RocksDBStore` ends its views when it is closed. So a replaced store is closed only after its last view, and
until then its directory stays, under another name.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from statecore.formats.position import Position
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.query import QueryView
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.rows import Row


class ViewedStore:
    """An open store and the number of its views."""

    def __init__(self, store: RocksDBStore) -> None:
        self.store = store
        self.commits = threading.RLock()
        """Held while files are ingested and their offsets committed, so that a view sees both or neither."""
        self._views = 0
        self._counting = threading.Lock()

    @property
    def has_views(self) -> bool:
        """Whether there is a view of it."""
        with self._counting:
            return self._views > 0

    def view(self, *, stale: bool) -> GlobalView:
        """The store at its last commit."""
        with self.commits:
            view = self.store.query_view()
        with self._counting:
            self._views += 1
        return GlobalView(self, view, stale=stale)

    def release(self) -> None:
        """Count one view less."""
        with self._counting:
            self._views -= 1


class GlobalView(QueryView):
    """A global store at one instant; close it after the query."""

    def __init__(self, store: ViewedStore, view: QueryView, *, stale: bool) -> None:
        self._held: ViewedStore | None = store
        self._view = view
        self.stale = stale  # whether these are the rows from before a restore in progress

    def get(self, key: bytes) -> bytes | None:
        """The row of a key, or ``None``."""
        return self._view.get(key)

    def scan(self, lower: bytes | None, upper: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        """Rows of the view's instant; see :meth:`ReadableRows.scan`."""
        return self._view.scan(lower, upper, reverse=reverse)

    @property
    def position(self) -> Position:
        return self._view.position

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The next offset of a partition of the topic at the view's instant, or ``None``."""
        return self._view.committed_offset(partition)

    def close(self) -> None:
        """Release the store; idempotent."""
        held, self._held = self._held, None
        if held is not None:
            self._view.close()
            held.release()
