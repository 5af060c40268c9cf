"""Value types for reading a changelog: codec, offset range, log offsets, topic, statistics."""

from __future__ import annotations

from dataclasses import dataclass, replace
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


CODEC_BITS = 7  # Bits of a batch's attributes that hold its codec


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
    """The offsets of one partition at one time."""

    log_start: int  # first offset that still exists
    last_stable: int  # first offset of the oldest open transaction, or the log end (LSO)
    log_end: int  # offset of the next record to be written (LEO)
    # epoch of the leader that reported the ends, so that no record before them has a later one; the lower one where two
    # leaders answered; -1 where the broker is too old to report it
    leader_epoch: int = -1

    def end(self, isolation: IsolationLevel) -> int:
        """Offset a read stops before: the last stable offset under read_committed, else the log end offset."""
        return self.last_stable if isolation is IsolationLevel.READ_COMMITTED else self.log_end

    def until(self, end: int | None) -> LogOffsets:
        """Limited to an end offset, if one is given and the log goes on."""
        if end is None:
            return self
        return replace(self, last_stable=min(self.last_stable, end), log_end=min(self.log_end, end))

    def consumed(self, committed: int | None) -> LogOffsets:
        """A source topic up to the committed offset; records beyond are input still to be processed.

        If all consumed records are gone, the end is 0: an offset before the log start makes Kafka Streams treat the
        store as corrupted.
        """
        return self.until(committed if committed is not None and committed >= self.log_start else 0)


@dataclass(frozen=True)
class TopicDescription:
    """Metadata of one topic."""

    name: str
    topic_id: str  # its id, 32 hex digits; changes when a topic is deleted and created again
    partitions: int
    configs: dict[str, str]  # configuration by Kafka's names (cleanup.policy, delete.retention.ms, ...)


@dataclass(frozen=True)
class ReadStatistics:
    """Statistics of one read of one range. Counts are of delivered records unless stated otherwise."""

    records: int = 0  # records delivered, null keys included
    tombstones: int = 0  # records whose value is null
    null_keys: int = 0  # records whose key is null (a store skips them)
    aborted: int = 0  # records dropped because their transaction was aborted
    batches: int = 0  # record batches decoded
    bytes_fetched: int = 0  # bytes of record data received
    max_timestamp: int = -1  # greatest record timestamp in ms, tombstones included; -1 without a record
    position: int = 0  # the offset the read reached; equals the range's end when the read is complete
    # last log start at which reading resumed after retention or DeleteRecords had moved it past the position, or None
    log_start_moved_to: int | None = None
    fetches: int = 0  # Fetch responses received
    bytes_decoded: int = 0  # bytes of record data after decompression
    # offsets before the position that no record batch covered: compaction, retention or DeleteRecords removed them.
    # Control records, aborted records and records without a key are not counted. 0 means that every record ever written
    # there was read.
    removed: int = 0
