"""CRC-32 checksums that an object store keeps, so that local bytes can be compared without sending them again."""

from __future__ import annotations

import base64
import zlib
from typing import NamedTuple

from statecore.objectstore.content import Content, opened

_CHUNK = 1 << 20


class Checksum(NamedTuple):
    """A CRC-32 in S3's notation.

    Attributes:
        value: in base64; for a multipart upload, of the CRC-32s of its parts.
        part: bytes of a part; 0 for a checksum of the whole.
    """

    value: str
    part: int = 0

    @staticmethod
    def of(content: Content, part: int = 0) -> Checksum:
        total, at, parts = 0, 0, bytearray()
        with opened(content) as file:
            while piece := file.read(min(_CHUNK, part - at) if part else _CHUNK):
                total, at = zlib.crc32(piece, total), at + len(piece)
                if at == part:
                    parts += total.to_bytes(4)
                    total = at = 0
        if at and part:
            parts += total.to_bytes(4)
        return Checksum(base64.b64encode((zlib.crc32(parts) if part else total).to_bytes(4)).decode(), part)
