"""Value types for reading a changelog: codec, offset range, log offsets, topic, statistics."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel as IsolationLevel


class Codec(IntEnum):
    """Compression codec of a batch: bits 0-2 of its attributes (Kafka's ``CompressionType``)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_BITS = 7
"""Bits of a batch's attributes that hold its codec."""


@dataclass(frozen=True)
class OffsetRange:
    """Offsets ``[start, end)`` of one partition: the unit of a read."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of this range."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True)
class LogOffsets:
    """The offsets of one partition at one time.

    Attributes:
        log_start: first offset that still exists.
        last_stable: first offset of the oldest open transaction, or the log end (LSO).
        log_end: offset of the next record to be written (LEO).
        leader_epoch: epoch of the leader that reported the ends, so that no record before them has a later one; the
            lower one where two leaders answered; -1 where the broker is too old to report it.
    """

    log_start: int
    last_stable: int
    log_end: int
    leader_epoch: int = -1


@dataclass(frozen=True)
class TopicDescription:
    """Metadata of one topic.

    Attributes:
        name: the topic.
        topic_id: its id, 32 hex digits; changes when a topic is deleted and created again.
        partitions: number of partitions.
        configs: configuration by Kafka's names (``cleanup.policy``, ``delete.retention.ms``, ...).
    """

    name: str
    topic_id: str
    partitions: int
    configs: dict[str, str]


@dataclass(frozen=True)
class ReadStatistics:
    """Statistics of one read of one range. Counts are of delivered records unless stated otherwise.

    Attributes:
        records: records delivered, null keys included.
        tombstones: records whose value is null.
        null_keys: records whose key is null (a store skips them).
        aborted: records dropped because their transaction was aborted.
        batches: record batches decoded.
        bytes_fetched: bytes of record data received.
        max_timestamp: greatest record timestamp in ms (stream time), tombstones included; -1 without a record.
        position: the offset the read reached; equals the range's end when the read is complete.
        log_start_moved_to: last log start at which reading resumed after retention or DeleteRecords had moved it past
            the position, or None.
        fetches: Fetch responses received.
        bytes_decoded: bytes of record data after decompression.
        removed: offsets before the position that no record batch covered: compaction, retention or DeleteRecords
            removed them. Control records, aborted records and records without a key are not counted. 0 means that
            every record ever written there was read.
    """

    records: int = 0
    tombstones: int = 0
    null_keys: int = 0
    aborted: int = 0
    batches: int = 0
    bytes_fetched: int = 0
    max_timestamp: int = -1
    position: int = 0
    log_start_moved_to: int | None = None
    fetches: int = 0
    bytes_decoded: int = 0
    removed: int = 0
