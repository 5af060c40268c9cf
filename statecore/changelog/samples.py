"""What lies at the beginning of a piece of a log: how many records there are to an offset, and how large they are.

A look is one plain Fetch request over the connection that metadata came by, and no row is decoded: the headers of
batches say how many records each has, and one of them is decompressed to see how large they are. So it takes a
millisecond, and nothing of the columnar reader has to be loaded for it::

    i64 first offset | i32 length of what follows | i32 | i8 format 2 | u32 | i16 bits 0-2: codec, 5: control |
    i32 last offset - first | i64 | i64 | i64 | i16 | i32 | i32 records | records, compressed
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from statecore.changelog.cluster import Cluster, Leader
from statecore.changelog.model import CODEC_BITS, Codec, OffsetRange
from statecore.errors import StatecoreError

PATIENCE = 5.0
"""Seconds after which what was not seen is done without."""

SAMPLE_BYTES = 32 << 10
"""Bytes that are asked for at a place; the first batch comes whole whatever its size."""

_AT_ONCE = 4  # kafka-python has at most five requests under way on a connection
_HEADER = struct.Struct(">qiibIhiqqqhii")
_BEFORE_LENGTH_ENDS = 12
_CONTROL = 32
_FORMAT = 2
_FRAMING_BYTES = 8  # what a record has besides key, value and headers, about


class Sample(NamedTuple):
    """The first batches of a piece of a log.

    Attributes:
        density: records to an offset.
        record_bytes: bytes of a record, decompressed; 0 where there is none.
    """

    density: float
    record_bytes: float


class _Batch(NamedTuple):
    first: int
    following: int
    codec: int
    is_control: bool
    records: int
    data: memoryview


def samples(cluster: Cluster, pieces: Sequence[OffsetRange]) -> dict[OffsetRange, Sample]:
    """Look at the beginning of pieces of logs, at a few at the same time.

    Returns:
        What was seen; pieces that cannot be read now, or not in :data:`PATIENCE`, are left out.
    """
    leaders: dict[OffsetRange, Leader] = {}
    deadline = time.monotonic() + PATIENCE
    for piece in pieces:
        with suppress(StatecoreError):
            leaders[piece] = cluster.leader(piece.topic_partition, deadline=deadline)
    return cluster.run(_look, cluster, leaders, deadline) if leaders else {}


async def _look(cluster: Cluster, leaders: dict[OffsetRange, Leader], deadline: float) -> dict[OffsetRange, Sample]:
    left = deque(leaders)
    found: dict[OffsetRange, Sample] = {}

    async def look_at_some() -> None:
        while left:
            piece = left.popleft()
            with suppress(StatecoreError):
                sample = sample_of(await _fetched(cluster, piece, leaders[piece], deadline), piece)
                if sample is not None:
                    found[piece] = sample

    looking = [cluster.manager.call_soon(look_at_some) for _ in range(min(_AT_ONCE, len(left)))]
    for one in looking:
        await one
    return found


async def _fetched(cluster: Cluster, piece: OffsetRange, leader: Leader, deadline: float) -> bytes:
    from kafka.protocol.consumer.fetch import FetchRequest

    def request() -> Any:
        partition = FetchRequest.FetchTopic.FetchPartition(
            partition=piece.partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=piece.start,
            partition_max_bytes=SAMPLE_BYTES,
        )
        topic = FetchRequest.FetchTopic(topic=piece.topic, topic_id=leader.topic_id, partitions=[partition])
        return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=SAMPLE_BYTES, topics=[topic])

    response = await cluster.ask(lambda: [leader.node], request, deadline)
    return b"".join(
        bytes(partition.records or b"")
        for topic in response.responses
        for partition in topic.partitions
        if partition.error_code == 0
    )


def sample_of(records: bytes, piece: OffsetRange) -> Sample | None:
    """What the batches of one response say of the piece of the log that they were fetched for, if there are any.

    Args:
        records: the record data of the response.
        piece: offsets from the one that was fetched on.
    """
    seen = list(_batches(records))
    batches = [batch for batch in seen if batch.first < piece.end]
    if not batches:
        return Sample(0.0, 0.0) if seen else None
    count = sum(batch.records for batch in batches if not batch.is_control)
    density = count / max(1, batches[-1].following - min(piece.start, batches[0].first))
    sizes = (_decompressed(batch) / batch.records for batch in batches if batch.records and not batch.is_control)
    return Sample(density, max(0.0, next(sizes, _FRAMING_BYTES) - _FRAMING_BYTES))


def _batches(data: bytes) -> Iterator[_Batch]:
    """The whole batches of record data, up to one that is cut off or cannot be: only the read looks at checksums."""
    view, at = memoryview(data), 0
    while at + _HEADER.size <= len(data):
        first, length, _, form, _, attributes, last, _, _, _, _, _, records = _HEADER.unpack_from(data, at)
        end = at + _BEFORE_LENGTH_ENDS + length
        if form != _FORMAT or not at + _HEADER.size <= end <= len(data) or not 0 <= records <= last + 1:
            return
        codec, is_control = attributes & CODEC_BITS, bool(attributes & _CONTROL)
        yield _Batch(first, first + last + 1, codec, is_control, records, view[at + _HEADER.size : end])
        at = end


def _decompressed(batch: _Batch) -> int:
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
