"""Trees of files are seen whole and deleted whole, whatever lies in them; files are cloned where that can be."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.filesystem import (
    DIRECTORY_MODE,
    FILE_MODE,
    FileState,
    break_hard_link,
    clone,
    current_umask,
    discard_tree,
    has_expected_owner_and_mode,
    set_modes,
    tree_bytes,
)
from tests.harness import mounts

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files at three depths, and links to a file and a directory outside."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/kept").write_bytes(b"kept")
    tree = tmp_path / "tree"
    for directory in (tree, tree / "a", tree / "a/b"):
        directory.mkdir()
        (directory / "file").write_bytes(b"12345")
    (tree / "a/directory").symlink_to(tmp_path / "outside")
    (tree / "a/b/link").symlink_to(tmp_path / "outside/kept")
    return tree


def test_a_link_that_cannot_be_followed_hides_no_file_beside_it(tmp_path: Path) -> None:
    for number in range(20):  # before and after it, in whatever order the file system has
        (tmp_path / f"{number}").write_bytes(b"12345")
    before = tree_bytes(tmp_path)
    link = tmp_path / "loop"
    link.symlink_to(link)
    assert tree_bytes(tmp_path) == before + link.lstat().st_size


def test_modes_are_those_of_all_files_and_directories_below(tree: Path) -> None:
    (tree / "a/b/file").chmod(0o600)
    (tree / "a/b").chmod(0o700)
    set_modes(tree)
    masked = ~current_umask()
    assert (tree / "a/b/file").stat().st_mode & 0o777 == FILE_MODE & masked
    assert (tree / "a/b").stat().st_mode & 0o777 == DIRECTORY_MODE & masked


def test_a_tree_is_discarded_whole_and_nothing_that_it_links_to(tree: Path) -> None:
    discard_tree(tree)
    discard_tree(tree)
    assert not tree.exists()
    assert (tree.parent / "outside/kept").read_bytes() == b"kept"


def test_what_a_link_just_below_a_discarded_tree_leads_to_is_left_alone(tmp_path: Path) -> None:
    elsewhere, tree = tmp_path / "elsewhere", tmp_path / "tree"
    (elsewhere / "database").mkdir(parents=True)
    (elsewhere / "database" / "file").write_text("kept")
    tree.mkdir()
    (tree / "link").symlink_to(elsewhere)
    discard_tree(tree / "link")
    assert (elsewhere / "database" / "file").read_text() == "kept"
    discard_tree(tree)
    assert not tree.exists()
    assert (elsewhere / "database" / "file").read_text() == "kept"


def test_a_file_is_the_same_under_every_name_until_written(tmp_path: Path) -> None:
    long_ago = 10**18
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert FileState.of(file) is None, "a second write now may not show"
    os.utime(file, ns=(long_ago, long_ago))
    moment = FileState.of(file)
    (tmp_path / "link").hardlink_to(file)
    assert FileState.of(tmp_path / "link") == moment is not None
    (tmp_path / "link").rename(tmp_path / "moved")
    assert FileState.of(tmp_path / "moved") == moment
    with file.open("r+b") as opened:
        opened.write(b"x")
    assert FileState.of(tmp_path / "moved") != moment


def test_a_file_that_has_a_name_elsewhere_keeps_its_mode(tree: Path) -> None:
    shared = tree / "a/file"
    shared.chmod(0o604)
    os.link(shared, tree.parent / "elsewhere")
    set_modes(tree)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o604


# Clones


@pytest.fixture(params=sorted(mounts.CLONING))
def cloning(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with mounts.cloning_disk(tmp_path / "disk", request.param) as path:
        yield path


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A directory in memory, where Linux clones nothing."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as made:
        yield Path(made)


def used(path: Path) -> int:
    """Bytes that a file system holds, all of them on the disk."""
    os.sync()
    system = os.statvfs(path)
    return (system.f_blocks - system.f_bfree) * system.f_frsize


def test_a_clone_takes_no_room_and_is_a_file_of_its_own(cloning: Path) -> None:
    content = os.urandom(20 << 20)
    (cloning / "one").write_bytes(content)
    before = used(cloning)
    assert clone(cloning / "one", cloning / "other")
    assert used(cloning) - before < 4 << 20
    assert not (cloning / "other").samefile(cloning / "one")
    with (cloning / "one").open("r+b") as file:
        file.write(b"damage")
    assert (cloning / "other").read_bytes() == content


def test_what_cannot_be_cloned_leaves_nothing_behind(in_memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (in_memory / "one").write_bytes(b"bytes")
    said: list[int | None] = []

    def ioctl(*given: int) -> None:
        try:
            really(*given)
        except OSError as error:
            said.append(error.errno)
            raise

    really = fcntl.ioctl
    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    assert not clone(in_memory / "one", in_memory / "other")
    assert len(said) == 1, "the system was asked, and said why not"
    assert [path.name for path in in_memory.iterdir()] == ["one"]


def test_nothing_is_cloned_to_another_file_system(cloning: Path, in_memory: Path) -> None:
    (in_memory / "one").write_bytes(b"bytes")
    assert not clone(in_memory / "one", cloning / "other")
    assert not (cloning / "other").exists()


def test_a_clone_replaces_nothing(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).write_text(name)
    with pytest.raises(FileExistsError):
        clone(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "other").read_text() == "other"


def test_a_disk_that_has_no_room_for_a_clone_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one").write_bytes(b"bytes")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fcntl, "ioctl", refuse)
    with pytest.raises(OSError, match="No space"):
        clone(tmp_path / "one", tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_files_that_cannot_be_cloned_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ZFS says of blocks that are not on the disk yet."""
    (tmp_path / "one").write_bytes(b"bytes")

    def refuse(*_: object) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(fcntl, "ioctl", refuse)
    assert not clone(tmp_path / "one", tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_a_truncated_clone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one").write_bytes(b"bytes")
    monkeypatch.setattr(fcntl, "ioctl", lambda made, *_: made.write(b"byte") and made.flush())
    assert not clone(tmp_path / "one", tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


# Files that others have, too


def test_a_file_is_parted_from_its_other_names_and_is_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"bytes")
    (tmp_path / "one").chmod(0o604)
    os.utime(tmp_path / "one", ns=(1_000, 2_000))
    os.link(tmp_path / "one", tmp_path / "other")
    before = (tmp_path / "other").stat()
    break_hard_link(tmp_path / "one")
    one, other = (tmp_path / "one").stat(), (tmp_path / "other").stat()
    assert (one.st_nlink, other.st_nlink, other.st_ino) == (1, 1, before.st_ino)
    assert (stat.S_IMODE(one.st_mode), one.st_mtime_ns) == (0o604, 2_000)
    assert (tmp_path / "one").read_bytes() == b"bytes"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "other"]


def test_a_file_without_space_for_a_copy_stays_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one").write_bytes(b"bytes")
    os.link(tmp_path / "one", tmp_path / "other")

    def cannot(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    def refuse(_: Path, target: Path) -> None:
        target.write_bytes(b"by")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fcntl, "ioctl", cannot)
    monkeypatch.setattr(shutil, "copyfile", refuse)
    with pytest.raises(OSError, match="No space"):
        break_hard_link(tmp_path / "one")
    assert (tmp_path / "one").samefile(tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "other"]


@pytest.mark.parametrize(
    ("umask", "mode", "like"),
    [
        (0o022, 0o640, True),
        (0o022, 0o644, True),
        (0o022, 0o600, False),
        (0o022, 0o664, False),
        (0o022, 0o755, False),
        (0o022, 0o444, False),
        (0o077, 0o600, True),
        (0o077, 0o640, False),
        (0o002, 0o660, True),
    ],
)
def test_a_file_is_as_made_here_when_its_group_may_read_it_and_the_umask_lets_it_be_as_open(
    tmp_path: Path, umask: int, mode: int, like: bool
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(mode)
    before = os.umask(umask)
    try:
        assert has_expected_owner_and_mode(tmp_path, (tmp_path / "file").stat()) is like
    finally:
        os.umask(before)


@as_root
def test_a_file_is_as_made_here_when_it_has_the_owner_and_the_group_that_one_would_get(tmp_path: Path) -> None:
    def like(file: tuple[int, int], directory: tuple[int, int, int]) -> bool:
        uid, gid, mode = directory
        os.chown(tmp_path, uid, gid)
        tmp_path.chmod(mode)
        (tmp_path / "file").touch()
        (tmp_path / "file").chmod(0o640)
        os.chown(tmp_path / "file", *file)
        return has_expected_owner_and_mode(tmp_path, (tmp_path / "file").stat())

    assert like((0, 0), (0, 0, 0o755))
    assert like((4242, 4243), (4242, 4243, 0o755)), "what root makes is given to the owner"
    assert like((0, 4243), (0, 4243, 0o2755)), "a directory that hands its group down"
    assert not like((0, 0), (0, 4243, 0o2755))
    assert not like((0, 4243), (0, 4243, 0o755))
    assert not like((4242, 0), (0, 0, 0o755))
    assert not like((0, 0), (4242, 4243, 0o755))
