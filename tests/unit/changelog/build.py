"""Record batches written byte by byte, independent of the reader: the layout of KIP-98, every codec, every flag."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import cramjam
import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from tests.unit.kernels.guard import guarded_copy

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "xerial": 2, "lz4": 3, "zstd": 4}
Header = tuple[bytes, bytes | None]


@dataclass(frozen=True)
class Record:
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


def varint(value: int) -> bytes:
    bits = (value << 1) ^ (value >> 63)
    out = bytearray()
    while bits >= 128:
        out.append(bits & 127 | 128)
        bits >>= 7
    out.append(bits)
    return bytes(out)


def nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def header_bytes(headers: Sequence[Header]) -> bytes:
    return varint(len(headers)) + b"".join(nullable(name) + nullable(value) for name, value in headers)


def record_bytes(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    body = (
        b"\x00"
        + varint(record.timestamp - base_timestamp)
        + varint(record.offset - base_offset)
        + nullable(record.key)
        + nullable(record.value)
        + header_bytes(record.headers)
    )
    return varint(len(body)) + body


def xerial(data: bytes) -> bytes:
    """Java's framing; several chunks even of little data (Java's own chunks are of 32 KiB)."""
    chunk = 100 if len(data) < 10_000 else 32 << 10
    out = [b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)]
    for start in range(0, len(data), chunk):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + chunk]))
        out += [struct.pack(">i", len(block)), block]
    return b"".join(out)


def compress(data: bytes, codec: str) -> bytes:
    if codec == "none":
        return data
    if codec == "xerial":
        return xerial(data)
    how = {
        "gzip": cramjam.gzip.compress,
        "snappy": cramjam.snappy.compress_raw,
        "lz4": cramjam.lz4.compress,
        "zstd": cramjam.zstd.compress,
    }
    return bytes(how[codec](data))


def batch(
    records: Sequence[Record],
    codec: str = "none",
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    base_timestamp: int | None = None,
    producer: int = -1,
    transactional: bool = False,
    control: bool = False,
    append_time: int | None = None,
    magic: int = 2,
    count: int | None = None,
    payload: bytes | None = None,
) -> bytes:
    """One batch; `payload` replaces the records' bytes, `count` their number."""
    base = records[0].offset if base_offset is None else base_offset
    last = records[-1].offset if last_offset is None else last_offset
    first = base_timestamp if base_timestamp is not None else (records[0].timestamp if records else 0)
    newest = max((record.timestamp for record in records), default=-1)
    data = b"".join(record_bytes(record, base, first) for record in records) if payload is None else payload
    flags = CODECS[codec] | (8 if append_time is not None else 0) | 16 * transactional | 32 * control
    body = struct.pack(
        ">hiqqqhii",
        flags,
        last - base,
        first,
        newest if append_time is None else append_time,
        producer,
        0 if producer >= 0 else -1,
        -1,
        len(records) if count is None else count,
    ) + compress(data, codec)
    head = struct.pack(">qiibI", base, len(body) + 9, 7, magic, crc32c(body))
    return head + body


def marker(offset: int, producer: int, *, commit: bool) -> bytes:
    """A control batch that ends a transaction."""
    key = struct.pack(">hh", 0, 1 if commit else 0)
    record = Record(offset, 1, key, struct.pack(">hi", 0, 0))
    return batch([record], producer=producer, transactional=True, control=True)


def guarded(data: bytes) -> npt.NDArray[np.uint8]:
    """The bytes at the very end of readable memory: one byte read beyond them kills the process."""
    return guarded_copy(as_array(data))


def as_array(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)
