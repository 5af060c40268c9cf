"""How the records of a partition are spread over its offsets, and how large they are: what reading it will cost.

The brokers say how many bytes a log has, and nobody says how many records. So a large log is sampled: a few places,
each with the first batches that are found there, tell how many records there are to an offset (compaction takes most
of the older ones away) and how large they are when they are decompressed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from statecore.changelog.model import OffsetRange
from statecore.errors import StatecoreError
from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel

if TYPE_CHECKING:
    from statecore.changelog.cluster import Cluster

BYTES_AS_A_RECORD = 100
"""Bytes whose reading is taken to cost as much as what each record costs besides them."""

PLACES = 8
"""Places at which a log is looked at."""

WORTH_A_LOOK = 1_000_000
"""Offsets from which on a partition is sampled; of fewer the shape is worth less than the look."""

_MOST_SAMPLED = 16
_SAMPLE_BYTES = 256 << 10
_PATIENCE = 5.0


@dataclass(frozen=True)
class PartitionShape:
    """What is known of one range of a partition.

    Attributes:
        span: the range.
        records: how many records there are in each of as many equal pieces of it, estimated.
        bytes: bytes of the records, decompressed; estimated.
    """

    span: OffsetRange
    records: tuple[float, ...]
    bytes: float

    @property
    def work(self) -> int:
        """What reading it costs, in records of no bytes."""
        return round(sum(self.records) + self.bytes / BYTES_AS_A_RECORD)

    def offset_at(self, share: float) -> int:
        """The offset before which this share (0 to 1) of the records lies."""
        sums = list(accumulate(self.records, initial=0.0))
        wanted = share * sums[-1]
        piece = max(0, min(bisect_left(sums, wanted) - 1, len(self.records) - 1))
        within = (wanted - sums[piece]) / self.records[piece] if self.records[piece] else 0.0
        size = self.span.end - self.span.start
        return self.span.start + int(size * (piece + within) / len(self.records))

    @staticmethod
    def of_offsets(span: OffsetRange, log_bytes: int | None = None) -> PartitionShape:
        """The shape of a range that nobody looked at: a record at each offset, evenly large.

        Args:
            span: the range.
            log_bytes: bytes of the log as the broker keeps it; ``None`` where that is not known either.
        """
        offsets = max(0, span.end - span.start)
        return PartitionShape(
            span, (float(offsets),), float(offsets * BYTES_AS_A_RECORD if log_bytes is None else log_bytes)
        )


def shapes_of(
    cluster: Cluster, spans: Iterable[OffsetRange], sizes: Mapping[TopicPartition, int] | None
) -> dict[TopicPartition, PartitionShape]:
    """Shapes of partitions; large ones are looked at.

    Where one cannot be read now nothing is known but its offsets and its size: the read itself will say what is wrong.

    Args:
        cluster: where they are.
        spans: one range a partition, as far as it is to be read.
        sizes: bytes of the logs, as the brokers keep them; ``None`` where they do not say.
    """
    known = {} if sizes is None else sizes
    found = {span.topic_partition: PartitionShape.of_offsets(span, known.get(span.topic_partition)) for span in spans}
    large = [shape.span for shape in found.values() if shape.span.end - shape.span.start >= WORTH_A_LOOK]
    large.sort(key=lambda span: (-known.get(span.topic_partition, 0), span.start - span.end))
    for span in large[:_MOST_SAMPLED]:
        with suppress(StatecoreError):
            found[span.topic_partition] = _sampled(cluster, span)
    return found


def _sampled(cluster: Cluster, span: OffsetRange) -> PartitionShape:
    size = span.end - span.start
    records, decoded = [], 0.0
    for place in range(PLACES):
        start, end = (span.start + size * at // PLACES for at in (place, place + 1))
        density, record_bytes = _looked_at(cluster, OffsetRange(span.topic, span.partition, start, end))
        records.append(density * (end - start))
        decoded += records[-1] * record_bytes
    return PartitionShape(span, tuple(records), decoded)


def _looked_at(cluster: Cluster, piece: OffsetRange) -> tuple[float, float]:
    """Records to an offset, and bytes of a record, at the beginning of a piece of a log."""
    from pyarrow import compute

    from statecore.changelog.reader import ChangelogReader, ReaderOptions

    reader = ChangelogReader(cluster, ReaderOptions(fetch_bytes=_SAMPLE_BYTES, stall_timeout=_PATIENCE))
    batches = reader.read(piece, IsolationLevel.READ_UNCOMMITTED)
    first = next(batches, None)
    del batches  # which lets go of its connection
    if first is None:
        return 0.0, 0.0
    last = first.column("offset")[-1].as_py()
    lengths = (compute.sum(compute.binary_length(first.column(name))).as_py() or 0 for name in ("key", "value"))
    return first.num_rows / (last + 1 - piece.start), sum(lengths) / first.num_rows
