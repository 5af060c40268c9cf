"""The store kinds that a spec can declare (``kind:`` in ``stores.yaml``), as Kafka Streams 4.3 and 4.4 have them.

:mod:`statecore.formats.releases` describes their layout on disk.
"""

from __future__ import annotations

from enum import StrEnum

from statecore.formats.releases import CURRENT


class StoreKind(StrEnum):
    """Kind of a store; determines row format, data column family and directory layout."""

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
        """Column family of the rows. Raises ``KeyError`` for kinds that are not built."""
        return CURRENT.kinds[self].family

    @property
    def older_column_families(self) -> frozenset[str]:
        """Families that may have rows of an older format. Raises ``KeyError`` for kinds that are not built."""
        return CURRENT.kinds[self].older

    @property
    def can_be_built(self) -> bool:
        """Whether the format is known: not in-memory, custom or undecided."""
        return self in CURRENT.kinds

    @property
    def is_segmented(self) -> bool:
        """Whether the store is a directory of databases, one per segment."""
        return self in CURRENT.kinds and CURRENT.kinds[self].segmented

    @property
    def is_versioned(self) -> bool:
        """Whether the store keeps old versions, so that its rows depend on every record of a key."""
        return self is StoreKind.VERSIONED_KEY_VALUE

    @property
    def manages_offsets(self) -> bool:
        """Whether Kafka Streams reads the offset from the database; otherwise from ``.checkpoint_<store>``."""
        if self is StoreKind.CUSTOM:
            return False
        return self not in CURRENT.kinds or CURRENT.kinds[self].offset_inside

    @property
    def may_keep_offset_outside(self) -> bool:
        """Whether Kafka Streams may read the offset from ``.checkpoint_<store>``: certain but for an unknown kind."""
        return self is StoreKind.UNKNOWN or not self.manages_offsets


WINDOWED_KINDS = frozenset(kind for kind in StoreKind if kind.is_segmented) - {StoreKind.GRACE_BUFFER}
"""Kinds whose rows are in time segments that expire."""

RETAINED_KINDS = WINDOWED_KINDS | {StoreKind.VERSIONED_KEY_VALUE}  # Kinds that require retention
