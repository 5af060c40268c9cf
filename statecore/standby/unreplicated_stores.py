"""Finds stores whose rows may exist only in this copy, because offset sums do not cover them.

Sums cover the changelogs that standbys follow: not unlogged stores, versioned ones, or undeclared ones.
"""

from __future__ import annotations

from statecore.errors import StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.spec.model import ApplicationSpec, StoreSpec
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.task_layout import StoreDirectory, stores_in
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES
from statecore.tasks.offset_sums import TaskSum


def why_unreplicated(directory: StateDirectory, found: TaskSum, spec: ApplicationSpec | None = None) -> str:
    """Why the offset sum of a closed task does not cover all its rows; empty if it does."""
    try:
        for place in stores_in(directory.task_path(found.task)):
            reason = _why_unreplicated(place, found, spec) if place.databases else ""
            if reason:
                return f"Its store {place.store} {reason}"
    except StatecoreError as error:
        return error.what
    except OSError as error:
        return str(error)
    return ""


def replicated_sum(found: TaskSum, spec: ApplicationSpec | None) -> int:
    """Offset sum of a task without its versioned stores, which standbys do not follow."""
    declared = () if spec is None else spec.stores_of(found.task)
    versioned = {store.name for store in declared if store.kind.is_versioned}
    return TaskSum(found.task, found.state, stores=tuple(s for s in found.stores if s.store not in versioned)).sum


def _why_unreplicated(place: StoreDirectory, found: TaskSum, spec: ApplicationSpec | None) -> str:
    if spec is None:
        is_covered = any(one.store == place.store for one in found.stores)
        return "" if is_covered else "has no offset, so no other copy may have its rows."
    store = next((one for one in spec.stores_of(found.task) if one.name == place.store), None)
    if store is None:
        return "is not declared, so it is unknown whether other copies have its rows."
    if (store.is_logged and not store.kind.is_versioned) or not _has_rows(place, store):
        return ""
    if store.is_logged:
        return "is versioned, and standbys do not follow it."
    return "has no changelog, so no other copy has its rows."


def _has_rows(place: StoreDirectory, store: StoreSpec) -> bool:
    """Whether a store has rows. Raises ``StatecoreError``: it cannot be read."""
    if store.kind in (StoreKind.UNKNOWN, StoreKind.IN_MEMORY):
        return True
    for database in place.databases:
        with RocksDBStore(database, store.kind, read_only=True, settings=KEEP_FILES) as opened:
            if next(opened.scan_lists(), None) is not None:
                return True
    return False
