"""Raw read-only access to a database of any store: every column family, without interpretation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from statecore.errors import StatecoreError
from statecore.stores.rocksdb.directory import column_families_in
from statecore.stores.rocksdb.errors import translate
from statecore.stores.rocksdb.file_limits import opening_threads
from statecore.stores.rocksdb.options_file import keep_levels


class OpenedFamilies:
    """Every column family of one database, open until closed or the end of the ``with`` block.

    RocksDB and rocksdict write into a directory that they open, even read-only; so open a directory of links
    (:mod:`.readonly_links`).
    """

    def __init__(self, path: Path, where: Path) -> None:
        from rocksdict import AccessType, Options, Rdict

        self.path = path
        self.handles: dict[str, Any] = {}  # an Rdict of each column family, by name
        self._where = where
        self._database: Any = None
        try:
            columns = {name: Options(raw_mode=True) for name in column_families_in(where)}
            access = AccessType.read_only(False)
            options = Options(raw_mode=True)
            options.set_max_file_opening_threads(opening_threads(where))
            keep_levels(where, columns)
            self._database = Rdict(str(where), options, column_families=columns, access_type=access)
            for name in columns:
                self.handles[name] = self._database.get_column_family(name)
        except Exception as error:  # rocksdict raises bare Exception
            self.close()
            raise self._translated("Opening", error) from error

    @property
    def names(self) -> frozenset[str]:
        """Names of the column families."""
        return frozenset(self.handles)

    def iterator(self, family: str, first: bytes | None = None, options: Any = None) -> Any:
        """RocksDB's iterator; ends at a damaged block, too (:meth:`check`). ``None`` without such a family."""
        from rocksdict import ReadOptions

        if family not in self.handles:
            return None
        iterator = self.handles[family].iter(options or ReadOptions())
        if first is None:
            iterator.seek_to_first()
        else:
            iterator.seek(first)
        return iterator

    def check(self, iterator: Any) -> None:
        """Check that an iterator ended after the last row. Raises ``Corrupted``."""
        if iterator is None:
            return
        try:
            iterator.status()
        except Exception as error:
            raise self._translated("Reading", error) from error

    def rows(self, family: str, first: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Rows of a family from a key on, in key order; empty if there is no such family. Raises ``Corrupted``."""
        iterator = self.iterator(family, first)
        while iterator is not None and iterator.valid():
            yield iterator.key(), iterator.value()
            iterator.next()
        self.check(iterator)

    def close(self) -> None:
        """Close it; idempotent."""
        for handle in self.handles.values():
            handle.close()
        self.handles = {}
        if self._database is not None:
            self._database.close()
            self._database = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _translated(self, doing: str, error: Exception) -> StatecoreError:
        return translate(self.path, doing, Exception(str(error).replace(str(self._where), str(self.path))))
