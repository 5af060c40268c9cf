"""Read-only access to every column family of a database, whatever store wrote it.

If the application has it open, the last flushed state is read (:mod:`statecore.stores.rocksdb.readonly_links`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from statecore.errors import Corrupted, NotFound, StatecoreError
from statecore.formats.releases import OFFSETS_COLUMN_FAMILY
from statecore.statedir.database_state import DatabaseState
from statecore.statedir.store_on_disk import DatabaseOnDisk, read_database
from statecore.stores.rocksdb.errors import not_readable_here
from statecore.stores.rocksdb.files import files_elsewhere
from statecore.stores.rocksdb.reading import OpenedFamilies
from statecore.stores.rocksdb.readonly_links import ReadOnlyLinks, files_of, open_through_links
from statecore.stores.rocksdb.scan import take_rows

_CHUNK_ROWS = 1 << 15
_CHUNK_BYTES = 8 << 20
_READAHEAD_BYTES = 2 << 20
_COUNTED_ROWS = 1 << 16


class Database:
    """One database, open during the ``with`` block."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.families: frozenset[str] = frozenset()
        self._shadow: ReadOnlyLinks | None = None
        self._opened: OpenedFamilies

    def __enter__(self) -> Database:
        """Open it. Raises ``NotFound`` if it was deleted, ``Corrupted``, and ``Invalid`` if it cannot be read here."""
        try:
            self._shadow, self._opened = open_through_links(
                self.path, lambda where: OpenedFamilies(self.path, where), damage_beside_writer=True
            )
        except StatecoreError as error:
            if isinstance(error, Corrupted) and (why := files_elsewhere(self.path)):
                raise not_readable_here(f"{self.path} cannot be opened: {why}.", self.path) from error
            if files_of(self.path):
                raise
            raise NotFound(
                f"{self.path} was deleted meanwhile.",
                code="database-not-found",
                action="Run this again.",
                database=str(self.path),
            ) from None
        self.families = self._opened.names
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()
        if self._shadow is not None:
            self._shadow.cleanup()
            self._shadow = None

    def rows(self, family: str, first: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Rows of a family from a key on, in key order; none if the family does not exist. Raises ``Corrupted``."""
        return self._opened.rows(family, first)

    def chunks(self, family: str, first: bytes | None = None) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """The same in lists of keys and values of some megabytes, checksums verified. Raises ``Corrupted``."""
        iterator = self._whole(family, first)
        if iterator is None:
            return
        while (rows := take_rows(iterator, _CHUNK_ROWS, _CHUNK_BYTES))[0]:
            yield rows
        self._opened.check(iterator)

    def count(self, family: str, tick: Callable[[int], None] | None = None) -> int:
        """Count the rows of a family by reading all of them, checksums verified."""
        iterator = self._whole(family)
        if iterator is None:
            return 0
        rows, valid, advance = 0, iterator.valid, iterator.next
        while valid():
            before = rows
            while rows - before < _COUNTED_ROWS and valid():
                rows += 1
                advance()
            if tick is not None:
                tick(rows - before)
        self._opened.check(iterator)
        return rows

    def _whole(self, family: str, first: bytes | None = None) -> Any:
        """An iterator for full scans: readahead, checksums verified."""
        from rocksdict import ReadOptions

        options = ReadOptions()
        options.set_readahead_size(_READAHEAD_BYTES)
        options.set_verify_checksums(True)
        return self._opened.iterator(family, first, options)

    def estimate(self, family: str) -> int:
        """RocksDB's estimate of a family's rows; may include overwritten and deleted ones."""
        if family not in self._opened.handles:
            return 0
        return int(self._opened.handles[family].property_int_value("rocksdb.estimate-num-keys") or 0)

    @property
    def state(self) -> DatabaseState:
        """The content of the ``offsets`` family. Raises ``Corrupted`` if it is malformed."""
        return DatabaseState.of_entries(self.families, dict(self.rows(OFFSETS_COLUMN_FAMILY)))


@contextmanager
def opened_database(path: Path) -> Iterator[tuple[DatabaseOnDisk, Database]]:
    """A database and its on-disk state with MANIFEST check, from one opening.

    A database that does not open has no families and no rows; its ``damage`` says why.
    """
    database = Database(path)
    with ExitStack() as stack:
        yield read_database(path, lambda _: stack.enter_context(database).state, manifests=True), database
