"""What is the directory's own: links instead of copies, durability in order, and what the system refuses."""

from __future__ import annotations

import errno
import math
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.errors import Capacity, Invalid, Retryable, StatecoreError
from statecore.objectstore.directory import DirectoryBlobs, Sharing
from tests.harness import mounts
from tests.harness.filesystems import with_clones, without_clones
from tests.harness.raising import raises

NOW = 1_795_392_000.0
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


def test_a_file_of_the_same_file_system_is_linked_and_its_bytes_are_not_copied(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"bytes")
    blobs = DirectoryBlobs(tmp_path / "blobs")
    blobs.put_if_absent("a/b", file)
    assert blobs.local_path("a/b").samefile(file)


def test_a_file_of_another_file_system_is_copied(tmp_path: Path) -> None:
    others = [path for path in ("/dev/shm", "/var/tmp") if Path(path).stat().st_dev != tmp_path.stat().st_dev]
    with tempfile.TemporaryDirectory(dir=others[0]) as elsewhere:
        file = Path(elsewhere, "file")
        file.write_bytes(b"bytes")
        blobs = DirectoryBlobs(tmp_path / "blobs")
        assert blobs.put_if_absent("a/b", file)
        assert blobs.put_if_absent("a/b", file) is False
        assert not blobs.local_path("a/b").samefile(file)
    assert blobs.get("a/b") == b"bytes"
    assert list((tmp_path / "blobs" / "~partial").iterdir()) == []


def test_directories_of_which_blobs_are_deleted_are_forced_to_the_disk_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = DirectoryBlobs(tmp_path / "blobs")
    names = [f"{directory}/{number}" for directory in ("a", "b") for number in range(3)]
    for name in names:
        blobs.put_if_absent(name, b"bytes")
    happened: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: happened.append(Path(f"/proc/self/fd/{number}").readlink().name))
    blobs.delete_all([*names, "a/none"])
    assert (list(blobs.list()), happened) == ([], ["a", "b"])


def test_a_directory_of_blobs_may_be_a_link(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path / "blobs")
    blobs.put_if_absent("a/files/1", b"bytes")
    (tmp_path / "blobs/a/files").rename(tmp_path / "larger")
    (tmp_path / "blobs/a/files").symlink_to(tmp_path / "larger")
    blobs.put_if_absent("a/files/2", b"bytes")
    assert [blob.name for blob in blobs.list("a/")] == ["a/files/1", "a/files/2"]
    (tmp_path / "larger/loop").symlink_to(tmp_path / "larger")
    with pytest.raises(StatecoreError):  # of names without end none may be taken for garbage
        list(blobs.list("a/"))


@pytest.mark.parametrize("as_file", [False, True])
@pytest.mark.parametrize("there", [False, True])
def test_the_bytes_then_the_name_then_every_directory_above_are_forced_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_file: bool, there: bool
) -> None:
    blobs = DirectoryBlobs(tmp_path / "blobs")
    file = tmp_path / "file"
    file.write_bytes(b"bytes")
    if there:
        DirectoryBlobs(tmp_path / "blobs").put_if_absent("a/b/c", b"bytes")  # another process, which may have died
    happened: list[str] = []

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        happened.append("bytes" if path.parent.name == "~partial" or path == file else path.name)

    link = os.link
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", lambda *paths, **options: (link(*paths, **options), happened.append("link")))
    blobs.put_if_absent("a/b/c", file if as_file else b"bytes")
    assert happened == [*(["c"] if there else ["bytes", "link"]), "b", "a", "blobs", tmp_path.name]


def test_blobs_that_pass_with_the_process_are_there_and_force_nothing_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"bytes")

    def fsync(descriptor: int) -> None:
        raise AssertionError(f"{descriptor} was forced to the disk")

    monkeypatch.setattr(os, "fsync", fsync)
    blobs = DirectoryBlobs(tmp_path / "blobs", temporary=True)
    assert blobs.put_if_absent("a/linked", file)
    assert blobs.put_if_absent("a/written", b"bytes")
    assert not blobs.put_if_absent("a/written", b"others")
    blobs.replace("a/linked", b"bytes")
    assert [blobs.get(name) for name in ("a/linked", "a/written")] == [b"bytes"] * 2


def test_directories_that_are_on_the_disk_are_forced_there_once_and_again_when_they_were_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = DirectoryBlobs(tmp_path / "blobs")
    happened: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: happened.append(Path(f"/proc/self/fd/{number}").readlink().name))

    def put(name: str) -> list[str]:
        happened.clear()
        assert blobs.put_if_absent(name, b"bytes")
        return happened[1:]  # without the bytes

    assert put("a/b/1") == ["b", "a", "blobs", tmp_path.name]
    assert put("a/b/2") == ["b"]
    assert put("a/c/1") == ["c", "a"]
    shutil.rmtree(tmp_path / "blobs" / "a")
    assert put("a/b/1") == ["b", "a", "blobs"]
    shutil.rmtree(tmp_path / "blobs")
    assert put("a/b/1") == ["b", "a", "blobs", tmp_path.name]


@pytest.mark.parametrize("as_file", [False, True])
def test_a_second_writer_syncs_what_the_first_has_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_file: bool
) -> None:
    blobs = DirectoryBlobs(tmp_path / "blobs")
    file = tmp_path / "file"
    file.write_bytes(b"bytes")
    happened: list[str] = []

    def link(_: object, final: Path, **__: object) -> None:
        final.write_bytes(b"of the first")
        happened.append("another was first")
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final))

    monkeypatch.setattr(os, "fsync", lambda number: happened.append(Path(f"/proc/self/fd/{number}").readlink().name))
    monkeypatch.setattr(os, "link", link)
    assert blobs.put_if_absent("a/b", file if as_file else b"bytes") is False
    assert happened[1:] == ["another was first", "b", "a", "blobs", tmp_path.name]


@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [
        (errno.ENOSPC, Capacity, "no-space"),
        (errno.EDQUOT, Capacity, "no-space"),
        (errno.EMFILE, Capacity, "too-many-open-files"),
        (errno.EACCES, Invalid, "permission-denied"),
        (errno.EROFS, Invalid, "read-only-file-system"),
        (errno.EIO, Retryable, "disk-failed"),
        (errno.ESTALE, Retryable, "disk-failed"),
    ],
)
def test_what_the_system_refuses_has_a_kind_and_nothing_is_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StatecoreError], code: str
) -> None:
    blobs = DirectoryBlobs(tmp_path / "blobs")

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with raises(kind, code, blob="a/b"):
            blobs.put_if_absent("a/b", b"bytes")
    assert list(blobs.list()) == []
    assert blobs.put_if_absent("a/b", b"bytes") is True


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV])
def test_a_file_system_without_hard_links_is_unsuitable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number), str(source), None, str(target))

    monkeypatch.setattr(os, "link", refuse)
    with raises(Invalid, "object-store-unsuitable", blob="a/b"):
        DirectoryBlobs(tmp_path / "blobs").put_if_absent("a/b", b"bytes")
    assert not list((tmp_path / "blobs/~partial").iterdir())


def test_what_killed_puts_have_left_is_deleted_by_its_age(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path)
    assert blobs.delete_leftovers(NOW) == []
    blobs.put_if_absent("a/b", b"bytes")
    for name, size, age in (("old", 7, 20), ("new", 9, 5)):
        left = tmp_path / "~partial" / name
        left.write_bytes(b"." * size)
        os.utime(left, (NOW - age, NOW - age))
    assert blobs.delete_leftovers(NOW - 10, apply=False) == [7]
    assert blobs.delete_leftovers(NOW - 10) == [7]
    assert [path.name for path in (tmp_path / "~partial").iterdir()] == ["new"]
    assert blobs.get("a/b") == b"bytes"


def test_a_put_whose_unfinished_file_is_deleted_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs, fsync = DirectoryBlobs(tmp_path), os.fsync

    def delete(descriptor: int) -> None:
        fsync(descriptor)
        DirectoryBlobs(tmp_path).delete_leftovers(math.inf)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", delete)
        with raises(Retryable, "disk-failed", blob="a/b"):
            blobs.put_if_absent("a/b", b"bytes")
    assert blobs.put_if_absent("a/b", b"bytes")


@pytest.mark.parametrize(
    ("number", "kind", "code"), [(errno.EACCES, Invalid, "permission-denied"), (errno.EIO, Retryable, "disk-failed")]
)
def test_a_directory_that_cannot_be_listed_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StatecoreError], code: str
) -> None:
    blobs, scandir = DirectoryBlobs(tmp_path / "blobs"), os.scandir
    blobs.put_if_absent("a/b/c", b"1")

    def refuse(path: str) -> object:
        if Path(path).name == "b":
            raise OSError(number, os.strerror(number), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with raises(kind, code):
        list(blobs.list())
    assert list(blobs.list("a/nothing/")) == []


def test_a_recreated_directory_is_synced_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = DirectoryBlobs(tmp_path / "blobs")
    blobs.put_if_absent("a/b/c", b"1")
    (tmp_path / "blobs/a").rename(tmp_path / "old")  # which keeps its inode from being given again
    (tmp_path / "blobs/a/b").mkdir(parents=True)
    happened: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: happened.append(Path(f"/proc/self/fd/{number}").readlink().name))
    blobs.put_if_absent("a/b/d", b"1")
    assert happened[-3:] == ["b", "a", "blobs"]


@pytest.mark.parametrize("sharing", Sharing)
def test_a_blob_stays_when_the_file_goes_that_a_symbolic_link_led_to(tmp_path: Path, sharing: Sharing) -> None:
    file, leading = tmp_path / "file", tmp_path / "leading"
    file.write_bytes(b"bytes")
    file.chmod(0o640)
    leading.symlink_to("file")
    blobs = DirectoryBlobs(tmp_path / "blobs", sharing)
    assert blobs.put_if_absent("a/b", leading)
    file.unlink()
    assert blobs.get("a/b") == b"bytes"
    assert leading.is_symlink()


@pytest.mark.parametrize("kind", ["link", "directory"])
@pytest.mark.parametrize("as_file", [True, False])
def test_what_is_no_file_in_the_place_of_a_blob_is_replaced(tmp_path: Path, kind: str, as_file: bool) -> None:
    file, final = tmp_path / "file", tmp_path / "blobs" / "a" / "b"
    file.write_bytes(b"bytes")
    final.parent.mkdir(parents=True)
    if kind == "link":
        final.symlink_to("nowhere")
    else:
        final.mkdir()
    blobs = DirectoryBlobs(tmp_path / "blobs")
    assert blobs.put_if_absent("a/b", file if as_file else b"bytes")
    assert blobs.get("a/b") == b"bytes"
    assert not final.is_symlink()


def test_a_directory_with_blobs_in_it_stays_and_no_blob_can_have_its_name(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path / "blobs")
    blobs.put_if_absent("a/b", b"bytes")
    with pytest.raises(Invalid):
        blobs.put_if_absent("a", b"")
    assert blobs.get("a/b") == b"bytes"


def test_a_name_below_a_blob_cannot_be(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path / "blobs")
    blobs.put_if_absent("a", b"")
    with pytest.raises(Invalid):
        blobs.put_if_absent("a/b", b"")


def test_no_blob_can_lie_where_blobs_are_written(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path / "blobs")
    assert blobs.put_if_absent(".partial/a", b"1")
    assert [blob.name for blob in blobs.list()] == [".partial/a"]
    with pytest.raises(Invalid):
        blobs.put_if_absent("~partial/a", b"1")


# What a file and its blob have in common


def put(place: Path, sharing: Sharing, mode: int = 0o600, owner: int | None = None) -> tuple[Path, Path]:
    """A file of this mode and owner, and the blob that it became."""
    file = place / "file"
    file.write_bytes(b"bytes")
    file.chmod(mode)
    if owner is not None:
        os.chown(file, owner, owner)
    before = file.stat()
    blobs = DirectoryBlobs(place / "blobs", sharing)
    assert blobs.put_if_absent("a/b", file)
    assert not blobs.put_if_absent("a/b", file)
    blob = blobs.local_path("a/b")
    assert blob.read_bytes() == b"bytes"
    after = file.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    partial = place / "blobs" / "~partial"
    assert not partial.exists() or not list(partial.iterdir())
    return file, blob


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask", "no_clones")
@pytest.mark.parametrize(("mode", "same"), [(0o640, True), (0o644, True), (0o600, False), (0o660, False)])
def test_in_a_repository_a_file_is_linked_where_it_has_the_mode_of_one_that_is_made_there(
    tmp_path: Path, mode: int, same: bool
) -> None:
    file, blob = put(tmp_path, Sharing.CLONES_OR_LINKS, mode)
    assert blob.samefile(file) is same
    assert stat.S_IMODE(blob.stat().st_mode) == (mode if same else 0o644)


@as_root
@pytest.mark.usefixtures("umask", "no_clones")
def test_in_a_repository_a_file_of_another_owner_is_copied_and_the_copy_is_the_repository_s(tmp_path: Path) -> None:
    file, blob = put(tmp_path, Sharing.CLONES_OR_LINKS, 0o644, owner=4242)
    assert not blob.samefile(file)
    assert (blob.stat().st_uid, blob.stat().st_gid) == (0, 0)


@as_root
@pytest.mark.usefixtures("umask", "no_clones")
@pytest.mark.parametrize("sharing", Sharing)
def test_files_that_root_puts_have_the_owner_of_the_repository(tmp_path: Path, sharing: Sharing) -> None:
    os.chown(tmp_path, 4242, 4243)
    DirectoryBlobs(tmp_path / "blobs", sharing).put_if_absent("a/bytes", b"bytes")
    found = (tmp_path / "blobs/a/bytes").stat()
    assert (found.st_uid, found.st_gid) == (4242, 4243)
    if sharing is not Sharing.HARD_LINKS:
        _, blob = put(tmp_path, sharing, 0o640)
        assert (blob.stat().st_uid, blob.stat().st_gid) == (4242, 4243)


@pytest.mark.usefixtures("umask", "no_clones")
def test_where_copies_were_asked_for_nothing_is_linked(tmp_path: Path) -> None:
    file, blob = put(tmp_path, Sharing.CLONES_ONLY, 0o644)
    assert not blob.samefile(file)


@pytest.fixture
def no_clones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system of these tests may be one that clones."""
    without_clones(monkeypatch)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("sharing", [Sharing.CLONES_OR_LINKS, Sharing.CLONES_ONLY])
def test_a_file_is_cloned_rather_than_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sharing: Sharing) -> None:
    with_clones(monkeypatch)
    file, blob = put(tmp_path, sharing, 0o640)
    assert blob.read_bytes() == file.read_bytes()
    assert not blob.samefile(file)
    assert stat.S_IMODE(blob.stat().st_mode) == 0o644


@pytest.mark.parametrize("kind", sorted(mounts.CLONING))
def test_on_a_file_system_that_clones_a_blob_takes_no_room_and_no_damage(tmp_path: Path, kind: str) -> None:
    with mounts.cloning_disk(tmp_path / "disk", kind) as disk:
        content = os.urandom(20 << 20)
        file = disk / "file"
        file.write_bytes(content)
        blobs = DirectoryBlobs(disk / "blobs", Sharing.CLONES_OR_LINKS)
        before = _free(disk)
        assert blobs.put_if_absent("a/b", file)
        assert before - _free(disk) < 4 << 20
        file.write_bytes(b"damage")
        file.chmod(0)
        assert blobs.get("a/b") == content


def _free(path: Path) -> int:
    os.sync()
    system = os.statvfs(path)
    return system.f_bfree * system.f_frsize


@pytest.mark.parametrize("as_clone", [False, True])
def test_a_clone_or_copy_is_forced_to_the_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_clone: bool
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"bytes")
    happened: list[str] = []

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        happened.append("bytes" if path.parent.name == "~partial" else path.name)

    link = os.link
    (with_clones if as_clone else without_clones)(monkeypatch)
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", lambda *paths, **options: (link(*paths, **options), happened.append("link")))
    DirectoryBlobs(tmp_path / "blobs", Sharing.CLONES_ONLY).put_if_absent("a/b", file)
    assert happened == ["bytes", "link", "a", "blobs", tmp_path.name]


def special(path: Path, kind: str) -> Path:
    """Something at a path that is not a regular file."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_what_is_not_a_regular_file_is_refused_where_a_blob_is_expected_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)  # the address of a socket is short
    special(Path("blob"), kind)
    blobs = DirectoryBlobs(tmp_path)
    for call in (
        lambda: blobs.get("blob"),
        lambda: blobs.head("blob"),
        lambda: blobs.local_path("blob"),
        lambda: blobs.put_if_absent("blob", b"new"),
    ):
        with raises(Invalid, "file-not-regular", blob="blob", directory=str(tmp_path)):
            call()
    assert list(blobs.list()) == []
