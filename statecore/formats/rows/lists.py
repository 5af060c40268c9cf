"""Rows of list stores, one at a time: the values of a left or outer join that have not found a partner.

Drawn at :mod:`statecore.formats.list_value`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, Self

from statecore.formats.kinds import StoreKind
from statecore.formats.rows.broken import broken, check_number, require_bytes

KEY_BYTES = 9
"""Bytes of timestamp and side in front of the key."""

VARIABLE_SIZE = 1
"""First byte of a list whose elements have their own lengths."""

_KEY = struct.Struct(">qB")
_INT32 = struct.Struct(">i")


class ListKey(NamedTuple):
    """The key of one list.

    Attributes:
        key: as the application's serializer wrote it.
        timestamp: of its records, ms since the epoch.
        left: whether the values come from the left side of the join.
    """

    key: bytes
    timestamp: int
    left: bool

    def to_bytes(self) -> bytes:
        """The key of the row. Raises ``Invalid`` for a timestamp that is negative or does not fit."""
        check_number(self.timestamp, "timestamp")
        return _KEY.pack(self.timestamp, self.left) + self.key

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The parts of a row's key. Raises ``Corrupted`` when it is no list's."""
        require_bytes(StoreKind.LIST, data, KEY_BYTES, "key")
        timestamp, side = _KEY.unpack_from(data)
        if side > 1 or timestamp < 0:
            raise broken(StoreKind.LIST, "has a key without a side or with a negative time")
        return cls(data[KEY_BYTES:], timestamp, bool(side))


def encode_list(values: Sequence[bytes | None], *, left: bool) -> bytes:
    """The value of a row: a list of values, each with the side of the join in front."""
    pieces = [bytes([VARIABLE_SIZE]), _INT32.pack(len(values))]
    for value in values:
        pieces += [_INT32.pack(-1)] if value is None else [_INT32.pack(1 + len(value)), bytes([left]), value]
    return b"".join(pieces)


def decode_list(data: bytes) -> list[bytes | None]:
    """The values of a list, without the byte for the side. Raises ``Corrupted`` when it is none."""
    try:
        return parse_list(data)
    except ValueError as error:
        raise broken(StoreKind.LIST, f"has a value that {error}") from error


def parse_list(value: bytes) -> list[bytes | None]:
    """The values of a list, without the byte for the side.

    Raises:
        ValueError: what is wrong with it, as the end of "a value that ...".
    """
    if len(value) < 5:
        raise ValueError(f"has {len(value)} bytes; a list has at least 5")
    if value[0] != VARIABLE_SIZE:
        raise ValueError(f"begins with {value[0]:02x}; a list begins with 01")
    (count,), place, found = _INT32.unpack_from(value, 1), 5, []
    if count < 0:
        raise ValueError(f"is a list of {count} elements")
    for index in range(count):
        length = int.from_bytes(value[place : place + 4], "big", signed=True)
        place += 4
        if place > len(value) or length > len(value) - place:
            raise ValueError(f"is a list of {count} elements that ends within element {index}")
        if length < -1 or length == 0:
            raise ValueError(f"is a list whose element {index} has {length} bytes")
        if length > 0 and value[place] > 1:
            raise ValueError(
                f"is a list whose element {index} begins with {value[place]:02x}, which is no side of a join"
            )
        found.append(None if length < 0 else value[place + 1 : place + length])
        place += max(length, 0)
    if place != len(value):
        raise ValueError(f"is a list with {len(value) - place} bytes behind it")
    return found
