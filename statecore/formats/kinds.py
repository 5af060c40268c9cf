"""The kinds of store a spec can declare, by the names that it uses (``kind:`` in ``stores.yaml``).

What each is on disk is in :mod:`statecore.formats.releases`; this is what Kafka Streams 4.3 and 4.4 have of it.
"""

from __future__ import annotations

from enum import StrEnum

from statecore.formats.releases import CURRENT


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
    CUSTOM = "custom"
    UNKNOWN = "?"

    @property
    def data_column_family(self) -> str:
        """The column family that holds the rows. Raises ``KeyError`` for kinds that are not built."""
        return CURRENT.kinds[self].family

    @property
    def older_column_families(self) -> frozenset[str]:
        """Families in which Kafka Streams may have left rows of an older format of such a store.

        Raises ``KeyError`` for kinds that are not built.
        """
        return CURRENT.kinds[self].older

    @property
    def can_be_built(self) -> bool:
        """Whether its format is known: not in memory, not of the application's own class, and decided."""
        return self in CURRENT.kinds

    @property
    def is_segmented(self) -> bool:
        """Whether the store is a directory of databases, one a segment."""
        return self in CURRENT.kinds and CURRENT.kinds[self].segmented

    @property
    def is_versioned(self) -> bool:
        """Whether the store keeps old values: its rows need every record of a key, not the last one."""
        return self is StoreKind.VERSIONED_KEY_VALUE

    @property
    def manages_offsets(self) -> bool:
        """Whether Kafka Streams reads the offset from the database; if not, from ``.checkpoint_<store>``."""
        if self is StoreKind.CUSTOM:
            return False
        return self not in CURRENT.kinds or CURRENT.kinds[self].offset_inside


WINDOWED_KINDS = frozenset(kind for kind in StoreKind if kind.is_segmented) - {StoreKind.GRACE_BUFFER}
"""Kinds whose rows lie in segments by time and expire."""

RETAINED_KINDS = WINDOWED_KINDS | {StoreKind.VERSIONED_KEY_VALUE}
"""Kinds that cannot be built without ``retention``."""
