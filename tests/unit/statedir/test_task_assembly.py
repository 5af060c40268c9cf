"""Images are given to their owner, and what others have of their files is left as it is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from statecore.statedir.file_ownership import FileOwnership
from statecore.statedir.task_assembly import SharedFiles

ELSEWHERE = 4242
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
Seen = tuple[int, int, int]


def seen(path: Path) -> Seen:
    status = path.stat()
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    """The staging of a job: a run, and the image that it is in."""
    for below in ("files", "images/one"):
        (tmp_path / "staging" / below).mkdir(parents=True)
    run = tmp_path / "staging/files/abc"
    run.write_bytes(b"rows")
    run.chmod(0o640)
    os.link(run, tmp_path / "staging/images/one/000001.sst")
    return tmp_path / "staging"


def to(mode: int, uid: int | None = None) -> FileOwnership:
    uid, gid = (os.geteuid(), os.getegid()) if uid is None else (uid, uid)
    return FileOwnership(uid, gid, mode, "")


def give(staging: Path, ownership: FileOwnership, image: str = "one") -> Path:
    SharedFiles(ownership, (staging / "files", staging / "images")).give_tree(staging / "images" / image)
    return staging / "images" / image / "000001.sst"


def test_a_file_that_has_names_in_the_staging_alone_is_not_copied(staging: Path) -> None:
    placed = give(staging, to(0o770))
    assert seen(placed)[2] == 0o660
    assert placed.samefile(staging / "files/abc")


def test_a_file_that_a_repository_has_too_gets_its_mode_as_a_file_of_its_own(staging: Path, tmp_path: Path) -> None:
    os.link(staging / "files/abc", tmp_path / "published")
    placed = give(staging, to(0o770))
    assert seen(placed)[2] == 0o660
    assert seen(tmp_path / "published")[2] == 0o640
    assert placed.read_bytes() == (tmp_path / "published").read_bytes() == b"rows"
    assert not placed.samefile(tmp_path / "published")
    assert (tmp_path / "published").samefile(staging / "files/abc")


@as_root
def test_a_file_that_a_repository_has_too_gets_its_owner_as_a_file_of_its_own(staging: Path, tmp_path: Path) -> None:
    os.link(staging / "files/abc", tmp_path / "published")
    placed = give(staging, to(0o750, ELSEWHERE))
    assert seen(placed) == (ELSEWHERE, ELSEWHERE, 0o640)
    assert seen(tmp_path / "published") == (0, 0, 0o640)


@pytest.mark.parametrize("mode", [0o640, 0o644])
def test_a_file_of_the_right_owner_that_the_application_can_use_stays_what_a_repository_has(
    staging: Path, tmp_path: Path, mode: int
) -> None:
    os.link(staging / "files/abc", tmp_path / "published")
    (tmp_path / "published").chmod(mode)
    placed = give(staging, to(0o750))
    assert placed.samefile(tmp_path / "published")
    assert seen(placed)[2] == mode


@as_root
def test_each_image_of_a_run_that_a_repository_has_too_gets_a_file_of_its_own(staging: Path, tmp_path: Path) -> None:
    (staging / "images/other").mkdir()
    for name in ("000001.sst", "000002.sst"):
        os.link(staging / "files/abc", staging / "images/other" / name)
    os.link(staging / "files/abc", tmp_path / "published")
    files = SharedFiles(to(0o750, ELSEWHERE), (staging / "files", staging / "images"))
    for image in ("one", "other"):
        files.give_tree(staging / "images" / image)
    given = list((staging / "images").rglob("*.sst"))
    assert len({path.stat().st_ino for path in given}) == 3
    assert {seen(path) for path in given} == {(ELSEWHERE, ELSEWHERE, 0o640)}
    assert seen(tmp_path / "published") == seen(staging / "files/abc") == (0, 0, 0o640)


def test_a_file_in_a_directory_that_others_can_change_is_copied(staging: Path) -> None:
    (staging / "attempts").mkdir()
    os.link(staging / "files/abc", staging / "attempts/abc")
    placed = give(staging, to(0o770))
    assert not placed.samefile(staging / "files/abc")
    assert seen(staging / "attempts/abc")[2] == 0o640


def test_a_tree_is_given_with_its_modes_and_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"")
    outside.chmod(0o604)
    tree = tmp_path / "tree"
    (tree / "below").mkdir(parents=True)
    (tree / "below" / "file").write_bytes(b"")
    (tree / "link").symlink_to(outside)
    SharedFiles(FileOwnership(os.geteuid(), os.getegid(), 0o770, ""), ()).give_tree(tree)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tree, tree / "below", tree / "below/file", outside)] == [
        *(0o770, 0o770, 0o660, 0o604)
    ]
