"""Values of grace-period buffers."""

from __future__ import annotations

import struct

from statecore.formats.rows.buffered import BufferedRecord


def encode_buffered(record: BufferedRecord) -> bytes:
    """The value of a row; prior and old value are null."""
    pieces = [struct.pack(">qq", record.timestamp, record.offset), _sized(record.topic.encode())]
    pieces += [struct.pack(">ii", record.partition, -1 if record.headers is None else len(record.headers))]
    for key, value in record.headers or ():
        pieces += [_sized(key.encode()), _sized(value)]
    return b"".join([*pieces, _sized(None), _sized(None), _sized(record.value)])


def _sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
