"""The kinds of store a spec can declare, and where each keeps its rows.

The names are the spec's (``kind:`` in ``stores.yaml``). The data column family is the one that the class of that kind
opens in Kafka Streams 4.3.1 (``RocksDBStore``, ``RocksDBTimestampedStore``, ...); a database with any other family on
disk makes ``KafkaStreams.start()`` fail.
"""

from __future__ import annotations

from enum import StrEnum

DEFAULT_COLUMN_FAMILY = "default"
"""The family every RocksDB database has; plain stores keep their rows here."""

OFFSETS_COLUMN_FAMILY = "offsets"
"""The family of KIP-1035 with offsets, status and position (``AbstractColumnFamilyAccessor``)."""


class StoreKind(StrEnum):
    """What a store is: decides the row format, the data column family and the directory shape."""

    KEY_VALUE = "key-value"
    TIMESTAMPED_KEY_VALUE = "timestamped-key-value"
    HEADERS_KEY_VALUE = "headers-key-value"
    VERSIONED_KEY_VALUE = "versioned-key-value"
    WINDOW = "window"
    TIMESTAMPED_WINDOW = "timestamped-window"
    HEADERS_WINDOW = "headers-window"
    SESSION = "session"
    HEADERS_SESSION = "headers-session"
    EMIT_FINAL_WINDOW = "emit-final-window"
    EMIT_FINAL_SLIDING_WINDOW = "emit-final-sliding-window"
    EMIT_FINAL_SESSION = "emit-final-session"
    JOIN_WINDOW = "join-window"
    LIST = "list"
    GRACE_BUFFER = "grace-buffer"
    IN_MEMORY = "in-memory"
    UNKNOWN = "?"

    @property
    def data_column_family(self) -> str:
        """The column family that holds the rows. Raises ``KeyError`` for a kind that this version cannot build."""
        return _DATA_COLUMN_FAMILIES[self]

    @property
    def can_be_built(self) -> bool:
        """Whether this version of statecore rebuilds stores of this kind."""
        return self in _DATA_COLUMN_FAMILIES


_DATA_COLUMN_FAMILIES: dict[StoreKind, str] = {
    StoreKind.KEY_VALUE: DEFAULT_COLUMN_FAMILY,
    StoreKind.TIMESTAMPED_KEY_VALUE: "keyValueWithTimestamp",
}
