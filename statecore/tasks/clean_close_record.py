"""The clean-close record: offsets of a task's stores when this library closed them, hidden from Kafka Streams.

A ``.checkpoint`` beside the stores would tell their offsets at the next start without opening databases. But Kafka
Streams 4.3 and later trust such a file however old it is, so none may stay for them. This record is below
``.statecore`` instead, and is valid for a store only while no process has opened one of its databases for writing:
RocksDB then replaces ``CURRENT``. So it is never ahead of the rows, also where a directory was replaced. A database
that has lost an SST file or a part of its MANIFEST does not match either.

A grace buffer is not in it, because its offset is in a file of its own, which may be deleted.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from statecore.documents import DocumentType
from statecore.errors import Invalid
from statecore.filesystem import write_durably
from statecore.formats.rocksdb_log import DATA_SUFFIXES
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.task_layout import StoreDirectory, stores_in
from statecore.statedir.work_directory import STANDBY


@dataclass(frozen=True)
class ClosedDatabase:
    """A database when it was closed.

    Attributes:
        path: its directory, relative to that of the task.
        inode: of its ``CURRENT``.
        modified_ns: when ``CURRENT`` was written, in ns since the epoch.
        files: a digest of the names and sizes of its data files and its MANIFEST.
    """

    path: str
    inode: int
    modified_ns: int
    files: str


@dataclass(frozen=True)
class ClosedStore:
    """A store when it was closed: changelog partition, last applied offset, and databases."""

    topic: str
    partition: int
    offset: int
    databases: tuple[ClosedDatabase, ...]


@dataclass(frozen=True)
class _ClosedStores:
    stores: tuple[ClosedStore, ...]


_DOCUMENT = DocumentType(
    "clean-close record", 1, _ClosedStores, "Nothing is to be done: it is rebuilt.", is_sealed=True
)


class CleanCloseRecord:
    """The clean-close record of one task."""

    def __init__(self, directory: StateDirectory, task: str) -> None:
        self._task = directory.task_path(task)
        self._file = directory.work_path / STANDBY / task / "closed.json"
        self._stores: dict[TopicPartition, ClosedStore] = {}

    def write(self, offsets: Mapping[str, tuple[TopicPartition, int]]) -> None:
        """Record the stores that were just closed; on a write error the databases are read at the next start."""
        stores = []
        with suppress(OSError):
            for place in stores_in(self._task):
                if place.name in offsets:
                    changelog, offset = offsets[place.name]
                    databases = tuple(self._read_state(database) for database in place.databases)
                    stores.append(ClosedStore(changelog.topic, changelog.partition, offset, databases))
            write_durably(self._file, _DOCUMENT.encode(_ClosedStores(tuple(stores))))

    def read(self) -> None:
        """Read the record; empty where there is none, or it cannot be decoded."""
        try:
            stores = _DOCUMENT.decode(self._file.read_bytes()).stores
        except (OSError, Invalid):
            stores = ()
        self._stores = {TopicPartition(one.topic, one.partition): one for one in stores}

    def offset(self, place: StoreDirectory, changelog: TopicPartition) -> int | None:
        """The last applied offset of a store; ``None`` where none is recorded, or the store may have changed since."""
        found = self._stores.get(changelog)
        if found is None or not found.databases:
            return None
        try:
            now = {self._read_state(database) for database in place.databases}
        except OSError:
            return None
        return found.offset if now == set(found.databases) else None

    @property
    def untouched(self) -> frozenset[Path]:
        """Databases that no process has opened for writing since they were closed."""
        found = set()
        for recorded in (database for store in self._stores.values() for database in store.databases):
            path = self._task / recorded.path
            with suppress(OSError):
                if self._read_state(path) == recorded:
                    found.add(path)
        return frozenset(found)

    def _read_state(self, database: Path) -> ClosedDatabase:
        """Raises ``OSError`` where there is no database."""
        current = (database / "CURRENT").stat()
        with os.scandir(database) as entries:
            files = sorted(
                (one.name, one.stat().st_size)
                for one in entries
                if one.name.endswith(DATA_SUFFIXES) or one.name.startswith("MANIFEST-")
            )
        digest = hashlib.blake2b(repr(files).encode(), digest_size=16).hexdigest()
        return ClosedDatabase(database.relative_to(self._task).as_posix(), current.st_ino, current.st_mtime_ns, digest)
