"""Distribution of a partition's records over its offsets, and their size: the cost of reading it.

Brokers report the bytes of a log but not its number of records. So a large log is sampled: the first batches at a few
offsets give the records per offset (compaction removes most of the older ones) and their decompressed size.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import Codec, OffsetRange
from statecore.changelog.peeks import Batch, batches_of, peek
from statecore.formats.topic_partition import TopicPartition

BYTES_PER_RECORD_COST = 100  # Bytes whose reading costs as much as the fixed cost of a record
SAMPLED_PLACES = 8  # Offsets at which a log is sampled

MIN_SAMPLED_OFFSETS = 1_000_000
"""Fewest offsets of a sampled partition; for smaller ones sampling costs more than it gains."""

_MOST_SAMPLED = 16
_FRAMING_BYTES = 8  # approximate bytes of a record besides key, value and headers


class Sample(NamedTuple):
    """The first batches of a log range."""

    density: float  # records per offset
    record_bytes: float  # decompressed bytes of a record; 0 without records


def sample_ranges(cluster: Cluster, pieces: Sequence[OffsetRange]) -> dict[OffsetRange, Sample]:
    """Sample the start of log ranges; ranges that cannot be read now are left out."""
    return peek(cluster, pieces, sample_of)


def sample_of(records: bytes, piece: OffsetRange) -> Sample | None:
    """Sample of the batches of one response; ``None`` where it has none."""
    all_batches = list(batches_of(records))
    batches = [batch for batch in all_batches if batch.first < piece.end]
    if not batches:
        return Sample(0.0, 0.0) if all_batches else None
    count = sum(batch.records for batch in batches if not batch.is_control)
    density = count / max(1, batches[-1].following - min(piece.start, batches[0].first))
    sizes = (_decompressed(batch) / batch.records for batch in batches if batch.records and not batch.is_control)
    return Sample(density, max(0.0, next(sizes, _FRAMING_BYTES) - _FRAMING_BYTES))


def _decompressed(batch: Batch) -> int:
    """Decompressed bytes of a batch's records; their stored size if decompression fails (the read reports that)."""
    import cramjam

    codecs: dict[int, Callable[[memoryview], Any]] = {
        Codec.GZIP: cramjam.gzip.decompress,
        Codec.LZ4: cramjam.lz4.decompress,
        Codec.ZSTD: cramjam.zstd.decompress,
    }
    with suppress(cramjam.DecompressionError):
        if batch.codec in codecs:
            return len(codecs[batch.codec](batch.data))
        if batch.codec == Codec.SNAPPY:
            return _snappy_bytes(batch.data)
    return len(batch.data)


def _snappy_bytes(data: memoryview) -> int:
    """As :func:`_decompressed`, for snappy, with the framings the columnar reader knows."""
    from statecore.changelog.codecs import DecompressionFailed, Scratch

    with suppress(DecompressionFailed):
        return Scratch().append(Codec.SNAPPY, data)
    return len(data)


@dataclass(frozen=True)
class PartitionShape:
    """Estimated records and bytes of one range of a partition."""

    span: OffsetRange
    records: tuple[float, ...]  # estimated number of records in each of equally long pieces of it
    bytes: float  # estimated decompressed bytes of the records; if not sampled, the bytes of the log as it is stored

    @property
    def work(self) -> int:
        """Cost of reading it, in records of no bytes."""
        return round(sum(self.records) + self.bytes / BYTES_PER_RECORD_COST)

    def offset_at(self, share: float) -> int:
        """The offset before which this share (0 to 1) of the records is."""
        sums = list(accumulate(self.records, initial=0.0))
        wanted = share * sums[-1]
        piece = max(0, min(bisect_left(sums, wanted) - 1, len(self.records) - 1))
        within = (wanted - sums[piece]) / self.records[piece] if self.records[piece] else 0.0
        size = self.span.end - self.span.start
        return self.span.start + int(size * (piece + within) / len(self.records))

    @staticmethod
    def of_offsets(span: OffsetRange, log_bytes: int | None = None) -> PartitionShape:
        """Shape of a range that was not sampled: a record at each offset, all of one size."""
        offsets = max(0, span.end - span.start)
        return PartitionShape(
            span, (float(offsets),), float(offsets * BYTES_PER_RECORD_COST if log_bytes is None else log_bytes)
        )


def unsampled_shapes(
    spans: Iterable[OffsetRange], sizes: Mapping[TopicPartition, int] | None
) -> dict[TopicPartition, PartitionShape]:
    """Shapes of partitions that were not sampled, by stored log bytes; ``None`` where brokers report none."""
    known = {} if sizes is None else sizes
    return {span.topic_partition: PartitionShape.of_offsets(span, known.get(span.topic_partition)) for span in spans}


def sample_shapes(
    cluster: Cluster,
    shapes: Iterable[PartitionShape],
    *,
    min_offsets: int = MIN_SAMPLED_OFFSETS,
    sample: Callable[[Cluster, Sequence[OffsetRange]], Mapping[OffsetRange, Sample]] = sample_ranges,
) -> dict[TopicPartition, PartitionShape]:
    """Sample the large partitions that can be read now; of others the read itself reports the error."""
    large = [shape for shape in shapes if shape.span.end - shape.span.start >= min_offsets]
    large = sorted(large, key=lambda shape: -shape.work)[:_MOST_SAMPLED]
    pieces = {shape.span: _pieces(shape.span) for shape in large}
    sampled = sample(cluster, [piece for of_span in pieces.values() for piece in of_span])
    return {
        span.topic_partition: _sampled_shape(span, [(piece, sampled[piece]) for piece in of_span])
        for span, of_span in pieces.items()
        if all(piece in sampled for piece in of_span)
    }


def _pieces(span: OffsetRange) -> list[OffsetRange]:
    cuts = [span.start + (span.end - span.start) * place // SAMPLED_PLACES for place in range(SAMPLED_PLACES + 1)]
    return [OffsetRange(span.topic, span.partition, start, end) for start, end in pairwise(cuts)]


def _sampled_shape(span: OffsetRange, sampled: Sequence[tuple[OffsetRange, Sample]]) -> PartitionShape:
    records = [sample.density * (piece.end - piece.start) for piece, sample in sampled]
    size = sum(count * sample.record_bytes for count, (_, sample) in zip(records, sampled, strict=True))
    return PartitionShape(span, tuple(records), size)
