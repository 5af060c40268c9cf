"""Checks rows of one database: whether they are long enough for their kind, and their times are their segment's.

Kafka Streams looks for a row only in the segment of its time, and fails at a value that is shorter than its kind. Bytes
are compared as they are: times are big-endian and not negative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from statecore.formats.kinds import WINDOWED_KINDS, StoreKind
from statecore.formats.rows.keys import (
    BASE_PREFIX,
    EMIT_FINAL_SESSION_KINDS,
    EMIT_FINAL_WINDOW_KINDS,
    INDEX_PREFIX,
    SESSION_BYTES,
    SESSION_KINDS,
    WINDOW_BYTES,
)
from statecore.formats.rows.versions import SEGMENT_BYTES

_EMIT_FINAL = EMIT_FINAL_WINDOW_KINDS | EMIT_FINAL_SESSION_KINDS
_TIME_BYTES = 8
_KEY_BYTES: Mapping[StoreKind, int] = {StoreKind.VERSIONED_KEY_VALUE: SEGMENT_BYTES, StoreKind.LIST: 9} | {
    kind: (SESSION_BYTES if kind in SESSION_KINDS else WINDOW_BYTES) + (kind in _EMIT_FINAL) for kind in WINDOWED_KINDS
}
"""The shortest keys: the application's own part of a key may be empty."""

_VALUE_BYTES: Mapping[StoreKind, int] = {
    StoreKind.TIMESTAMPED_KEY_VALUE: 8,
    StoreKind.HEADERS_KEY_VALUE: 9,
    StoreKind.VERSIONED_KEY_VALUE: 8,
    StoreKind.TIMESTAMPED_WINDOW: 8,
    StoreKind.HEADERS_WINDOW: 9,
    StoreKind.HEADERS_SESSION: 1,
    StoreKind.EMIT_FINAL_WINDOW: 8,
    StoreKind.EMIT_FINAL_SLIDING_WINDOW: 8,
    StoreKind.HEADERS_EMIT_FINAL_WINDOW: 9,
    StoreKind.HEADERS_EMIT_FINAL_SLIDING_WINDOW: 9,
    StoreKind.LIST: 5,
}
"""The shortest values: a timestamp, headers or a count come before the application's part, except in index rows."""


@dataclass
class RowCheck:
    """Rows of one database that cannot be of its kind or of its segment.

    Attributes:
        kind: kind of the store.
        start: first ms of the segment; ``None`` for a store without segments, or if it is not to be checked.
        end: first ms after it; ``None`` if unknown.
        short: number of rows with a key or a value that is too short.
        outside: number of rows with a time that is not the segment's.
        seen: number of checked rows.
        example: the first key that is wrong.
    """

    kind: StoreKind
    start: int | None = None
    end: int | None = None
    short: int = 0
    outside: int = 0
    seen: int = 0
    example: bytes = b""

    def take(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Check some rows of the data family."""
        self.seen += len(keys)
        key_bytes, value_bytes = _KEY_BYTES.get(self.kind, 0), _VALUE_BYTES.get(self.kind, 0)
        if keys and (min(map(len, keys)) < key_bytes or min(map(len, values)) < value_bytes):
            whole = [
                self._is_whole(key, value, key_bytes, value_bytes) for key, value in zip(keys, values, strict=True)
            ]
            self._count(keys, whole)
            self.short += whole.count(False)
            keys = [key for key, one in zip(keys, whole, strict=True) if one]
        if keys and self.start is not None:
            begin = self.start.to_bytes(_TIME_BYTES)
            end = b"\x80" if self.end is None else self.end.to_bytes(_TIME_BYTES)
            times = self._times(keys)
            if min(times) < begin or max(times) >= end:
                inside = [begin <= time < end for time in times]
                self._count(keys, inside)
                self.outside += inside.count(False)

    def _is_whole(self, key: bytes, value: bytes, key_bytes: int, value_bytes: int) -> bool:
        is_index = self.kind in _EMIT_FINAL and key[:1] == bytes([INDEX_PREFIX])
        return len(key) >= key_bytes and (is_index or len(value) >= value_bytes)

    def _times(self, keys: Sequence[bytes]) -> list[bytes]:
        at = -(SESSION_BYTES if self.kind in SESSION_KINDS else WINDOW_BYTES)
        to = at + _TIME_BYTES
        if self.kind in _EMIT_FINAL:
            return [key[1:9] if key[0] == BASE_PREFIX else key[at:to] for key in keys]
        return [key[at:to] for key in keys]

    def _count(self, keys: Sequence[bytes], right: Sequence[bool]) -> None:
        if not self.example:
            self.example = next((key for key, one in zip(keys, right, strict=True) if not one), b"")
