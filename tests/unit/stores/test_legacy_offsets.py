from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from statecore.errors import Capacity, Corrupted, Invalid, Retryable
from statecore.formats.checkpoint import MAX_BYTES
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.legacy_offsets import read_offsets, read_position, remove_offsets, write_offsets, write_position
from tests.harness.raising import raises

OFFSETS = {TopicPartition("app-s-changelog", 0): 7}


def test_offsets_are_read_back(tmp_path: Path) -> None:
    file = tmp_path / ".checkpoint"
    write_offsets(file, OFFSETS)
    assert read_offsets(file) == OFFSETS
    assert [path.name for path in tmp_path.iterdir()] == [".checkpoint"], "nothing partial is left"


def test_without_offsets_there_is_no_file(tmp_path: Path) -> None:
    file = tmp_path / ".checkpoint"
    write_offsets(file, OFFSETS)
    write_offsets(file, {})
    remove_offsets(file)
    assert read_offsets(file) == {}
    assert not file.exists()


def test_positions_are_read_back(tmp_path: Path) -> None:
    write_position(tmp_path, "s", {"in": {0: 5, 1: 6}})
    assert (tmp_path / "s.position").read_bytes() == b"0\n2\nin 0 5\nin 1 6\n"
    assert read_position(tmp_path, "s") == {"in": {0: 5, 1: 6}}


def test_a_crash_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / ".checkpoint"
    write_offsets(file, OFFSETS)

    def fail(self: Path, target: Path) -> Path:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "replace", fail)
    with raises(Retryable, "disk-failed", file=str(file)):
        write_offsets(file, {TopicPartition("app-s-changelog", 0): 8})
    assert read_offsets(file) == OFFSETS
    assert list(tmp_path.iterdir()) == [file], "nothing half-written takes room"


def test_a_full_disk_is_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with raises(Capacity, "no-space", file=str(tmp_path / ".checkpoint")):
        write_offsets(tmp_path / ".checkpoint", OFFSETS)


def test_a_file_that_cannot_be_opened_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint").mkdir()
    with raises(Invalid, "system-refused", file=str(tmp_path / ".checkpoint")):
        read_offsets(tmp_path / ".checkpoint")
    with raises(Invalid, "system-refused", file=str(tmp_path / "gone" / ".checkpoint")):
        write_offsets(tmp_path / "gone" / ".checkpoint", OFFSETS)


def test_a_huge_file_is_refused_without_reading_it_whole(tmp_path: Path) -> None:
    with (tmp_path / ".checkpoint").open("wb") as file:
        file.truncate(1 << 40)  # sparse: more than any memory
    with pytest.raises(Corrupted, match=f"{1 << 40} bytes, more than {MAX_BYTES}"):
        read_offsets(tmp_path / ".checkpoint")


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    (tmp_path / "device").symlink_to("/dev/zero")
    for name, code in (("pipe", "file-not-regular"), ("directory", "system-refused"), ("device", "file-not-regular")):
        with raises(Invalid, code, file=str(tmp_path / name)):
            read_offsets(tmp_path / name)
