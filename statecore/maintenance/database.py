"""A database as it lies on disk, whatever store wrote it: every column family, read-only, nothing touched.

The application may have it open meanwhile. Then what is read is what was flushed last, and between the listing of the
files and the opening of them RocksDB may have replaced some: that is tried again.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

from statecore.errors import Corrupted
from statecore.formats.kinds import OFFSETS_COLUMN_FAMILY
from statecore.formats.offsets import POSITION_KEY, STATUS_KEY, decode_int64, partition_of_key
from statecore.formats.position import Position, decode_position
from statecore.runtime.database_state import DatabaseState
from statecore.stores.rocksdb_directory import open_database, shadow_of
from statecore.stores.rocksdb_errors import translate
from statecore.stores.rocksdb_scan import scan, scan_lists

_ATTEMPTS = 5
_PAUSE_SECONDS = 0.05
_CHUNK_ROWS = 1 << 14


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
        self._shadow: tempfile.TemporaryDirectory[str] | None = None
        self._db: Any = None
        self._handles: dict[str, Any] = {}

    def __enter__(self) -> Database:
        """Open it.

        Raises:
            Corrupted: it cannot be opened.
        """
        for attempt in range(_ATTEMPTS):
            before = _files(self.path)
            try:
                self._open()
                return self
            except Exception:
                self._close()
                # Files that came or went meanwhile: the application is at work in it.
                if attempt == _ATTEMPTS - 1 or _files(self.path) == before:
                    raise
            time.sleep(_PAUSE_SECONDS)
        raise AssertionError("unreachable")

    def _open(self) -> None:
        from rocksdict import Options, Rdict

        try:
            self._shadow = shadow_of(self.path)
            self.families = frozenset(Rdict.list_cf(self._shadow.name, Options(raw_mode=True)))
        except Exception as error:  # rocksdict raises bare Exception
            raise translate(self.path, "Opening", error) from error
        self._db = open_database(self.path, Path(self._shadow.name), self.families, create=False, read_only=True)
        self._handles = {name: self._db.get_column_family(name) for name in self.families}

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
        if family in self._handles:
            yield from scan(self.path, self._handles[family], first)

    def chunks(self, family: str, first: bytes | None = None) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """The same in lists of keys and values, thousands at a time. Raises ``Corrupted``."""
        if family not in self._handles:
            return
        if first is None:
            yield from scan_lists(self.path, self._handles[family])
            return
        rows = scan(self.path, self._handles[family], first)
        while chunk := list(islice(rows, _CHUNK_ROWS)):
            yield [key for key, _ in chunk], [value for _, value in chunk]

    def count(self, family: str) -> int:
        """How many rows a family has, by counting them. Raises ``Corrupted``."""
        return sum(1 for _ in self.rows(family))

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

    @property
    def position(self) -> Position:
        """How far each input topic had been seen; empty where nothing is written. Raises ``Corrupted``."""
        found = next(iter(self.rows(OFFSETS_COLUMN_FAMILY, POSITION_KEY)), None)
        return decode_position(found[1]) if found is not None and found[0] == POSITION_KEY else {}


def _files(path: Path) -> frozenset[str]:
    try:
        return frozenset(file.name for file in path.iterdir())
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise Corrupted(
            f"{path} cannot be read: {error.strerror}.",
            action="Run as the user that the application runs as.",
            database=str(path),
        ) from error
