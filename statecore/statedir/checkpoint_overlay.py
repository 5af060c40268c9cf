"""Entries of a task's ``.checkpoint`` over the offsets of its stores, as a start of Kafka Streams applies them. Pure.

An entry wins over the offset in the store, except -4, which a start skips (``migrateLegacyOffsets``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.topic_partition import TopicPartition

Offsets = Mapping[TopicPartition, int]


def entries_of(
    file: Offsets, own: Offsets, topics: Collection[str], partition: int | None
) -> dict[TopicPartition, int]:
    """Entries of a store: those of its ``own`` partitions, else those of ``topics`` and of its task's ``partition``."""
    return {
        entry: offset
        for entry, offset in file.items()
        if entry in own or (entry.topic in topics and partition in (None, entry.partition))
    }


def migrated(file: Offsets) -> dict[TopicPartition, int]:
    """The entries that a start of 4.3 or later takes over into stores, before it deletes the file."""
    return {entry: offset for entry, offset in file.items() if offset != OFFSET_UNKNOWN}


def overlaid(own: Offsets, entries: Offsets) -> dict[TopicPartition, int]:
    """The offsets of a store after a start has applied its entries; -4 counts only without an own offset."""
    counted = {entry: offset for entry, offset in entries.items() if offset != OFFSET_UNKNOWN or entry not in own}
    return {**own, **counted}
