"""The files with offsets beside the stores, held against what the stores say themselves."""

from __future__ import annotations

from collections.abc import Sequence

from statecore.formats.checkpoint import position_file, store_checkpoint_file
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE, GLOBAL
from statecore.formats.topic_partition import TopicPartition
from statecore.maintenance.catalogue import Repair, Severity
from statecore.maintenance.checks.circumstances import Circumstances, TaskView, listed, of_store
from statecore.maintenance.findings import Finding
from statecore.maintenance.leftovers import OffsetsRead
from statecore.maintenance.views import StoreView
from statecore.placement.state_directory import partition_of


def store_files(store: StoreView, task: TaskView) -> list[Finding]:
    """What is wrong with ``.checkpoint_<store>`` and ``<store>.position`` of one store; its sentences are of it."""
    found = []
    file = task.stores.get(store.store)
    if file is not None and file.unreadable:
        what = f"cannot be opened: {file.unreadable}"
        found.append(
            of_store(
                store,
                "checkpoint-unreadable",
                Severity.ERROR,
                what,
                repair=Repair.REBUILD,
                damage=file.damaged,
                file=store_checkpoint_file(store.store),
            )
        )
    elif file is not None and not store.kind.manages_offsets and not store.in_use:
        found += _held_against(store, file.offsets, task, store_checkpoint_file(store.store))
    if store.store in task.positions and store.keeps_offsets_inside:
        name, why = position_file(store.store), task.positions[store.store]
        if why:
            what = f"cannot be opened: {why}"
            found.append(
                of_store(store, "checkpoint-unreadable", Severity.ERROR, what, repair=Repair.MOVE_ASIDE, file=name)
            )
        else:
            what = "has a .position file of 4.2 or older, which is merged into its position at every start"
            found.append(
                of_store(store, "position-leftover", Severity.NOTE, what, repair=Repair.MERGE_CHECKPOINT, file=name)
            )
    return found


def task_files(task: TaskView, stores: Sequence[StoreView], how: Circumstances) -> list[Finding]:
    """What is wrong with the ``.checkpoint`` of one task.

    Args:
        task: its files.
        stores: all its stores.
        how: the circumstances.
    """
    file = task.checkpoint
    if not file.there or any(store.in_use for store in stores):
        return []
    if file.unreadable:
        inside = bool(stores) and all(store.keeps_offsets_inside for store in stores)
        what = f"{task.task}/{CHECKPOINT_FILE} cannot be read ({file.unreadable}): the application fails at every start"
        repair = Repair.MOVE_ASIDE if inside else Repair.REBUILD
        evidence = {"file": CHECKPOINT_FILE, "damage": file.damaged}
        return [
            Finding("checkpoint-unreadable", what, Severity.ERROR, task.task, evidence=evidence, repair=repair),
        ]
    found = _strays(task, stores, how)
    for store in stores:
        if store.keeps_offsets_inside and store.kind.manages_offsets:
            found += _held_against(store, how.entries_of(store, file), task, CHECKPOINT_FILE)
    return found


def _held_against(store: StoreView, entries: dict[TopicPartition, int], task: TaskView, name: str) -> list[Finding]:
    """A file that says another offset than the store: it wins."""
    found = []
    inside: dict[TopicPartition, int] = {}
    for database in store.readable:
        inside.update(database.offsets)
    for partition, says in sorted(entries.items()):
        has = inside.get(partition)
        if says == OFFSET_UNKNOWN or has == says or (has is None and (store.rows or not store.readable)):
            continue
        ahead = has is None or says > has
        its = "none, and no row" if has is None else f"{has:,}"
        what = (
            f"{task.task}/{name} overrules the offsets in that directory's stores at the next start: it says {says:,} "
            f"of {partition}, and the store {store.store} {its}: "
            + ("what lies between is never restored" if ahead else "what lies between is restored again")
        )
        found.append(
            of_store(
                store,
                "checkpoint-ahead" if ahead else "checkpoint-behind",
                Severity.LOSS if ahead else Severity.WARNING,
                what,
                partition=partition,
                repair=Repair.MOVE_ASIDE if name == CHECKPOINT_FILE else Repair.REBUILD if ahead else None,
                file=name,
                file_says=says,
                store_says=has,
            )
        )
    return found


def _strays(task: TaskView, stores: Sequence[StoreView], how: Circumstances) -> list[Finding]:
    """Entries of no store. A topic that is no changelog by its name may be that of a store without an offset."""
    file: OffsetsRead = task.checkpoint
    known = {part.topic for store in stores for part in store.offsets} | {how.changelog_of(store) for store in stores}
    if how.spec is not None:
        known |= {one.changelog for one in (*how.spec.stores, *how.spec.global_stores) if one.is_logged}
    entitled = [
        store
        for store in stores
        if not store.offsets
        and not (store.declared and store.task != GLOBAL)
        and not any(part.topic == how.changelog_of(store) for part in file.offsets)
    ]
    partition = partition_of(task.task)
    strays = []
    for part in sorted(file.offsets):
        if (partition is not None and part.partition != partition) or (
            part.topic not in known and (how.is_changelog(part.topic) or not entitled)
        ):
            strays.append(str(part))
    if not strays:
        return []
    fails = task.task == GLOBAL and not how.release.offsets_inside
    what = f"{task.task}/{CHECKPOINT_FILE} names what no store of that directory has: {listed(strays)}" + (
        f": Kafka Streams {how.release.name} fails at every start" if fails else ""
    )
    severity = Severity.ERROR if fails else Severity.WARNING
    evidence = {"file": CHECKPOINT_FILE, "entries": strays}
    return [Finding("checkpoint-stray", what, severity, task.task, evidence=evidence, repair=Repair.MOVE_ASIDE)]
