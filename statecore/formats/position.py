"""The ``position`` row of the ``offsets`` column family: greatest offset read of each input partition (PositionSerde
v0).

Only interactive queries with a position bound read it (``StoreQueryUtils``, ``PositionSerde``). All integers are
big-endian and signed::

    00                                    version
    int32 number of topics
      int32 length, UTF-8 topic name      for each topic
      int32 number of partitions
        int32 partition, int64 offset     for each partition
    00 ...                                Kafka Streams allocates the array in bits, not bytes, and stores the whole
    array

    00 00000001 00000002 "in" 00000001 00000000 0000000000000063 + padding, 202 bytes in all

Up to 4.2 a position is in ``<store>.position`` instead, as text (:mod:`statecore.formats.checkpoint`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from statecore.errors import Corrupted, Invalid
from statecore.formats.integers import INT64_MAX, whole_number
from statecore.formats.topic_partition import TopicPartition, as_topic_partition

Position = dict[str, dict[int, int]]  # Topic -> partition -> greatest offset read
_INT32 = struct.Struct(">i")
_ENTRY = struct.Struct(">iq")
_VERSION = 0


def validated_position(topic: Any, partition: Any, offset: Any) -> tuple[str, int, int]:
    """Validate topic, partition and offset of a record that was read, and convert them to plain values."""
    named = as_topic_partition(TopicPartition(topic, partition))
    number = whole_number(offset)
    if number is None or not 0 <= number <= INT64_MAX:
        raise Invalid(
            f"{offset!r} is not a record offset in {named}; nothing was changed.",
            code="offset-invalid",
            action="Give the greatest offset that was read, 0 or more.",
            topic=named.topic,
            partition=named.partition,
            value=repr(offset),
        )
    return named.topic, named.partition, number


def encode_position(position: Mapping[str, Mapping[int, int]]) -> bytes:
    """Encode a position, topics and partitions ascending, without padding (readers ignore it)."""
    parts = [bytes([_VERSION]), _INT32.pack(len(position))]
    for topic in sorted(position):
        name = topic.encode()
        partitions = position[topic]
        parts += [_INT32.pack(len(name)), name, _INT32.pack(len(partitions))]
        parts += [_ENTRY.pack(partition, partitions[partition]) for partition in sorted(partitions)]
    return b"".join(parts)


def decode_position(data: bytes) -> Position:
    """Decode a position as Kafka Streams does, which reads nothing behind its end."""
    if not data or data[0] != _VERSION:
        raise _corrupted(data, "its version is not 0")
    position: Position = {}
    at = 1
    try:
        (topics,) = _INT32.unpack_from(data, at)
        at += 4
        if topics < 0:
            raise _corrupted(data, "a count is negative")
        for _ in range(topics):
            (length,) = _INT32.unpack_from(data, at)
            at += 4
            if length < 0 or at + length > len(data):
                raise _corrupted(data, "a topic name does not fit")
            name = data[at : at + length].decode()
            at += length
            (count,) = _INT32.unpack_from(data, at)
            at += 4
            if count < 0:
                raise _corrupted(data, "a count is negative")
            partitions = position.setdefault(name, {})
            for _ in range(count):
                partition, offset = _ENTRY.unpack_from(data, at)
                at += _ENTRY.size
                partitions[partition] = offset
    except (struct.error, UnicodeDecodeError) as error:
        raise _corrupted(data, str(error)) from error
    return position


def position_of_offsets(offsets: Mapping[TopicPartition, int]) -> Position:
    """Position of the entries of a ``.position`` file (``StoreQueryUtils.topicPartitionMapToPosition``)."""
    position: Position = {}
    for (topic, partition), offset in offsets.items():
        position.setdefault(topic, {})[partition] = offset
    return position


def offsets_of_position(position: Mapping[str, Mapping[int, int]]) -> dict[TopicPartition, int]:
    """Entries of a ``.position`` file for a position (``StoreQueryUtils.positionToTopicPartitionMap``)."""
    return {
        TopicPartition(topic, partition): offset
        for topic, partitions in position.items()
        for partition, offset in partitions.items()
    }


def copy_position(position: Mapping[str, Mapping[int, int]]) -> Position:
    """Deep copy of a position."""
    return {topic: dict(partitions) for topic, partitions in position.items()}


def merge_position(position: Position, other: Mapping[str, Mapping[int, int]]) -> None:
    """Merge another position into this one: the greater offset of each partition (``Position.merge``)."""
    for topic, partitions in other.items():
        seen = position.setdefault(topic, {})
        for partition, offset in partitions.items():
            seen[partition] = max(offset, seen.get(partition, offset))


def _corrupted(data: bytes, why: str) -> Corrupted:
    return Corrupted(
        f"A position of {len(data)} bytes cannot be read: {why}.",
        code="position-damaged",
        action="Delete the row 'position' (only position-bounded queries use it) or rebuild the store.",
    )
