"""How an encrypted content is stored."""

from __future__ import annotations

import hmac
from hashlib import sha256
from pathlib import Path

import pytest

from statecore.objectstore.checksum import Checksum
from statecore.objectstore.content import Source, opened
from statecore.objectstore.frames import (
    FRAME_BYTES,
    OVERHEAD_BYTES,
    SEALED_BYTES,
    FrameCipher,
    content_size,
    sealed_size,
)

KEY = bytes(range(32))
SIZES = [0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 3 * FRAME_BYTES, 3 * FRAME_BYTES + 777]


@pytest.fixture
def cipher() -> FrameCipher:
    return FrameCipher(KEY)


def content_of(size: int) -> bytes:
    return b"".join(sha256(number.to_bytes(8)).digest() for number in range(size // 32 + 1))[:size]


def whole(source: Source) -> bytes:
    return source.read(0, source.size)


@pytest.mark.parametrize("size", SIZES)
def test_a_content_is_opened_as_it_was_sealed_and_of_the_size_that_the_formula_says(
    cipher: FrameCipher, size: int, tmp_path: Path
) -> None:
    content, file = content_of(size), tmp_path / "file"
    file.write_bytes(content)
    sealed = whole(cipher.sealed("a/b", content))
    assert len(sealed) == sealed_size(size)
    assert content_size(len(sealed)) == size
    assert cipher.open_frames("a/b", sealed) == content
    assert whole(cipher.sealed("a/b", file)) == sealed, "the same bytes, of a file and at another time"
    assert whole(FrameCipher(KEY).sealed("a/b", content)) == sealed
    assert content == b"" or content[:32] not in sealed


def test_a_size_that_no_content_has_is_not_the_size_of_one_that_was_stored() -> None:
    sizes = {sealed_size(size) for size in range(2 * FRAME_BYTES, 2 * FRAME_BYTES + 200)}
    for stored in range(2 * SEALED_BYTES, 2 * SEALED_BYTES + 240):
        if stored not in sizes:
            assert content_size(stored) == 2 * FRAME_BYTES
    assert [content_size(stored) for stored in (0, 7, OVERHEAD_BYTES - 1, OVERHEAD_BYTES)] == [0, 0, 0, 0]


def test_any_range_of_what_is_stored_is_sealed_alone(cipher: FrameCipher, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(content_of(3 * FRAME_BYTES + 777))
    source = cipher.sealed("a", file)
    sealed = whole(source)
    edges = [0, 1, 100, SEALED_BYTES - 1, SEALED_BYTES, SEALED_BYTES + 1, 2 * SEALED_BYTES + 5, source.size]
    for start in edges:
        for end in (one for one in edges if one >= start):
            assert source.read(start, end) == sealed[start:end]
    with opened(source) as reader:
        assert reader.read() == sealed
    for part in (0, 1000, 70_000):
        assert Checksum.of(source, part) == Checksum.of(sealed, part)


def test_a_frame_that_was_moved_or_changed_reads_as_zeros_and_the_others_as_they_are(cipher: FrameCipher) -> None:
    content = content_of(2 * FRAME_BYTES + 50)
    sealed = whole(cipher.sealed("a", content))
    first, second = sealed[:SEALED_BYTES], sealed[SEALED_BYTES : 2 * SEALED_BYTES]
    zeros = bytes(FRAME_BYTES)
    assert cipher.open_frames("b", first) == zeros, "of another name"
    assert cipher.open_frames("a", second) == zeros, "of another place"
    assert cipher.open_frames("a", second, 1) == content[FRAME_BYTES : 2 * FRAME_BYTES]
    assert FrameCipher(bytes(32)).open_frames("a", first) == zeros, "with another key"
    for at in (0, 23, 24, 5000, SEALED_BYTES - 1):
        changed = bytearray(sealed)
        changed[at] ^= 1
        assert cipher.open_frames("a", bytes(changed)) == zeros + content[FRAME_BYTES:]
    for length in (0, 1, 39, 40, 41, SEALED_BYTES - 1):
        cut = cipher.open_frames("a", sealed[:length])
        assert cut == bytes(max(0, length - OVERHEAD_BYTES)), "a part of a frame"
    assert cipher.open_frames("a", sealed[:SEALED_BYTES]) == content[:FRAME_BYTES], "whoever has the hash sees it"


def test_a_nonce_repeats_only_with_name_place_and_content(cipher: FrameCipher) -> None:
    content = b"the same"
    sealed = [
        cipher.seal_frame(name, number, what)
        for name, number, what in [
            ("a", 0, content),
            ("a", 1, content),
            ("b", 0, content),
            ("a", 0, b"the Same"),
            ("a", 0, b""),
        ]
    ]
    assert len({nonce for nonce, _ in sealed}) == 5
    assert cipher.seal_frame("a", 0, content) == sealed[0]


def test_each_purpose_has_a_key_of_its_own_and_names_are_a_keyed_hash(cipher: FrameCipher) -> None:
    key = hmac.digest(KEY, b"statecore encryption-1 names\1", "sha256")
    digest = sha256(b"content").hexdigest()
    assert cipher.hash_in_name(digest) == hmac.digest(key, digest.encode(), "sha256").hex()
    nonces = hmac.digest(KEY, b"statecore encryption-1 nonces\1", "sha256")
    expected = hmac.digest(nonces, b"a/b\0" + (7).to_bytes(8, "big") + b"content", "sha256")[:24]
    assert cipher.seal_frame("a/b", 7, b"content")[0] == expected
