"""Keys of windows and sessions, one at a time, including emit-final stores, whose keys begin with the time.

See :mod:`statecore.formats.window`, :mod:`statecore.formats.session` and :mod:`statecore.formats.emit_final`::

    window      key o start8 o seq4                 session     key o end8 o start8
    emit-final  00 o start8 o key o seq4            emit-final  00 o end8 o start8 o key
    its index   01 o key o start8 o seq4            its index   01 o key o end8 o start8
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Self

from statecore.formats.integers import INT32_MAX
from statecore.formats.kinds import StoreKind
from statecore.formats.rows.row_errors import check_number, kind_without_row, malformed_row, require_bytes

WINDOW_BYTES = 12  # Bytes of window start and sequence after the key
SESSION_BYTES = 16  # Bytes of session end and start after the key
BASE_PREFIX = 0  # First byte of an emit-final store's base rows, which have values and are ordered by time
INDEX_PREFIX = 1  # First byte of its index rows, which have empty values and are ordered by key

FARTHEST_AHEAD_MS = 31_556_952_000_000_000
"""A million years: the largest distance (ms) of a window or session after its record's timestamp."""

PLAIN_WINDOW_KINDS = frozenset(
    {StoreKind.WINDOW, StoreKind.JOIN_WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.HEADERS_WINDOW}
)
EMIT_FINAL_WINDOW_KINDS = frozenset(
    {
        StoreKind.EMIT_FINAL_WINDOW,
        StoreKind.EMIT_FINAL_SLIDING_WINDOW,
        StoreKind.HEADERS_EMIT_FINAL_WINDOW,
        StoreKind.HEADERS_EMIT_FINAL_SLIDING_WINDOW,
    }
)
PLAIN_SESSION_KINDS = frozenset({StoreKind.SESSION, StoreKind.HEADERS_SESSION})
EMIT_FINAL_SESSION_KINDS = frozenset({StoreKind.EMIT_FINAL_SESSION, StoreKind.HEADERS_EMIT_FINAL_SESSION})
INDEXED_KINDS = EMIT_FINAL_SESSION_KINDS | EMIT_FINAL_WINDOW_KINDS - {StoreKind.EMIT_FINAL_WINDOW}
"""Kinds with index rows, for lookups by key."""

WINDOW_KINDS = PLAIN_WINDOW_KINDS | EMIT_FINAL_WINDOW_KINDS
SESSION_KINDS = PLAIN_SESSION_KINDS | EMIT_FINAL_SESSION_KINDS

_WINDOW = struct.Struct(">qi")
_SESSION = struct.Struct(">qq")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")


class WindowKey(NamedTuple):
    """The key of a window.

    Attributes:
        key: serialized key of the application.
        start: start of the window, ms since the epoch; determines the row's segment.
        sequence: 0, or counts from 1 where the store keeps duplicates (``join-window``).
    """

    key: bytes
    start: int
    sequence: int = 0

    def to_bytes(self, kind: StoreKind = StoreKind.WINDOW) -> bytes:
        """Encode the key of the row with the value.

        Raises:
            Invalid: start or sequence is out of range, or the kind has no windows.
        """
        self._check()
        if kind in PLAIN_WINDOW_KINDS:
            return self.key + _WINDOW.pack(self.start, self.sequence)
        if kind in EMIT_FINAL_WINDOW_KINDS:
            return bytes([BASE_PREFIX]) + _INT64.pack(self.start) + self.key + _INT32.pack(self.sequence)
        raise kind_without_row(kind, "windows")

    def to_index_bytes(self, kind: StoreKind) -> bytes | None:
        """Encode the key of the index row; ``None`` for kinds without one. Raises ``Invalid`` as :meth:`to_bytes`."""
        self._check()
        if kind not in WINDOW_KINDS:
            raise kind_without_row(kind, "windows")
        return bytes([INDEX_PREFIX]) + self.to_bytes() if kind in INDEXED_KINDS else None

    @classmethod
    def from_bytes(cls, data: bytes, kind: StoreKind = StoreKind.WINDOW) -> Self:
        """Decode a row's key, or an index row's.

        Raises:
            Corrupted: the key is malformed.
            Invalid: the kind has no windows.
        """
        if kind in PLAIN_WINDOW_KINDS:
            require_bytes(kind, data, WINDOW_BYTES, "key")
            start, sequence = _WINDOW.unpack_from(data, len(data) - WINDOW_BYTES)
            key = data[:-WINDOW_BYTES]
        elif kind in EMIT_FINAL_WINDOW_KINDS:
            if is_index_row(kind, data):
                return cls.from_bytes(data[1:])
            require_bytes(kind, data, 1 + WINDOW_BYTES, "key")
            (start,), (sequence,) = _INT64.unpack_from(data, 1), _INT32.unpack_from(data, len(data) - 4)
            key = data[9:-4]
        else:
            raise kind_without_row(kind, "windows")
        if start < 0:
            raise malformed_row(kind, "has a key with a negative window start")
        return cls(key, start, sequence)

    def _check(self) -> None:
        check_number(self.start, "window start")
        check_number(self.sequence, "sequence", INT32_MAX)


class SessionKey(NamedTuple):
    """The key of a session.

    Attributes:
        key: serialized key of the application.
        start: start of the session, ms since the epoch.
        end: end of the session, ms, not before its start; determines the row's segment.
    """

    key: bytes
    start: int
    end: int

    def to_bytes(self, kind: StoreKind = StoreKind.SESSION) -> bytes:
        """Encode the key of the row with the value.

        Raises:
            Invalid: start or end is out of range, they are in the wrong order, or the kind has no sessions.
        """
        check_number(self.end, "session end")
        check_number(self.start, "session start", self.end)
        if kind in PLAIN_SESSION_KINDS:
            return self.key + _SESSION.pack(self.end, self.start)
        if kind in EMIT_FINAL_SESSION_KINDS:
            return bytes([BASE_PREFIX]) + _SESSION.pack(self.end, self.start) + self.key
        raise kind_without_row(kind, "sessions")

    def to_index_bytes(self, kind: StoreKind) -> bytes | None:
        """Encode the key of the index row; ``None`` for kinds without one. Raises ``Invalid`` as :meth:`to_bytes`."""
        if kind not in SESSION_KINDS:
            raise kind_without_row(kind, "sessions")
        return bytes([INDEX_PREFIX]) + self.to_bytes() if kind in INDEXED_KINDS else None

    @classmethod
    def from_bytes(cls, data: bytes, kind: StoreKind = StoreKind.SESSION) -> Self:
        """Decode a row's key, or an index row's.

        Raises:
            Corrupted: the key is malformed.
            Invalid: the kind has no sessions.
        """
        if kind in PLAIN_SESSION_KINDS:
            require_bytes(kind, data, SESSION_BYTES, "key")
            end, start = _SESSION.unpack_from(data, len(data) - SESSION_BYTES)
            key = data[:-SESSION_BYTES]
        elif kind in EMIT_FINAL_SESSION_KINDS:
            if is_index_row(kind, data):
                return cls.from_bytes(data[1:])
            require_bytes(kind, data, 1 + SESSION_BYTES, "key")
            end, start = _SESSION.unpack_from(data, 1)
            key = data[1 + SESSION_BYTES :]
        else:
            raise kind_without_row(kind, "sessions")
        if start < 0 or start > end:
            raise malformed_row(kind, "has a key whose session ends before it starts, or starts before 0")
        return cls(key, start, end)


def is_index_row(kind: StoreKind, key: bytes) -> bool:
    """Whether a row is an index row, which only emit-final stores have."""
    if kind not in EMIT_FINAL_WINDOW_KINDS and kind not in EMIT_FINAL_SESSION_KINDS:
        return False
    require_bytes(kind, key, 1, "key")
    if key[0] > INDEX_PREFIX:
        raise malformed_row(kind, "has a key that begins neither with 00 nor with 01")
    return key[0] == INDEX_PREFIX
