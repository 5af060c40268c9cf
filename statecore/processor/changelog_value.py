"""One changelog record's value as a row of a store, and back, in plain Python (``RecordConverters``).

The columnar way is :mod:`statecore.formats.registry`; both give the same bytes, which are drawn in
:mod:`statecore.formats.key_value` and :mod:`statecore.formats.headers`::

    kind                     record                       row
    -----------------------  ---------------------------  ------------------------------------
    key-value                value                        value
    timestamped-key-value    value, timestamp             int64 timestamp in ms o value
    headers-key-value        value, timestamp, headers    headers o int64 timestamp in ms o value
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from statecore.errors import Corrupted, Invalid
from statecore.formats.kinds import StoreKind

Headers = Sequence[tuple[str, bytes | None]]
"""A record's headers, in their order, duplicates kept."""

_INT64 = struct.Struct(">q")
_KINDS = (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.HEADERS_KEY_VALUE)


class ChangelogValue(NamedTuple):
    """What a row is in the changelog.

    Attributes:
        value: the record's value; ``None`` for a delete.
        timestamp: the record's timestamp in ms; ``None`` where the row has none, and the processor decides.
        headers: the record's headers.
    """

    value: bytes | None
    timestamp: int | None = None
    headers: Headers = ()


def check_kind(kind: StoreKind) -> None:
    """Refuse the kinds whose rows are not made of one record each.

    Raises:
        Invalid: rows of the kind lie in segments and expire, keep old versions, or belong to a join.
    """
    if kind not in _KINDS:
        raise Invalid(
            f"A store of kind {kind.value} cannot be kept up with its changelog record by record: its rows lie in "
            "segments, expire, keep old versions, or are those of a join.",
            action="Rebuild it with statecore restore, which knows every kind; a processor of yours can have stores "
            "of the kinds " + ", ".join(one.value for one in _KINDS) + ".",
            kind=kind.value,
        )


def row_of(kind: StoreKind, value: bytes | None, timestamp: int, headers: Headers) -> bytes | None:
    """The row of a record.

    Args:
        kind: a kind that :func:`check_kind` lets pass.
        value: the record's value; ``None`` deletes the row.
        timestamp: the record's timestamp in ms.
        headers: the record's headers.
    """
    if value is None or kind is StoreKind.KEY_VALUE:
        return value
    stamped = _INT64.pack(timestamp) + value
    return stamped if kind is StoreKind.TIMESTAMPED_KEY_VALUE else _block(headers) + stamped


def record_of(kind: StoreKind, row: bytes | None) -> ChangelogValue:
    """The record of a row, as Kafka Streams logs it.

    Args:
        kind: a kind that :func:`check_kind` lets pass.
        row: the row; ``None`` where it is deleted.

    Raises:
        Invalid: it is no row of this kind.
    """
    if row is None or kind is StoreKind.KEY_VALUE:
        return ChangelogValue(row)
    try:
        headers: Headers = ()
        at = 0
        if kind is StoreKind.HEADERS_KEY_VALUE:
            length, at = _varint(row, 0)
            if length:
                headers = read_headers(row[at : at + length])
                at += length
        return ChangelogValue(row[at + 8 :], _INT64.unpack_from(row, at)[0], headers)
    except (Corrupted, struct.error) as error:
        raise Invalid(
            f"A value of {len(row)} bytes is no row of a {kind.value} store ({error}); nothing was written.",
            action="Put the timestamp (and the headers) in front of the value, as the store's kind has them.",
            kind=kind.value,
        ) from error


def read_headers(data: bytes) -> Headers:
    """Headers as a record batch has them: ``varint(count) {varint(len) key varint(len or -1) value}*``.

    Raises:
        Corrupted: they are not whole.
    """
    headers: list[tuple[str, bytes | None]] = []
    count, at = _varint(data, 0)
    for _ in range(count):
        length, at = _varint(data, at)
        if length < 0:
            raise _broken(data)
        key, at = data[at : at + length], at + length
        length, at = _varint(data, at)
        value = None if length < 0 else data[at : at + length]
        at += max(0, length)
        headers.append((key.decode(errors="replace"), value))
    if at != len(data) or count < 0:
        raise _broken(data)
    return headers


def _block(headers: Headers) -> bytes:
    if not headers:
        return b"\0"
    parts = [_zigzag(len(headers))]
    for name, value in headers:
        key = name.encode()
        parts += [_zigzag(len(key)), key, _zigzag(-1 if value is None else len(value)), value or b""]
    body = b"".join(parts)
    return _zigzag(len(body)) + body


def _zigzag(number: int) -> bytes:
    """Kafka's varint (``ByteUtils.writeVarint``)."""
    left = (number << 1) ^ (number >> 31)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(data) or shift > 28:  # a varint of Kafka's has at most five bytes
            raise _broken(data)
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7


def _broken(data: bytes) -> Corrupted:
    return Corrupted(
        f"Headers of {len(data)} bytes are not whole.", action="Rebuild the store from its changelog.", size=len(data)
    )
