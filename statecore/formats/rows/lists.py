"""Rows of list stores, one at a time: values of a left or outer join without a partner so far.

:mod:`statecore.formats.list_value` describes the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, Self

from statecore.formats.kinds import StoreKind
from statecore.formats.rows.row_errors import check_number, malformed_row, require_bytes

KEY_BYTES = 9  # Bytes of timestamp and side before the key
VARIABLE_SIZE = 1  # First byte of a list whose elements have their own lengths
_KEY = struct.Struct(">qB")
_INT32 = struct.Struct(">i")


class ListKey(NamedTuple):
    """The key of a list.

    Attributes:
        key: serialized key of the application.
        timestamp: timestamp of its records, ms since the epoch.
        left: whether the values come from the left side of the join.
    """

    key: bytes
    timestamp: int
    left: bool

    def to_bytes(self) -> bytes:
        """Encode the row's key. Raises ``Invalid`` for a timestamp out of range."""
        check_number(self.timestamp, "timestamp")
        return _KEY.pack(self.timestamp, self.left) + self.key

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Decode a row's key. Raises ``Corrupted`` if it is malformed."""
        require_bytes(StoreKind.LIST, data, KEY_BYTES, "key")
        timestamp, side = _KEY.unpack_from(data)
        if side > 1 or timestamp < 0:
            raise malformed_row(StoreKind.LIST, "has a key without a side or with a negative time")
        return cls(data[KEY_BYTES:], timestamp, bool(side))


def encode_list(values: Sequence[bytes | None], *, left: bool) -> bytes:
    """Encode a list of values, each with its side byte."""
    pieces = [bytes([VARIABLE_SIZE]), _INT32.pack(len(values))]
    for value in values:
        pieces += [_INT32.pack(-1)] if value is None else [_INT32.pack(1 + len(value)), bytes([left]), value]
    return b"".join(pieces)


def decode_list(data: bytes) -> list[bytes | None]:
    """Decode a list of values, without side bytes. Raises ``Corrupted`` if it is malformed."""
    try:
        return parse_list(data)
    except ValueError as error:
        raise malformed_row(StoreKind.LIST, f"has a value that {error}") from error


def parse_list(value: bytes) -> list[bytes | None]:
    """Parse a list of values, without side bytes."""
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
                f"is a list whose element {index} begins with {value[place]:02x}, which is not a side of a join"
            )
        found.append(None if length < 0 else value[place + 1 : place + length])
        place += max(length, 0)
    if place != len(value):
        raise ValueError(f"is a list with {len(value) - place} bytes after it")
    return found
