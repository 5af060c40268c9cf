"""The ``offsets`` column family of KIP-1035: which changelog offset the rows beside it stand at.

Identical for every store type and every segment (``AbstractColumnFamilyAccessor``, Kafka Streams 4.3.1)::

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
from operator import index
from typing import SupportsIndex

from statecore.errors import Corrupted, Invalid
from statecore.formats.topic_partition import TopicPartition

OFFSET_UNKNOWN = -4
"""Stored where an offset is not known (``OffsetCheckpoint.OFFSET_UNKNOWN``): restored from the start, nothing wiped."""

STATUS_OPEN = 1
"""A process has the store open, or died while it had."""

STATUS_CLOSED = 0
"""The last process closed the store cleanly."""

STATUS_KEY = b"status"
POSITION_KEY = b"position"

_INT64 = struct.Struct(">q")
_INT64_MAX = (1 << 63) - 1


def is_offset(offset: object) -> bool:
    """Whether this is an offset as Kafka Streams keeps them: a whole number from 0 on, or -4."""
    return isinstance(offset, SupportsIndex) and (0 <= index(offset) <= _INT64_MAX or index(offset) == OFFSET_UNKNOWN)


def check_offset(partition: TopicPartition, offset: int | None) -> None:
    """Refuse to commit what is no offset: Kafka Streams knows offsets from 0 on, and -4.

    Raises:
        Invalid: it is another negative number, does not fit into an int64, or is no whole number.
    """
    if offset is None or is_offset(offset):
        return
    raise Invalid(
        f"{offset!r} is no offset of {partition}; nothing was committed.",
        action="Give an offset of 0 or more, -4 where it is not known, or None to forget it.",
        topic=partition.topic,
        partition=partition.partition,
    )


def encode_int64(value: int) -> bytes:
    """The 8 big-endian bytes of an offset or a status."""
    return _INT64.pack(value)


def decode_int64(value: bytes) -> int:
    """The offset or status in ``value``.

    Raises:
        Corrupted: ``value`` is not 8 bytes long.
    """
    if len(value) != _INT64.size:
        raise Corrupted(
            f"An entry of the offsets column family is {len(value)} bytes long ({value.hex()}), not 8.",
            action="Rebuild the store from its changelog.",
        )
    return int(_INT64.unpack(value)[0])


def offset_key(partition: TopicPartition) -> bytes:
    """The key under which the offset of a changelog partition lies: ``<topic>-<partition>``."""
    return str(partition).encode()


def partition_of_key(key: bytes) -> TopicPartition | None:
    """The changelog partition a key names, or ``None`` for ``status`` and ``position``.

    Raises:
        Corrupted: the key is neither of those nor of the form ``<topic>-<partition>``.
    """
    if key in (STATUS_KEY, POSITION_KEY):
        return None
    topic, separator, partition = key.decode(errors="replace").rpartition("-")
    if not separator or not topic or not partition.isascii() or not partition.isdigit():
        raise Corrupted(
            f"The offsets column family has a key that names no topic partition: {key!r}.",
            action="Rebuild the store from its changelog.",
        )
    return TopicPartition(topic, int(partition))
