"""Interactive queries: reading a store from other threads while its processor writes to it (KIP-892).

A query view is the store at one instant. Under READ_COMMITTED, the default, that is the last commit: rows, offsets and
position of it, never half a transaction, and never rows of one commit with the position of another. Under
READ_UNCOMMITTED the writes that are staged at that instant lie over them; offsets and position are still those of the
last commit, since nothing says yet where the staged rows will end.
"""

from __future__ import annotations

from abc import abstractmethod
from types import TracebackType
from typing import Self

from statecore.formats.position import Position
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rows import ReadableRows


class QueryView(ReadableRows):
    """A store at one instant; made by :meth:`StateStore.query_view`, one for each query, and closed after it.

    It may be made and read by any thread, at any time, while another writes, commits and flushes. Closing the store
    ends its views. An open view keeps old versions of rows alive (in RocksDB by a snapshot), so it should be short.
    """

    @property
    @abstractmethod
    def position(self) -> Position:
        """How far each input topic had been seen by the commit that the view shows; a copy."""

    @abstractmethod
    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The changelog offset of the commit that the view shows, or ``None``."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what the view keeps alive; its iterators end with an error. Closing twice does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
