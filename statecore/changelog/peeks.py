"""Peeks: reads the first batches of log ranges without loading the columnar reader.

A peek is one Fetch request over the metadata connection and takes about a millisecond. It reads the headers of the
first batches::

    i64 first offset | i32 length of what follows | i32 | i8 format 2 | u32 CRC-32C of what follows |
    i16 bits 0-2: codec, 5: control | i32 last offset - first | i64 | i64 | i64 | i16 | i32 | i32 records |
    records, compressed
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from crc32c import crc32c

from statecore.changelog.cluster import Cluster, Leader
from statecore.changelog.model import CODEC_BITS, OffsetRange
from statecore.errors import StatecoreError

T = TypeVar("T")

TIMEOUT_SECONDS = 5.0  # Seconds after which missing peeks are given up
PEEK_BYTES = 32 << 10  # Bytes requested per peek; the first batch is returned whole whatever its size
_AT_ONCE = 4  # kafka-python has at most five requests in flight per connection
_HEADER = struct.Struct(">qiibIhiqqqhii")
_BEFORE_LENGTH_ENDS = 12
_CHECKED_FROM = 21
_CONTROL = 32
_FORMAT = 2


class Batch(NamedTuple):
    """Header and data of a batch."""

    first: int  # first offset
    following: int  # the offset after the last
    codec: int  # number of the codec
    is_control: bool  # whether its records are control records
    records: int
    data: memoryview  # bytes of the records, compressed
    crc: int  # its checksum (CRC-32C)
    checked: memoryview  # the bytes that the checksum covers


def peek(
    cluster: Cluster, pieces: Sequence[OffsetRange], convert: Callable[[bytes, OffsetRange], T | None]
) -> dict[OffsetRange, T]:
    """Peek at ranges, a few in parallel; without those not read within :data:`TIMEOUT_SECONDS` or the cluster's."""
    if not pieces:
        return {}
    leaders: dict[OffsetRange, Leader] = {}
    deadline = min(cluster.deadline(), time.monotonic() + TIMEOUT_SECONDS)
    for piece in pieces:
        with suppress(StatecoreError):
            leaders[piece] = cluster.leader(piece.topic_partition, deadline=deadline)
    return cluster.run(_peek_all, cluster, leaders, convert, deadline) if leaders else {}


async def _peek_all(
    cluster: Cluster,
    leaders: dict[OffsetRange, Leader],
    convert: Callable[[bytes, OffsetRange], T | None],
    deadline: float,
) -> dict[OffsetRange, T]:
    left = deque(leaders)
    found: dict[OffsetRange, T] = {}

    async def peek_some() -> None:
        while left:
            piece = left.popleft()
            with suppress(StatecoreError):
                converted = convert(await _fetched(cluster, piece, leaders[piece], deadline), piece)
                if converted is not None:
                    found[piece] = converted

    tasks = [cluster.manager.call_soon(peek_some) for _ in range(min(_AT_ONCE, len(left)))]
    for one in tasks:
        await one
    return found


async def _fetched(cluster: Cluster, piece: OffsetRange, leader: Leader, deadline: float) -> bytes:
    from kafka.protocol.consumer.fetch import FetchRequest

    def request() -> Any:
        partition = FetchRequest.FetchTopic.FetchPartition(
            partition=piece.partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=piece.start,
            partition_max_bytes=PEEK_BYTES,
        )
        topic = FetchRequest.FetchTopic(topic=piece.topic, topic_id=leader.topic_id, partitions=[partition])
        return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=PEEK_BYTES, topics=[topic])

    response = await cluster.ask(lambda: [leader.node], request, deadline)
    return b"".join(
        bytes(partition.records or b"")
        for topic in response.responses
        for partition in topic.partitions
        if partition.error_code == 0
    )


def batches_of(data: bytes) -> Iterator[Batch]:
    """The whole batches of record data, up to one that is cut off or malformed. Checksums are not verified."""
    view, at = memoryview(data), 0
    while at + _HEADER.size <= len(data):
        first, length, _, form, crc, attributes, last, _, _, _, _, _, records = _HEADER.unpack_from(data, at)
        end = at + _BEFORE_LENGTH_ENDS + length
        if form != _FORMAT or not at + _HEADER.size <= end <= len(data) or not 0 <= records <= last + 1:
            return
        codec, is_control = attributes & CODEC_BITS, bool(attributes & _CONTROL)
        whole, of_records = view[at + _CHECKED_FROM : end], view[at + _HEADER.size : end]
        yield Batch(first, first + last + 1, codec, is_control, records, of_records, crc, whole)
        at = end


_MARKER_BYTES = 100  # a batch of one control record has 78; the margin covers larger ones
MOST_OFFSETS = PEEK_BYTES // _MARKER_BYTES  # Largest range that one peek covers; longer ranges are not examined


def ranges_of_markers(cluster: Cluster, pieces: Collection[OffsetRange]) -> set[OffsetRange]:
    """The non-empty ranges of at most :data:`MOST_OFFSETS` that were verified to be control records alone."""
    few = [piece for piece in pieces if piece.end - piece.start <= MOST_OFFSETS]
    return set(peek(cluster, few, _of_markers)) if few else set()


def _of_markers(data: bytes, piece: OffsetRange) -> bool | None:
    position = piece.start
    for batch in batches_of(data):
        whole = batch.is_control and batch.records == batch.following - batch.first
        # A gap is an offset that compaction removed; what it held is unknown.
        if batch.first > position or not whole or crc32c(batch.checked) != batch.crc:
            return None
        position = max(position, batch.following)
        if position >= piece.end:
            return True
    return None
