"""The nouns of reading a changelog: partition, offset range, isolation, statistics."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel as IsolationLevel


class Codec(IntEnum):
    """How the records of a batch are compressed: bits 0-2 of its attributes (Kafka's ``CompressionType``)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_BITS = 7
"""The bits of a batch's attributes that say its codec."""


@dataclass(frozen=True)
class OffsetRange:
    """``[start, end)`` of one partition: the unit of a read.

    Attributes:
        topic: the changelog topic.
        partition: its partition.
        start: first offset to read.
        end: first offset not to read.
    """

    topic: str
    partition: int
    start: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition this range lies in."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True)
class LogOffsets:
    """The offsets of one partition at one moment.

    Attributes:
        log_start: first offset that still exists.
        last_stable: first offset of the oldest open transaction, or the log end (LSO).
        log_end: offset of the next record to be written (LEO).
        leader_epoch: the epoch of the leader that said the ends: nothing before them was written under a later one. The
            lower one where a new leader said one of them; -1 where the broker is too old to tell it.
    """

    log_start: int
    last_stable: int
    log_end: int
    leader_epoch: int = -1


@dataclass(frozen=True)
class TopicDescription:
    """What the cluster says of one topic.

    Attributes:
        name: the topic.
        topic_id: its id, 32 hex digits; differs when a topic was deleted and created again.
        partitions: how many partitions it has.
        configs: the topic's configuration by Kafka's names (``cleanup.policy``, ``delete.retention.ms``, ...).
    """

    name: str
    topic_id: str
    partitions: int
    configs: dict[str, str]


@dataclass(frozen=True)
class ReadStatistics:
    """What one read of one range saw. Counts are of delivered records unless said otherwise.

    Attributes:
        records: records delivered, null keys included.
        tombstones: records whose value is null.
        null_keys: records whose key is null (a store skips them).
        aborted: records dropped because their transaction was aborted.
        batches: record batches decoded.
        bytes_fetched: bytes of record data that came over the network.
        max_timestamp: greatest record timestamp in ms (stream time), tombstones included; -1 without a record.
        position: the offset the read reached; equals the range's end when the read is complete.
        log_start_moved_to: where reading went on because retention or DeleteRecords had moved the log's start past the
            position (the last such place), or None.
        fetches: Fetch responses received.
        bytes_decoded: bytes of record data after decompression.
        removed: offsets before the position that no record batch had: compaction, retention or DeleteRecords removed
            them. Control records, records of aborted transactions and records without a key are there. 0 means that
            every record that was ever written there was read.
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
