"""Blocks of a file without a name: their room is used again; damage and a full disk are said."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import pytest

from statecore.errors import Capacity, Invalid, Retryable
from statecore.images.scratch_file import ScratchFile
from tests.harness.open_files import open_files
from tests.harness.raising import raises

BLOCK = 4096


def taken(file: ScratchFile, number: int) -> bytes:
    into = bytearray(BLOCK)
    file.take([number], memoryview(into))
    return bytes(into)


def full(data: bytes) -> memoryview:
    return memoryview(data.ljust(BLOCK, b"\0"))


def test_blocks_come_back_as_they_were_and_their_room_is_used_again(tmp_path: Path) -> None:
    file = ScratchFile(tmp_path, BLOCK)
    contents = [os.urandom(BLOCK), os.urandom(BLOCK), bytes(BLOCK)]
    written = dict(zip(file.write([memoryview(data) for data in contents]), contents, strict=True))
    assert list(tmp_path.iterdir()) == []
    assert file.size == 3 * BLOCK
    for number, data in written.items():
        assert taken(file, number) == data
    again = [os.urandom(BLOCK) for _ in contents]
    reused = file.write([memoryview(data) for data in again])
    assert set(reused) == set(written)
    assert file.size == 3 * BLOCK
    assert [taken(file, number) for number in reused] == again
    file.close()
    file.close()


def test_more_blocks_at_once_than_the_system_writes_in_one_call_come_back(tmp_path: Path) -> None:
    count = os.sysconf("SC_IOV_MAX") + 100
    file = ScratchFile(tmp_path, 16)
    contents = [os.urandom(16) for _ in range(count)]
    numbers = file.write([memoryview(data) for data in contents])
    into = bytearray(16 * count)
    file.take(numbers, memoryview(into))
    assert bytes(into) == b"".join(contents)


def test_a_file_goes_with_its_object(tmp_path: Path) -> None:
    file = ScratchFile(tmp_path, BLOCK)
    assert len(open_files(tmp_path)) == 1
    del file
    gc.collect()
    assert open_files(tmp_path) == []


def test_a_directory_without_unnamed_files_is_served_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_TMPFILE")
    file = ScratchFile(tmp_path, BLOCK)
    assert taken(file, *file.write([full(b"one")])) == full(b"one")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("at", [0, 3, 10, BLOCK - 1])
def test_a_block_that_is_not_what_was_written_is_noticed(tmp_path: Path, at: int) -> None:
    file = ScratchFile(tmp_path, BLOCK)
    (number,) = file.write([full(b"one")])
    before = os.pread(file._file, 1, at)
    os.pwrite(file._file, bytes([before[0] ^ 1]), at)
    with raises(Retryable, "scratch-file-damaged", path=str(tmp_path)):
        taken(file, number)


@pytest.mark.parametrize("lost", ["its own write", "its place"])
def test_a_block_that_the_disk_never_wrote_is_noticed(tmp_path: Path, lost: str) -> None:
    file = ScratchFile(tmp_path, BLOCK)
    other, number = file.write([memoryview(os.urandom(BLOCK)) for _ in range(2)])
    found = bytes(BLOCK) if lost == "its own write" else os.pread(file._file, BLOCK, other * BLOCK)
    os.pwrite(file._file, found, number * BLOCK)
    with raises(Retryable, "scratch-file-damaged", path=str(tmp_path)):
        taken(file, number)


def test_a_truncated_file_is_detected(tmp_path: Path) -> None:
    file = ScratchFile(tmp_path, BLOCK)
    (number,) = file.write([full(b"one")])
    os.ftruncate(file._file, 9)
    with pytest.raises(Retryable):
        taken(file, number)


def test_a_disk_that_is_full_after_half_a_block_is_a_matter_of_capacity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ScratchFile(tmp_path, BLOCK)
    whole = os.urandom(BLOCK)
    pwritev = os.pwritev

    def half(number: int, buffers: list[bytes], at: int) -> int:
        return pwritev(number, [b"".join(buffers)[: BLOCK // 2]], at)

    def full(number: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwritev", half)
    assert taken(file, *file.write([memoryview(whole)])) == whole, "what was left is written after it"
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(Capacity, match="No space left") as caught:
        file.write([memoryview(whole)])
    assert caught.value.context["path"] == str(tmp_path)


def test_a_missing_directory_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="absent cannot be written"):
        ScratchFile(tmp_path / "absent", BLOCK)


def test_an_unreadable_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = ScratchFile(tmp_path, BLOCK)
    (number,) = file.write([full(b"one")])

    def broken(number: int, buffers: list[bytearray], at: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", broken)
    with raises(Retryable, "scratch-file-damaged", path=str(tmp_path)) as caught:
        taken(file, number)
    assert "Input/output error" in caught.value.what
