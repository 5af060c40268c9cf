"""The ``offsets`` column family of KIP-1035: the changelog offset of a database's rows.

Identical for every store type and every segment (``AbstractColumnFamilyAccessor``, Kafka Streams 4.3.1 and 4.4.0)::

    key (UTF-8)              value (int64, big-endian)           meaning
    -----------------------  ----------------------------------  --------------------------------------------
    <topic>-<partition>      offset                              last applied changelog offset; -4 = unknown;
                                                                 a global store keeps the next offset instead
    status                   1 = open, 0 = closed cleanly        anything else counts as not closed cleanly
    position                 PositionSerde bytes                 see statecore.formats.position

    "orders-clicks-changelog-0" -> 00 00 00 00 00 00 00 63       99 is in the rows
    "status"                    -> 00 00 00 00 00 00 00 00       closed cleanly
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from statecore.errors import Corrupted, Invalid
from statecore.formats.integers import INT64_MAX, whole_number
from statecore.formats.topic_partition import TopicPartition, as_topic_partition

OFFSET_UNKNOWN = -4
"""Stands for an unknown offset (``OffsetCheckpoint.OFFSET_UNKNOWN``): restore from the start, wipe nothing."""

STATUS_OPEN = 1  # A process has the store open, or crashed while it had
STATUS_CLOSED = 0  # The last process closed the store cleanly
STATUS_KEY = b"status"
POSITION_KEY = b"position"

_INT64 = struct.Struct(">q")


def is_offset(offset: Any) -> bool:
    """Whether this is an offset as Kafka Streams stores them: an integer of at least 0, or -4."""
    number = whole_number(offset)
    return number is not None and (0 <= number <= INT64_MAX or number == OFFSET_UNKNOWN)


def next_offset(offset: int, *, is_global: bool) -> int:
    """First offset that a store with a stored ``offset`` lacks: a global store keeps this one itself."""
    return offset if is_global else offset + 1


def checked_offsets(offsets: Mapping[Any, Any]) -> dict[TopicPartition, int | None]:
    """Validate offsets to commit (``None`` deletes one); convert partitions and numbers of other libraries."""
    if type(offsets) is not dict and not isinstance(offsets, Mapping):
        raise Invalid(
            f"Offsets are a mapping of partitions, not {type(offsets).__name__}; nothing was committed.",
            code="offsets-invalid",
            action="Give {TopicPartition(topic, partition): offset}.",
        )
    checked: dict[TopicPartition, int | None] = {}
    for given, value in offsets.items():
        partition = given if type(given) is TopicPartition and _VALID.get(given) is given else _validated(given)
        if type(value) is int and 0 <= value <= INT64_MAX and partition not in checked:
            checked[partition] = value
            continue
        offset = None if value is None else whole_number(value)
        if value is not None and (offset is None or not (0 <= offset <= INT64_MAX or offset == OFFSET_UNKNOWN)):
            raise Invalid(
                f"{value!r} is not an offset of {partition}; nothing was committed.",
                code="offset-invalid",
                action="Give an offset of 0 or more, -4 if it is unknown, or None to delete it.",
                topic=partition.topic,
                partition=partition.partition,
                value=repr(value),
            )
        if checked.setdefault(partition, offset) != offset:
            raise Invalid(
                f"{partition} is named twice, at {checked[partition]} and at {offset}; nothing was committed.",
                code="partition-duplicate",
                action="Name each partition once.",
                topic=partition.topic,
                partition=partition.partition,
                offsets=[checked[partition], offset],
            )
    return checked


_VALID: dict[TopicPartition, TopicPartition] = {}
"""Validated partitions. A processor commits offsets of the same few partition objects, for ever; an equal object may
still be invalid (a partition of ``False`` equals 0).
"""

_REMEMBERED = 4096


def _validated(given: Any) -> TopicPartition:
    partition = as_topic_partition(given)
    if partition is given:
        if len(_VALID) >= _REMEMBERED:
            _VALID.clear()
        _VALID[given] = given
    return partition


def encode_int64(value: int) -> bytes:
    """Encode an offset or a status in 8 big-endian bytes."""
    return _INT64.pack(value)


def decode_int64(value: bytes) -> int:
    """Decode an offset or a status. Raises ``Corrupted`` if ``value`` is not 8 bytes long."""
    if len(value) != _INT64.size:
        raise Corrupted(
            f"An entry of the offsets column family is {len(value)} bytes long ({value.hex()}), not 8.",
            code="offsets-family-damaged",
            action="Rebuild the store from its changelog.",
        )
    return int(_INT64.unpack(value)[0])


def offset_key(partition: TopicPartition) -> bytes:
    """Key of the offset of a changelog partition: ``<topic>-<partition>``."""
    return _offset_key(partition.topic, partition.partition)


@lru_cache(4096, typed=True)  # typed, on plain values: a partition equals a tuple, whose text differs
def _offset_key(topic: str, partition: int) -> bytes:
    return f"{topic}-{partition}".encode()


def partition_of_key(key: bytes) -> TopicPartition | None:
    """Partition named by a key; ``None`` for ``status`` and ``position``. Raises ``Corrupted`` for other keys."""
    if key in (STATUS_KEY, POSITION_KEY):
        return None
    topic, separator, partition = key.decode(errors="replace").rpartition("-")
    if not separator or not topic or not partition.isascii() or not partition.isdigit():
        raise Corrupted(
            f"The offsets column family has a key that names no topic partition: {key!r}.",
            code="offsets-family-damaged",
            action="Rebuild the store from its changelog.",
        )
    return TopicPartition(topic, int(partition))
