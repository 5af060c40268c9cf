"""Converts record data of message formats 0 and 1 to format 2, which the kernels read.

Segments that brokers before 0.11 wrote, or under an old ``message.format.version``, stay as they are for as long as
they are retained; a broker returns them unchanged, and Kafka Streams restores them. A message is a batch of its own::

    i64 offset | i32 length of what follows | u32 CRC-32 of what follows | i8 format | i8 bits 0-2: codec, 3: append
    time | format 1: i64 timestamp | i32 length, key | i32 length, value       (a length of -1: null)

The value of a compressed message is a sequence of messages. Its offset is that of the last of them; in format 1 theirs
are relative. Conversion takes about 25 microseconds a record of 100 bytes, and only where such messages are.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from statecore.changelog.codecs import DecompressionFailed, Scratch
from statecore.changelog.model import CODEC_BITS

_HEADER = struct.Struct(">qiIbb")
_LENGTH = struct.Struct(">i")
_TIMESTAMP = struct.Struct(">q")
_LENGTH_ENDS = 12
_CHECKED_FROM = 16
_APPEND_TIME = 8
_NO_TIMESTAMP = -1
_MOST_RECORDS = 1000
"""Records of a converted batch: their offsets lie close together, and its size stays small."""


class MalformedMessage(Exception):
    """A message is malformed; the caller adds the position."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(what)
        self.offset, self.what = offset, what


@dataclass(frozen=True)
class _Message:
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    attributes: int
    magic: int


def converted(data: memoryview) -> bytes:
    """Record data without messages of formats 0 and 1; one that is cut off at the end is left out."""
    out: list[bytes] = []
    messages: list[_Message] = []

    def flush() -> None:
        if messages:
            out.append(_batch(messages))
            messages.clear()

    at = 0
    while at + _HEADER.size <= len(data):
        end = at + _LENGTH_ENDS + _LENGTH.unpack_from(data, at + 8)[0]
        if data[at + _CHECKED_FROM] >= 2:
            flush()
            stop = end if at < end <= len(data) else len(data)
            out.append(bytes(data[at:stop]))
            at = stop
            continue
        if end > len(data):
            break
        for message in _messages(_message(data, at, end)):
            if len(messages) == _MOST_RECORDS or (messages and message.offset - messages[0].offset >= 1 << 31):
                flush()
            messages.append(message)
        at = end
    flush()
    return b"".join(out)


def _message(data: memoryview, at: int, end: int) -> _Message:
    offset, _, crc, magic, attributes = _HEADER.unpack_from(data, at)
    if zlib.crc32(data[at + _CHECKED_FROM : end]) != crc:
        raise MalformedMessage(offset, "has a wrong checksum (CRC-32)")
    timestamp, position = _NO_TIMESTAMP, at + _HEADER.size
    try:
        if magic == 1:
            (timestamp,) = _TIMESTAMP.unpack_from(data, position)
            position += _TIMESTAMP.size
        key, position = _field(data, position, end)
        value, position = _field(data, position, end)
    except (struct.error, ValueError):
        position = -1
    if position != end:
        raise MalformedMessage(offset, "has a key or a value of an impossible length")
    return _Message(offset, timestamp, key, value, attributes, magic)


def _field(data: memoryview, at: int, end: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    if length == -1:
        return None, at
    if not 0 <= length <= end - at:
        raise ValueError(length)
    return bytes(data[at : at + length]), at + length


def _messages(outer: _Message) -> Iterator[_Message]:
    """The messages of one that may be compressed."""
    codec = outer.attributes & CODEC_BITS
    if not codec:
        yield outer
        return
    scratch = Scratch(1 << 20)
    try:
        scratch.append(codec, memoryview(outer.value or b""))
    except DecompressionFailed as error:
        raise MalformedMessage(outer.offset, f"cannot be decompressed ({error})") from error
    data, at, found = scratch.array.data[: scratch.used], 0, []
    while at < len(data):
        end = at + _LENGTH_ENDS + (_LENGTH.unpack_from(data, at + 8)[0] if at + _LENGTH_ENDS <= len(data) else -1)
        if not at + _HEADER.size <= end <= len(data):
            raise MalformedMessage(outer.offset, "has a message of an impossible length")
        inner = _message(data, at, end)
        if inner.attributes & CODEC_BITS or inner.magic != outer.magic:
            raise MalformedMessage(outer.offset, "has a compressed message, or one of another format, in it")
        found.append(inner)
        at = end
    base = outer.offset - found[-1].offset if found and outer.magic == 1 else 0
    for inner in found:
        timestamp = outer.timestamp if outer.attributes & _APPEND_TIME else inner.timestamp
        yield replace(inner, offset=base + inner.offset, timestamp=timestamp)


def _batch(messages: list[_Message]) -> bytes:
    from kafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 62)
    base = messages[0].offset
    for one in messages:
        builder.append(one.offset - base, one.timestamp, one.key, one.value, [])
    made = bytearray(builder.build())
    # The checksum does not cover what a broker sets: the base offset, and the leader epoch, which is not known here.
    struct.pack_into(">q", made, 0, base)
    struct.pack_into(">i", made, _LENGTH_ENDS, -1)
    return bytes(made)
