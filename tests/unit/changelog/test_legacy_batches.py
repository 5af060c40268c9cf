"""Message formats 0 and 1 in old segments are read as Kafka Streams reads them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np
import pytest

from statecore.changelog.decoder import RangeDecoder
from statecore.changelog.model import IsolationLevel, OffsetRange
from statecore.errors import Corrupted
from tests.harness.raising import raises
from tests.unit.changelog.build import CODECS, Record, as_array, batch, compress

TOO_LONG = struct.pack(">bbqii", 1, 0, 0, 100, 0)
"""A message whose key would be longer than the message."""
OLD_CODECS = [name for name in CODECS if name not in ("none", "zstd")]
Row = tuple[bytes | None, bytes | None, int, int]


def field(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(
    magic: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None, attributes: int = 0
) -> bytes:
    """One message, written byte by byte."""
    time = struct.pack(">q", timestamp) if magic else b""
    checked = struct.pack(">bb", magic, attributes) + time + field(key) + field(value)
    return struct.pack(">qiI", offset, 4 + len(checked), zlib.crc32(checked)) + checked


def messages(magic: int, rows: Sequence[Row]) -> bytes:
    return b"".join(message(magic, offset, timestamp, key, value) for key, value, offset, timestamp in rows)


def packed(magic: int, codec: str, rows: Sequence[Row], *, append_time: int | None = None) -> bytes:
    """A compressed message: format 1 has relative offsets in it."""
    first, last = rows[0][2], rows[-1][2]
    inner = messages(magic, [(key, value, at - first if magic else at, time) for key, value, at, time in rows])
    attributes = CODECS[codec] | (0 if append_time is None else 8)
    time = max(time for *_, time in rows) if append_time is None else append_time
    return message(magic, last, time, None, compress(inner, codec), attributes)


def decode(data: bytes, start: int = 0, end: int = 1 << 50) -> tuple[list[Row], int]:
    decoder = RangeDecoder(OffsetRange("orders", 3, start, end), IsolationLevel.READ_COMMITTED)
    position = decoder.scan(as_array(data), start, np.empty((0, 2), np.int64))
    return [tuple(row.values()) for one in decoder.batches() for row in one.to_pylist()], position


def rows(magic: int, *offsets: int) -> list[Row]:
    """With null keys and deletes; format 0 has no timestamps."""
    return [
        (None if at % 5 == 3 else b"k%d" % at, None if at % 3 == 1 else b"v%d" % at, at, 1000 + at if magic else -1)
        for at in offsets
    ]


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_are_read_as_records(magic: int) -> None:
    known = rows(magic, *range(1500), 3000)
    assert decode(messages(magic, known)) == (known, 3001)


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_compressed_messages_have_the_offsets_that_they_were_given(magic: int, codec: str) -> None:
    first, second = rows(magic, 7, 8, 12), rows(magic, 20)
    assert decode(packed(magic, codec, first) + packed(magic, codec, second), 7) == ([*first, *second], 21)


def test_the_time_of_a_broker_is_that_of_all_messages() -> None:
    known = rows(1, 0, 1)
    found, _ = decode(packed(1, "gzip", known, append_time=77))
    assert [time for *_, time in found] == [77, 77]


def test_a_range_may_begin_and_end_in_a_compressed_message_and_new_batches_may_follow() -> None:
    known = rows(1, *range(10))
    new = batch([Record(10, 5, b"n", b"w")])
    assert decode(packed(1, "gzip", known) + new, 4) == ([*known[4:], (b"n", b"w", 10, 5)], 11)
    assert decode(packed(1, "gzip", known) + new, 4, 7)[0] == known[4:7]


def test_a_message_that_is_cut_off_is_left_to_the_next_response() -> None:
    known = rows(1, 0, 1)
    data = messages(1, known)
    assert decode(data[:-1]) == (known[:1], 1)
    assert decode(data[:20]) == ([], 0)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(messages(1, rows(1, 0))[:-1] + b"!", id="checksum"),
        pytest.param(message(1, 0, 1, None, b"no gzip", 1), id="compressed"),
        pytest.param(message(1, 0, 1, None, compress(b"\0" * 40, "gzip"), 1), id="inner"),
        pytest.param(struct.pack(">qiI", 0, 22, zlib.crc32(TOO_LONG)) + TOO_LONG, id="length"),
        pytest.param(struct.pack(">qiIBBq", 0, -5, 0, 1, 0, 0) + b"\0" * 20, id="negative"),
    ],
)
def test_a_malformed_message_is_corrupted(data: bytes) -> None:
    with raises(Corrupted, "record-batch-corrupted", topic="orders", partition=3, offset=0):
        decode(data)
