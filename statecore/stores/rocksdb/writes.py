"""A closed database whose column families are changed: one added, one dropped, one written anew in another format.

This works on databases of whatever release of Kafka Streams and of whatever kind, and is for who converts them. Nobody
works with such a database meanwhile, and it is no valid one before it was closed here without an error: convert a copy.
SST files of the copy may be links to those of the original. RocksDB writes to no SST file that exists, it only unlinks
some, and merges none here unless it is asked to.
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
from statecore.stores.rocksdb.directory import close_handles, data_files_in, require_database, tidy
from statecore.stores.rocksdb.directory_lock import Claim
from statecore.stores.rocksdb.errors import translate
from statecore.stores.rocksdb.families import compact_files, ingest_files
from statecore.stores.rocksdb.file_limits import max_open_files, opening_threads
from statecore.stores.rocksdb.manifest_guard import ManifestGuard, forget_manifest_guard
from statecore.stores.rocksdb.options import data_options, offsets_options
from statecore.stores.rocksdb.options_file import keep_levels
from statecore.stores.rocksdb.scan import ListScan


class ChangedDatabase:
    """One database, open for writing while the ``with`` block lasts, all its column families as they are.

    Left without an error it is closed and tidy: no log content, no notes of tools, right modes.

    Args:
        path: its directory.
        sst_format: the version of SST files that are written, flushes of what lay in the log among them.
        durably: whether it is forced to the disk then; else that is left to who forces a whole tree at once.

    Attributes:
        families: the names of its column families.
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
        """Open it.

        Raises:
            Corrupted: it is damaged, or its MANIFEST does not name all that it should.
            Fenced: somebody has it open.
            NotFound: there is none.
            StatecoreError: the system did not give what it takes.
        """
        forks.opening(self.path, self)
        require_database(self.path)
        self._claim = Claim(self.path)
        try:
            self._open(self._claim.directory)
        except BaseException:
            self._release()
            raise
        return self

    def _open(self, where: Path) -> None:
        from rocksdict import Options, Rdict

        ManifestGuard(self.path, where, records=False).look(read_only=False)
        self._found = data_files_in(where)
        options = self._options()
        options.create_if_missing(False)
        options.set_max_open_files(max_open_files())
        options.set_max_file_opening_threads(opening_threads(where))
        try:
            names = Rdict.list_cf(str(where), Options(raw_mode=True))
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
        """Write a few rows to a family, which is made where it is missing.

        Raises:
            StatecoreError: RocksDB did not take them.
        """
        handle = self._made(family)
        try:
            for key, value in rows.items():
                handle.put(key, value)
        except Exception as error:
            raise translate(self.path, "Writing to", error) from error

    def ingest(self, family: str, files: Sequence[Path]) -> None:
        """Move SST files into a family, above the rows that it has; it is made where it is missing.

        Raises:
            StatecoreError: RocksDB did not take them.
        """
        if files:
            ingest_files(self.path, self._where, self._made(family), files)

    def rows(self, family: str) -> Iterable[tuple[list[bytes], list[bytes]]]:
        """All rows of a family in key order, as lists of keys and values. Raises ``Corrupted``."""
        return ListScan(self.path, self._handles[family], keeps=self._claim)

    def rewrite(self, family: str) -> None:
        """Write all files of a family anew, in this format; takes as much room again meanwhile.

        Raises:
            StatecoreError: RocksDB could not.
        """
        compact_files(self.path, self._handles[family])

    def drop(self, family: str) -> None:
        """Drop a family with its rows; one that is not there is fine.

        Raises:
            StatecoreError: RocksDB could not.
        """
        handle = self._handles.pop(family, None)
        if handle is None:
            return
        try:
            handle.close()
            del handle  # RocksDB keeps the files of a dropped family as long as somebody holds it
            self._database.drop_column_family(family)
        except Exception as error:
            raise translate(self.path, "Dropping a column family of", error) from error
        self.families.discard(family)

    def _made(self, family: str) -> Any:
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
        """Close it; after an error it is only let go of."""
        failure: StatecoreError | None = None
        try:
            if kind is None:
                failure = self._flushed()
            closed = close_handles(self.path, self._native())
            failure = failure or closed
            if kind is None and failure is None:
                forget_manifest_guard(self._where)
                tidy(self.path, self._where, whole=self._durably, found=self._found)
        finally:
            self._release()
        if kind is None and failure is not None:
            raise failure

    def _flushed(self) -> StatecoreError | None:
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
        """Be closed in a forked child; see :mod:`statecore.stores.rocksdb.fork_safety`."""
        native = self._native()
        if self._claim is not None:
            self._claim.release()
            self._claim = None
        return native
