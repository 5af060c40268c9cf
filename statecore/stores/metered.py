"""``MeteredStore``: measures commits, flushes, staged bytes, calls and iterators (``MeteredKeyValueStore``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from statecore.formats.topic_partition import TopicPartition
from statecore.metrics import (
    ALL_LATENCY,
    COMMIT_AGE,
    COMMIT_LATENCY,
    COMMITS,
    COMMITTED_BYTES,
    FLUSH_LATENCY,
    GETS,
    ITERATOR_DURATION,
    OPEN_ITERATORS,
    OPEN_STORES,
    PREFIX_SCAN_LATENCY,
    PUTS,
    RANGE_LATENCY,
    UNCOMMITTED_BYTES,
    Instrument,
    Metrics,
    Timer,
    store_tags,
)
from statecore.progress import Clock
from statecore.stores.base import StateStore
from statecore.stores.delegating_store import DelegatingStore
from statecore.stores.rows import Row


class MeteredStore(DelegatingStore):
    """Any store, with metrics. Calls are counted here and reported at the next commit, so that one costs next to
    nothing.

    Args:
        store: the store; only calls through this wrapper are measured.
        task: its task, ``0_1`` (``global`` for a global store).
    """

    def __init__(
        self, store: StateStore, metrics: Metrics, *, task: str, name: str, clock: Clock = time.monotonic
    ) -> None:
        super().__init__(store)
        self._metrics = metrics
        self._tags = store_tags(task, name)
        self._clock = clock
        self._puts = self._gets = 0
        self._iterators = 0
        self._committed_at = clock()
        self._ends: list[Callable[[], None]] = []

    def open(self) -> None:
        """Open the store and count it as open."""
        self._store.open()
        if not self._ends:
            self._committed_at = self._clock()
            self._ends = [
                self._metrics.observe(OPEN_STORES, lambda: 1, {}),
                self._metrics.observe(COMMIT_AGE, lambda: self._clock() - self._committed_at, self._tags),
                self._metrics.observe(UNCOMMITTED_BYTES, self._uncommitted_bytes_now, self._tags),
                self._metrics.observe(OPEN_ITERATORS, lambda: self._iterators, self._tags),
            ]

    def close(self) -> None:
        """Close the store and no longer count it as open, even if closing fails."""
        ends, self._ends = self._ends, []
        for end in ends:
            end()
        super().close()

    def commit(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Commit the store, and measure duration and staged bytes."""
        self._commit_measured(lambda: self._store.commit(offsets))

    def forget_offsets(self) -> None:
        """Remove the store's offsets; measured as a commit."""
        self._commit_measured(self._store.forget_offsets)

    def _commit_measured(self, commit: Callable[[], None]) -> None:
        staged = self._store.uncommitted_bytes
        watch = Timer(self._clock)
        commit()
        self._metrics.record(COMMIT_LATENCY, watch.ms, self._tags)
        self._metrics.record(COMMITTED_BYTES, staged, self._tags)
        self._metrics.add(COMMITS, 1, self._tags)
        self._metrics.add(PUTS, self._puts, self._tags)
        self._metrics.add(GETS, self._gets, self._tags)
        self._puts = self._gets = 0
        self._committed_at = self._clock()

    def flush(self) -> None:
        """Flush the store, and measure the duration."""
        watch = Timer(self._clock)
        self._store.flush()
        self._metrics.record(FLUSH_LATENCY, watch.ms, self._tags)

    def get(self, key: bytes) -> bytes | None:
        self._gets += 1
        return self._store.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._gets += len(keys)
        return self._store.get_many(keys)

    def put(self, key: bytes, value: bytes | None) -> None:
        self._puts += 1
        self._store.put(key, value)

    def put_if_absent(self, key: bytes, value: bytes | None) -> bytes | None:
        """See :meth:`StateStore.put_if_absent`: a lookup, and a write if there was none."""
        self._gets += 1
        present = self._store.put_if_absent(key, value)
        self._puts += present is None
        return present

    def put_all(self, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        if not isinstance(rows, list | tuple):  # a generator may read rows that it has just written
            super(DelegatingStore, self).put_all(rows)
            return
        self._store.put_all(rows)
        self._puts += len(rows)

    def scan(self, lower: bytes | None, upper: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        """See :meth:`StateStore.scan`; measured as a range."""
        return self._iterated(RANGE_LATENCY, self._store.scan(lower, upper, reverse=reverse))

    def range(self, first: bytes | None, last: bytes | None) -> Iterator[Row]:
        return self._iterated(RANGE_LATENCY, self._store.range(first, last))

    def reverse_range(self, first: bytes | None, last: bytes | None) -> Iterator[Row]:
        """See :meth:`StateStore.reverse_range`; measured as a range."""
        return self._iterated(RANGE_LATENCY, self._store.reverse_range(first, last))

    def prefix_scan(self, prefix: bytes) -> Iterator[Row]:
        return self._iterated(PREFIX_SCAN_LATENCY, self._store.prefix_scan(prefix))

    def reverse_prefix_scan(self, prefix: bytes) -> Iterator[Row]:
        """See :meth:`StateStore.reverse_prefix_scan`; measured as a prefix scan."""
        return self._iterated(PREFIX_SCAN_LATENCY, self._store.reverse_prefix_scan(prefix))

    def all(self) -> Iterator[Row]:
        return self._iterated(ALL_LATENCY, self._store.all())

    def reverse_all(self) -> Iterator[Row]:
        """See :meth:`StateStore.reverse_all`; measured as all."""
        return self._iterated(ALL_LATENCY, self._store.reverse_all())

    def _iterated(self, instrument: Instrument, rows: Iterator[Row]) -> Iterator[Row]:
        """The rows, counted as an open iterator until the last row or until closed."""
        measured = self._rows(instrument, rows)
        next(measured)  # start the generator, so that closing it runs its finally
        return measured  # type: ignore[return-value]

    def _rows(self, instrument: Instrument, rows: Iterator[Row]) -> Iterator[Row | None]:
        watch = Timer(self._clock)
        self._iterators += 1
        try:
            yield None
            yield from rows
        finally:
            self._iterators -= 1
            self._metrics.record(instrument, watch.ms, self._tags)
            self._metrics.record(ITERATOR_DURATION, watch.ms, self._tags)

    def _uncommitted_bytes_now(self) -> float:
        # Called by the collecting thread, while the writing thread may be closing the store.
        return self._store.uncommitted_bytes if self._store.is_open else 0
