"""Checks of offset files beside the stores against the offsets in the stores."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from statecore.doctor.checks.context import CheckContext, foreign_offsets, store_finding
from statecore.doctor.checks.missing_stores import find_missing
from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.inspection import StoreView, TaskView
from statecore.formats.checkpoint import position_file, store_checkpoint_file
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE, GLOBAL
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.checkpoint_overlay import migrated
from statecore.statedir.flush_times import format_time
from statecore.statedir.known_files import OffsetFileContent
from statecore.statedir.store_places import changelog_owner
from statecore.words import shortened_list

_RENAME = "Rename one of the two stores in the application: with both names only its first start succeeds."


def check_store_files(store: StoreView, task: TaskView) -> list[Finding]:
    """Check ``.checkpoint_<store>`` and ``<store>.position`` of one store."""
    found = []
    file = task.stores.get(store.store)
    if file is not None and file.unreadable:
        what = f"has a {store_checkpoint_file(store.store)} that cannot be read: {file.unreadable}"
        repair = Repair.REBUILD if file.damaged else None  # else only this user cannot read it
        if not file.is_file:  # it is in the way of the file that a rebuild writes; without one the store is rebuilt
            repair = Repair.MOVE_ASIDE
        found.append(
            store_finding(
                store,
                "checkpoint-unreadable",
                _severity_of_unreadable(file),
                f"{what}{_last_line_wins(file)}",
                repair=repair,
                damage=file.damaged,
                file=store_checkpoint_file(store.store),
            )
        )
    elif file is not None and store.logged and not store.kind.manages_offsets and not store.in_use:
        overruled = migrated(task.checkpoint.offsets)
        counted = {part: offset for part, offset in file.offsets.items() if part not in overruled}
        found += _conflicting_offsets(store, counted, task, store_checkpoint_file(store.store))
    if store.store in task.positions:
        name, read = position_file(store.store), task.positions[store.store]
        if read.unreadable:  # every release reads it at a start
            what = f"has a {name} that cannot be read: {read.unreadable}"
            repair = Repair.MOVE_ASIDE if read.damaged else None
            severity, what = _severity_of_unreadable(read), f"{what}{_last_line_wins(read)}"
            one = store_finding(store, "checkpoint-unreadable", severity, what, repair=repair, file=name)
            is_store = not read.is_file and not read.damaged
            found.append(replace(one, own_remedy=_RENAME) if is_store else one)
        elif store.keeps_offsets_inside:
            what = "has a .position file of 4.2 or older, which is merged into its position at every start"
            found.append(
                store_finding(
                    store, "position-leftover", Severity.NOTE, what, repair=Repair.MERGE_CHECKPOINT, file=name
                )
            )
    return found


def check_task_files(task: TaskView, stores: Sequence[StoreView], context: CheckContext) -> list[Finding]:
    """Check the ``.checkpoint`` of one task."""
    file = task.checkpoint
    if any(store.in_use for store in stores):
        return []
    if not file.exists:
        return find_missing(task, stores, context)
    if file.unreadable:
        places = {store.keeps_offsets_inside for store in stores} - {None}  # of a damaged store it is unknown
        inside = places == {True}
        what = f"{task.task}/{CHECKPOINT_FILE} cannot be read ({file.unreadable})"
        repair = None
        if file.damaged:
            what += _last_line_wins(file) or _start_fails(task, context)
            repair = Repair.MOVE_ASIDE if inside else Repair.REBUILD
        evidence = {"file": CHECKPOINT_FILE, "damage": file.damaged}
        severity = _severity_of_unreadable(file)
        found = [Finding("checkpoint-unreadable", what, severity, task.task, evidence=evidence, repair=repair)]
        return found + _overruled(task, stores, file._replace(offsets=file.last_offsets or {}), context)
    others = _of_other_applications(task, stores, context)
    others += _of_other_tasks(task, stores, context, {store.store for store, _ in others})
    found = [foreign_offsets(store, entries, context) for store, entries in others]
    missing = find_missing(task, stores, context)
    reported = {str(part) for _, entries in others for part in entries}
    reported |= {entry for one in missing for entry in one.evidence["entries"]}
    found += [*missing, *_unowned(task, stores, context, reported)]
    found += _overruled(task, stores, file, context)
    return [*found, *_rows_after_checkpoint(task, stores, context)]


def _severity_of_unreadable(file: OffsetFileContent) -> Severity:
    return Severity.ERROR if file.last_offsets is None else Severity.WARNING


def _last_line_wins(file: OffsetFileContent) -> str:
    """What Kafka Streams does with a file that names a partition twice, if it reads it; else empty."""
    return "" if file.last_offsets is None else ": Kafka Streams starts, and the last line of a partition wins"


def _start_fails(task: TaskView, context: CheckContext) -> str:
    """What Kafka Streams does with a file that it cannot read: a release that keeps offsets in it loses global ones."""
    if task.task != GLOBAL or context.release.offsets_inside:
        return ": the application fails at every start"
    return (
        ": the next start fails and deletes the file, and the one after it reads the topics of all global stores from "
        "the start, over their rows"
    )


def _overruled(
    task: TaskView, stores: Sequence[StoreView], file: OffsetFileContent, context: CheckContext
) -> list[Finding]:
    """Offsets in the stores that a ``.checkpoint`` overrules."""
    return [
        one
        for store in stores
        if store.logged and store.keeps_offsets_inside
        for one in _conflicting_offsets(store, context.entries_of(store, file), task, CHECKPOINT_FILE)
    ]


def _rows_after_checkpoint(task: TaskView, stores: Sequence[StoreView], context: CheckContext) -> list[Finding]:
    """Rows that were flushed after the ``.checkpoint`` with their offset was written."""
    by_it = [
        store
        for store in stores
        if store.logged and store.readable and not store.offsets and context.entries_of(store, task.checkpoint)
    ]
    if not any(store.store in task.rows_after_checkpoint for store in by_it):
        return []
    found, written = [], format_time(task.written_ns)
    for store in by_it:
        files = {name: format_time(at) for name, at in sorted(task.rows_after_checkpoint.get(store.store, {}).items())}
        severity = Severity.WARNING
        if files:
            severity = context.severity(Severity.WARNING, Severity.LOSS)
            named = shortened_list([f"{name} ({at})" for name, at in files.items()], 3)
            what = (
                f"the store {store.store} in {task.task} has rows that were flushed after {CHECKPOINT_FILE} was "
                f"written ({written}), in {named}: the application was not closed. Under exactly-once they may be of a "
                "transaction that was never committed, and would be applied twice; at-least-once later records are "
                "restored again"
            )
        elif context.is_at_least_once:
            continue
        else:
            what = (
                f"the store {store.store} in {task.task} is beside stores with rows that were flushed after "
                f"{CHECKPOINT_FILE} was written: under exactly-once it is restored with them"
            )
        repair = None if context.is_at_least_once else Repair.REBUILD
        found.append(
            store_finding(store, "rows-after-checkpoint", severity, what, repair=repair, written=written, files=files)
        )
    return found


def _conflicting_offsets(
    store: StoreView, entries: dict[TopicPartition, int], task: TaskView, name: str
) -> list[Finding]:
    """Offsets in a file, which overrule the store, that differ from the store's own."""
    found = []
    inside: dict[TopicPartition, int] = {}
    for database in store.readable:
        inside.update(database.offsets)
    for partition, in_file in sorted(entries.items()):
        in_store = inside.get(partition)
        if (
            in_file == OFFSET_UNKNOWN
            or in_store == in_file
            or (in_store is None and (store.rows or not store.readable))
        ):
            continue
        ahead = in_store is None or in_file > in_store
        is_own_left = name == CHECKPOINT_FILE and (store.kind.manages_offsets or partition in store.outside)
        is_miskeyed = not ahead and store.kind is StoreKind.GRACE_BUFFER
        its = "none, and no row" if in_store is None else str(in_store)
        what = (
            f"{task.task}/{name} overrules the offsets in that directory's stores at the next start: it says "
            f"{in_file} of {partition}, and the store {store.store} {its}: "
            + (
                "the records between them are never restored"
                if ahead
                else "the records between them are restored again"
                + (", with keys under which the join never finds them" if is_miskeyed else "")
            )
        )
        found.append(
            store_finding(
                store,
                "checkpoint-ahead" if ahead else "checkpoint-behind",
                Severity.LOSS if ahead or is_miskeyed else Severity.WARNING,
                what,
                partition=partition,
                repair=Repair.MOVE_ASIDE if is_own_left else Repair.REBUILD if ahead or is_miskeyed else None,
                file=name,
                file_says=in_file,
                store_says=in_store,
            )
        )
    return found


def _of_other_applications(
    task: TaskView, stores: Sequence[StoreView], context: CheckContext
) -> list[tuple[StoreView, list[TopicPartition]]]:
    """Stores without an offset, with entries of another application's changelog for that store name."""
    found: dict[str, list[TopicPartition]] = {}
    names = [store.store for store in stores]
    for part in sorted(task.checkpoint.offsets):
        if other := changelog_owner(part.topic, context.application_id, names):
            found.setdefault(other[1], []).append(part)
    return [
        (store, found[store.store])
        for store in stores
        if store.store in found
        and store.task != GLOBAL
        and store.logged
        and not store.has_decided_changelog
        and not store.offsets
        and not any(part.topic == context.changelog_of(store) for part in task.checkpoint.offsets)
    ]


def _of_other_tasks(
    task: TaskView, stores: Sequence[StoreView], context: CheckContext, reported: Collection[str]
) -> list[tuple[StoreView, list[TopicPartition]]]:
    """Stores without an offset, in a task whose file has only entries of other partitions."""
    partition = TaskId.parse(task.task).partition
    if partition is None or any(part.partition == partition for part in task.checkpoint.offsets):
        return []
    found = []
    for store in stores:
        if store.store not in reported and store.logged and store.databases and not store.offsets:
            topic = context.changelog_of(store)
            if entries := [part for part in sorted(task.checkpoint.offsets) if part.topic == topic]:
                found.append((store, entries))
    return found


def _is_trusted(part: TopicPartition, offset: int, task: TaskView, context: CheckContext) -> bool:
    return offset >= 0 and part.partition == TaskId.parse(task.task).partition and context.is_changelog(part.topic)


def _unowned(
    task: TaskView, stores: Sequence[StoreView], context: CheckContext, reported: Collection[str]
) -> list[Finding]:
    """Entries of no store, except those already reported."""
    strays = [part for part in _stray_entries(task, stores, context) if str(part) not in reported]
    if not strays:
        return []
    entries = [str(part) for part in strays]
    what = f"{task.task}/{CHECKPOINT_FILE} has entries of no store in that directory: {shortened_list(entries, 5)}"
    severity = Severity.WARNING
    if task.task == GLOBAL and not context.release.offsets_inside:
        what += f": Kafka Streams {context.release.name} fails at every start"
        severity = Severity.ERROR
    elif context.spec is None and any(
        _is_trusted(part, task.checkpoint.offsets[part], task, context) for part in strays
    ):
        what += (
            ": if the application has such a store, Kafka Streams trusts the file, restores nothing, and answers "
            "without its rows"
        )
        severity = Severity.LOSS
    evidence = {"file": CHECKPOINT_FILE, "entries": entries}
    return [Finding("checkpoint-stray", what, severity, task.task, evidence=evidence, repair=Repair.MOVE_ASIDE)]


def _stray_entries(task: TaskView, stores: Sequence[StoreView], context: CheckContext) -> list[TopicPartition]:
    """Entries of another partition, and those of a topic that no store has or may have."""
    known = _known_topics(stores, context)
    some_store_lacks_entry = any(_lacks_entry(store, task, context) for store in stores)
    partition = TaskId.parse(task.task).partition

    def is_stray(part: TopicPartition) -> bool:
        if partition is not None and part.partition != partition:
            return True
        return part.topic not in known and (context.is_changelog(part.topic) or not some_store_lacks_entry)

    return [part for part in sorted(task.checkpoint.offsets) if is_stray(part)]


def _known_topics(stores: Sequence[StoreView], context: CheckContext) -> set[str]:
    """Topics that are changelogs of stores in the directory, or of declared ones."""
    known = {part.topic for store in stores for part in store.offsets}
    known |= {context.changelog_of(store) for store in stores}
    if context.spec is not None:
        known |= {one.changelog for one in (*context.spec.stores, *context.spec.global_stores) if one.is_logged}
    return known


def _lacks_entry(store: StoreView, task: TaskView, context: CheckContext) -> bool:
    """Whether a store has no offset, and no entry under the changelog that it is known to have."""
    if store.offsets or (store.has_decided_changelog and store.task != GLOBAL):
        return False
    return not any(part.topic == context.changelog_of(store) for part in task.checkpoint.offsets)
