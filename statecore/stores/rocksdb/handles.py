"""What a process holds of one open database, in the order of acquisition and release.

Acquired: the claim of the directory, the check of its MANIFEST, RocksDB's own lock with the database, a handle of each
column family, and the shared memory. Released: first every handle, because RocksDB keeps its lock as long as one of
them lives, then the claim; a process that waits for it finds a clean directory.
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
    claim_directory,
    clean_up,
    close_handles,
    data_files_in,
    existing_families,
    is_older,
    open_database,
    require_database,
    written_by_older,
)
from statecore.stores.rocksdb.directory_lock import Claim
from statecore.stores.rocksdb.families import refuse_foreign_rows
from statecore.stores.rocksdb.manifest_guard import ManifestGuard
from statecore.stores.rocksdb.memory import SharedMemory
from statecore.stores.rocksdb.options import StoreOptions
from statecore.stores.rocksdb.reading import OpenedFamilies
from statecore.stores.rocksdb.readonly_links import ReadOnlyLinks, open_through_links
from statecore.stores.settings import StoreSettings


class DatabaseHandles:
    """One database, initially closed; it may be opened and closed repeatedly."""

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
        self.database: Any = None  # the Rdict; None while closed
        self.families: dict[str, Any] = {}  # an Rdict of each column family, by name; empty while closed
        self.column_families: dict[str, Any] = {}  # rocksdict's handles of them, for a WriteBatch
        self.memory: SharedMemory | None = None  # what the store shares with others; None before the first open
        self.manifest_guard = ManifestGuard(path, path)  # guards its MANIFEST
        self.is_created = False  # whether the database was created by this opening
        self._found: frozenset[str] = frozenset()  # data files that may be linked from another database
        self._compacts = False
        self._shadow: ReadOnlyLinks | None = None
        # the right to the directory, while open for writing
        self.claim: Claim | None = None  # last: garbage collection must drop native objects first

    def open(self, settings: StoreSettings, begin: Callable[[], None]) -> None:
        """Open the database; if that fails, nothing is held."""
        options = StoreOptions(self.path.name, settings)  # may raise, so before anything is touched
        self._compacts = options.automatic_compaction
        if self._read_only:
            require_database(self.path)
            self._shadow, _ = open_through_links(self.path, lambda where: self._open_at(where, options, begin))
            return
        self.claim, self.is_created = claim_directory(
            self.path, create=self._create, resume_creation=self._create_if_missing
        )
        self._open_at(self.claim.directory, options, begin)

    def _open_at(self, where: Path, options: StoreOptions, begin: Callable[[], None]) -> None:
        wanted = {DEFAULT_COLUMN_FAMILY, self.kind.data_column_family, OFFSETS_COLUMN_FAMILY}
        self.manifest_guard = ManifestGuard(self.path, self.where, options.guards_manifest)
        try:
            if not options.automatic_compaction:
                self._found = data_files_in(where)
            if not self.is_created:
                self.manifest_guard.check(read_only=self._read_only)
                found = existing_families(self.path, where, self.kind, resume_creation=self._create_if_missing)
                if not (self._read_only or self._upgrade) and is_older(
                    where, found, resume_creation=self._create_if_missing
                ):
                    self._refuse_older(where)
                wanted = found if self._read_only else wanted | found
            self.database = open_database(
                self.path, where, wanted, create=self.is_created, read_only=self._read_only, options=options
            )
            for name in wanted:
                self.families[name] = self.database.get_column_family(name)
                self.column_families[name] = self.database.get_column_family_handle(name)
            self.memory = options.memory
            refuse_foreign_rows(self.path, self.kind, self.families)
            self.manifest_guard.report_missing(
                self.families, self.kind.data_column_family, self.database.latest_sequence_number()
            )
            begin()
        except BaseException:
            try:
                if self.claim is not None:
                    if self.database is None:
                        self.claim.check()  # a process without claims (Kafka Streams) may have opened it
                    else:
                        clean_up(self.path, where, untouched=self._found)
            finally:
                self._release()
                self._unclaim()
            raise

    def _refuse_older(self, where: Path) -> None:
        """Raise that the database has to be upgraded, unless it has another error, which is raised first."""
        shadow = ReadOnlyLinks(where)
        try:
            OpenedFamilies(self.path, Path(shadow.name)).close()
        finally:
            shadow.cleanup()
        raise written_by_older(self.path)

    @property
    def where(self) -> Path:
        """The database's directory; while open for writing, a path that follows renames."""
        return self.path if self.claim is None else self.claim.directory

    def clean_up(self) -> None:
        """Clean up the directory for Kafka Streams, and sync a created database; it is still open."""
        if self.claim is not None:
            clean_up(self.path, self.claim.directory, is_created=self.is_created, untouched=self._found)

    def close(self) -> StatecoreError | None:
        """Release everything; return the first error."""
        try:
            failure = self._release()
            if self.claim is not None and self._compacts:
                with suppress(OSError):  # a compaction may have ended after the cleanup
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
        """Close in a forked child and return the native objects. See :mod:`statecore.stores.rocksdb.fork_safety`."""
        native = [self.database, *self.families.values(), *self.column_families.values()]
        self._unclaim()
        self.database, self._shadow = None, None
        self.families.clear()
        self.column_families.clear()
        return native
