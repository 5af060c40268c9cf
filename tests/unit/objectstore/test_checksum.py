"""Checksums, as S3 counts them: of the whole, or of the checksums of parts."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.objectstore.checksum import Checksum


def said(content: bytes) -> str:
    return base64.b64encode(zlib.crc32(content).to_bytes(4)).decode()


@settings(deadline=None, max_examples=60)
@given(content=st.binary(max_size=40), part=st.integers(1, 12))
def test_a_multipart_checksum_covers_the_parts_in_order(content: bytes, part: int) -> None:
    parts = [content[at : at + part] for at in range(0, len(content), part)]
    assert Checksum.of(content, part).value == said(b"".join(zlib.crc32(one).to_bytes(4) for one in parts))
    assert Checksum.of(content) == Checksum(said(content), 0)


def test_a_file_has_the_checksum_of_its_bytes(tmp_path: Path) -> None:
    content = bytes(range(256)) * 10_000
    file = tmp_path / "file"
    file.write_bytes(content)
    for part in (0, 1 << 20, (1 << 20) + 1, 5 << 20):
        assert Checksum.of(file, part) == Checksum.of(content, part)
    assert Checksum.of(b"123456789").value == said(b"123456789") == "y/Q5Jg=="
