"""``LegacyCheckpointingStore``: keeps the offsets of a store without own offsets in a file
(``LegacyCheckpointingStateStore``, KIP-1035).

The offsets are in ``.checkpoint_<store>`` beside the store, the position in ``<store>.position``. Neither file is ever
ahead of the rows: they are written after the commit that they describe, and when a commit lowers or removes an offset,
the file is lowered first.

==================  =============================================  =======================================
event               at-least-once                                  exactly-once
==================  =============================================  =======================================
``open``            read                                           read, then deleted once the store is open
``checkpoint``      written                                        nothing
``close``           written                                        written
process death       the file has an older offset, and the rows     there is no file: the store has no offset,
                    above it are written once more                 and its rows are not trusted
==================  =============================================  =======================================

The committing caller decides when a task checkpoint is due (:mod:`statecore.tasks.checkpoint_policy`). In Kafka
Streams the store does: after 10 000 offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from threading import RLock

from statecore.errors import Invalid
from statecore.filesystem import AnyPath, validated_path
from statecore.formats.checkpoint import position_file, store_checkpoint_file
from statecore.formats.offsets import OFFSET_UNKNOWN, checked_offsets
from statecore.formats.position import Position, copy_position
from statecore.formats.topic_partition import TopicPartition, as_topic_partition
from statecore.isolation import IsolationLevel
from statecore.stores.base import StateStore
from statecore.stores.delegating_store import DelegatingStore
from statecore.stores.legacy_offsets import (
    adopt_position,
    read_offsets,
    read_position,
    remove_offsets,
    write_offsets,
    write_position,
)
from statecore.stores.query import QueryView
from statecore.stores.rows import Row


class LegacyCheckpointingStore(DelegatingStore):
    """Rows in another store, offsets in a file; used like a store that manages its offsets.

    Args:
        store: a persistent store that does not manage its offsets; its commits are durable when they return, or at the
            latest after ``flush``.
        directory: the task directory (or ``global/``).
        changelogs: the changelog partitions of the store; other entries of the file are ignored.
        exactly_once: whether the rows are trusted only after a clean close.

    Raises:
        Invalid: the store manages its offsets, or is not persistent.
    """

    def __init__(
        self,
        store: StateStore,
        directory: AnyPath,
        name: str,
        changelogs: Collection[TopicPartition],
        *,
        exactly_once: bool,
    ) -> None:
        if store.manages_offsets or not store.persistent:
            raise Invalid(
                f"The store {name} manages its offsets itself, or is not persistent.",
                code="store-manages-offsets",
                action="Use it without LegacyCheckpointingStore.",
                store=name,
            )
        super().__init__(store)
        self._directory = validated_path(directory)
        self._name = name
        self._changelogs = frozenset(as_topic_partition(changelog) for changelog in changelogs)
        self._exactly_once = exactly_once
        self._file = self._directory / store_checkpoint_file(name)
        self._offsets: dict[TopicPartition, int] = {}
        self._committed_position: Position = {}
        self._on_disk: dict[TopicPartition, int] = {}
        self._undecided: tuple[int, dict[TopicPartition, int], Position] | None = None
        self._publishing = RLock()  # queries must not see rows of one commit with the offset of another

    @property
    def manages_offsets(self) -> bool:
        """True: the wrapper does."""
        return True

    def open(self) -> None:
        """Read the offsets, then open the store; under exactly-once the file is deleted afterwards.

        Raises:
            Corrupted: a file is malformed; the store was not opened and nothing was changed.
        """
        if self.is_open:
            return
        found = {at: offset for at, offset in read_offsets(self._file).items() if at in self._changelogs}
        position = read_position(self._directory, self._name)
        with self._publishing:  # concurrent queries wait for the offsets too
            self._store.open()
            try:
                if self._exactly_once:
                    remove_offsets(self._file)
            except BaseException:
                self._store.close()
                raise
            self._offsets = found
            self._on_disk = {} if self._exactly_once else dict(found)
            adopt_position(self._store, position)
            self._committed_position = self._store.position
            self._undecided = None

    def close(self) -> None:
        """Close the store, then write the last committed offsets."""
        if not self.is_open:
            return
        self._check_open()
        super().close()
        self._write()

    def checkpoint(self) -> None:
        """Flush the rows, then write the committed offsets and the position; does nothing under exactly-once.

        Raises:
            Invalid: the store is not open, or a file cannot be written.
            Capacity: the disk is full.
        """
        if self._exactly_once:
            return
        self._store.flush()
        self._write()

    def commit(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Commit the rows; the offsets are readable at once, and in the file with the next checkpoint.

        Raises:
            Invalid: an offset cannot be stored in a file; nothing was committed. Or see :meth:`StateStore.commit`.
        """
        offsets = checked_offsets(offsets)
        self._check_open()
        wanted = {**self._offsets, **offsets}
        committed = {at: offset for at, offset in wanted.items() if offset is not None}
        self._lower(committed)
        self._publish(lambda: self._store.commit(offsets), committed, self._store.position)

    def forget_offsets(self) -> None:
        """Commit the rows, and remove offsets and position, files first. Errors as for :meth:`commit`."""
        self._check_open()
        self._lower({})
        remove_offsets(self._directory / position_file(self._name))
        self._publish(self._store.forget_offsets, {}, {})

    def _lower(self, committed: Mapping[TopicPartition, int]) -> None:
        """Ensure that the file is not ahead of the rows that are about to be committed.

        Unknown (-4) is not the same as absent: for a store without an offset the task's .checkpoint would be used,
        which may be just as old.
        """
        sound = {at: min(offset, committed.get(at, OFFSET_UNKNOWN)) for at, offset in self._on_disk.items()}
        if sound != self._on_disk:
            write_offsets(self._file, sound)
            self._on_disk = sound

    def _publish(self, commit: Callable[[], None], offsets: dict[TopicPartition, int], position: Position) -> None:
        with self._publishing:
            self._undecided = self._store.commit_number, offsets, position
            try:
                commit()
                if self._undecided is not None:  # else a signal handler has already resolved it
                    self._undecided = -1, offsets, position  # for a store that does not count: it did not raise
            finally:
                self._settle()
                self._undecided = None

    def _settle(self) -> None:
        """Update the state after a commit, even one interrupted by a signal handler."""
        if self._undecided is None:
            return
        number, offsets, position = self._undecided
        if self._store.commit_number != number:
            self._offsets = offsets
            self._committed_position = position
            self._undecided = None

    def abort(self) -> None:
        """Drop everything written since the last commit; the position from the file stays."""
        self._check_open()
        self._store.abort()
        adopt_position(self._store, self._committed_position)

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The last committed offset of a changelog partition, or ``None``.

        Raises:
            Invalid: the store is not open, or ``partition`` is invalid.
        """
        partition = as_topic_partition(partition)
        self._check_open()
        return self._offsets.get(partition)

    def query_view(self, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> QueryView:
        with self._publishing:
            self._settle()
            return _ViewWithOffsets(self._store.query_view(isolation), self._offsets, self._committed_position)

    def _check_open(self) -> None:
        if not self.is_open:
            raise Invalid(
                f"The store {self._name} is not open.", code="store-not-open", action="Open it first.", store=self._name
            )
        if self._undecided is not None:
            with self._publishing:
                self._settle()

    def _write(self) -> None:
        write_position(self._directory, self._name, self._committed_position)
        write_offsets(self._file, self._offsets)
        self._on_disk = dict(self._offsets)


class _ViewWithOffsets(QueryView):
    """A view of the wrapped store, with offsets and position of its commit, which are never modified."""

    def __init__(self, view: QueryView, offsets: Mapping[TopicPartition, int], position: Position) -> None:
        self._view = view
        self._offsets = offsets
        self._position = position

    @property
    def position(self) -> Position:
        _ = self._view.position  # raises if the view is closed
        return copy_position(self._position)

    def committed_offset(self, partition: TopicPartition) -> int | None:
        partition = as_topic_partition(partition)
        self._view.committed_offset(partition)  # raises if the view is closed
        return self._offsets.get(partition)

    def get(self, key: bytes) -> bytes | None:
        return self._view.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._view.get_many(keys)

    def scan(self, lower: bytes | None, upper: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        return self._view.scan(lower, upper, reverse=reverse)

    def close(self) -> None:
        self._view.close()
