"""Footer of an SST file: its format version, which determines the RocksDB versions that read it.

A block-based table ends in a footer whose last eight bytes, the magic number, determine its layout
(``table/format.h``); numbers are little-endian::

    magic number          where                  format version
    88e241b785f4cff7      the last 53 bytes      from 1 on; four bytes right before the magic number
    db4775248b80fb57      the last 48 bytes      0: the footer has no version field

    1 to 5   checksum type 1 | handles of two blocks, varints, zeros up to 40   | version 4 | magic 8
    from 6   checksum type 1 | 3e007a00, checksum 4, base 4, size 4, zeros to 40 | version 4 | magic 8

RocksDB 7.9.2 (Kafka Streams 3.9) reads versions up to 5, RocksDB 8.6 and newer up to 6
(:mod:`statecore.formats.releases`).
"""

from __future__ import annotations

import struct

FOOTER_BYTES = 53  # Bytes at the end of a file that hold its version
_MAGIC = 0x88E241B785F4CFF7
_LEGACY_MAGIC = 0xDB4775248B80FB57
_LEGACY_BYTES = 48
_END = struct.Struct("<IQ")


def sst_format_version(end: bytes) -> int:
    """Format version of an SST file, from its last :data:`FOOTER_BYTES` or more (all of a shorter one)."""
    if len(end) >= FOOTER_BYTES:
        version, magic = _END.unpack_from(end, len(end) - _END.size)
        if magic == _MAGIC:
            if not version:
                raise ValueError("its footer has format version 0, which uses another footer")
            return int(version)
    if len(end) >= _LEGACY_BYTES and int.from_bytes(end[-8:], "little") == _LEGACY_MAGIC:
        return 0
    raise ValueError("it does not end in the footer of a block-based table")
