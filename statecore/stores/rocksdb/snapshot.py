"""One commit of a RocksDB store, kept readable while later ones are written.

rocksdict's snapshots belong to one column family and are good for single keys only (:mod:`.rocksdb_scan`), so there are
two of them, of the rows and of the offsets, and an iterator of the rows. All are made under the store's lock, which no
commit is written without, and so show the same one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from statecore.formats import offsets as offset_format
from statecore.formats.position import Position, decode_position
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb.errors import translate
from statecore.stores.rocksdb.scan import FamilyIterator, RocksDBCursor

_ABSENT = "key not found"
"""How rocksdict's snapshots say it, in the text of a plain ``Exception``."""


class RocksDBInstant:
    """Rows, offsets and position of the newest commit at the time it is made; see :class:`stores.views.Instant`.

    Args:
        path: the database, for messages.
        data: rocksdict's handle of the rows' family.
        offsets: that of the offsets' family, or ``None``.
        points: whether it is to answer for single keys, which takes a snapshot more.
        keeps: what must not go before snapshots and iterator: they hold the database open.
    """

    def __init__(
        self, path: Path, data: Any, offsets: Any | None, *, points: bool = True, keeps: object = None
    ) -> None:
        self._path = path
        self._data = data.snapshot() if points else None
        self._offsets = None if offsets is None else offsets.snapshot()
        self._iterator = FamilyIterator(path, data)
        self._keeps = keeps

    def get(self, key: bytes) -> bytes | None:
        """The row of a key, or ``None``."""
        return self._value(self._data, key)

    def cursor(self, lower: bytes | None, upper: bytes | None, *, reverse: bool) -> RocksDBCursor:
        """A cursor over the rows with ``lower <= key < upper``."""
        return RocksDBCursor(self._iterator, lower, upper, reverse=reverse)

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The offset of a partition, or ``None``."""
        value = self._value(self._offsets, offset_format.offset_key(partition))
        return None if value is None else offset_format.decode_int64(value)

    def position(self) -> Position:
        """The position."""
        value = self._value(self._offsets, offset_format.POSITION_KEY)
        return {} if value is None else decode_position(value)

    def native_objects(self) -> list[Any]:
        """rocksdict's objects that this one holds."""
        return [self._data, self._offsets, self._iterator.native]

    def close(self) -> None:
        """Let go of snapshots and iterator."""
        self._iterator.close()
        self._data = self._offsets = None

    def _value(self, snapshot: Any, key: bytes) -> bytes | None:
        if snapshot is None:
            return None
        try:
            value: bytes = snapshot[key]
        except Exception as error:
            if str(error) == _ABSENT:
                return None
            raise translate(self._path, "Reading", error) from error
        return value
