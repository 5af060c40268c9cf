"""Checks that a store has segments, that they have the same offset, and the rows of their time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from statecore.doctor.checks.context import CheckContext, store_finding
from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.inspection import DatabaseView, StoreView, TaskView
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN, STATUS_CLOSED
from statecore.formats.rocksdb_log import DATA_SUFFIXES
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import is_topic_name
from statecore.statedir.task_layout import opened_segment
from statecore.words import number_of


def check_segments(store: StoreView, task: TaskView, context: CheckContext) -> list[Finding]:
    """Check the segments of one store of one task, unless it is in use."""
    if not store.segmented or store.in_use:
        return []
    if context.spec is not None and (store.declared is None or _is_plain(store.declared.kind)):
        return []  # Kafka Streams does not open it; check_declarations says what the directory is
    found = [_stray(store, context)] if store.strays else []
    if not store.databases:
        return found or _without_segments(store, task, context)
    # A grace buffer has one segment, and its offset in a file.
    if store.kind.manages_offsets:
        found += [*_disagreeing(store, task, context), *_misplaced(store)]
    if store.kind is StoreKind.GRACE_BUFFER:
        found += _misplaced_buffer(store)
    return found


def _is_plain(kind: StoreKind) -> bool:
    return kind is not StoreKind.UNKNOWN and not kind.is_segmented


def _stray(store: StoreView, context: CheckContext) -> Finding:
    """Entries among its segments for which Kafka Streams opens none of them.

    A database among them is a segment that lost its directory or its name: its rows are in no segment.
    """
    name, why = store.strays[0]
    more = f" and {len(store.strays) - 1} more" if len(store.strays) > 1 else ""
    what = f"has {name}{more} among its segments, {why}: "
    severity = Severity.ERROR
    if context.release.offsets_inside:
        what += "every start of the application fails"
    else:
        what += f"Kafka Streams {context.release.name} opens no segment, and answers without their rows"
        severity = Severity.LOSS
    files = [f"{store.directory}/{one}" for one, _ in store.strays]
    if not _has_stray_rows(store):
        return store_finding(store, "segment-stray", severity, what, repair=Repair.MOVE_ASIDE, files=files)
    what += "; a database is among them, and no segment has its rows: do not delete it"
    if not store.databases:
        what = (
            f"is a database in {store.directory}, where a store has its segments: a segment that lost its directory, "
            "and every start of the application fails; or a store of another kind, whose place is in rocksdb/"
        )
    found = store_finding(
        store, "segment-stray", Severity.LOSS, what, repair=Repair.REBUILD, files=files, database=True
    )
    return found if found.own_remedy else replace(found, own_remedy=_LOST_SEGMENT)


_LOST_SEGMENT = (
    "Move the files of the database into a directory with the name of the segment that they were, <store>.<ms>, or "
    "rebuild the store. If the store has no segments, move its directory into rocksdb/."
)


def _has_stray_rows(store: StoreView) -> bool:
    """Whether a database is among the strays, as files or as a directory; one without rows is none."""
    names = {name for name, _ in store.strays}
    if "CURRENT" in names or any(Path(name).suffix in DATA_SUFFIXES for name in names):
        return True
    return any(one.name in names and (one.rows or one.broken) for one in store.databases)


def _without_segments(store: StoreView, task: TaskView, context: CheckContext) -> list[Finding]:
    if store.foreign or context.finds_offset(store, task):  # not a RocksDB store, or its offset is kept in a file
        return []
    if not store.logged or not context.release.offsets_inside:  # 4.2 and older keep the offset in a file
        return []
    if not is_topic_name(store.store):  # no store with a changelog, but lost+found of a file system, for example
        return []
    what = "has no segment, so no place for an offset: "
    if context.transactional:
        what += "every start restores it from the start of its changelog"
    else:
        what += "under exactly-once every start wipes its task"
    severity = context.severity_without_offset(Severity.NOTE)
    return [store_finding(store, "segment-missing", severity, what, repair=Repair.CREATE_SEGMENT)]


def _disagreeing(store: StoreView, task: TaskView, context: CheckContext) -> list[Finding]:
    """Segments with different offsets: Kafka Streams uses the newest, and older segments miss updates.

    A segment that was never flushed has no offset. That is harmless if nothing was flushed since the last close,
    because the others then share one offset, and all later records are restored. Transactional stores have no status to
    show that, but a close flushes every segment: if one has no offset, whatever was flushed since the others were
    opened was flushed before a kill. A segment with rows and without the family is an older release's, put there by
    hand: nothing says which records it has. Rows of expired segments are never answered, so their offsets are harmless.
    """
    found = []
    live = _live(store)
    flushed_since = any(one.offsets and _is_flushed_since_close(one, context) for one in store.databases)
    has_older = context.has_older_segments(store, task)
    own = TaskId.parse(store.task).partition  # offsets of other partitions are another finding
    partitions = {part for one in store.databases for part in one.offsets if own in (None, part.partition)}
    for partition in sorted(partitions):
        at: dict[int, list[str]] = {}
        lacking = []
        for one in live:
            offset = one.offsets.get(partition)
            if offset is not None and offset != OFFSET_UNKNOWN:
                at.setdefault(offset, []).append(one.name)
            elif offset is not None or one.broken or (own is not None and one.offsets):
                continue
            elif flushed_since if one.has_offsets_family else has_older and one.rows:
                lacking.append(one.name)
        if len(at) < 2 and not (at and lacking):
            continue
        text = ", ".join(f"{offset} in {_names(names)}" for offset, names in sorted(at.items()))
        text += f", none in {_names(lacking)}" if lacking else ""
        open_ = any(one.status not in (None, STATUS_CLOSED) for one in store.databases)
        if store.segmentation is None:
            text += " (none of which counts if it has expired: --spec has the retention)"
        severity = context.severity(Severity.LOSS, Severity.ERROR if open_ else Severity.LOSS)
        newest = [offset for one in store.databases if (offset := one.offsets.get(partition)) is not None][-1]
        if newest == min(at) and not lacking:
            severity, then = Severity.WARNING, "a start reads these records again"
        else:
            then = "the others may miss updates for ever: restore it"
        found.append(
            store_finding(
                store,
                "segments-disagree",
                severity,
                f"its segments disagree about {partition}: {text}; Kafka Streams uses the newest segment's offset, so "
                + then,
                partition=partition,
                repair=Repair.LOWER_OFFSETS
                if context.is_at_least_once and not lacking and min(at) >= 0
                else Repair.REBUILD,
                offsets={str(offset): names for offset, names in sorted(at.items())},
                without=lacking,
            )
        )
    return found


def _live(store: StoreView) -> Sequence[DatabaseView]:
    """The databases without the segments that have expired by the time at which the newest segment begins."""
    segmentation = store.segmentation
    newest = max((one.start for one in store.databases if one.start is not None), default=None)
    if segmentation is None or newest is None:
        return store.databases
    first = segmentation.first_live(newest)
    return [one for one in store.databases if one.start is None or one.start // segmentation.interval_ms >= first]


def _misplaced(store: StoreView) -> list[Finding]:
    """Segments under the name of another time: moved, or copied; Kafka Streams looks for a row only by its time."""
    interval = None if store.segmentation is None else store.segmentation.interval_ms
    why: dict[str, str] = {}
    for one in store.databases:
        if one.rows_outside:
            why[one.name] = f"has {number_of(one.rows_outside, 'row')} at least of a time that is not in its interval"
        elif interval and one.start is not None and one.start % interval:
            why[one.name] = f"begins at no multiple of the interval of {interval} ms, so that it is never opened"
    names = {one.name for one in store.databases}
    for one in store.databases:
        opened = opened_segment(one.name, store.store) if one.start is None and (one.rows or one.broken) else None
        if opened is not None and opened not in names:
            why[one.name] = f"is never opened: Kafka Streams opens {opened} in its place, and finds none of its rows"
    for copies in _copies(store.databases):
        if not any(name in why for name in copies):
            why[copies[0]] = f"is the same database as {_names(copies[1:])}, so that the rows of one of them are gone"
    return [
        store_finding(
            store,
            "segment-misplaced",
            Severity.LOSS,
            f"{name} {what}",
            repair=Repair.REBUILD,
            segment=name,
            interval_ms=interval,
        )
        for name, what in why.items()
    ]


def _misplaced_buffer(store: StoreView) -> list[Finding]:
    """A segment of a grace buffer but that of time 0, the only one that Kafka Streams opens."""
    return [
        store_finding(
            store,
            "segment-misplaced",
            Severity.LOSS,
            f"{one.name} is not {store.store}.0, the only segment of such a store that Kafka Streams opens",
            repair=Repair.REBUILD,
            segment=one.name,
        )
        for one in store.databases
        if one.start
    ]


def _copies(databases: Sequence[DatabaseView]) -> list[list[str]]:
    """Names of databases with one identity, which RocksDB draws at random when it creates a database."""
    by_identity: dict[str, list[str]] = {}
    for one in databases:
        if one.identity:
            by_identity.setdefault(one.identity, []).append(one.name)
    return [names for names in by_identity.values() if len(names) > 1]


def _is_flushed_since_close(one: DatabaseView, context: CheckContext) -> bool:
    if one.status is None or context.transactional:
        return one.flushed
    return one.status != STATUS_CLOSED


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
