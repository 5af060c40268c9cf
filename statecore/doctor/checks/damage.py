"""Checks for databases that cannot be read or do not match their MANIFEST, and for rows that were restored wrongly."""

from __future__ import annotations

import re

from statecore.doctor.checks.context import CheckContext, store_finding
from statecore.doctor.finding_catalog import CATALOG, Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.inspection import DatabaseView, StoreView, TaskView
from statecore.errors import Corrupted, Invalid
from statecore.formats.kinds import StoreKind
from statecore.statedir.manifest_check import why_flush_lost
from statecore.stores.rocksdb.manifest_guard import LOST_DIRECTORY
from statecore.words import number_of, shortened_list


def check_damage(store: StoreView, task: TaskView, context: CheckContext) -> list[Finding]:
    """Damage of one store of one task, a finding for each database."""
    found = [_wrong_type(store, one) for one in store.databases if one.not_files]
    found += [_broken(store, one) for one in store.databases if one.broken and not _is_explained(one)]
    for one in store.databases:
        if store.in_use or one.broken:
            pass
        elif why := one.lost_end or _why_flush_lost(store, one, task, context):
            what = f"{_segment(store, one)}the MANIFEST has lost its end: {why}"
            found.append(_manifest(store, one, Severity.LOSS, what))
        elif one.unnamed:
            found.append(_unnamed(store, one))
        if one.foreign_log and not store.in_use:
            what = f"{_segment(store, one)}a log of another database, which RocksDB replays: {one.foreign_log}"
            segment = one.name if store.segmented else ""
            found.append(
                store_finding(store, "log-foreign", Severity.LOSS, what, repair=Repair.REBUILD, segment=segment)
            )
        if one.short_rows and not one.broken:
            found.append(_short_rows(store, one))
        if one.lost and store.holder is None:  # its process deletes them at its close if no row is missing
            found.append(_lost_files(store, one))
    return found


_RECREATED = re.compile(r"LOCK|IDENTITY|\d+\.log")
"""Files that RocksDB creates if they are missing; rows of Kafka Streams are in no log."""


def _is_explained(database: DatabaseView) -> bool:
    """Whether it cannot be read because something else stands in the place of a file with rows."""
    return any(_RECREATED.fullmatch(name) is None for name in database.not_files)


def _wrong_type(store: StoreView, database: DatabaseView) -> Finding:
    """RocksDB opens no directory and no broken link, and waits for ever for a named pipe."""
    names = ", ".join(f"{name} is {what}" for name, what in database.not_files.items())
    within = f"{store.directory}/{database.name}" if store.segmented else store.directory
    return store_finding(
        store,
        "wrong-file-type",
        Severity.ERROR,
        f"{_segment(store, database)}{names}, and not a file: every start of the application fails, or never ends",
        repair=Repair.REBUILD if _is_explained(database) else Repair.MOVE_ASIDE,
        segment=database.name if store.segmented else "",
        files=[f"{within}/{name}" for name in database.not_files],
        damage=_is_explained(database),
    )


def _broken(store: StoreView, database: DatabaseView) -> Finding:
    kind = CATALOG[database.cause]
    return store_finding(
        store,
        kind.code,
        kind.severity,
        database.broken,
        # An application with its own RocksDB options may be able to open it.
        repair=Repair.REBUILD if Repair.REBUILD in kind.repairs and database.error != Invalid.__name__ else None,
        segment=database.name if store.segmented else "",
        damage=database.error == Corrupted.__name__,
        error=database.error,
    )


def _short_rows(store: StoreView, database: DatabaseView) -> Finding:
    what = (
        f"{_segment(store, database)}{number_of(database.short_rows, 'row')} at least too short for a {store.kind} "
        f"store (key {database.wrong_key[:_KEY_BYTES].hex() or 'empty'})"
    )
    segment = database.name if store.segmented else ""
    return store_finding(
        store, "rows-malformed", Severity.LOSS, what, repair=Repair.REBUILD, segment=segment, rows=database.short_rows
    )


_KEY_BYTES = 32
_NAMED = 5


def _segment(store: StoreView, database: DatabaseView) -> str:
    """The beginning of a sentence about one database; store and tasks are put before it where it is printed."""
    return f"{database.name}: " if store.segmented else ""


def _why_flush_lost(store: StoreView, database: DatabaseView, task: TaskView, context: CheckContext) -> str:
    return why_flush_lost(
        database.unnamed,
        context.entries_of(store, task.checkpoint),
        has_rows=database.rows > 0,
        has_offsets_family=database.has_offsets_family,
    )


def _unnamed(store: StoreView, database: DatabaseView) -> Finding:
    """SST files that the MANIFEST does not name. Without offsets inside, nothing tells whether that is right."""
    files = number_of(len(database.unnamed), "SST file")
    what = f"{_segment(store, database)}{files} not named by the MANIFEST ({shortened_list([*database.unnamed], 5)})"
    if database.has_offsets_family:
        what += (
            ", as a kill in a flush or a compaction leaves them; offset and status exist, so RocksDB deletes them "
            "rightly"
        )
        return _manifest(store, database, Severity.NOTE, what)
    what += (
        "; RocksDB deletes them when it opens the database. A kill in a flush or a compaction leaves such files, and "
        f"so does a MANIFEST that lost its end: compare the store with {_reference(store)} before the application "
        "starts"
    )
    return _manifest(store, database, Severity.WARNING, what)


def _manifest(store: StoreView, database: DatabaseView, severity: Severity, what: str) -> Finding:
    lost = severity is Severity.LOSS
    return store_finding(
        store,
        "manifest-truncated",
        severity,
        what,
        repair=Repair.REBUILD if lost else None,
        segment=database.name if store.segmented else "",
        damage=lost,
        unnamed=[*database.unnamed],
    )


def _lost_files(store: StoreView, database: DatabaseView) -> Finding:
    """Files in ``lost/``: this library keeps SST files there, RocksDB's own repair whatever it has replaced or refused.

    That repair writes a MANIFEST anew, and keeps the older one: it alone leaves one there.
    """
    tables = [name for name in database.lost if name.endswith(".sst")]
    there = f"{database.name}/{LOST_DIRECTORY}"
    if len(tables) == len(database.lost):
        files = f"{number_of(len(tables), 'SST file')} in {there} ({shortened_list(tables, _NAMED)})"
        what = f"has {files} that its MANIFEST did not name"
    else:
        others = [name for name in database.lost if name not in tables]
        what = (
            f"was repaired by RocksDB (ldb repair), which put {shortened_list(others, _NAMED)} into {there} and made "
            "its MANIFEST anew"
        )
        if tables:
            what += f"; it could not read {shortened_list(tables, _NAMED)} there, so that their rows are gone"
    segment = database.name if store.segmented else ""
    if not tables and not database.broken:
        what += f"; it refused no SST file, and the database is whole: {there} may be deleted"
        return store_finding(store, "files-set-aside", Severity.NOTE, what, segment=segment, files=[*database.lost])
    what += f": compare its rows with {_reference(store)}, restore it if they differ, then delete {there}"
    return store_finding(
        store, "files-set-aside", Severity.WARNING, what, repair=Repair.REBUILD, segment=segment, files=[*database.lost]
    )


def _reference(store: StoreView) -> str:
    return "its changelog" if store.logged else "a copy of it"


def check_grace_buffer(store: StoreView, *, is_wiped: bool) -> list[Finding]:
    """Rows with the wrong keys of a restore by Kafka Streams, which it never finds again.

    ``is_wiped`` says whether the next start restores the task from nothing, and so the buffer.
    """
    if not store.miskeyed:
        if not is_wiped or store.kind is not StoreKind.GRACE_BUFFER or not store.rows or store.in_use:
            return []
        what = (
            "is restored at the next start, with its whole task, because of another finding: Kafka Streams then "
            f"mis-keys its {number_of(store.rows, 'row')}, and the join never emits these records"
        )
        code = "grace-buffer-miskeyed"
        return [store_finding(store, code, Severity.LOSS, what, repair=Repair.REBUILD, rows=store.rows)]
    what = (
        f"has {number_of(store.miskeyed, 'row')} at least that Kafka Streams mis-keyed when it restored the store: the "
        "join never emits these records, and later ones may not wait for the grace period"
    )
    code = "grace-buffer-miskeyed"
    return [store_finding(store, code, Severity.LOSS, what, repair=Repair.REBUILD, rows_seen=store.miskeyed)]
