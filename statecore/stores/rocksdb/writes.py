"""Changes column families of a closed database: adds, drops or rewrites them.

Works on databases of any release of Kafka Streams and of any kind, for conversions. No other process may use the
database meanwhile, and it is valid only after it was closed here without an error: convert a copy. SST files of the
copy may be links to those of the original: RocksDB never modifies an existing SST file, it only unlinks some, and
compacts here only on request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from statecore.errors import StatecoreError
from statecore.formats.releases import OFFSETS_COLUMN_FAMILY
from statecore.stores.rocksdb import fork_safety as forks
from statecore.stores.rocksdb.directory import (
    clean_up,
    close_handles,
    column_families_in,
    data_files_in,
    require_database,
)
from statecore.stores.rocksdb.directory_lock import Claim
from statecore.stores.rocksdb.errors import translate
from statecore.stores.rocksdb.families import compact_files, ingest_files
from statecore.stores.rocksdb.file_limits import max_open_files, opening_threads
from statecore.stores.rocksdb.manifest_guard import ManifestGuard, remove_guard_record
from statecore.stores.rocksdb.options import data_options, offsets_options
from statecore.stores.rocksdb.options_file import keep_levels
from statecore.stores.rocksdb.scan import ListScan


class ChangedDatabase:
    """One database with all its column families, open for writing during the ``with`` block.

    After a block without an error it is closed and cleaned up: no log content, no files of tools, right modes.
    """

    def __init__(self, path: Path, sst_format: int, *, durably: bool = True) -> None:
        self.path = path
        self._durably = durably
        self.families: set[str] = set()
        self._sst_format = sst_format
        self._database: Any = None
        self._handles: dict[str, Any] = {}
        self._found: frozenset[str] = frozenset()
        self._claim: Claim | None = None

    def __enter__(self) -> Self:
        """Open it."""
        forks.register_store(self.path, self)
        require_database(self.path)
        self._claim = Claim(self.path)
        try:
            self._open(self._claim.directory)
        except BaseException:
            self._release()
            raise
        return self

    def _open(self, where: Path) -> None:
        from rocksdict import Rdict

        ManifestGuard(self.path, where, records=False).check(read_only=False)
        self._found = data_files_in(where)
        options = self._options()
        options.create_if_missing(False)
        options.set_max_open_files(max_open_files())
        options.set_max_file_opening_threads(opening_threads(where))
        try:
            names = column_families_in(where)
            columns = {name: offsets_options() if name == OFFSETS_COLUMN_FAMILY else self._options() for name in names}
            keep_levels(where, columns)
            self._database = Rdict(str(where), options, column_families=columns)
            self._handles = {name: self._database.get_column_family(name) for name in names}
        except Exception as error:
            raise translate(self.path, "Opening", error) from error
        self.families = set(names)

    def _options(self) -> Any:
        return data_options(format_version=self._sst_format)

    def put(self, family: str, rows: Mapping[bytes, bytes]) -> None:
        """Write a few rows to a family, creating it if missing."""
        handle = self._family(family)
        try:
            for key, value in rows.items():
                handle.put(key, value)
        except Exception as error:
            raise translate(self.path, "Writing to", error) from error

    def ingest(self, family: str, files: Sequence[Path]) -> None:
        """Move SST files into a family, above its existing rows, creating it if missing."""
        if files:
            ingest_files(self.path, self._where, self._family(family), files)

    def rows(self, family: str) -> Iterable[tuple[list[bytes], list[bytes]]]:
        """All rows of a family in key order, as lists of keys and values. Raises ``Corrupted``."""
        return ListScan(self.path, self._handles[family], keep_alive=self._claim)

    def rewrite(self, family: str) -> None:
        """Rewrite all files of a family in this format; needs the same space again meanwhile."""
        compact_files(self.path, self._handles[family])

    def drop(self, family: str) -> None:
        """Drop a family with its rows; idempotent."""
        handle = self._handles.pop(family, None)
        if handle is None:
            return
        try:
            handle.close()
            del handle  # RocksDB keeps the files of a dropped family as long as a handle exists
            self._database.drop_column_family(family)
        except Exception as error:
            raise translate(self.path, "Dropping a column family of", error) from error
        self.families.discard(family)

    def _family(self, family: str) -> Any:
        if family not in self._handles:
            options = offsets_options() if family == OFFSETS_COLUMN_FAMILY else self._options()
            try:
                self._handles[family] = self._database.create_column_family(family, options)
            except Exception as error:
                raise translate(self.path, "Adding a column family to", error) from error
            self.families.add(family)
        return self._handles[family]

    @property
    def _where(self) -> Path:
        assert self._claim is not None
        return self._claim.directory

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it; after an error only release it."""
        failure: StatecoreError | None = None
        try:
            if kind is None:
                failure = self._flush()
            closed = close_handles(self.path, self._native())
            failure = failure or closed
            if kind is None and failure is None:
                remove_guard_record(self._where)
                clean_up(self.path, self._where, is_created=self._durably, untouched=self._found)
        finally:
            self._release()
        if kind is None and failure is not None:
            raise failure

    def _flush(self) -> StatecoreError | None:
        try:
            for handle in self._handles.values():
                handle.flush()
        except Exception as error:
            return translate(self.path, "Flushing", error)
        return None

    def _native(self) -> list[Any]:
        native = [*self._handles.values(), *([] if self._database is None else [self._database])]
        self._handles = {}
        self._database = None
        return native

    def _release(self) -> None:
        with suppress(Exception):
            close_handles(self.path, self._native())
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    def disown(self) -> list[Any]:
        """Close in a forked child; see :mod:`statecore.stores.rocksdb.fork_safety`."""
        native = self._native()
        if self._claim is not None:
            self._claim.release()
            self._claim = None
        return native
