"""Checks of which release of Kafka Streams wrote the stores, against the release that will open them."""

from __future__ import annotations

from collections.abc import Sequence

from statecore.doctor.checks.context import CheckContext, store_finding
from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.inspection import StoreView, TaskView
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE, FAMILIES, GLOBAL, LAST_WITHOUT_OFFSETS, OFFSETS_COLUMN_FAMILY
from statecore.words import number_of


def check_releases(store: StoreView, task: TaskView, context: CheckContext) -> list[Finding]:
    """Check one store of one task for the release that will open it."""
    found = _cannot_open(store, context)
    if store.logged and not store.in_use and store.readable:
        if context.release.offsets_inside and any(not one.has_offsets_family for one in store.readable):
            if not context.has_older_segments(store, task):  # else its segments disagree
                found.append(_older(store, task, context))
        elif not context.release.offsets_inside and store.keeps_offsets_inside is False:
            found += _offset_files(store, task, context)
    return found


def is_opened(store: StoreView, context: CheckContext) -> bool:
    """Whether the release opens the databases of a store, as far as their families and formats show."""
    return not _cannot_open(store, context)


def check_half_migrated(task: TaskView, stores: Sequence[StoreView], context: CheckContext) -> list[Finding]:
    """Stores of one task that were written by different releases."""
    readable = [store for store in stores if store.readable]
    if any(store.in_use for store in readable):
        return []
    inside = [store for store in readable if all(one.has_offsets_family for one in store.readable)]
    older = [store for store in readable if store not in inside and not _is_taken_for_whole(store, task, context)]
    mixed = [store for store in older if any(one.has_offsets_family for one in store.readable)]
    if not older or not (inside or mixed):
        return []
    have_offsets = all(context.adopts_checkpoint_offset(store, task.checkpoint) for store in older if store.logged)
    what = (
        f"{number_of(len(older), 'store')} of {task.task} without the column family offsets "
        f"({', '.join(store.store for store in older[:5])}) beside {len(inside)} that have it"
        + (f"; {CHECKPOINT_FILE} has an offset of each" if have_offsets else f", and no offset in {CHECKPOINT_FILE}")
    )
    evidence = {
        "older": [store.store for store in older],
        "newer": [store.store for store in inside],
        "mixed": [store.store for store in mixed],
    }
    goes_on = have_offsets and context.release.offsets_inside
    severity, remedy = (Severity.NOTE, _GOES_ON) if goes_on else (Severity.ERROR, "")
    return [Finding("half-migrated", what, severity, task.task, evidence=evidence, own_remedy=remedy)]


_GOES_ON = (
    "Nothing: a start of 4.3 or later goes on with the upgrade. To go back instead, run statecore migrate to the older "
    "release first."
)


def _is_taken_for_whole(store: StoreView, task: TaskView, context: CheckContext) -> bool:
    """Whether the release takes a store with segments of two releases for whole; its segments disagree then."""
    return context.release.offsets_inside and context.has_older_segments(store, task)


def _older(store: StoreView, task: TaskView, context: CheckContext) -> Finding:
    what = (
        f"has no column family offsets: written by Kafka Streams {LAST_WITHOUT_OFFSETS} or older, offsets in "
        f"{CHECKPOINT_FILE}"
    )
    if context.adopts_checkpoint_offset(store, task.checkpoint):
        return store_finding(store, "older-release", Severity.NOTE, what, kept=True)
    unknown = OFFSET_UNKNOWN in context.entries_of(store, task.checkpoint).values()
    what += f", which has {'-4' if unknown else 'no offset'} for it: {context.release.name} restores it from the start"
    at_least_once = Severity.WARNING if store.rows else Severity.NOTE
    repair = Repair.REBUILD if store.rows else None
    if store.task == GLOBAL:
        what += ", once, and then keeps its offset: nothing has to be done"
        return store_finding(store, "older-release", at_least_once, what, repair=repair, kept=False)
    if context.transactional and store.rows and not context.is_at_least_once:
        what += " over its rows, and those of an aborted transaction stay"
        at_least_once = Severity.ERROR
    what += context.wipe_clause()
    severity = context.severity_without_offset(at_least_once)
    return store_finding(store, "older-release", severity, what, repair=repair, kept=False)


def _offset_files(store: StoreView, task: TaskView, context: CheckContext) -> list[Finding]:
    """For a release that reads only ``.checkpoint``."""
    if context.finds_offset(store, task, context.release) or task.checkpoint.unreadable:
        return []
    why = f"has no offset in {CHECKPOINT_FILE}" if task.checkpoint.exists else f"has no {CHECKPOINT_FILE} beside it"
    if store.task == GLOBAL:
        what = f"{why}: Kafka Streams {context.release.name} reads its topic from the start"
        severity = Severity.LOSS if store.rows else Severity.WARNING
    else:
        severity = context.severity_without_offset(Severity.LOSS if store.rows else Severity.WARNING)
        what = f"{why}: Kafka Streams {context.release.name} restores it from the start{context.wipe_clause()}"
    return [store_finding(store, "offset-missing", severity, what, repair=Repair.REBUILD, rows=store.rows)]


def _cannot_open(store: StoreView, context: CheckContext) -> list[Finding]:
    release, why = context.release, []
    if not release.offsets_inside and any(one.has_offsets_family for one in store.databases):
        why.append(f"{release.name} opens no database that has the column family {OFFSETS_COLUMN_FAMILY}")
    known = {kind.family for kind in release.kinds.values()} | {OFFSETS_COLUMN_FAMILY}
    of_newer = sorted({name for one in store.databases for name in one.families if name in FAMILIES - known})
    if of_newer:
        why.append(f"{release.name} has no kind of store with the column family {', '.join(of_newer)}")
    formats = sorted({one for database in store.databases for one in database.formats if one > release.sst_format})
    if formats:
        text = ", ".join(map(str, formats))
        why.append(
            f"RocksDB {release.rocksdb} of {release.name} reads no SST file of format {text}, only up to "
            f"{release.sst_format}"
        )
    if not why:
        return []
    swallowed = " (segments silently: the store is then empty)" if store.segmented else ""
    severity = Severity.ERROR
    what = f"cannot be opened{swallowed}: {'; '.join(why)}"
    return [
        store_finding(
            store, "release-cannot-open", severity, what, release=release.name, families=of_newer, formats=formats
        )
    ]
