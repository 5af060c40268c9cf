"""Plans the conversion of a task's directory to a release with offsets beside the databases (4.2, 3.9).

Kafka Streams has no such conversion. The reasons for each step are in what 4.2 does with a directory of 4.3 or 4.4:

- 4.2 opens no database with the family ``offsets``: the application fails for good, and a windowed store is silently
  opened as empty. So the family is dropped in every database of every store.
- 4.2 reads ``.checkpoint``, and under exactly-once wipes a task with a store that the file does not name. So a logged
  store without an offset is named with -4.
- RocksDB 7.9.2 of 3.9 reads no SST file of format 6. So the files of a family with such a file are rewritten; other
  families keep theirs. RocksDB compacts a family as a whole, so it needs the disk space of that family twice meanwhile.
- No older release has stores with headers: their rows are moved (:mod:`.rows`), or the task is refused.
- The ``.checkpoint`` of 3.9 or 4.2 is trusted, unless rows were flushed after it (:mod:`.checkpoint_entries`).
- Transactional stores of 4.4 (KIP-892) are at their offsets even after a kill: rows get to RocksDB in one batch with
  their offset, or from the changelog, where they are committed. So they are converted under exactly-once, too, and a
  grace buffer whose offset file the process has deleted uses the offset inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

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
    RowMove,
    Step,
    StoreConversion,
    TaskConversion,
    affected_databases,
    with_store,
)
from statecore.errors import Reason
from statecore.formats.checkpoint import position_file, store_checkpoint_file
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN, STATUS_CLOSED
from statecore.formats.position import Position, copy_position, merge_position, offsets_of_position
from statecore.formats.releases import CHECKPOINT_FILE, OFFSETS_COLUMN_FAMILY, Release
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.images.digest import combined


@dataclass(frozen=True)
class ConversionOptions:
    """Conditions of a conversion.

    Attributes:
        exactly_once: the application's guarantee; ``None`` if unknown, which counts as the stricter one.
        lose_headers: move rows with headers although they lose them.
    """

    to: Release
    exactly_once: bool | None
    lose_headers: bool = False


def plan_downward(inspected: TaskInspection, options: ConversionOptions) -> TaskConversion:
    """Plan the conversion of a task's directory to a release with offsets beside the stores."""
    claimed = assign_entries(inspected)
    stores = tuple(_store(inspected, store, claimed, options) for store in inspected.stores)
    late = check_flush_order(inspected, claimed, options.exactly_once, options.to)
    refused = (
        *([inspected.damage] if inspected.damage else []),
        *([late.refused] if late.refused else []),
        *(with_store(store.store, store.refused) for store in stores if store.refused),
    )
    conversion = TaskConversion(inspected.task, release_names(inspected.stores), options.to.name, stores)
    if refused:
        return replace(conversion, refused=refused)
    entries, left = _entries(inspected, stores, claimed)
    if late.distrusted:
        entries, left = {}, (late.distrusted,)
    written: dict[str, Mapping[TopicPartition, int]] = {}
    moved = [*inspected.offset_files]
    if entries != (inspected.checkpoint or {}):
        if entries:
            written[CHECKPOINT_FILE] = entries
        if inspected.checkpoint is not None:
            moved.append(CHECKPOINT_FILE)
    for store, made in zip(inspected.stores, stores, strict=True):
        position = offsets_of_position(made.position)
        if not inspected.is_global and position and position != offsets_of_position(store.file_position):
            written[position_file(store.store)] = position
            if store.has_position_file:
                moved.append(position_file(store.store))
        if store.file_offsets is not None:
            moved.append(store_checkpoint_file(store.store))
    return replace(
        conversion,
        moved=tuple(sorted(moved)),
        written=written,
        left=left,
        remarks=(*late.remarks, *_retired(inspected, entries)),
    )


def _entries(
    seen: TaskInspection, stores: tuple[StoreConversion, ...], claimed: OffsetEntries
) -> tuple[dict[TopicPartition, int], tuple[str, ...]]:
    """The entries of ``.checkpoint``, and notes on entries that belong to no known store."""
    left: tuple[str, ...] = ()
    entries = dict(claimed.unclaimed)
    for offsets in (*seen.offset_files.values(), *(made.offsets for made in stores)):
        entries.update(offsets)
    if seen.is_global and seen.sources is not None:
        foreign = {partition: offset for partition, offset in entries.items() if partition.topic not in seen.sources}
        if foreign:
            entries = {partition: offset for partition, offset in entries.items() if partition not in foreign}
            left = (f"{offsets_text(foreign)} is of no global store, which fails every start: the entry is dropped.",)
    known = (
        seen.checkpoint is not None
        or seen.offset_files
        or any(store.smallest_offsets or store.file_offsets for store in seen.stores)
    )
    if not known and any(store.has_rows for store in seen.stores):
        return {}, (
            *left,
            f"No store of {seen.task} has an offset, so no {CHECKPOINT_FILE} is written: the application restores "
            "logged stores from the start.",
        )
    return entries, left


def _retired(seen: TaskInspection, entries: Mapping[TopicPartition, int]) -> tuple[str, ...]:
    """A remark on global stores that the topology may no longer have: 4.3 and later ignore their directories."""
    topics = {partition.topic for partition in entries}
    if not seen.is_global or seen.sources is not None or len(topics) < 2:
        return ()
    return (
        f"{CHECKPOINT_FILE} has entries of {len(topics)} topics. If one is of a global table that was removed from the "
        "topology, the older release fails at every start; without a spec this is unknown: give --spec then.",
    )


def _store(
    seen: TaskInspection, store: StoreInspection, claimed: OffsetEntries, options: ConversionOptions
) -> StoreConversion:
    kind: StoreKind | None = None if store.kind is StoreKind.UNKNOWN else store.kind
    made = StoreConversion(store.store, store.directory, kind, (), {}, {})
    refused = (
        store.damage
        or lost_flush(store, claimed)
        or _why_not_closed(store, options)
        or _why_headers_stay(store, options)
    )
    if refused:
        return replace(made, refused=refused)
    offsets, notes = _offsets(seen, store, claimed)
    position: Position = copy_position(store.file_position)
    for one in store.databases:
        merge_position(position, one.position)
    databases = tuple(_database(store, one, options) for one in store.databases)
    if store.target is not None and any(one.moves for one in databases):
        kind = store.target
    return replace(
        made,
        kind=kind,
        databases=databases,
        offsets=offsets,
        position={} if seen.is_global else position,
        steps=_steps(databases, offsets, options, segmented=store.segmented),
        notes=(*notes, *restored_from_start(offsets), *_headers_lost(databases)),
    )


def _why_not_closed(store: StoreInspection, options: ConversionOptions) -> Reason | None:
    """Why it is uncertain which offset the rows of a store are at."""
    if options.exactly_once is False:
        return None
    under = "Under exactly-once" if options.exactly_once else "Under exactly-once, which it may be,"
    say = "" if options.exactly_once else "; if the application is at-least-once, give --processing-guarantee"
    unclosed = [one.directory for one in store.databases if one.state.status not in (None, STATUS_CLOSED)]
    if unclosed:
        return Reason(
            f"{unclosed[0]} was not closed: its process died. {under} its rows may be ahead of its offset. "
            f"Start the application once on the release that it ran on, and close it, or repair it "
            f"(statecore repair){say}.",
            "not-closed-cleanly",
            database=unclosed[0],
        )
    disagreeing = _disagreeing(store)
    if disagreeing and not store.transactional:  # those have each segment at a commit, and the smallest is used
        return Reason(
            f"its segments are at different offsets of {disagreeing[0]}. {under} that is damage: older segments may "
            f"miss updates. Repair it (statecore repair){say}.",
            "segment-offsets-differ",
            topic=disagreeing[0].topic,
            partition=disagreeing[0].partition,
            offsets=sorted(_segment_offsets(store, disagreeing[0])),
        )
    return None


def _disagreeing(store: StoreInspection) -> list[TopicPartition]:
    return sorted(partition for partition in store.smallest_offsets if len(_segment_offsets(store, partition)) > 1)


def _segment_offsets(store: StoreInspection, partition: TopicPartition) -> set[int]:
    """Offsets of its segments for a partition.

    A segment without an offset and without rows was created after another one was closed, and does not count; or no
    segment was ever closed, and its rows were not flushed before the process died. A close flushes every segment, so
    beside one without an offset, data flushed since the last opening was not flushed by a close, whatever the status
    says: transactional stores do not write it.
    """
    closed = any(one.state.offsets and one.state.closed_cleanly and not one.flushed for one in store.databases)
    return {
        one.state.offsets.get(partition, OFFSET_UNKNOWN)
        for one in store.databases
        if one.has_offsets_family and (one.state.offsets or one.nonempty_families or not closed)
    }


def _why_headers_stay(store: StoreInspection, options: ConversionOptions) -> Reason | None:
    """Why the rows of a store with headers cannot be converted to rows without."""
    filled = [one for one in store.databases if one.with_headers in one.nonempty_families]
    if not filled or store.kind.value in options.to.kinds:
        return None
    release = f"Kafka Streams {options.to.name}"
    family = filled[0].with_headers
    if store.target is None or store.target.value not in options.to.kinds:
        return Reason(
            f"it keeps headers in {family}, which {release} does not know, and its kind is unknown "
            f"({store.possible_kinds}). Declare it in a spec.",
            "kind-undecided",
            column_family=family,
        )
    if store.kind.data_column_family != family:
        return Reason(
            f"the spec says {store.kind}, and its rows are in {family}. Correct the spec.",
            "kind-mismatch",
            kind=store.kind.value,
            column_family=family,
        )
    counted = [one.converted_rows for one in filled if one.converted_rows is not None]
    strange = sum(one.misfits for one in counted)
    if strange:
        return Reason(
            f"{strange:,} of its rows cannot be those of a {store.target} store. Declare its kind in a spec.",
            "kind-mismatch",
            kind=store.target.value,
            rows=strange,
        )
    headers = sum(one.headers for one in counted)
    if headers and not options.lose_headers:
        return Reason(
            f"{headers:,} of its {sum(one.rows for one in counted):,} rows have headers, which {release} cannot keep. "
            "Accept the loss (--lose-headers), or stay with the newer release.",
            "headers-unsupported",
            rows=headers,
        )
    return None


def _offsets(
    seen: TaskInspection, store: StoreInspection, claimed: OffsetEntries
) -> tuple[dict[TopicPartition, int], list[str]]:
    """Entries of ``.checkpoint`` for a store; none for one that is not logged, or unknown."""
    notes = []
    taken = claimed.of(store)
    outside = store.file_offsets or {}
    if store.keeps_offset_outside or not store.databases:
        offsets = dict(outside or taken or (store.smallest_offsets if store.transactional else {}))
    else:
        offsets = dict(store.smallest_offsets or taken or outside)
    for partition in _disagreeing(store):
        offsets[partition] = min(offsets[partition], *_segment_offsets(store, partition))
        notes.append(f"its segments are at different offsets of {partition}: the smallest is used")
    other = {partition: offset for partition, offset in taken.items() if offsets.get(partition, offset) != offset}
    if other:
        notes.append(
            f"{CHECKPOINT_FILE} says {offsets_text(other)}, and the store {offsets_text(offsets)}: it keeps its own"
        )
    if any(one.state.status not in (None, STATUS_CLOSED) for one in store.databases):
        notes.append("it was not closed: records after its last flush are restored")
    if seen.is_global:
        return {partition: offset for partition, offset in offsets.items() if offset != OFFSET_UNKNOWN}, notes
    number = TaskId.parse(seen.task).partition
    if not offsets and store.changelog and number is not None and _is_empty_and_logged(store):
        offsets = {TopicPartition(store.changelog, number): OFFSET_UNKNOWN}
    elif not offsets and store.logged and store.has_rows:
        notes.append(
            f"it has no offset: it is restored from the start of {store.changelog}, under exactly-once "
            "after its task was wiped"
        )
    return offsets, notes


def _is_empty_and_logged(store: StoreInspection) -> bool:
    if store.foreign or store.has_rows or store.logged is False:
        return False
    return bool(store.logged) or (store.segmented and not store.databases)


def _database(store: StoreInspection, one: DatabaseInspection, options: ConversionOptions) -> DatabaseConversion:
    """Plan a database: rows are moved first, then families dropped, then files rewritten."""
    drop = [OFFSETS_COLUMN_FAMILY] if one.has_offsets_family else []
    moves: tuple[RowMove, ...] = ()
    families = one.families - {OFFSETS_COLUMN_FAMILY}
    headers = one.with_headers
    if headers is not None and store.kind.value not in options.to.kinds:
        drop.append(headers)
        families -= {headers}
        if one.converted_rows is not None and store.target is not None:
            target = store.target.data_column_family
            families |= {target}
            moves = (
                RowMove(
                    headers,
                    target,
                    store.kind,
                    store.target,
                    one.converted_rows.rows,
                    one.converted_rows.headers,
                    one.converted_rows.content,
                ),
            )
    newer = {
        family
        for family, versions in one.formats.items()
        if family in families and max(versions) > options.to.sst_format
    }
    contents = {family: content for family, content in one.contents.items() if family in newer}
    for move in moves:
        if move.target in newer or move.target not in one.nonempty_families:
            contents[move.target] = combined(move.content, one.contents.get(move.target, combined()))
    return DatabaseConversion(
        one.directory,
        frozenset(families),
        None,
        None,
        {},
        options.to.sst_format,
        moves=moves,
        drop=tuple(drop),
        rewrite=tuple(sorted(newer)),
        contents=contents,
        files={family: frozenset(files) for family, files in one.files.items() if family in families - newer},
        rewritten_bytes=sum(sum(one.files.get(family, {}).values()) for family in {*newer, *(m.source for m in moves)}),
    )


def _steps(
    databases: tuple[DatabaseConversion, ...], offsets: Offsets, options: ConversionOptions, *, segmented: bool
) -> tuple[Step, ...]:
    steps = []
    moves = [move for one in databases for move in one.moves]
    if moves:
        steps.append(
            Step(
                f"rows are moved from {moves[0].source} to {moves[0].target}: a {moves[0].source_kind} store "
                f"becomes a {moves[0].target_kind} store",
                rows=sum(move.rows for move in moves),
            )
        )
    dropped = sorted({family for one in databases for family in one.drop})
    if dropped:
        families = f"the column famil{'ies' if len(dropped) > 1 else 'y'} {', '.join(dropped)}"
        where = affected_databases(len(databases), len(databases), segmented=segmented)
        text = f"{families} of {where} {'are' if len(dropped) > 1 else 'is'} dropped"
        steps.append(Step(f"{text}; {CHECKPOINT_FILE} says", offsets=offsets) if offsets else Step(text))
    rewritten = sum(bool(one.rewrite) for one in databases)
    if rewritten:
        steps.append(
            Step(
                f"the SST files of {affected_databases(rewritten, len(databases), segmented=segmented)} are "
                f"rewritten in format {options.to.sst_format}, which RocksDB {options.to.rocksdb} reads"
            )
        )
    return tuple(steps)


def _headers_lost(databases: tuple[DatabaseConversion, ...]) -> list[str]:
    lost = sum(move.headers for one in databases for move in one.moves)
    return [f"{lost:,} rows lose their headers"] if lost else []
