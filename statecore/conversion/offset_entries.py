"""Pure functions that assign entries of ``.checkpoint`` to stores."""

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
    """The entries of ``.checkpoint``, by store.

    Attributes:
        by_store: entries of each store; empty for most stores that are not logged.
        unclaimed: entries of no known store.
    """

    by_store: Mapping[str, Offsets]
    unclaimed: Offsets

    def of(self, store: StoreInspection) -> Offsets:
        return self.by_store.get(store.store, {})


def assign_entries(seen: TaskInspection) -> OffsetEntries:
    """Assign the entries to stores, by the changelog of each.

    A task's stores use the partition of the task's number; a global store all partitions. The topic is known by its
    name, or by the offset that the store has inside.
    """
    entries = seen.checkpoint or {}
    partition = TaskId.parse(seen.task).partition
    by_store = {
        store.store: {
            entry: offset
            for entry, offset in entries.items()
            if entry in store.smallest_offsets
            or (store.changelog and entry.topic == store.changelog and partition in (None, entry.partition))
        }
        for store in seen.stores
    }
    claimed = {entry for offsets in by_store.values() for entry in offsets}
    return OffsetEntries(by_store, {entry: offset for entry, offset in entries.items() if entry not in claimed})


def offsets_text(offsets: Offsets) -> str:
    """Offsets as text."""
    return ", ".join(f"{partition} at {offset:,}" for partition, offset in sorted(offsets.items()))


def restored_from_start(offsets: Offsets) -> list[str]:
    """A note for an unknown offset, which makes Kafka Streams restore from the start; empty otherwise."""
    if OFFSET_UNKNOWN not in offsets.values():
        return []
    return [f"its offset is {OFFSET_UNKNOWN}: Kafka Streams restores it from the start"]
