"""A read view of one commit of a RocksDB store, kept while later commits are written.

rocksdict's snapshots belong to one column family and are correct for single keys only (:mod:`.scan`), so a view has two
of them, of rows and offsets, and an iterator of the rows. All are made under the store's lock, which every commit
takes, and so show the same commit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from statecore.formats import offsets as offset_format
from statecore.formats.position import Position, decode_position
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb.errors import translate
from statecore.stores.rocksdb.scan import FamilyIterator, RocksDBCursor

_ABSENT = "key not found"  # The text of the plain Exception that rocksdict's snapshots raise for a missing key


class RocksDBReadView:
    """Rows, offsets and position of the newest commit at creation (:class:`statecore.stores.views.CommittedView`)."""

    def __init__(
        self, path: Path, data: Any, offsets: Any | None, *, points: bool = True, keep_alive: object = None
    ) -> None:
        self._path = path
        self._data = data.snapshot() if points else None
        self._offsets = None if offsets is None else offsets.snapshot()
        self._iterator = FamilyIterator(path, data)
        self._keeps = keep_alive

    def get(self, key: bytes) -> bytes | None:
        return self._value(self._data, key)

    def cursor(self, lower: bytes | None, upper: bytes | None, *, reverse: bool) -> RocksDBCursor:
        """A cursor over the rows with ``lower <= key < upper``."""
        return RocksDBCursor(self._iterator, lower, upper, reverse=reverse)

    def committed_offset(self, partition: TopicPartition) -> int | None:
        value = self._value(self._offsets, offset_format.offset_key(partition))
        return None if value is None else offset_format.decode_int64(value)

    def position(self) -> Position:
        value = self._value(self._offsets, offset_format.POSITION_KEY)
        return {} if value is None else decode_position(value)

    def native_objects(self) -> list[Any]:
        """The rocksdict objects that it holds."""
        return [self._data, self._offsets, self._iterator.native]

    def close(self) -> None:
        """Release snapshots and iterator."""
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
