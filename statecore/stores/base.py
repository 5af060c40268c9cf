"""What a state store is to the rest of the library, with Kafka Streams' names (``StateStore``, KIP-1035).

Rows here are raw bytes, as on disk; :mod:`statecore.formats` turns them into values and timestamps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

from statecore.formats.position import Position
from statecore.formats.topic_partition import TopicPartition


class StateStore(ABC):
    """One store of one task: rows in key order, and the changelog offset they stand at.

    Writes are visible to this object's own reads at once, and durable with the next :meth:`commit`, which writes them
    and the offsets as one: after a crash the store has both or neither.
    """

    @abstractmethod
    def open(self) -> None:
        """Open the store; opening an open store does nothing.

        Raises:
            Fenced: another process has it open.
            NotFound: it does not exist.
            Invalid: it is of another kind.
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
    def get(self, key: bytes) -> bytes | None:
        """The row of a key, or ``None``."""

    @abstractmethod
    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the row of a key; ``None`` deletes it."""

    def delete(self, key: bytes) -> None:
        """Delete the row of a key; nothing happens when there is none."""
        self.put(key, None)

    @abstractmethod
    def range(self, first: bytes | None, last: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Rows with ``first <= key <= last`` in key order, both ends included; ``None`` leaves an end open."""

    @abstractmethod
    def prefix_scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows whose key begins with ``prefix``, in key order."""

    def all(self) -> Iterator[tuple[bytes, bytes]]:
        """All rows in key order."""
        return self.range(None, None)

    @abstractmethod
    def commit(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Make everything written since the last commit durable together with these offsets, all or nothing.

        Args:
            offsets: last applied changelog offset per partition; partitions that are not named keep theirs, ``None``
                forgets one, and an empty mapping forgets all offsets and the position, as Kafka Streams has it.
        """

    @abstractmethod
    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The offset last committed for a changelog partition, or ``None``."""

    @property
    @abstractmethod
    def position(self) -> Position:
        """How far each input topic has been seen; changes made to it are written by the next commit."""

    @abstractmethod
    def flush(self) -> None:
        """Move committed rows from memory (and log) into the store's files."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
