"""Samples the start of log ranges: records per offset, from batch headers, and record size, from one decompressed
batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import Codec, OffsetRange
from statecore.changelog.peeks import Batch, batches_of, peek

_FRAMING_BYTES = 8  # approximate bytes of a record besides key, value and headers


class Sample(NamedTuple):
    """The first batches of a log range.

    Attributes:
        density: records per offset.
        record_bytes: decompressed bytes of a record; 0 without records.
    """

    density: float
    record_bytes: float


def samples(cluster: Cluster, pieces: Sequence[OffsetRange]) -> dict[OffsetRange, Sample]:
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
