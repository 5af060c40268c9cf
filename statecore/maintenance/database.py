"""A database as it lies on disk, whatever store wrote it: every column family, read-only, nothing touched.

The application may have it open meanwhile. Then what is read is what was flushed last (:mod:`.stores.rocksdb_links`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from statecore.errors import NotFound, StatecoreError
from statecore.formats.kinds import OFFSETS_COLUMN_FAMILY
from statecore.formats.offsets import STATUS_KEY, decode_int64, partition_of_key
from statecore.placement.database_state import DatabaseState
from statecore.stores.rocksdb_errors import translate
from statecore.stores.rocksdb_links import Shadow, files_of, opened_through_links

_CHUNK_ROWS = 1 << 15
_CHUNK_BYTES = 8 << 20
_READAHEAD_BYTES = 2 << 20


class Database:
    """One database, open while the ``with`` block lasts.

    Args:
        path: its directory.

    Attributes:
        path: its directory.
        families: the names of its column families.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.families: frozenset[str] = frozenset()
        self._shadow: Shadow | None = None
        self._links = path
        self._db: Any = None
        self._handles: dict[str, Any] = {}

    def __enter__(self) -> Database:
        """Open it.

        Raises:
            NotFound: it is gone, as expired segments go.
            Corrupted: it cannot be opened.
        """
        try:
            self._shadow, _ = opened_through_links(self.path, self._open, damage_beside_writer=True)
        except StatecoreError:
            if files_of(self.path):
                raise
            raise NotFound(f"{self.path} has gone meanwhile.", action="Look again.", database=str(self.path)) from None
        return self

    def _open(self, links: Path) -> None:
        from rocksdict import AccessType, Options, Rdict

        self._links = links
        try:
            self.families = frozenset(Rdict.list_cf(str(links), Options(raw_mode=True)))
            columns = {name: Options(raw_mode=True) for name in self.families}
            access = AccessType.read_only(False)
            self._db = Rdict(str(links), Options(raw_mode=True), column_families=columns, access_type=access)
            self._handles = {name: self._db.get_column_family(name) for name in self.families}
        except Exception as error:  # rocksdict raises bare Exception
            self._close()
            raise self._translated("Opening", error) from error

    def _translated(self, doing: str, error: Exception) -> StatecoreError:
        """The error in terms of the database: RocksDB names the links it was opened through."""
        return translate(self.path, doing, Exception(str(error).replace(str(self._links), str(self.path))))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        for handle in self._handles.values():
            handle.close()
        self._handles = {}
        if self._db is not None:
            self._db.close()
            self._db = None
        if self._shadow is not None:
            self._shadow.cleanup()
            self._shadow = None

    def rows(self, family: str, first: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Rows of a family from a key on, in key order; none when there is no such family. Raises ``Corrupted``."""
        iterator = self._iterator(family, first)
        while iterator is not None and iterator.valid():
            yield iterator.key(), iterator.value()
            iterator.next()
        self._check(iterator)

    def chunks(self, family: str, first: bytes | None = None) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """The same in lists of keys and values, some megabytes at a time, checksums verified. Raises ``Corrupted``."""
        iterator = self._iterator(family, first, whole=True)
        if iterator is None:
            return
        valid, read_key, read_value, advance = iterator.valid, iterator.key, iterator.value, iterator.next
        more = valid()
        while more:
            keys: list[bytes] = []
            values: list[bytes] = []
            size = 0
            while more and len(keys) < _CHUNK_ROWS and size < _CHUNK_BYTES:
                keys.append(read_key())
                value = read_value()
                values.append(value)
                size += len(value)
                advance()
                more = valid()
            yield keys, values
        self._check(iterator)

    def count(self, family: str) -> int:
        """How many rows a family has, by counting them. Raises ``Corrupted``."""
        iterator = self._iterator(family, None, whole=True)
        if iterator is None:
            return 0
        rows, valid, advance = 0, iterator.valid, iterator.next
        while valid():
            rows += 1
            advance()
        self._check(iterator)
        return rows

    def _iterator(self, family: str, first: bytes | None, *, whole: bool = False) -> Any:
        from rocksdict import ReadOptions

        if family not in self._handles:
            return None
        options = ReadOptions()
        if whole:
            options.set_readahead_size(_READAHEAD_BYTES)
            options.set_verify_checksums(True)
        iterator = self._handles[family].iter(options)
        if first is None:
            iterator.seek_to_first()
        else:
            iterator.seek(first)
        return iterator

    def _check(self, iterator: Any) -> None:
        """An iterator ends at a broken block as if the rows ended there; its status says so."""
        if iterator is None:
            return
        try:
            iterator.status()
        except Exception as error:
            raise self._translated("Reading", error) from error

    def estimate(self, family: str) -> int:
        """How many rows RocksDB believes a family has; overwritten and deleted ones may be counted too."""
        if family not in self._handles:
            return 0
        return int(self._handles[family].property_int_value("rocksdb.estimate-num-keys") or 0)

    @property
    def state(self) -> DatabaseState:
        """What the ``offsets`` family says. Raises ``Corrupted`` when that is not what it must be."""
        entries = dict(self.rows(OFFSETS_COLUMN_FAMILY))
        offsets = {
            partition: decode_int64(value)
            for key, value in entries.items()
            if (partition := partition_of_key(key)) is not None
        }
        status = decode_int64(entries[STATUS_KEY]) if STATUS_KEY in entries else None
        return DatabaseState(tuple(sorted(self.families)), offsets, status)
