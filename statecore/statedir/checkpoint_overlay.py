"""Entries of a task's ``.checkpoint`` over the offsets of its stores, as a start of Kafka Streams applies them.

An entry wins over the offset in the store, except -4, which a start skips (``migrateLegacyOffsets``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.legacy_offsets import read_offsets

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


def overriding(task_directory: Path, own: Offsets, topics: Collection[str]) -> dict[TopicPartition, int]:
    """Entries of a task's ``.checkpoint`` that would change the offsets of a store at the next start."""
    file = migrated(read_offsets(task_directory / CHECKPOINT_FILE))
    entries = entries_of(file, own, topics, TaskId.parse(task_directory.name).partition)
    return {entry: offset for entry, offset in entries.items() if offset != own.get(entry)}
