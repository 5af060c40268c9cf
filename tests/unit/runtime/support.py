"""Small real databases, and state directories made of them."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.runtime.database_state import DatabaseState, databases_of, read_database_state
from statecore.runtime.placement import SiblingStore, StoreImage
from statecore.runtime.state_directory import StateDirectory
from statecore.stores.rocksdb import RocksDBStore

KIND = StoreKind.KEY_VALUE


def changelog(task: str, store: str) -> TopicPartition:
    return TopicPartition(f"app-{store}-changelog", int(task.rpartition("_")[2]))


@cache
def _template(topic: str | None, partition: int, offset: int, closed: bool, rows: int) -> Path:
    path = Path(mkdtemp(prefix="statecore-template-")) / "database"
    store = RocksDBStore(path, KIND, create=True)
    store.open()
    for number in range(rows):
        store.put(b"key%d" % number, b"value%d" % offset)
    store.commit({TopicPartition(topic, partition): offset} if topic else {})
    if closed:
        store.close()
        return path
    store.flush()
    copy = path.with_name("unclean")
    shutil.copytree(path, copy)
    store.close()
    (copy / "rocksdict-config.json").unlink(missing_ok=True)
    return copy


def make_database(
    path: Path, partition: TopicPartition | None, offset: int = 5, *, closed: bool = True, rows: int = 3
) -> Path:
    """A database with one offset; without ``partition`` one that has rows and no offset."""
    topic, number = (partition.topic, partition.partition) if partition else (None, 0)
    shutil.copytree(_template(topic, number, offset, closed, rows), path)
    # A name of its own, as every database that RocksDB makes has.
    (path / "IDENTITY").write_text(f"{path}-{offset}")
    return path


def make_live(directory: StateDirectory, task: str, store: str, offset: int = 5, *, closed: bool = True) -> Path:
    """A store as Kafka Streams left it."""
    return make_database(directory.store_path(task, store, KIND), changelog(task, store), offset, closed=closed)


def make_image(directory: StateDirectory, task: str, store: str, offset: int = 9) -> StoreImage:
    """A built store, staged as the job does."""
    path = directory.work_path / "staged" / "images" / task / "rocksdb" / store
    if not path.exists():
        make_database(path, changelog(task, store), offset, rows=5)
    return StoreImage(task, store, KIND, changelog(task, store), path, {changelog(task, store): offset})


def sibling(task: str, store: str, kind: StoreKind = KIND) -> SiblingStore:
    return SiblingStore(task, store, kind, changelog(task, store))


def state_of(directory: StateDirectory, task: str, name: str) -> DatabaseState | None:
    """The bookkeeping of a store's (first) database in the live directory."""
    databases = databases_of(directory.task_path(task) / name)
    return read_database_state(databases[0]) if databases else None


def offset_of(directory: StateDirectory, task: str, store: str) -> int | None:
    state = state_of(directory, task, f"rocksdb/{store}")
    return None if state is None else state.offsets.get(changelog(task, store))
