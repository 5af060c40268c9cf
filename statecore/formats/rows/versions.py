"""Rows of versioned stores, one at a time. :mod:`statecore.formats.versioned` describes the bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, Self

from statecore.errors import Corrupted, Invalid
from statecore.formats.integers import INT64_MAX
from statecore.formats.kinds import StoreKind
from statecore.formats.rows.row_errors import check_number, malformed_row, require_bytes

LATEST_SEGMENT = -1  # Segment id of latest values
SEGMENT_BYTES = 8  # Bytes of the segment id before the key
_KIND = StoreKind.VERSIONED_KEY_VALUE
_INT64 = struct.Struct(">q")
_HEAD = struct.Struct(">qq")
_VERSION = struct.Struct(">qi")


class VersionedKey(NamedTuple):
    """The key of one row: all versions of a key in one segment, or its latest value.

    Attributes:
        key: serialized key of the application.
        segment: the segment's id (time / segment interval), -1 for the latest value.
    """

    key: bytes
    segment: int = LATEST_SEGMENT

    def to_bytes(self) -> bytes:
        """Encode the row's key. Raises ``Invalid`` for an invalid segment id."""
        if self.segment != LATEST_SEGMENT:
            check_number(self.segment, "segment")
        return _INT64.pack(self.segment) + self.key

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Decode a row's key. Raises ``Corrupted`` if it is malformed."""
        require_bytes(_KIND, data, SEGMENT_BYTES, "key")
        (segment,) = _INT64.unpack_from(data)
        if segment < LATEST_SEGMENT:
            raise malformed_row(_KIND, "has a key with a negative segment id that is not -1")
        return cls(data[SEGMENT_BYTES:], segment)


class Version(NamedTuple):
    """One version of a key.

    Attributes:
        valid_from: ms since the epoch.
        valid_to: ms since the epoch, where the next version begins; ``None``: still valid. Equal to ``valid_from`` for
            a tombstone that is alone in its row, which does not store its end.
        value: ``None`` for a tombstone.
    """

    valid_from: int
    valid_to: int | None
    value: bytes | None


def encode_versions(versions: Sequence[Version]) -> bytes:
    """Encode a row's value.

    Args:
        versions: versions of one key and segment, oldest first, each ending where the next begins; or one that is still
            valid.

    Raises:
        Invalid: there are none, they are out of order or have gaps; or a version that is still valid is not alone, or
            has no value.
    """
    if not versions:
        raise _unwritable("there is none")
    for one in versions:
        check_number(one.valid_from, "time")
    newest = versions[-1]
    if newest.valid_to is None:
        if len(versions) > 1 or newest.value is None:
            raise _unwritable("the latest value has a row of its own, and a deleted key has no such row")
        return _INT64.pack(newest.valid_from) + newest.value
    lone = len(versions) == 1 and newest.value is None and newest.valid_to == newest.valid_from
    for one, following in zip(versions, [*versions[1:], None], strict=True):
        end = newest.valid_to if following is None else following.valid_from
        if one.valid_to != end or (one.valid_from >= end and not lone):
            raise _unwritable(f"the version from {one.valid_from} to {one.valid_to} does not end where the next begins")
    check_number(newest.valid_to, "time", INT64_MAX)
    heads = [_VERSION.pack(one.valid_from, -1 if one.value is None else len(one.value)) for one in reversed(versions)]
    head = _HEAD.pack(newest.valid_to, versions[0].valid_from)
    return b"".join([head, *heads, *(one.value or b"" for one in versions)])


def decode_versions(segment: int, data: bytes) -> list[Version]:
    """Decode the versions of a row, oldest first; for a row of latest values, one that is still valid.

    Args:
        segment: segment id of the row's key (:class:`VersionedKey`).
        data: the row's value.

    Raises:
        Corrupted: the value is malformed.
    """
    if len(data) < 8:
        raise malformed_row(_KIND, "has a value without a time")
    if segment == LATEST_SEGMENT:
        return [Version(_INT64.unpack_from(data)[0], None, data[8:])]
    if len(data) < _HEAD.size:
        raise malformed_row(_KIND, "has a value without the time of its oldest version")
    newest_end, oldest = _HEAD.unpack_from(data)
    found: list[Version] = []
    valid_to, place, value_end = newest_end, _HEAD.size, len(data)
    while True:
        if value_end - place < _VERSION.size:
            raise _disordered()
        valid_from, size = _VERSION.unpack_from(data, place)
        place += _VERSION.size
        value_start = value_end - max(size, 0)
        lone = size < 0 and valid_from == newest_end == oldest
        if valid_from < oldest or (valid_from >= valid_to and not lone) or value_start < place:
            raise _disordered()
        found.append(Version(valid_from, valid_to, None if size < 0 else data[value_start:value_end]))
        valid_to, value_end = valid_from, value_start
        if valid_from == oldest:
            break
    while value_end - place >= _VERSION.size and _VERSION.unpack_from(data, place)[0] == oldest:  # processed again
        value_end -= max(_VERSION.unpack_from(data, place)[1], 0)
        place += _VERSION.size
    if value_end != place:
        raise malformed_row(_KIND, "has bytes that belong to no version")
    return found[::-1]


def _disordered() -> Corrupted:
    return malformed_row(_KIND, "has versions that end too early or are out of order")


def _unwritable(why: str) -> Invalid:
    return Invalid(
        f"These versions cannot form a row of a versioned store: {why}.",
        code="versions-invalid",
        action="Give the versions of one key and segment, oldest first, without gaps; nothing was written.",
    )
