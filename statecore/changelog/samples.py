"""How many records there are to an offset at the beginning of a piece of a log, and how large they are.

The headers of batches say how many records each has, and one of them is decompressed to see how large they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import Codec, OffsetRange
from statecore.changelog.peeks import Batch, batches_of, peek

_FRAMING_BYTES = 8  # what a record has besides key, value and headers, about


class Sample(NamedTuple):
    """The first batches of a piece of a log.

    Attributes:
        density: records to an offset.
        record_bytes: bytes of a record, decompressed; 0 where there is none.
    """

    density: float
    record_bytes: float


def samples(cluster: Cluster, pieces: Sequence[OffsetRange]) -> dict[OffsetRange, Sample]:
    """Look at the beginning of pieces of logs.

    Returns:
        What was seen; pieces that cannot be read now are left out.
    """
    return peek(cluster, pieces, sample_of)


def sample_of(records: bytes, piece: OffsetRange) -> Sample | None:
    """What the batches of one response say of the piece of the log that they were fetched for, if there are any.

    Args:
        records: the record data of the response.
        piece: offsets from the one that was fetched on.
    """
    seen = list(batches_of(records))
    batches = [batch for batch in seen if batch.first < piece.end]
    if not batches:
        return Sample(0.0, 0.0) if seen else None
    count = sum(batch.records for batch in batches if not batch.is_control)
    density = count / max(1, batches[-1].following - min(piece.start, batches[0].first))
    sizes = (_decompressed(batch) / batch.records for batch in batches if batch.records and not batch.is_control)
    return Sample(density, max(0.0, next(sizes, _FRAMING_BYTES) - _FRAMING_BYTES))


def _decompressed(batch: Batch) -> int:
    """Bytes of the records of a batch; as they are where they cannot be decompressed: the read will say so."""
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
            return _unsnapped(batch.data)
    return len(batch.data)


def _unsnapped(data: memoryview) -> int:
    """As :func:`_decompressed`, of snappy, whose framings the columnar reader knows."""
    from statecore.changelog.codecs import DecompressionFailed, Scratch

    with suppress(DecompressionFailed):
        return Scratch().append(Codec.SNAPPY, data)
    return len(data)
