"""Plans the conversion of a task's directory to a release with offsets inside the databases (KIP-1035: 4.3, 4.4).

The reference is what Kafka Streams 4.3.1 does when it opens an older directory (``migrateLegacyOffsets``): the offset
of each entry of ``.checkpoint`` goes into the databases of its store, then the file is deleted. Differences: a windowed
store without a segment gets one that keeps its offset; 4.3.1 drops the offset, and under exactly-once wipes the whole
task because of that. An entry of -4 is kept for a store without rows, so that it is restored without a wipe; 4.3.1
skips it. And a store that has an offset inside keeps it: with 4.3.1 the file would win, and the records between the two
be restored again.

No offset is ever invented. A task without any is left as it is, and so is one with rows and an entry of -4: under
exactly-once they may be of a transaction that was never committed, and the wipe is what makes the task right.
Otherwise an existing ``.checkpoint`` is trusted, unless rows were flushed after it (:mod:`.checkpoint_entries`).

4.4 does not wipe such a task if its stores are transactional (KIP-892): it restores over the rows, those of the aborted
transaction stay, and their input is processed again over them. So such a task is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from statecore.conversion.checkpoint_entries import (
    OffsetEntries,
    Offsets,
    assign_entries,
    check_flush_order,
    lost_flush,
    offsets_text,
    restored_from_start,
)
from statecore.conversion.inspection import DatabaseInspection, StoreInspection, TaskInspection, release_names
from statecore.conversion.model import (
    DatabaseConversion,
    Step,
    StoreConversion,
    TaskConversion,
    affected_databases,
    with_store,
)
from statecore.errors import Reason
from statecore.formats.checkpoint import position_file, store_checkpoint_file
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN, POSITION_KEY, STATUS_CLOSED, STATUS_KEY, encode_int64, offset_key
from statecore.formats.position import Position, copy_position, encode_position, merge_position
from statecore.formats.releases import CHECKPOINT_FILE, DEFAULT_COLUMN_FAMILY, OFFSETS_COLUMN_FAMILY, Release
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.database_state import DatabaseState
from statecore.statedir.exactly_once_wipe import StoreAtStart, has_offset


def plan_upward(
    inspected: TaskInspection, to: Release, exactly_once: bool | None = None, *, transactional: bool | None = None
) -> TaskConversion:
    """Plan the conversion of a task's directory to a release with offsets inside."""
    made = _plan_unless_transactional(inspected, to, exactly_once)
    if not to.transactional_stores or transactional is False or exactly_once is False or inspected.is_global:
        return made
    with_unknown_offset = [] if made.refused else _stores_relying_on_wipe(inspected, made, to)
    if not with_unknown_offset:
        return made
    if transactional:
        return TaskConversion(
            inspected.task, made.seen, to.name, (), refused=(_not_wiped(inspected, with_unknown_offset, to),)
        )
    return replace(made, remarks=(*made.remarks, _if_transactional(with_unknown_offset, to)))


def _stores_relying_on_wipe(seen: TaskInspection, made: TaskConversion, to: Release) -> list[str]:
    """Stores of an older release with rows that are restored from the start, after a wipe as intended.

    Later releases write a status, which is open if rows were flushed and the store was not closed.
    """
    claimed = OffsetEntries({}, {}) if CHECKPOINT_FILE in made.moved else assign_entries(seen)
    planned = {store.store: store for store in made.stores}
    return [
        store.store
        for store in seen.stores
        if store.has_rows
        and (store.logged or (store.logged is None and not made.stores))  # else it counts as not logged
        and not has_offset(_at_start(store, planned.get(store.store), made.written, claimed), to)
        and any(not one.has_offsets_family for one in store.databases)
    ]


def _at_start(
    store: StoreInspection, planned: StoreConversion | None, written: Mapping[str, Offsets], claimed: OffsetEntries
) -> StoreAtStart:
    """What a start finds of a store after the conversion."""
    states = [one.state for one in store.databases]
    if planned is not None:
        states = [DatabaseState(tuple(one.families), one.offsets or {}, one.status) for one in planned.databases]
    own_file = written.get(store_checkpoint_file(store.store), store.file_offsets or {})
    task_file = claimed.of(store)
    kind = store.kind
    return StoreAtStart(states, None, None, kind, segmented=store.segmented, own_file=own_file, task_file=task_file)


def _not_wiped(seen: TaskInspection, stores: list[str], to: Release) -> Reason:
    return Reason(
        f"the offset of the rows of {', '.join(stores)} is unknown: the application was not closed. Under "
        f"exactly-once they may be of a transaction that was aborted. Kafka Streams {to.name} with transactional "
        "stores, as the spec declares them, does not wipe the task: it restores over these rows, and processes their "
        f"input again over them. Move the directory {seen.task} away, or rebuild it (statecore restore --replace)",
        "uncommitted-rows",
        stores=stores,
    )


def _if_transactional(stores: list[str], to: Release) -> str:
    return (
        f"Kafka Streams {to.name} with transactional stores does not wipe the task, and processes input twice whose "
        f"rows are in {', '.join(stores)}: if the application enables them, move the task's directory away first"
    )


def _plan_unless_transactional(seen: TaskInspection, to: Release, exactly_once: bool | None) -> TaskConversion:
    claimed = assign_entries(seen)
    conversion = TaskConversion(seen.task, release_names(seen.stores), to.name, ())
    refused = _refused(seen, claimed)
    if refused:
        return replace(conversion, refused=refused)
    left = _without_offsets(seen) or _with_rows_at_unknown_offset(seen, claimed)
    if left:
        return replace(conversion, left=left)
    late = check_flush_order(seen, claimed, exactly_once, to)
    if late.refused:
        return replace(conversion, refused=(late.refused,))
    if late.distrusted:
        return replace(conversion, left=(late.distrusted,), moved=(CHECKPOINT_FILE,))
    stores = tuple(_store(seen, store, claimed, to) for store in seen.stores)
    kept = dict(claimed.unclaimed)
    written: dict[str, Mapping[TopicPartition, int]] = {}
    moved = []
    for store in seen.stores:
        taken = claimed.of(store)
        if store.foreign or (not store.databases and not _gets_segment(seen, store, claimed)):
            kept.update(taken)
            continue
        if store.keeps_offset_outside and taken and store.file_offsets is None:
            written[store_checkpoint_file(store.store)] = taken
        if store.has_position_file and not seen.is_global:
            moved.append(position_file(store.store))
    if seen.checkpoint is not None and kept != seen.checkpoint:
        moved.append(CHECKPOINT_FILE)
        if kept:
            written[CHECKPOINT_FILE] = kept
    return replace(
        conversion,
        stores=stores,
        moved=tuple(sorted(moved)),
        written=written,
        left=_kept_entries(seen, kept, to),
        remarks=late.remarks,
    )


def _refused(seen: TaskInspection, claimed: OffsetEntries) -> tuple[Reason, ...]:
    broken = {store.store: store.damage or lost_flush(store, claimed) for store in seen.stores}
    found = [with_store(store, why) for store, why in broken.items() if why]
    return (*([seen.damage] if seen.damage else []), *found)


def _without_offsets(seen: TaskInspection) -> tuple[str, ...]:
    """Why a task without any offset, as left by a process that died, cannot be converted."""
    older = any(not one.has_offsets_family for store in seen.stores for one in store.databases)
    inside = any(store.smallest_offsets or store.file_offsets for store in seen.stores)
    if seen.checkpoint is not None or inside or not older:
        return ()
    there_is_none = f"There is no {CHECKPOINT_FILE} in {seen.task}"
    if not any(store.has_rows for store in seen.stores):
        return (f"{there_is_none}, and its stores have no rows: there is nothing to convert.",)
    if seen.is_global:
        return (
            f"{there_is_none}: the offset of the rows is unknown, so the topics are read from their start. "
            "3.9 writes it only after 10,000 records; with a release that has offsets inside this does not recur.",
        )
    return (
        f"{there_is_none}: the instance died, or none of its stores is logged. The offset of the rows is unknown; "
        "the application restores logged stores from the start, under exactly-once after it has "
        "wiped the task.",
    )


def _with_rows_at_unknown_offset(seen: TaskInspection, claimed: OffsetEntries) -> tuple[str, ...]:
    """Why a task with rows and an offset of -4 is left: it was killed before its first commit on this directory.

    With -4 inside, Kafka Streams would restore over the rows, also over those of an aborted transaction, and process
    their input again over them. Without it at-least-once does the same, and exactly-once wipes the task.
    """
    if seen.is_global:
        return ()
    found = [
        store.store
        for store in seen.stores
        if store.has_rows
        and not store.smallest_offsets
        and not store.file_offsets
        and OFFSET_UNKNOWN in claimed.of(store).values()
    ]
    if not found:
        return ()
    return (
        f"{CHECKPOINT_FILE} says -4 of {', '.join(found)}, and there are rows: the instance died before its first "
        "commit, so it is unknown which of them were committed. The application restores the task from the start, "
        "under exactly-once after it has wiped the task.",
    )


def _kept_entries(seen: TaskInspection, kept: Offsets, to: Release) -> tuple[str, ...]:
    """Entries that stay in the file, each with its effect in Kafka Streams."""
    stores = {store.changelog: store for store in seen.stores if store.changelog}
    found = []
    for partition, offset in sorted(kept.items()):
        store, text = stores.get(partition.topic), f"{CHECKPOINT_FILE} keeps {offsets_text({partition: offset})}"
        if store is None and offset == OFFSET_UNKNOWN:
            found.append(
                f"{text}, which is no offset, and no store here is known to be restored from that. If the topology "
                f"has such a store, Kafka Streams {to.name} restores it from the start, under exactly-once after it "
                "has wiped the task."
            )
        elif store is None:
            found.append(
                f"{text}: no store here is known to be restored from that. Kafka Streams {to.name} uses it if "
                "its topology has such a store, else drops it. Declare the store in a spec to convert it here."
            )
        elif store.foreign:
            found.append(f"{text}: {store.store} is no database, so Kafka Streams {to.name} reads it itself.")
        elif store.databases:
            found.append(
                f"{text}, which is not of {seen.task}: Kafka Streams {to.name} drops it, and {store.store} keeps its "
                "other offset. Check whether the directory is that of another task."
            )
        else:
            found.append(
                f"{text}, and {store.directory} has no database: Kafka Streams would create an empty one and restore "
                "records after that offset. Delete the line unless the store was empty."
            )
    return tuple(found)


def _gets_segment(seen: TaskInspection, store: StoreInspection, claimed: OffsetEntries) -> bool:
    """Whether a windowed store without a segment gets one for its offset."""
    if not store.segmented or store.databases or store.foreign or store.keeps_offset_outside:
        return False
    return bool(claimed.of(store)) or (bool(store.logged) and not seen.is_global and seen.checkpoint is not None)


def _store(seen: TaskInspection, store: StoreInspection, claimed: OffsetEntries, to: Release) -> StoreConversion:
    taken = {
        partition: offset
        for partition, offset in claimed.of(store).items()
        if not (seen.is_global and offset == OFFSET_UNKNOWN)
    }
    inside = dict(store.file_offsets or {}) if store.keeps_offset_outside else store.smallest_offsets
    offsets = dict(inside or taken)
    notes = _notes(seen, store, claimed.of(store), inside)
    kind = None if store.kind is StoreKind.UNKNOWN else store.kind
    position: Position = {}
    databases: list[DatabaseConversion] = []
    for one in store.databases:
        made = _database(seen, store, one, {} if store.keeps_offset_outside else offsets, to)
        databases.append(made)
        merge_position(position, made.position)
    steps = _steps(store, databases, inside, offsets)
    if _gets_segment(seen, store, claimed):
        partition = TaskId.parse(seen.task).partition
        if not offsets and partition is not None:
            offsets = {TopicPartition(store.changelog, partition): OFFSET_UNKNOWN}
        if offsets:
            databases.append(_created_segment(store, offsets, to))
            steps.append(Step("it has no segment, so one is created, which says", offsets=offsets))
    notes += restored_from_start(offsets) or _of_no_offset(seen, store, offsets, claimed)
    return StoreConversion(
        store.store, store.directory, kind, tuple(databases), offsets, position, tuple(steps), tuple(notes)
    )


def _database(
    seen: TaskInspection, store: StoreInspection, one: DatabaseInspection, offsets: Offsets, to: Release
) -> DatabaseConversion:
    missing = {partition: offset for partition, offset in offsets.items() if partition not in one.state.offsets}
    if one.has_offsets_family and store.smallest_offsets and not one.state.offsets:
        missing = {}  # its release uses the other segments; only the missing offset shows what it may have lost
    entries = {offset_key(partition): encode_int64(offset) for partition, offset in missing.items()}
    status = one.state.status
    if status is None and (missing or not one.has_offsets_family):
        status = STATUS_CLOSED
        entries[STATUS_KEY] = encode_int64(status)
    position = copy_position(one.position)
    if not seen.is_global:
        merge_position(position, store.file_position)
        if position != one.position:
            entries[POSITION_KEY] = encode_position(position)
    after = {**one.state.offsets, **missing}
    return DatabaseConversion(
        one.directory,
        one.families | {OFFSETS_COLUMN_FAMILY} if entries else one.families,
        after if entries or one.has_offsets_family else None,
        status,
        position,
        to.sst_format,
        entries=entries,
        files=_kept_files(one),
    )


def _kept_files(one: DatabaseInspection) -> dict[str, frozenset[str]]:
    return {family: frozenset(files) for family, files in one.files.items() if family != OFFSETS_COLUMN_FAMILY}


def _created_segment(store: StoreInspection, offsets: Offsets, to: Release) -> DatabaseConversion:
    """Plan a segment without rows. The family of its kind is not needed: Kafka Streams adds missing families."""
    entries = {offset_key(partition): encode_int64(offset) for partition, offset in offsets.items()}
    entries[STATUS_KEY] = encode_int64(STATUS_CLOSED)
    position = copy_position(store.file_position)
    if position:
        entries[POSITION_KEY] = encode_position(position)
    return DatabaseConversion(
        f"{store.directory}/{store.store}.0",
        frozenset({DEFAULT_COLUMN_FAMILY, OFFSETS_COLUMN_FAMILY}),
        dict(offsets),
        STATUS_CLOSED,
        position,
        to.sst_format,
        create=True,
        entries=entries,
    )


def _of_no_offset(seen: TaskInspection, store: StoreInspection, offsets: Offsets, claimed: OffsetEntries) -> list[str]:
    """Notes on what the next start does with a store without an offset whose databases could keep one."""
    if offsets or not store.databases:
        return []
    if seen.is_global:
        return ["it has no offset: Kafka Streams restores it from the start, and then keeps its offset"]
    if store.logged and all(one.has_offsets_family for one in store.databases):
        return ["it has no offset: Kafka Streams restores it from the start, under exactly-once after a wipe"]
    if store.logged is None:
        kept = f"Kafka Streams uses one that {CHECKPOINT_FILE} keeps, or it counts as"
        taken = kept if claimed.unclaimed else "it counts as"
        return [f"it has no offset: {taken} a store that is not logged"]
    return []


def _notes(seen: TaskInspection, store: StoreInspection, taken: Offsets, inside: Offsets) -> list[str]:
    notes = []
    other = {partition: offset for partition, offset in taken.items() if inside.get(partition, offset) != offset}
    if inside and other:
        notes.append(
            f"{CHECKPOINT_FILE} says {offsets_text(other)}, and the store {offsets_text(inside)}: it keeps its own; "
            "Kafka Streams would have used the file"
        )
    disagreeing = [
        one.directory
        for one in store.databases
        if one.state.offsets and any(one.state.offsets[p] != inside.get(p, o) for p, o in one.state.offsets.items())
    ]
    if disagreeing and not store.keeps_offset_outside:
        notes.append(
            "its segments are at different offsets, and stay so: Kafka Streams uses the newest one, and updates "
            "that only older ones lack are lost. Before the start run statecore doctor, and statecore repair"
        )
    silent = [one.directory for one in store.databases if one.has_offsets_family and not one.state.offsets]
    if inside and silent and not store.keeps_offset_outside:
        more = f" and {len(silent) - 1} more" if len(silent) > 1 else ""
        notes.append(
            f"{silent[0]}{more} has no offset, and other segments "
            f"{offsets_text(inside)}: records that were not flushed there are not restored; see statecore doctor"
        )
    if any(one.state.status not in (None, STATUS_CLOSED) for one in store.databases):
        notes.append("it was not closed")
    if seen.is_global and OFFSET_UNKNOWN in taken.values():
        notes.append("an offset of -4 is not converted: a global store with it fails every start")
    if (
        store.logged
        and store.databases
        and not inside
        and not taken
        and any(not one.has_offsets_family for one in store.databases)
    ):
        notes.append(
            f"{CHECKPOINT_FILE} has no offset of {store.changelog}: it is restored from the start, under exactly-once "
            "after its task was wiped"
        )
    return notes


def _steps(
    store: StoreInspection, databases: list[DatabaseConversion], inside: Offsets, offsets: Offsets
) -> list[Step]:
    steps = []
    added = [
        made
        for made, one in zip(databases, store.databases, strict=True)
        if made.entries and not one.has_offsets_family
    ]
    if added:
        where = affected_databases(len(added), len(databases), segmented=store.segmented)
        text = f"the column family {OFFSETS_COLUMN_FAMILY} is added to {where}"
        is_said = offsets and not store.keeps_offset_outside
        verb = "say" if len(added) > 1 else "says"
        steps.append(Step(f"{text}, which {verb}", offsets=offsets) if is_said else Step(text))
    if store.keeps_offset_outside and offsets and not inside:
        steps.append(Step(f"its offset goes to {store_checkpoint_file(store.store)}"))
    elif len(added) < sum(bool(made.entries) for made in databases):
        steps.append(Step(f"missing entries of {OFFSETS_COLUMN_FAMILY} are added"))
    if store.has_position_file and any(POSITION_KEY in made.entries for made in databases):
        steps.append(Step(f"its position is taken from {position_file(store.store)}"))
    return steps
