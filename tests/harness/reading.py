"""What the columnar reader delivers and what a plain consumer sees, in a form that can be compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import IsolationLevel, OffsetRange
from statecore.changelog.reader import ChangelogReader, ReaderOptions
from tests.harness import topics

Row = tuple[bytes | None, bytes | None, int | None, int | None]
"""Key, value, offset, timestamp."""


def plain(bootstrap_servers: str, topic: str, isolation: str = "read_committed") -> list[Row]:
    """All of partition 0 as librdkafka reads it."""
    found = topics.read(bootstrap_servers, topic, 0, isolation)
    return [(record.key, record.value, record.offset, record.timestamp) for record in found]


def columnar(
    cluster: Cluster, topic: str, end: int, isolation: str = "read_committed", **options: Any
) -> Iterator[list[Row]]:
    """Partition 0 up to `end` as the columnar reader reads it, batch by batch; `options` are of `ReaderOptions`."""
    reader = ChangelogReader(cluster, ReaderOptions(**options))
    for batch in reader.read(OffsetRange(topic, 0, 0, end), IsolationLevel(isolation)):
        yield list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    assert reader.statistics.position == end


def joined(batches: Iterator[list[Row]]) -> list[Row]:
    """All rows of the batches."""
    return [row for batch in batches for row in batch]
