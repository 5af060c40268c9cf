"""Records as Kafka's producer compresses them, one batch at a time.

A batch says in the three lowest bits of its attributes how its records are compressed. Each codec has a framing of its
own: gzip members, blocks of snappy behind Java's xerial header, lz4 frames of independent blocks without checksums,
and zstd frames. Levels are the producer's defaults.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

import cramjam

CODECS: Mapping[str, int] = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""By name what the attributes of a batch say."""

GZIP_LEVEL = 6
ZSTD_LEVEL = 3
_XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 << 10


def compress(codec: str, records: bytes) -> bytes:
    """The records of one batch, compressed; ``codec`` is a key of ``CODECS``."""
    return _COMPRESS[codec](records)


def _gzip(records: bytes) -> bytes:
    return bytes(cramjam.gzip.compress(records, level=GZIP_LEVEL))


def _snappy(records: bytes) -> bytes:
    parts = [_XERIAL]
    for at in range(0, len(records), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(records[at : at + _XERIAL_BLOCK]))
        parts += [struct.pack(">i", len(block)), block]
    return b"".join(parts)


def _lz4(records: bytes) -> bytes:
    block = bytes(cramjam.lz4.compress_block(records, store_size=False))
    # Magic, independent blocks of at most 4 MiB without checksums, descriptor's checksum; block; end mark.
    return b"\x04\x22\x4d\x18\x60\x70\x73" + struct.pack("<I", len(block)) + block + b"\0\0\0\0"


def _zstd(records: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(records, level=ZSTD_LEVEL))


_COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": _lz4,
    "zstd": _zstd,
}
