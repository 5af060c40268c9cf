"""What a process holds of one database while it is open, in the order in which it is taken and given back.

Taken: the claim of the directory, a look at its MANIFEST, RocksDB's own lock with the database, a handle of each column
family, and the memory that stores share. Given back: every handle first, because RocksDB keeps its lock as long as one
of them lives, then the claim; whoever waits for it finds a tidy directory.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from statecore.errors import StatecoreError
from statecore.filesystem import set_modes
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import DEFAULT_COLUMN_FAMILY, OFFSETS_COLUMN_FAMILY
from statecore.stores.rocksdb.directory import (
    claimed,
    close_handles,
    data_files_in,
    existing_families,
    is_older,
    open_database,
    require_database,
    tidy,
    written_by_older,
)
from statecore.stores.rocksdb.directory_lock import Claim
from statecore.stores.rocksdb.families import refuse_foreign_rows
from statecore.stores.rocksdb.manifest_guard import ManifestGuard
from statecore.stores.rocksdb.memory import SharedMemory
from statecore.stores.rocksdb.options import StoreOptions
from statecore.stores.rocksdb.reading import OpenedFamilies
from statecore.stores.rocksdb.readonly_links import Shadow, opened_through_links
from statecore.stores.settings import StoreSettings


class DatabaseHandles:
    """One database, closed at first; it may be opened and closed again and again.

    Args:
        path: its directory, as messages name it.
        kind: what the store is; decides the data column family.
        create: make a fresh database; ``path`` must not exist.
        create_if_missing: make one if there is none, and finish one that a killed process had begun to make.
        read_only: change nothing.
        upgrade: add the family ``offsets`` where an older release of Kafka Streams wrote the database.

    Attributes:
        database: the ``Rdict``; ``None`` while it is closed.
        families: an ``Rdict`` of each column family, by name; empty while it is closed.
        column_families: rocksdict's handles of them, as a ``WriteBatch`` takes them.
        memory: what the store shares with others; ``None`` before it was opened once.
        witness: whether its MANIFEST is whole.
        made: whether there was no database before it was opened.
        claim: the right to the directory, while it is open for writing.
    """

    def __init__(
        self,
        path: Path,
        kind: StoreKind,
        *,
        create: bool,
        create_if_missing: bool,
        read_only: bool,
        upgrade: bool = False,
    ) -> None:
        self.path = path
        self.kind = kind
        self._create = create
        self._create_if_missing = create_if_missing
        self._read_only = read_only
        self._upgrade = upgrade
        self.database: Any = None
        self.families: dict[str, Any] = {}
        self.column_families: dict[str, Any] = {}
        self.memory: SharedMemory | None = None
        self.witness = ManifestGuard(path, path)
        self.made = False
        self._found: frozenset[str] = frozenset()  # files of rows that may be another database's, too
        self._compacts = False
        self._shadow: Shadow | None = None
        self.claim: Claim | None = None  # the last: who is dropped drops native objects first

    def open(self, settings: StoreSettings, begin: Callable[[], None]) -> None:
        """Open the database; where that fails, nothing is held.

        Args:
            settings: options and memory.
            begin: what the store does with the open database before anybody else may; called again where files changed
                while it was opened to be read. Where it raises, it holds nothing of the database.

        Raises:
            StatecoreError: see :meth:`RocksDBStore.open`; or what ``begin`` raises.
        """
        options = StoreOptions(self.path.name, settings)  # may be refused, so before anything is touched
        self._compacts = options.automatic_compaction
        if self._read_only:
            require_database(self.path)
            self._shadow, _ = opened_through_links(self.path, lambda where: self._open_at(where, options, begin))
            return
        self.claim, self.made = claimed(self.path, create=self._create, begun=self._create_if_missing)
        self._open_at(self.claim.directory, options, begin)

    def _open_at(self, where: Path, options: StoreOptions, begin: Callable[[], None]) -> None:
        wanted = {DEFAULT_COLUMN_FAMILY, self.kind.data_column_family, OFFSETS_COLUMN_FAMILY}
        self.witness = ManifestGuard(self.path, self.where, options.witnessed)
        try:
            if not options.automatic_compaction:
                self._found = data_files_in(where)
            if not self.made:
                self.witness.look(read_only=self._read_only)
                found = existing_families(self.path, where, self.kind, begun=self._create_if_missing)
                if not (self._read_only or self._upgrade) and is_older(where, found, begun=self._create_if_missing):
                    self._refuse_older(where)
                wanted = found if self._read_only else wanted | found
            self.database = open_database(
                self.path, where, wanted, create=self.made, read_only=self._read_only, options=options
            )
            for name in wanted:
                self.families[name] = self.database.get_column_family(name)
                self.column_families[name] = self.database.get_column_family_handle(name)
            self.memory = options.memory
            refuse_foreign_rows(self.path, self.kind, self.families)
            self.witness.opened(self.families, self.kind.data_column_family, self.database.latest_sequence_number())
            begin()
        except BaseException:
            try:
                if self.claim is not None:
                    if self.database is None:
                        self.claim.check()  # somebody who does not know of claims may have been quicker
                    else:
                        tidy(self.path, where, found=self._found)
            finally:
                self._release()
                self._unclaim()
            raise

    def _refuse_older(self, where: Path) -> None:
        """Say that the database has to be upgraded; but what else is wrong with it is said first."""
        shadow = Shadow(where)
        try:
            OpenedFamilies(self.path, Path(shadow.name)).close()
        finally:
            shadow.cleanup()
        raise written_by_older(self.path)

    @property
    def where(self) -> Path:
        """The database's directory: while it is open for writing under a path that follows it."""
        return self.path if self.claim is None else self.claim.directory

    def tidy(self) -> None:
        """Leave the directory as Kafka Streams expects it, on the disk where the database was made; it is still open.

        Raises:
            Invalid: this user may not.
            NotFound: it is gone.
        """
        if self.claim is not None:
            tidy(self.path, self.claim.directory, whole=self.made, found=self._found)

    def close(self) -> StatecoreError | None:
        """Give back everything; returns what failed meanwhile."""
        try:
            failure = self._release()
            if self.claim is not None and self._compacts:
                with suppress(OSError):  # a compaction may have ended after the tidying
                    set_modes(self.claim.directory, without=self._found)
        finally:
            self._unclaim()
        return failure

    def _release(self) -> StatecoreError | None:
        handles = list(self.families.values())
        self.column_families.clear()
        self.families.clear()
        if self.database is not None:
            handles.append(self.database)
            self.database = None
        failure = close_handles(self.path, handles)
        if self._shadow is not None:
            self._shadow.cleanup()
            self._shadow = None
        return failure

    def _unclaim(self) -> None:
        if self.claim is not None:
            self.claim.release()
            self.claim = None

    def disown(self) -> list[Any]:
        """Close in a forked child; its native objects. See :mod:`statecore.stores.rocksdb.fork_safety`."""
        native = [self.database, *self.families.values(), *self.column_families.values()]
        self._unclaim()
        self.database, self._shadow = None, None
        self.families.clear()
        self.column_families.clear()
        return native
