"""Assigns the entries of ``.checkpoint`` to stores, and decides whether they are trusted. Pure functions.

Rows flushed after the file was written may, under exactly-once, belong to a transaction that was never committed. Its
input is processed again, so an application that trusts the file applies its updates twice. So the file is removed:
every release wipes an exactly-once task that has rows and no offset, and restores it. At-least-once the file is
trusted. If the guarantee is unknown neither is right, and the task is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from statecore.conversion.inspection import StoreInspection, TaskInspection
from statecore.errors import Reason
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE, Release
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import UNKNOWN_CHANGELOG
from statecore.statedir.checkpoint_overlay import entries_of
from statecore.statedir.flush_times import format_time
from statecore.statedir.manifest_check import why_flush_lost

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
        store.store: entries_of(entries, store.smallest_offsets, {store.changelog}, partition) for store in seen.stores
    }
    claimed = {entry for offsets in by_store.values() for entry in offsets}
    return OffsetEntries(by_store, {entry: offset for entry, offset in entries.items() if entry not in claimed})


def offsets_text(offsets: Offsets) -> str:
    return ", ".join(f"{partition} at {offset}" for partition, offset in sorted(offsets.items()))


def restored_from_start(offsets: Offsets) -> list[str]:
    """A note for an unknown offset, which makes Kafka Streams restore from the start; empty otherwise."""
    if OFFSET_UNKNOWN not in offsets.values():
        return []
    return [f"its offset is {OFFSET_UNKNOWN}: Kafka Streams restores it from the start"]


_NAMED = 3


def lost_flush(store: StoreInspection, entries: OffsetEntries) -> Reason | None:
    """The database of a store of 4.2 or older that has lost the end of its MANIFEST."""
    for one in store.databases:
        why = why_flush_lost(
            one.unnamed_files,
            _possible_entries(store, entries),
            has_rows=bool(one.nonempty_families),
            has_offsets_family=one.has_offsets_family,
        )
        if why:
            what = f"{one.directory} has lost the end of its MANIFEST: {why}"
            return Reason(what, "database-damaged", store_path=one.directory)
    return None


def _possible_entries(store: StoreInspection, entries: OffsetEntries) -> Offsets:
    """Entries of a store; of one whose changelog is unknown, those whose topics are not named like changelogs."""
    own, declared = entries.of(store), store.declared
    if own or store.smallest_offsets or (declared is not None and declared.changelog != UNKNOWN_CHANGELOG):
        return own
    return {entry: offset for entry, offset in entries.unclaimed.items() if not entry.topic.endswith("-changelog")}


@dataclass(frozen=True)
class FlushOrder:
    """How ``.checkpoint`` is treated.

    Attributes:
        refused: why it is undecidable whether to trust it; ``None`` if it is decided.
        distrusted: why it is ignored; empty if it is trusted.
    """

    refused: Reason | None = None
    distrusted: str = ""
    remarks: tuple[str, ...] = ()


def check_flush_order(
    seen: TaskInspection, entries: OffsetEntries, exactly_once: bool | None, to: Release
) -> FlushOrder:
    """Decide whether the ``.checkpoint`` of a task is trusted."""
    stores = [store for store in seen.stores if _relies_on_file(store, entries)]
    late = {name: at for store in stores for name, at in store.flushes.late.items()}
    if not late:
        lost = exactly_once is not False and _times_lost(stores)
        return FlushOrder(remarks=(_TIMES_LOST,) if lost else ())
    text = f"rows were flushed after {CHECKPOINT_FILE} was written ({_files(late)})"
    if exactly_once is False:
        return FlushOrder(
            remarks=(
                f"{text}: the application was not closed. Later records are restored again, and input that was not "
                "committed is processed again, as at-least-once allows",
            )
        )
    may_be = "they may be of a transaction that was never committed, whose input is processed again"
    if exactly_once is None:
        return FlushOrder(
            refused=Reason(
                f"{text}: the application was not closed. Under exactly-once {may_be}, so that no offset may be "
                f"read from {CHECKPOINT_FILE}; at-least-once the file is right. Give the guarantee "
                "(--processing-guarantee, or a spec)",
                "processing-guarantee-unknown",
                stores=sorted(store.store for store in stores if store.flushes.late),
            )
        )
    return FlushOrder(
        distrusted=f"{text}: the application was not closed, and under exactly-once {may_be}. So no offset is read "
        f"and {CHECKPOINT_FILE} is moved aside: Kafka Streams {to.name} finds none, and restores the task from "
        f"the start after it has wiped it.{_lost_with_it(seen, entries)}"
    )


_TIMES_LOST = (
    f"its files are copies that have not kept their times: whether rows were flushed after {CHECKPOINT_FILE} was "
    "written is unknown. If the application was killed under exactly-once, copy them again with their times "
    "(cp -a, rsync -a), or have the task restored"
)


def _relies_on_file(store: StoreInspection, claimed: OffsetEntries) -> bool:
    """Whether a store relies on the file for its offset; an undeclared one may use any entry."""
    if store.logged is not None:
        return store.logged
    return bool(claimed.of(store) or claimed.unclaimed)


def _lost_with_it(seen: TaskInspection, claimed: OffsetEntries) -> str:
    """The stores that are wiped with the task and cannot be restored."""
    names = [store.store for store in seen.stores if store.has_rows and not _relies_on_file(store, claimed)]
    return f" {', '.join(names)} has no known changelog, and is lost with it: copy it first." if names else ""


def _times_lost(stores: Iterable[StoreInspection]) -> bool:
    every = [store.flushes for store in stores]
    return any(one.flushed for one in every) and not any(one.unmodified for one in every)


def _files(late: dict[str, int]) -> str:
    named = [f"{name} at {format_time(at)}" for name, at in sorted(late.items())]
    more = len(named) - _NAMED
    return ", ".join(named[:_NAMED]) + (f" and {more} more files" if more > 0 else "")
