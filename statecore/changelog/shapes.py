"""How the records of a partition are spread over its offsets, and how large they are: what reading it will cost.

The brokers say how many bytes a log has, and nobody says how many records. So a large log is sampled: a few places,
each with the first batches that are found there, tell how many records there are to an offset (compaction takes most
of the older ones away) and how large they are when they are decompressed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from statecore.changelog.model import OffsetRange
from statecore.changelog.samples import Sample, samples
from statecore.formats.topic_partition import TopicPartition

if TYPE_CHECKING:
    from statecore.changelog.cluster import Cluster

BYTES_AS_A_RECORD = 100
"""Bytes whose reading is taken to cost as much as what each record costs besides them."""

PLACES = 8
"""Places at which a log is looked at."""

WORTH_A_LOOK = 1_000_000
"""Offsets from which on a partition is sampled; of fewer the shape is worth less than the look."""

_MOST_SAMPLED = 16


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


def unseen_shapes(
    spans: Iterable[OffsetRange], sizes: Mapping[TopicPartition, int] | None
) -> dict[TopicPartition, PartitionShape]:
    """Shapes of partitions that nobody looked at.

    Args:
        spans: one range a partition, as far as it is to be read.
        sizes: bytes of the logs, as the brokers keep them; ``None`` where they do not say.
    """
    known = {} if sizes is None else sizes
    return {span.topic_partition: PartitionShape.of_offsets(span, known.get(span.topic_partition)) for span in spans}


def look_at(
    cluster: Cluster,
    shapes: Iterable[PartitionShape],
    *,
    worth: int = WORTH_A_LOOK,
    sample: Callable[[Cluster, Sequence[OffsetRange]], Mapping[OffsetRange, Sample]] = samples,
) -> dict[TopicPartition, PartitionShape]:
    """Shapes of the large ones of these partitions, looked at.

    Where one cannot be read now nothing more is known of it: the read itself will say what is wrong.

    Args:
        cluster: where they are.
        shapes: what is known of them; the largest come first, and there is an end to how many are looked at.
        worth: offsets from which on one is looked at.
        sample: looks at the beginning of pieces of logs.
    """
    large = [shape for shape in shapes if shape.span.end - shape.span.start >= worth]
    large = sorted(large, key=lambda shape: -shape.work)[:_MOST_SAMPLED]
    pieces = {shape.span: _pieces(shape.span) for shape in large}
    seen = sample(cluster, [piece for of_span in pieces.values() for piece in of_span])
    return {
        span.topic_partition: _seen(span, [(piece, seen[piece]) for piece in of_span])
        for span, of_span in pieces.items()
        if all(piece in seen for piece in of_span)
    }


def _pieces(span: OffsetRange) -> list[OffsetRange]:
    cuts = [span.start + (span.end - span.start) * place // PLACES for place in range(PLACES + 1)]
    return [OffsetRange(span.topic, span.partition, start, end) for start, end in pairwise(cuts)]


def _seen(span: OffsetRange, seen: Sequence[tuple[OffsetRange, Sample]]) -> PartitionShape:
    records = [sample.density * (piece.end - piece.start) for piece, sample in seen]
    size = sum(count * sample.record_bytes for count, (_, sample) in zip(records, seen, strict=True))
    return PartitionShape(span, tuple(records), size)
