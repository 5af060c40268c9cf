"""Stores of a task with rows of which offset sums say nothing, so that no other copy is known to have them.

Sums are of the changelogs that warm copies follow. A store that is not logged has no changelog, a versioned one is not
followed, and of one that nobody declares nobody knows.
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


def untold(directory: StateDirectory, found: TaskSum, spec: ApplicationSpec | None = None) -> str:
    """Why the sum of a closed task does not tell of all its rows; empty where it does.

    Args:
        directory: the application's.
        found: the task.
        spec: what is declared; without it a store is told of that has an offset.
    """
    try:
        for place in stores_in(directory.task_path(found.task)):
            reason = _untold(place, found, spec) if place.databases else ""
            if reason:
                return f"Its store {place.store} {reason}"
    except StatecoreError as error:
        return error.what
    except OSError as error:
        return str(error)
    return ""


def followed_sum(found: TaskSum, spec: ApplicationSpec | None) -> int:
    """The offset sum of a task without its versioned stores, which nobody follows and no other copy counts."""
    declared = () if spec is None else spec.stores_of(found.task)
    versioned = {store.name for store in declared if store.kind.is_versioned}
    return TaskSum(found.task, found.standing, stores=tuple(s for s in found.stores if s.store not in versioned)).sum


def _untold(place: StoreDirectory, found: TaskSum, spec: ApplicationSpec | None) -> str:
    if spec is None:
        told = any(one.store == place.store for one in found.stores)
        return "" if told else "says no offset, so nobody else may have its rows."
    store = next((one for one in spec.stores_of(found.task) if one.name == place.store), None)
    if store is None:
        return "is not declared, so nobody knows whether others have its rows."
    if (store.is_logged and not store.kind.is_versioned) or not _has_rows(place, store):
        return ""
    if store.is_logged:
        return "is versioned, and copies elsewhere do not follow it."
    return "has no changelog, so nobody else has its rows."


def _has_rows(place: StoreDirectory, store: StoreSpec) -> bool:
    """Raises ``StatecoreError``: nobody can look."""
    if store.kind in (StoreKind.UNKNOWN, StoreKind.IN_MEMORY):
        return True
    for database in place.databases:
        with RocksDBStore(database, store.kind, read_only=True, settings=KEEP_FILES) as opened:
            if next(opened.scan_lists(), None) is not None:
                return True
    return False
