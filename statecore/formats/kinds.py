"""The kinds of store a spec can declare, and what each is on disk.

The names are the spec's (``kind:`` in ``stores.yaml``). The data column family is the one that the class of that kind
opens in Kafka Streams 4.3.1 (``RocksDBStore``, ``RocksDBTimestampedStore``, ...); a database with any other family on
disk makes ``KafkaStreams.start()`` fail. Segmented stores are a directory of databases, one for each interval of time
(``AbstractSegments``)::

    kind                                 data column family                 directory                    module
    -----------------------------------  ---------------------------------  ---------------------------  ------------
    key-value                            default                            rocksdb/<store>              key_value
    timestamped-key-value                keyValueWithTimestamp              rocksdb/<store>              key_value
    headers-key-value                    keyValueWithTimestampAndHeaders    rocksdb/<store>              headers
    versioned-key-value                  default                            rocksdb/<store>              versioned
    list                                 default                            rocksdb/<store>              list_value
    window, join-window                  default                            <store>/<store>.<start ms>   window
    timestamped-window                   keyValueWithTimestamp              <store>/<store>.<start ms>   window
    headers-window                       keyValueWithTimestampAndHeaders    <store>/<store>.<start ms>   window
    session                              default                            <store>/<store>.<start ms>   session
    headers-session                      sessionKeyValueWithHeaders         <store>/<store>.<start ms>   session
    emit-final-window, -sliding-window   default                            <store>/<store>.<start ms>   emit_final
    headers-emit-final-(sliding-)window  windowKeyValueWithHeaders          <store>/<store>.<start ms>   emit_final
    emit-final-session                   default                            <store>/<store>.<start ms>   emit_final
    headers-emit-final-session           sessionKeyValueWithHeaders         <store>/<store>.<start ms>   emit_final
    grace-buffer                         default                            <store>/<store>.0            grace_buffer
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
    HEADERS_EMIT_FINAL_WINDOW = "headers-emit-final-window"
    HEADERS_EMIT_FINAL_SLIDING_WINDOW = "headers-emit-final-sliding-window"
    HEADERS_EMIT_FINAL_SESSION = "headers-emit-final-session"
    JOIN_WINDOW = "join-window"
    LIST = "list"
    GRACE_BUFFER = "grace-buffer"
    IN_MEMORY = "in-memory"
    UNKNOWN = "?"

    @property
    def data_column_family(self) -> str:
        """The column family that holds the rows. Raises ``KeyError`` for ``in-memory`` and ``?``."""
        return _DATA_COLUMN_FAMILIES[self]

    @property
    def can_be_built(self) -> bool:
        """Whether there is something to build: not for stores in memory, nor where nobody has decided the kind."""
        return self in _DATA_COLUMN_FAMILIES

    @property
    def is_segmented(self) -> bool:
        """Whether the store is a directory of databases, one a segment."""
        return self in WINDOWED_KINDS or self is StoreKind.GRACE_BUFFER

    @property
    def is_versioned(self) -> bool:
        """Whether the store keeps old values: its rows need every record of a key, not the last one."""
        return self is StoreKind.VERSIONED_KEY_VALUE

    @property
    def manages_offsets(self) -> bool:
        """Whether Kafka Streams reads the offset from the database; if not, from ``.checkpoint_<store>``."""
        return self is not StoreKind.GRACE_BUFFER


_DATA_COLUMN_FAMILIES: dict[StoreKind, str] = {
    StoreKind.KEY_VALUE: DEFAULT_COLUMN_FAMILY,
    StoreKind.TIMESTAMPED_KEY_VALUE: "keyValueWithTimestamp",
    StoreKind.HEADERS_KEY_VALUE: "keyValueWithTimestampAndHeaders",
    StoreKind.VERSIONED_KEY_VALUE: DEFAULT_COLUMN_FAMILY,
    StoreKind.WINDOW: DEFAULT_COLUMN_FAMILY,
    StoreKind.TIMESTAMPED_WINDOW: "keyValueWithTimestamp",
    StoreKind.HEADERS_WINDOW: "keyValueWithTimestampAndHeaders",
    StoreKind.SESSION: DEFAULT_COLUMN_FAMILY,
    StoreKind.HEADERS_SESSION: "sessionKeyValueWithHeaders",
    StoreKind.EMIT_FINAL_WINDOW: DEFAULT_COLUMN_FAMILY,
    StoreKind.EMIT_FINAL_SLIDING_WINDOW: DEFAULT_COLUMN_FAMILY,
    StoreKind.EMIT_FINAL_SESSION: DEFAULT_COLUMN_FAMILY,
    StoreKind.HEADERS_EMIT_FINAL_WINDOW: "windowKeyValueWithHeaders",
    StoreKind.HEADERS_EMIT_FINAL_SLIDING_WINDOW: "windowKeyValueWithHeaders",
    StoreKind.HEADERS_EMIT_FINAL_SESSION: "sessionKeyValueWithHeaders",
    StoreKind.JOIN_WINDOW: DEFAULT_COLUMN_FAMILY,
    StoreKind.LIST: DEFAULT_COLUMN_FAMILY,
    StoreKind.GRACE_BUFFER: DEFAULT_COLUMN_FAMILY,
}

WINDOWED_KINDS = frozenset(
    {
        StoreKind.WINDOW,
        StoreKind.TIMESTAMPED_WINDOW,
        StoreKind.HEADERS_WINDOW,
        StoreKind.SESSION,
        StoreKind.HEADERS_SESSION,
        StoreKind.EMIT_FINAL_WINDOW,
        StoreKind.EMIT_FINAL_SLIDING_WINDOW,
        StoreKind.EMIT_FINAL_SESSION,
        StoreKind.HEADERS_EMIT_FINAL_WINDOW,
        StoreKind.HEADERS_EMIT_FINAL_SLIDING_WINDOW,
        StoreKind.HEADERS_EMIT_FINAL_SESSION,
        StoreKind.JOIN_WINDOW,
    }
)
"""Kinds whose rows lie in segments by time and expire."""

RETAINED_KINDS = WINDOWED_KINDS | {StoreKind.VERSIONED_KEY_VALUE}
"""Kinds that cannot be built without ``retention``."""
