"""Rows of grace-period buffers, one at a time. :mod:`statecore.formats.grace_buffer` describes the bytes."""

from __future__ import annotations

import struct
from typing import NamedTuple, Self

from statecore.formats.integers import INT32_MAX
from statecore.formats.kinds import StoreKind
from statecore.formats.rows.headers import Header, decoded_headers
from statecore.formats.rows.row_errors import check_number, malformed_row, require_bytes

KEY_BYTES = 13  # Bytes of a key besides the application's key: prefix, timestamp, sequence
BUFFER_TIME_BYTES = 8  # Bytes at the end of changelog values that stored values do not have
SHORTEST_VALUE = 40  # Bytes of the shortest stored value: an empty topic, no headers, three nulls
_KIND = StoreKind.GRACE_BUFFER
_KEY = struct.Struct(">Bq")
_CONTEXT = struct.Struct(">qq")
_INT32 = struct.Struct(">i")


class BufferKey(NamedTuple):
    """The key of one buffered record."""

    key: bytes  # serialized key of the application
    timestamp: int  # of the record, ms since the epoch
    sequence: int  # counts the records of the buffer

    def to_bytes(self) -> bytes:
        """Encode the row's key. Raises ``Invalid`` for numbers that are negative or too large."""
        check_number(self.timestamp, "timestamp")
        check_number(self.sequence, "sequence", INT32_MAX)
        return _KEY.pack(0, self.timestamp) + self.key + _INT32.pack(self.sequence)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Decode a row's key. Raises ``Corrupted`` if it is malformed."""
        require_bytes(_KIND, data, KEY_BYTES, "key")
        prefix, timestamp = _KEY.unpack_from(data)
        if prefix:
            raise malformed_row(_KIND, "has a key that does not begin with 00")
        if timestamp < 0:
            raise malformed_row(_KIND, "has a key with a negative time")
        return cls(data[9:-4], timestamp, _INT32.unpack_from(data, len(data) - 4)[0])


def correct_key(key: bytes) -> bytes:
    """The key that the buffer itself would have written for a row that Kafka Streams restored.

    The restore takes the changelog's key, which is a row's key already, for a plain window key, whose time comes before
    the sequence number, and moves that time to the front; so it moves the end of the application's key. ::

        00 000001a1fd5e3b20 6b34 0000006c          the changelog's key, which is the row's correct key
        00 01a1fd5e3b206b34 000000 0000006c        what Kafka Streams restores

    The value keeps the eight surplus bytes of changelog values. The buffer neither finds nor reads such a row.
    """
    return key[9:-4] + key[1:9] + key[-4:]


class BufferedRecord(NamedTuple):
    """A buffered record, which waits for its grace to pass."""

    value: bytes | None  # value of the record
    timestamp: int  # its timestamp, ms since the epoch
    offset: int  # its offset in its topic
    topic: str
    partition: int
    headers: tuple[Header, ...] | None = ()  # its headers; None where it had no set of headers


def decode_buffered(data: bytes) -> BufferedRecord:
    """Decode a row's value. Raises ``Corrupted`` if it is malformed."""
    parts = parse_buffered(data)
    headers = None if parts.headers is None else decoded_headers(_KIND, parts.headers)
    topic = parts.topic.decode("utf-8", "replace")
    return BufferedRecord(parts.value, parts.timestamp, parts.offset, topic, parts.partition, headers)


class BufferedParts(NamedTuple):
    """A parsed :class:`BufferedRecord` with texts undecoded, as a restore copies them."""

    value: bytes | None
    timestamp: int
    offset: int
    topic: bytes
    partition: int
    headers: list[tuple[bytes, bytes | None]] | None


def parse_buffered(data: bytes) -> BufferedParts:
    """Parse a row's value. Raises ``Corrupted`` if it is malformed."""
    require_bytes(_KIND, data, SHORTEST_VALUE, "value")
    try:
        return _Reader(data).parts()
    except ValueError:
        raise malformed_row(_KIND, "has a value that is not a buffered record") from None


class _Reader:
    """Reads one value from its start; raises ``ValueError`` if it ends early or has trailing bytes."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, _CONTEXT.size

    def parts(self) -> BufferedParts:
        timestamp, offset = _CONTEXT.unpack_from(self._data)
        topic = self._piece(0) or b""
        partition, count = self._number(), self._number()
        if count < -1:
            raise ValueError
        headers: list[tuple[bytes, bytes | None]] = []
        for _ in range(count):
            key = self._piece(0) or b""
            headers.append((key, self._piece(-1)))
        self._piece(-1)
        self._piece(-2)
        value = self._piece(-1)
        if self._place != len(self._data):
            raise ValueError
        return BufferedParts(value, timestamp, offset, topic, partition, None if count < 0 else headers)

    def _number(self) -> int:
        if len(self._data) - self._place < _INT32.size:
            raise ValueError
        (found,) = _INT32.unpack_from(self._data, self._place)
        self._place += _INT32.size
        return int(found)

    def _piece(self, least: int) -> bytes | None:
        length = self._number()
        if length < least or length > len(self._data) - self._place:
            raise ValueError
        if length < 0:
            return None
        self._place += length
        return self._data[self._place - length : self._place]
