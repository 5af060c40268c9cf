"""Whose an entry of ``.checkpoint`` is: pure functions over what was seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from statecore.conversion.inspection import StoreInspection, TaskInspection
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True)
class OffsetEntries:
    """The entries of ``.checkpoint``, by whose they are.

    Attributes:
        by_store: what each store has there; none for most stores that are not logged.
        unclaimed: what no store is known for.
    """

    by_store: Mapping[str, Offsets]
    unclaimed: Offsets

    def of(self, store: StoreInspection) -> Offsets:
        """What a store has there."""
        return self.by_store.get(store.store, {})


def claims(seen: TaskInspection) -> OffsetEntries:
    """Divide the entries among the stores, by the topic that each is rebuilt from.

    A task's stores are rebuilt from the partition of the task's number; a global store from all partitions. Which topic
    that is, is told by its name, or by the offset that the store has inside.
    """
    entries = seen.checkpoint or {}
    partition = TaskId.parse(seen.task).partition
    by_store = {
        store.store: {
            entry: offset
            for entry, offset in entries.items()
            if entry in store.inside
            or (store.changelog and entry.topic == store.changelog and partition in (None, entry.partition))
        }
        for store in seen.stores
    }
    claimed = {entry for offsets in by_store.values() for entry in offsets}
    return OffsetEntries(by_store, {entry: offset for entry, offset in entries.items() if entry not in claimed})


def in_words(offsets: Offsets) -> str:
    """Offsets for a person."""
    return ", ".join(f"{partition} at {offset:,}" for partition, offset in sorted(offsets.items()))


def restored_from_start(offsets: Offsets) -> list[str]:
    """What the next start makes of an offset that is unknown, for a person; empty where none is."""
    if OFFSET_UNKNOWN not in offsets.values():
        return []
    return [f"its offset is {OFFSET_UNKNOWN}: Kafka Streams restores it from the start"]
