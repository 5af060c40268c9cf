"""The files with offsets beside the stores, held against what the stores say themselves."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from statecore.doctor.checks.context import CheckContext, foreign, of_store
from statecore.doctor.checks.missing_stores import gone
from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.views import StoreView, TaskView
from statecore.formats.checkpoint import position_file, store_checkpoint_file
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE, GLOBAL
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.changelog_owner import other_owner
from statecore.statedir.flush_times import in_words
from statecore.statedir.offset_files import OffsetsRead
from statecore.words import some_of


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
                repair=Repair.REBUILD if file.damaged else None,  # else it may be right, and this user may not read it
                damage=file.damaged,
                file=store_checkpoint_file(store.store),
            )
        )
    elif file is not None and not store.kind.manages_offsets and not store.in_use:
        found += _held_against(store, file.offsets, task, store_checkpoint_file(store.store))
    if store.store in task.positions and store.keeps_offsets_inside:
        name, read = position_file(store.store), task.positions[store.store]
        if read.unreadable:
            what = f"cannot be opened: {read.unreadable}"
            repair = Repair.MOVE_ASIDE if read.damaged else None
            found.append(of_store(store, "checkpoint-unreadable", Severity.ERROR, what, repair=repair, file=name))
        else:
            what = "has a .position file of 4.2 or older, which is merged into its position at every start"
            found.append(
                of_store(store, "position-leftover", Severity.NOTE, what, repair=Repair.MERGE_CHECKPOINT, file=name)
            )
    return found


def task_files(task: TaskView, stores: Sequence[StoreView], how: CheckContext) -> list[Finding]:
    """What is wrong with the ``.checkpoint`` of one task.

    Args:
        task: its files.
        stores: all its stores.
        how: the circumstances.
    """
    file = task.checkpoint
    if any(store.in_use for store in stores):
        return []
    if not file.there:
        return gone(task, stores, how)
    if file.unreadable:
        inside = bool(stores) and all(store.keeps_offsets_inside for store in stores)
        what = f"{task.task}/{CHECKPOINT_FILE} cannot be read ({file.unreadable})"
        repair = None
        if file.damaged:
            what += ": the application fails at every start"
            repair = Repair.MOVE_ASIDE if inside else Repair.REBUILD
        evidence = {"file": CHECKPOINT_FILE, "damage": file.damaged}
        return [
            Finding("checkpoint-unreadable", what, Severity.ERROR, task.task, evidence=evidence, repair=repair),
        ]
    others = _of_others(task, stores, how)
    others += _of_other_tasks(task, stores, how, {store.store for store, _ in others})
    found = [foreign(store, entries, how) for store, entries in others]
    lost = gone(task, stores, how)
    said = {str(part) for _, entries in others for part in entries}
    said |= {entry for one in lost for entry in one.evidence["entries"]}
    found += [*lost, *_strays(task, stores, how, said)]
    for store in stores:
        if store.keeps_offsets_inside and store.kind.manages_offsets:
            found += _held_against(store, how.entries_of(store, file), task, CHECKPOINT_FILE)
    return [*found, *_late(task, stores, how)]


def _late(task: TaskView, stores: Sequence[StoreView], how: CheckContext) -> list[Finding]:
    """Rows that were flushed after the file was written, which says the offset of theirs."""
    by_it = [
        store
        for store in stores
        if store.logged and store.readable and not store.offsets and how.entries_of(store, task.checkpoint)
    ]
    if not any(store.store in task.late for store in by_it):
        return []
    found, written = [], in_words(task.written_ns)
    for store in by_it:
        files = {name: in_words(at) for name, at in sorted(task.late.get(store.store, {}).items())}
        severity = Severity.WARNING
        if files:
            severity = how.severity(Severity.WARNING, Severity.LOSS)
            named = some_of([f"{name} ({at})" for name, at in files.items()], 3)
            what = (
                f"the store {store.store} in {task.task} has rows that were flushed after {CHECKPOINT_FILE} was "
                f"written ({written}), in {named}: the application was not closed. Under exactly-once they may be of a "
                "transaction that was never committed, and would be there twice; at-least-once what came since is "
                "restored again"
            )
        elif how.is_at_least_once:
            continue
        else:
            what = (
                f"the store {store.store} in {task.task} lies beside stores with rows that were flushed after "
                f"{CHECKPOINT_FILE} was written: under exactly-once it is restored with them"
            )
        repair = None if how.is_at_least_once else Repair.REBUILD
        found.append(
            of_store(store, "rows-after-checkpoint", severity, what, repair=repair, written=written, files=files)
        )
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


def _of_others(
    task: TaskView, stores: Sequence[StoreView], how: CheckContext
) -> list[tuple[StoreView, list[TopicPartition]]]:
    """Stores that have no offset of their own, and entries of another application's changelog of that name."""
    found: dict[str, list[TopicPartition]] = {}
    names, topology = [store.store for store in stores], TaskId.parse(task.task).topology
    for part in sorted(task.checkpoint.offsets):
        if other := other_owner(part.topic, how.application_id, names, topology):
            found.setdefault(other[1], []).append(part)
    return [
        (store, found[store.store])
        for store in stores
        if store.store in found
        and store.task != GLOBAL
        and store.logged
        and not store.has_decided_changelog
        and not store.offsets
        and not any(part.topic == how.changelog_of(store) for part in task.checkpoint.offsets)
    ]


def _of_other_tasks(
    task: TaskView, stores: Sequence[StoreView], how: CheckContext, said: Collection[str]
) -> list[tuple[StoreView, list[TopicPartition]]]:
    """Stores that have no offset of their own, in a directory of which the file names other partitions alone."""
    partition = TaskId.parse(task.task).partition
    if partition is None or any(part.partition == partition for part in task.checkpoint.offsets):
        return []
    found = []
    for store in stores:
        if store.store not in said and store.logged and store.databases and not store.offsets:
            topic = how.changelog_of(store)
            if entries := [part for part in sorted(task.checkpoint.offsets) if part.topic == topic]:
                found.append((store, entries))
    return found


def _is_believed(part: TopicPartition, offset: int, task: TaskView, how: CheckContext) -> bool:
    return offset >= 0 and part.partition == TaskId.parse(task.task).partition and how.is_changelog(part.topic)


def _strays(task: TaskView, stores: Sequence[StoreView], how: CheckContext, said: Collection[str]) -> list[Finding]:
    """Entries of no store, but for those of which something was said already.

    A topic that is no changelog by its name may be that of a store without an offset. Without a spec nobody knows
    whether the application has the store of a changelog: what is left of a store that is gone looks the same.
    """
    file: OffsetsRead = task.checkpoint
    known = {part.topic for store in stores for part in store.offsets} | {how.changelog_of(store) for store in stores}
    if how.spec is not None:
        known |= {one.changelog for one in (*how.spec.stores, *how.spec.global_stores) if one.is_logged}
    entitled = [
        store
        for store in stores
        if not store.offsets
        and not (store.has_decided_changelog and store.task != GLOBAL)
        and not any(part.topic == how.changelog_of(store) for part in file.offsets)
    ]
    partition = TaskId.parse(task.task).partition
    strays = []
    for part in sorted(part for part in file.offsets if str(part) not in said):
        if (partition is not None and part.partition != partition) or (
            part.topic not in known and (how.is_changelog(part.topic) or not entitled)
        ):
            strays.append(str(part))
    if not strays:
        return []
    fails = task.task == GLOBAL and not how.release.offsets_inside
    what = f"{task.task}/{CHECKPOINT_FILE} names what no store of that directory has: {some_of(strays, 5)}"
    severity = Severity.WARNING
    if fails:
        what += f": Kafka Streams {how.release.name} fails at every start"
        severity = Severity.ERROR
    elif how.spec is None and any(
        _is_believed(part, offset, task, how) for part, offset in file.offsets.items() if str(part) in strays
    ):
        what += (
            ": where the application has such a store, Kafka Streams believes the file, restores nothing, and answers "
            "without its rows"
        )
        severity = Severity.LOSS
    evidence = {"file": CHECKPOINT_FILE, "entries": strays}
    return [Finding("checkpoint-stray", what, severity, task.task, evidence=evidence, repair=Repair.MOVE_ASIDE)]
