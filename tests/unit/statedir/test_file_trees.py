"""Directories are moved whole, or stay where they were."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from statecore.statedir.file_trees import move


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source" / "inner").mkdir(parents=True)
    (tmp_path / "source" / "inner" / "file").write_bytes(b"content")
    (tmp_path / "source" / "link").symlink_to("inner/file")
    return tmp_path / "source"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory on another file system."""
    for place in map(Path, ("/dev/shm", "/tmp", "/var/tmp")):
        if place.is_dir() and place.stat().st_dev != tmp_path.stat().st_dev:
            with TemporaryDirectory(dir=place) as made:
                yield Path(made)
            return
    pytest.skip("this machine has one file system")


def test_a_directory_is_copied_to_another_file_system(source: Path, elsewhere: Path) -> None:
    move(source, elsewhere / "target")
    assert not source.exists()
    assert (elsewhere / "target" / "inner" / "file").read_bytes() == b"content"
    assert (elsewhere / "target" / "link").is_symlink()


def test_a_directory_that_cannot_be_renamed_stays(source: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "kept").touch()
    with pytest.raises(OSError, match="target") as raised:
        move(source, tmp_path / "target")
    assert raised.value.errno == errno.ENOTEMPTY
    assert (source / "inner" / "file").read_bytes() == b"content"
