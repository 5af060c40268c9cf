"""Stores of a standby task that follow no changelog, prepared so that Kafka Streams does not wipe the task for them.

A versioned store is left empty at -4: Kafka Streams restores it. One with an offset of its own would age, and once its
changelog begins after that offset, Kafka Streams under exactly-once wipes the whole task. A store without a changelog
has the only copy of its rows, so it stays; under exactly-once it must have been closed cleanly.
"""

from __future__ import annotations

from pathlib import Path

from statecore.errors import Corrupted
from statecore.filesystem import make_directories, sync_file
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import StoreSpec, segmentation_of
from statecore.statedir.database_state import create_database, read_database_state
from statecore.statedir.quarantine import quarantine_store
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_on_disk import read_database
from statecore.statedir.task_layout import StoreDirectory, databases_of, why_partially_deleted
from statecore.statedir.work_directory import STALE
from statecore.stores.legacy_offsets import remove_offsets
from statecore.stores.rocksdb.directory import has_database
from statecore.stores.rocksdb.directory_lock import fenced, writer_of
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES


def empty_versioned_store(
    directory: StateDirectory, task: str, store: StoreSpec, changelog: TopicPartition, is_created: Path, now_ms: int
) -> None:
    """Make a versioned store empty at -4; what it had is moved aside and kept for a week."""
    path = directory.store_path(task, store.name, store.kind)
    if _is_left_empty(path, store.kind, changelog):
        return
    create_database(is_created, store.kind, {changelog: OFFSET_UNKNOWN})
    make_directories(path.parent)
    remove_offsets(directory.task_path(task) / CHECKPOINT_FILE)  # it may have a later offset of the store
    if path.exists():
        quarantine_store(directory, task, path, STALE, now_ms)
    is_created.rename(path)
    sync_file(path.parent)


def _is_left_empty(path: Path, kind: StoreKind, changelog: TopicPartition) -> bool:
    if not has_database(path):
        return False
    holder = writer_of(path)
    if holder is not None:
        raise fenced(path, holder)
    try:
        state = read_database_state(path)
        if dict(state.offsets) != {changelog: OFFSET_UNKNOWN} or not state.closed_cleanly:
            return False
        with RocksDBStore(path, kind, read_only=True, settings=KEEP_FILES) as store:
            return not store.has_rows()
    except Corrupted:
        return False


def close_unlogged(directory: StateDirectory, task: str, store: StoreSpec) -> None:
    """Close a store without a changelog cleanly, if this library wrote it last, so that its task is not wiped."""
    for database in databases_of(directory.store_path(task, store.name, store.kind)):
        try:
            if not read_database(database).opened().closed_cleanly:
                with RocksDBStore(database, store.kind, exactly_once=True, settings=KEEP_FILES):
                    pass
        except Corrupted as error:
            raise Corrupted(
                f"The store {store.name} of task {task} has no changelog, so its rows exist only here, and Kafka "
                f"Streams would wipe the whole task for it: {error.what}",
                code="unlogged-store-damaged",
                action="Check whether its rows are needed. Then move its directory away.",
                task=task,
                store=store.name,
            ) from error


def refuse_half_deleted(directory: StateDirectory, task: str, store: StoreSpec) -> None:
    """Refuse to continue before Kafka Streams deletes the remaining rows of a store without a changelog."""
    path = directory.store_path(task, store.name, store.kind)
    if lost := why_partially_deleted(StoreDirectory(store.name, path, store.kind.is_segmented), segmentation_of(store)):
        raise Corrupted(
            f"The store {store.name} of task {task} has no changelog, so its rows exist only here, and Kafka Streams "
            f"would delete their files: {lost}",
            code="unlogged-store-damaged",
            action="Check whether these rows are needed. Then move that directory away.",
            task=task,
            store=store.name,
        )
