"""What an object store has of encrypted blobs and pointers; the rest is in the conformance suites."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.objectstore.checksum import Checksum
from statecore.objectstore.directory import DirectoryBlobs, DirectoryPointers
from statecore.objectstore.encrypted import EncryptedBlobs, EncryptedPointers
from statecore.objectstore.frames import FRAME_BYTES, SEALED_BYTES, FrameCipher
from tests.unit.objectstore.implementations import IMPLEMENTATIONS

CONTENT = bytes(range(256)) * 1024  # four frames


class Watched(DirectoryBlobs):
    """Remembers the ranges that it was asked for."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked: list[tuple[int, int | None]] = []

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        self.asked.append((start, end))
        return super().get(name, start, end)


@pytest.fixture
def stored(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


@pytest.fixture
def blobs(stored: Watched) -> EncryptedBlobs:
    return EncryptedBlobs(stored, lambda: FrameCipher(bytes(32)), {"plain.json"})


def test_nothing_that_is_stored_has_the_content(blobs: EncryptedBlobs, stored: Watched, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(CONTENT)
    for name, content in (("a/bytes", CONTENT), ("a/file", file)):
        blobs.put_if_absent(name, content)
        found = stored.get(name)
        assert not any(CONTENT[at : at + 8] in found for at in range(0, 256, 8))
        assert stored.head(name).size == len(found) == 4 * SEALED_BYTES
        assert blobs.head(name).size == len(CONTENT)
        assert blobs.local_path(name) is None
        assert not (tmp_path / name).samefile(file)
    assert stored.get("a/bytes") != stored.get("a/file"), "equal contents of two names are not seen to be equal"
    assert [blob.size for blob in blobs.list("a/")] == [len(CONTENT)] * 2


def test_a_range_takes_one_range_of_what_is_stored(blobs: EncryptedBlobs, stored: Watched) -> None:
    blobs.put_if_absent("a", CONTENT)
    for start, end, asked in [
        (0, None, (0, None)),
        (10, 20, (0, SEALED_BYTES)),
        (FRAME_BYTES, 2 * FRAME_BYTES, (SEALED_BYTES, 2 * SEALED_BYTES)),
        (FRAME_BYTES - 1, FRAME_BYTES + 1, (0, 2 * SEALED_BYTES)),
        (3 * FRAME_BYTES + 5, None, (3 * SEALED_BYTES, None)),
        (3 * FRAME_BYTES + 5, 10 * FRAME_BYTES, (3 * SEALED_BYTES, 10 * SEALED_BYTES)),
        (9 * FRAME_BYTES, None, (9 * SEALED_BYTES, None)),
    ]:
        stored.asked.clear()
        assert blobs.get("a", start, end) == CONTENT[start:end]
        assert stored.asked == [asked]


def test_a_blob_that_is_exchanged_for_another_is_not_taken_for_it(blobs: EncryptedBlobs, stored: Watched) -> None:
    blobs.put_if_absent("a", CONTENT)
    blobs.put_if_absent("b", CONTENT[::-1])
    stored.replace("b", stored.get("a"))
    assert blobs.get("b") == bytes(len(CONTENT))


def test_names_that_are_not_encrypted_are_stored_as_they_are(blobs: EncryptedBlobs, stored: Watched) -> None:
    blobs.put_if_absent("plain.json", b"{}")
    assert stored.get("plain.json") == blobs.get("plain.json") == b"{}"
    assert (blobs.head("plain.json").size, [blob.size for blob in blobs.list()]) == (2, [2])
    assert blobs.checksum_of("plain.json", b"{}", 0) == Checksum.of(b"{}")


def test_a_pointer_is_stored_encrypted_and_a_damaged_one_can_be_replaced(tmp_path: Path) -> None:
    stored = DirectoryPointers(tmp_path)
    pointers = EncryptedPointers(stored, lambda: FrameCipher(bytes(32)), {"plain.json"})
    version = pointers.swap("head", b"content", None)
    found = stored.read("head")
    assert found is not None
    assert b"content" not in found.content
    assert pointers.read("head") == (b"content", version)
    damaged = stored.swap("head", found.content[::-1], version)
    assert pointers.read("head") == (bytes(7), damaged)
    again = pointers.swap("head", b"again", damaged)
    assert pointers.read("head") == (b"again", again)
    plain = pointers.swap("plain.json", b"{}", None)
    assert stored.read("plain.json") == pointers.read("plain.json") == (b"{}", plain)


@pytest.mark.parametrize("parts", [False, True])
def test_s3_keeps_the_checksum_that_the_content_has_as_it_is_stored(tmp_path: Path, parts: bool) -> None:
    blobs, file = IMPLEMENTATIONS["encrypted s3"](tmp_path), tmp_path / "file"
    file.write_bytes(CONTENT * (80 if parts else 1))  # 20 MiB, in two parts
    blobs.put_if_absent("a", file)
    found = blobs.head("a")
    assert found.checksum is not None
    assert (found.checksum.part > 0) is parts
    assert blobs.checksum_of("a", file, found.checksum.part) == found.checksum
    assert blobs.checksum_of("b", file, found.checksum.part) != found.checksum
    assert found.checksum != Checksum.of(file, found.checksum.part)
    assert blobs.get("a") == file.read_bytes()
