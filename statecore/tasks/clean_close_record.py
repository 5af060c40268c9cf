"""What the stores of a task had when this library closed them, noted where Kafka Streams does not look.

A ``.checkpoint`` beside the stores would tell a start how far a closed task is without opening its databases. But Kafka
Streams 4.3 and later take over whatever such a file says, however old it is, so none may stay for it. This note lies
below ``.statecore`` instead, and is believed of a store only as long as nobody has opened one of its databases for
writing since: RocksDB then puts a new ``CURRENT`` in place of the old one. So it is never ahead of the rows, whoever
comes meanwhile, and whatever directory is put in place of another. A database that has lost a file of rows since, or a
part of its MANIFEST, is not the one that was closed either.

A grace buffer is not in it, because its offset lies in a file of its own, which somebody may take away.
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
    """A database as it was closed.

    Attributes:
        path: its directory, below that of the task.
        inode: of its ``CURRENT``.
        modified_ns: when that was written, in ns since the epoch.
        files: a digest of the names and sizes of its files of rows, and of its MANIFEST.
    """

    path: str
    inode: int
    modified_ns: int
    files: str


@dataclass(frozen=True)
class ClosedStore:
    """A store as it was closed.

    Attributes:
        topic: its changelog.
        partition: the partition of it.
        offset: the last one applied.
        databases: all that it had.
    """

    topic: str
    partition: int
    offset: int
    databases: tuple[ClosedDatabase, ...]


@dataclass(frozen=True)
class _Closed:
    stores: tuple[ClosedStore, ...]


_DOCUMENT = DocumentType("note of closed stores", 1, _Closed, "Nothing is to be done: it is made anew.", is_sealed=True)


class CleanCloseRecord:
    """The note of one task.

    Args:
        directory: the application's.
        task: which one.
    """

    def __init__(self, directory: StateDirectory, task: str) -> None:
        self._task = directory.task_path(task)
        self._file = directory.work_path / STANDBY / task / "closed.json"
        self._stores: dict[TopicPartition, ClosedStore] = {}

    def write(self, offsets: Mapping[str, tuple[TopicPartition, int]]) -> None:
        """Note what was just closed; where that cannot be written, the databases are read at the next start.

        Args:
            offsets: of each store's directory (:attr:`StoreDirectory.name`) the changelog, and the last offset applied.
        """
        stores = []
        with suppress(OSError):
            for place in stores_in(self._task):
                if place.name in offsets:
                    changelog, offset = offsets[place.name]
                    databases = tuple(self._as_it_is(database) for database in place.databases)
                    stores.append(ClosedStore(changelog.topic, changelog.partition, offset, databases))
            write_durably(self._file, _DOCUMENT.encode(_Closed(tuple(stores))))

    def read(self) -> None:
        """Take what was noted; nothing where there is no note, or it cannot be understood."""
        try:
            stores = _DOCUMENT.decode(self._file.read_bytes()).stores
        except (OSError, Invalid):
            stores = ()
        self._stores = {TopicPartition(one.topic, one.partition): one for one in stores}

    def offset(self, place: StoreDirectory, changelog: TopicPartition) -> int | None:
        """The last offset that a store has applied; ``None`` where nothing was noted, or it may have changed since."""
        found = self._stores.get(changelog)
        if found is None or not found.databases:
            return None
        try:
            now = {self._as_it_is(database) for database in place.databases}
        except OSError:
            return None
        return found.offset if now == set(found.databases) else None

    @property
    def untouched(self) -> frozenset[Path]:
        """The databases that nobody has opened for writing since they were closed."""
        found = set()
        for noted in (database for store in self._stores.values() for database in store.databases):
            path = self._task / noted.path
            with suppress(OSError):
                if self._as_it_is(path) == noted:
                    found.add(path)
        return frozenset(found)

    def _as_it_is(self, database: Path) -> ClosedDatabase:
        """Raises ``OSError``: there is no database."""
        current = (database / "CURRENT").stat()
        with os.scandir(database) as entries:
            files = sorted(
                (one.name, one.stat().st_size)
                for one in entries
                if one.name.endswith(DATA_SUFFIXES) or one.name.startswith("MANIFEST-")
            )
        digest = hashlib.blake2b(repr(files).encode(), digest_size=16).hexdigest()
        return ClosedDatabase(database.relative_to(self._task).as_posix(), current.st_ino, current.st_mtime_ns, digest)
