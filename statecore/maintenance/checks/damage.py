"""Databases that cannot be read, or whose files are not what they should be."""

from __future__ import annotations

from statecore.errors import Corrupted
from statecore.maintenance.catalogue import CATALOGUE, Repair, Severity
from statecore.maintenance.checks.circumstances import counted, listed, of_store
from statecore.maintenance.findings import Finding
from statecore.maintenance.views import DatabaseView, StoreView
from statecore.stores.rocksdb_witness import LOST_DIRECTORY


def damage(store: StoreView) -> list[Finding]:
    """What is damaged of one store of one task, each database by itself."""
    found = [_broken(store, one) for one in store.databases if one.broken]
    for one in store.databases:
        if store.in_use or one.broken:
            pass
        elif one.cut:
            what = f"{one.name} has lost the end of its MANIFEST: {one.cut}"
            found.append(_manifest(store, one, Severity.LOSS, what))
        elif one.unnamed:
            files = counted(len(one.unnamed), "SST file")
            what = (
                f"{one.name} has {files} that its MANIFEST does not name ({listed([*one.unnamed])}), as a kill in a "
                "flush or a compaction leaves them; offset and status are there, so RocksDB deletes them rightly"
            )
            found.append(_manifest(store, one, Severity.NOTE, what))
        if one.lost and store.holder is None:  # who has it open takes them away at its close, if they are not missed
            found.append(_set_aside(store, one))
    return found


def _broken(store: StoreView, database: DatabaseView) -> Finding:
    kind = CATALOGUE[database.cause]
    return of_store(
        store,
        kind.code,
        kind.severity,
        database.broken,
        repair=Repair.REBUILD if Repair.REBUILD in kind.repairs else None,
        segment=database.name if store.segmented else "",
        damage=database.error == Corrupted.__name__,
        error=database.error,
    )


def _manifest(store: StoreView, database: DatabaseView, severity: Severity, what: str) -> Finding:
    lost = severity is Severity.LOSS
    return of_store(
        store,
        "manifest-truncated",
        severity,
        what,
        repair=Repair.REBUILD if lost else None,
        segment=database.name if store.segmented else "",
        damage=lost,
        unnamed=[*database.unnamed],
    )


def _set_aside(store: StoreView, database: DatabaseView) -> Finding:
    what = (
        f"keeps {counted(len(database.lost), 'SST file')} in {database.name}/{LOST_DIRECTORY} "
        f"({_some(database.lost)}) that its MANIFEST did not name: hold its rows against its changelog, restore it if "
        "some are missing, then delete them"
    )
    segment = database.name if store.segmented else ""
    return of_store(
        store,
        "files-set-aside",
        Severity.WARNING,
        what,
        repair=Repair.REBUILD,
        segment=segment,
        files=[*database.lost],
    )


def _some(names: tuple[str, ...], most: int = 5) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")
