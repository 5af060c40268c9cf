"""Trees of files are seen whole and deleted whole, whatever lies in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from statecore.filesystem import (
    DIRECTORY_MODE,
    FILE_MODE,
    FileMoment,
    current_umask,
    discard_tree,
    set_modes,
    tree_bytes,
)


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


def test_a_file_is_the_same_under_every_name_until_somebody_writes_to_it(tmp_path: Path) -> None:
    long_ago = 10**18
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert FileMoment.of(file) is None, "a second write now may not show"
    os.utime(file, ns=(long_ago, long_ago))
    moment = FileMoment.of(file)
    (tmp_path / "link").hardlink_to(file)
    assert FileMoment.of(tmp_path / "link") == moment is not None
    (tmp_path / "link").rename(tmp_path / "moved")
    assert FileMoment.of(tmp_path / "moved") == moment
    with file.open("r+b") as opened:
        opened.write(b"x")
    assert FileMoment.of(tmp_path / "moved") != moment
