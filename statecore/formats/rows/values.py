"""Row values, one at a time, with the timestamp and headers that the store kind keeps.

See :mod:`statecore.formats.key_value` and :mod:`statecore.formats.headers`::

    timestamped-…, emit-final-(sliding-)window                              int64 timestamp in ms o value
    headers-key-value, headers-window, headers-emit-final-(sliding-)window  headers o int64 timestamp in ms o value
    headers-session                                                         headers o value
    all others here                                                         value
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.rows.headers import Header, join_headers, split_headers
from statecore.formats.rows.row_errors import check_number, kind_without_row, require_bytes

TIMESTAMP_BYTES = 8  # Bytes of the timestamp before the value of a timestamped row

STAMPED_KINDS = frozenset(
    {
        StoreKind.TIMESTAMPED_KEY_VALUE,
        StoreKind.TIMESTAMPED_WINDOW,
        StoreKind.EMIT_FINAL_WINDOW,
        StoreKind.EMIT_FINAL_SLIDING_WINDOW,
    }
)
"""Kinds with ``timestamp o value``."""

STAMPED_HEADERS_KINDS = frozenset(
    {
        StoreKind.HEADERS_KEY_VALUE,
        StoreKind.HEADERS_WINDOW,
        StoreKind.HEADERS_EMIT_FINAL_WINDOW,
        StoreKind.HEADERS_EMIT_FINAL_SLIDING_WINDOW,
    }
)
"""Kinds with ``headers o timestamp o value``."""

_OTHERS = frozenset(
    {
        *(StoreKind.LIST, StoreKind.VERSIONED_KEY_VALUE, StoreKind.GRACE_BUFFER),
        *(StoreKind.IN_MEMORY, StoreKind.CUSTOM, StoreKind.UNKNOWN),
    }
)
_INT64 = struct.Struct(">q")


class StoredValue(NamedTuple):
    """The value of one row.

    Attributes:
        value: serialized value of the application.
        timestamp: ms since the epoch; ``None`` where the kind keeps none.
        headers: headers of the record, in its order, duplicates kept; ``None`` where the kind keeps none.
    """

    value: bytes
    timestamp: int | None = None
    headers: tuple[Header, ...] | None = None


def encode_value(kind: StoreKind, value: bytes, timestamp: int | None = None, headers: Sequence[Header] = ()) -> bytes:
    """Encode a row's value. Parts that the kind does not keep are omitted, as in Kafka Streams.

    Args:
        kind: the store's kind.
        value: serialized value of the application.
        timestamp: ms since the epoch; required where the kind keeps it.
        headers: headers of the record.

    Raises:
        Invalid: the timestamp is missing or out of range; or the kind is a list, versioned or buffer store (see the
            other modules of :mod:`statecore.formats.rows`) or has no rows.
    """
    if kind in STAMPED_KINDS:
        return _stamp(kind, timestamp) + value
    if kind in STAMPED_HEADERS_KINDS:
        return join_headers(headers, _stamp(kind, timestamp) + value)
    if kind is StoreKind.HEADERS_SESSION:
        return join_headers(headers, value)
    if kind in _OTHERS:
        raise kind_without_row(kind, "single values")
    return value


def decode_value(kind: StoreKind, data: bytes) -> StoredValue:
    """Decode a row's value.

    Raises:
        Corrupted: the value is malformed for this kind.
        Invalid: the kind is not supported, as for :func:`encode_value`.
    """
    if kind in STAMPED_KINDS:
        require_bytes(kind, data, TIMESTAMP_BYTES, "value")
        return StoredValue(data[TIMESTAMP_BYTES:], _INT64.unpack_from(data)[0])
    if kind in STAMPED_HEADERS_KINDS:
        headers, rest = split_headers(kind, data, TIMESTAMP_BYTES)
        return StoredValue(rest[TIMESTAMP_BYTES:], _INT64.unpack_from(rest)[0], headers)
    if kind is StoreKind.HEADERS_SESSION:
        headers, rest = split_headers(kind, data, 0)
        return StoredValue(rest, None, headers)
    if kind in _OTHERS:
        raise kind_without_row(kind, "single values")
    return StoredValue(data)


def _stamp(kind: StoreKind, timestamp: int | None) -> bytes:
    if timestamp is None:
        raise Invalid(
            f"A row of a {kind.value} store needs a timestamp, and none was given; nothing was written.",
            code="timestamp-missing",
            action="Give the record's timestamp, in ms since the epoch.",
            kind=kind.value,
        )
    check_number(timestamp, "timestamp")
    return _INT64.pack(timestamp)
