"""``QueryView``: interactive queries from other threads while the processor writes to the store (KIP-892)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

from statecore.formats.position import Position
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rows import ReadableRows


class QueryView(ReadableRows):
    """A store at one point in time; created by :meth:`StateStore.query_view`, one for each query, and closed after it.

    Under READ_COMMITTED, the default, it shows the last commit: its rows, offsets and position, consistent with each
    other. Under READ_UNCOMMITTED the writes staged at that time are included; offsets and position are those of the
    last commit, since the offset of the staged rows is not known yet.

    Any thread may create and read it at any time, while another writes, commits and flushes. Closing the store ends its
    views. An open view keeps old versions of rows alive (in RocksDB by a snapshot), so it should be short-lived.
    """

    @property
    @abstractmethod
    def position(self) -> Position:
        """The last seen offset of each input topic partition, as of the view's commit; a copy."""

    @abstractmethod
    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The changelog offset of the view's commit, or ``None``."""

    @abstractmethod
    def close(self) -> None:
        """Release what the view keeps alive; its iterators then raise. Closing twice does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
