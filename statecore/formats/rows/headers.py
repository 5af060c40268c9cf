"""The headers of one record: in a record batch, and before a row's value.

:mod:`statecore.formats.headers` describes the bytes. They are written as Kafka Streams writes them: numbers in as few
bytes as possible, keys as they come out of a Java string.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from statecore.formats.kinds import StoreKind
from statecore.formats.rows.row_errors import malformed_row

Header = tuple[str, bytes | None]

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()


def join_headers(headers: Sequence[Header], rest: bytes) -> bytes:
    """``headers o rest``: in the record's order, duplicates kept; a value may be ``None``."""
    if not headers:
        return b"\0" + rest
    block = wire_headers([(key.encode("utf-8", "replace"), value) for key, value in headers])
    return varint(len(block)) + block + rest


def split_headers(kind: StoreKind, data: bytes, rest: int) -> tuple[tuple[Header, ...], bytes]:
    """Split a row's value into headers and at least ``rest`` bytes; ``kind`` is for the message."""
    try:
        size, place = number_at(data, 0, "their size")
    except ValueError:
        size = place = -1
    if size < 0:
        raise malformed_row(kind, "has a value that does not begin with headers")
    if len(data) - place - size < rest:
        raise malformed_row(kind, f"has a value with less than {rest} bytes after its headers")
    if not size:
        return (), data[place:]
    try:
        found = parse_headers(data[place : place + size])
    except ValueError as error:
        raise malformed_row(kind, f"has malformed headers: {error}") from error
    return decoded_headers(kind, found), data[place + size :]


def decoded_headers(kind: StoreKind, headers: Sequence[tuple[bytes, bytes | None]]) -> tuple[Header, ...]:
    """Decode header keys as text. Raises ``Corrupted`` for a key that is not UTF-8."""
    try:
        return tuple([(key.decode(), value) for key, value in headers])
    except UnicodeDecodeError:
        raise malformed_row(kind, "has a header whose key is not UTF-8") from None


def wire_headers(headers: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    """Encode headers as in a record batch."""
    pieces = [varint(len(headers))]
    for key, value in headers:
        text = replace_as_java(key)
        pieces += [varint(len(text)), text, varint(-1 if value is None else len(value)), value or b""]
    return b"".join(pieces)


def replace_as_java(text: bytes) -> bytes:
    """UTF-8 as it comes out of a Java string: malformed parts are replaced, a surrogate as one character."""
    return _SURROGATE.sub(_REPLACEMENT, text).decode("utf-8", "replace").encode()


def varint(value: int) -> bytes:
    """Encode a number as Kafka does (``ByteUtils.writeVarint``: zig-zag, seven bits a byte)."""
    raw, digits = (value << 1) ^ (value >> 31), bytearray()
    while raw > 0x7F:
        digits.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*digits, raw])


def number_at(data: bytes, place: int, what: str) -> tuple[int, int]:
    """Variable-length number and the position after it; ``ValueError`` naming ``what`` beyond the end or five bytes."""
    raw = 0
    for shift in range(0, 35, 7):
        if place == len(data):
            raise ValueError(f"they end within {what}")
        byte = data[place]
        place += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), place
    raise ValueError(f"{what} has more than five bytes")


def parse_headers(wire: bytes) -> list[tuple[bytes, bytes | None]]:
    """Parse the headers of one record from a record batch (``DefaultRecord.readHeaders``). Raises ``ValueError``."""
    found: list[tuple[bytes, bytes | None]] = []
    count, place = number_at(wire, 0, "their count")
    if count < 0:
        raise ValueError(f"their count is {count}")
    for index in range(count):
        length, place = number_at(wire, place, f"the length of key {index}")
        if length < 0:
            raise ValueError(f"the length of key {index} is {length}")
        key, place = _piece(wire, place, length, f"key {index}")
        length, place = number_at(wire, place, f"the length of value {index}")
        if length < 0:
            found.append((key, None))
            continue
        value, place = _piece(wire, place, length, f"value {index}")
        found.append((key, value))
    if place != len(wire):
        raise ValueError(f"{len(wire) - place} bytes follow them")
    return found


def _piece(wire: bytes, place: int, length: int, what: str) -> tuple[bytes, int]:
    if length > len(wire) - place:
        raise ValueError(f"{what} has {length} bytes and {len(wire) - place} are left")
    return wire[place : place + length], place + length
