"""Decodes any row for people, and converts changelog records to rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from statecore.errors import Corrupted, Invalid
from statecore.formats.kinds import WINDOWED_KINDS, StoreKind
from statecore.formats.rows import buffered, lists, versions
from statecore.formats.rows.headers import Header
from statecore.formats.rows.keys import (
    EMIT_FINAL_SESSION_KINDS,
    EMIT_FINAL_WINDOW_KINDS,
    FARTHEST_AHEAD_MS,
    SESSION_KINDS,
    WINDOW_KINDS,
    SessionKey,
    WindowKey,
    is_index_row,
)
from statecore.formats.rows.values import STAMPED_HEADERS_KINDS, STAMPED_KINDS, decode_value, encode_value

Row = tuple[bytes, bytes | None]

_STAMPED = STAMPED_KINDS | STAMPED_HEADERS_KINDS


def decode_row(kind: StoreKind, key: bytes, value: bytes) -> list[dict[str, Any]]:
    """Decode a row, as :meth:`statecore.formats.row_format.RowFormat.decode` decodes columns.

    Args:
        kind: the store's kind.
        key: the row's key in the database.
        value: the row's value.

    Returns:
        One entry; none for an index row; several for a row of several versions or values. An entry has, as far as the
        kind has them: ``key``, ``window_start``, ``session_start``, ``session_end``, ``sequence``, ``side`` (``left``
        or ``right``), ``timestamp``, ``valid_from``, ``valid_to`` (times in ms; ``None``: still valid), ``headers``
        (pairs), ``value``.

    Raises:
        Corrupted: the row is malformed for this kind.
        Invalid: stores of the kind are not on disk.
    """
    if kind is StoreKind.LIST:
        found = lists.ListKey.from_bytes(key)
        side = "left" if found.left else "right"
        return [
            {"key": found.key, "side": side, "timestamp": found.timestamp, "value": one}
            for one in lists.decode_list(value)
        ]
    if kind is StoreKind.VERSIONED_KEY_VALUE:
        versioned = versions.VersionedKey.from_bytes(key)
        return [{"key": versioned.key, **one._asdict()} for one in versions.decode_versions(versioned.segment, value)]
    if kind is StoreKind.GRACE_BUFFER:
        place, record = buffered.BufferKey.from_bytes(key), buffered.decode_buffered(value)
        parts = {"key": place.key, "sequence": place.sequence, "timestamp": place.timestamp}
        return [{**parts, "headers": record.headers or (), "value": record.value}]
    if is_index_row(kind, key):
        return []
    stored = decode_value(kind, value)
    parts = _key_parts(kind, key)
    if stored.timestamp is not None:
        parts["timestamp"] = stored.timestamp
    if stored.headers is not None:
        parts["headers"] = stored.headers
    return [{**parts, "value": stored.value}]


def rows_of_record(
    kind: StoreKind, key: bytes, value: bytes | None, timestamp: int, headers: Sequence[Header] = ()
) -> list[Row]:
    """Rows of a changelog record, as a restore by Kafka Streams writes them.

    Args:
        kind: the store's kind; not versioned, because those rows depend on all records of a key.
        key: the record's key.
        value: the record's value; ``None`` for a tombstone, which deletes the rows.
        timestamp: the record's timestamp, ms since the epoch.
        headers: the record's headers.

    Returns:
        The row, and its index row where the kind has one. Values are ``None`` for a delete.

    Raises:
        Invalid: the record cannot belong to a store of the kind, or the kind is versioned or not on disk.
    """
    _check_record(kind, key, value, timestamp)
    if kind is StoreKind.GRACE_BUFFER:
        return [(key, None if value is None else value[: -buffered.BUFFER_TIME_BYTES])]
    if kind is StoreKind.LIST:
        return [(key, value)]
    row = None if value is None else encode_value(kind, value, timestamp, headers)
    index = None
    if kind in EMIT_FINAL_WINDOW_KINDS:
        window = WindowKey.from_bytes(key)
        key, index = window.to_bytes(kind), window.to_index_bytes(kind)
    elif kind in EMIT_FINAL_SESSION_KINDS:
        session = SessionKey.from_bytes(key)
        key, index = session.to_bytes(kind), session.to_index_bytes(kind)
    return [(key, row)] if index is None else [(key, row), (index, None if row is None else b"")]


def _key_parts(kind: StoreKind, key: bytes) -> dict[str, Any]:
    if kind in WINDOW_KINDS:
        window = WindowKey.from_bytes(key, kind)
        return {"key": window.key, "window_start": window.start, "sequence": window.sequence}
    if kind in SESSION_KINDS:
        session = SessionKey.from_bytes(key, kind)
        return {"key": session.key, "session_start": session.start, "session_end": session.end}
    return {"key": key}


def _check_record(kind: StoreKind, key: bytes, value: bytes | None, timestamp: int) -> None:
    """Refuse a record that no store of the kind has written. Raises ``Invalid``."""
    if kind.is_versioned or not kind.can_be_built:
        raise Invalid(
            f"Rows of a {kind.value} store cannot be made of a single record.",
            code="kind-unsupported",
            action="Restore a versioned store with statecore restore; decide the store's kind where it is not known.",
            kind=kind.value,
        )
    try:
        time = _time_of_record(kind, key, value)
    except Corrupted as error:
        raise _misfit(kind, error.what) from error
    if kind in _STAMPED and timestamp < 0:
        raise _misfit(kind, f"It has the timestamp {timestamp}; the timestamps of a changelog are not negative.")
    if kind in WINDOWED_KINDS and time - FARTHEST_AHEAD_MS > timestamp:
        raise _misfit(kind, f"Its key has the time {time}, absurd in a record of the time {timestamp}.")


def _time_of_record(kind: StoreKind, key: bytes, value: bytes | None) -> int:
    """Time in a record's key, -1 where the kind has none. Raises ``Corrupted`` for a malformed record."""
    if kind in WINDOW_KINDS:
        window = WindowKey.from_bytes(key)
        if window.sequence < 0:
            raise Corrupted(
                "A row has a key with a negative sequence, which no window has.", code="row-malformed", action=""
            )
        return window.start
    if kind in SESSION_KINDS:
        return SessionKey.from_bytes(key).end
    if kind is StoreKind.LIST:
        if value is not None:
            lists.decode_list(value)
        return lists.ListKey.from_bytes(key).timestamp
    if kind is StoreKind.GRACE_BUFFER:
        if value is not None:
            buffered.parse_buffered(value[: -buffered.BUFFER_TIME_BYTES])
        return buffered.BufferKey.from_bytes(key).timestamp
    return -1


def _misfit(kind: StoreKind, why: str) -> Invalid:
    return Invalid(
        f"A record cannot belong to the changelog of a {kind.value} store. {why}",
        code="record-kind-mismatch",
        action="Check that the store is of that kind, and that the topic is its changelog.",
        kind=kind.value,
    )
