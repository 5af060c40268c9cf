"""What every implementation of pointers must do; see the text of ``statecore.objectstore.pointers``."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import pytest

from statecore.errors import Invalid, Retryable
from statecore.objectstore import directory
from statecore.objectstore.directory import DirectoryBlobs, DirectoryPointers
from statecore.objectstore.pointers import Pointers, PointerValue
from tests.harness.raising import raises
from tests.harness.syncing import synced_paths
from tests.unit.objectstore.implementations import IMPLEMENTATIONS, POINTERS
from tests.unit.objectstore.swapping_process import count_up

WRITERS, EACH = 4, 25


@pytest.fixture(params=sorted(POINTERS))
def implementation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pointers(implementation: str, tmp_path: Path) -> Pointers:
    return POINTERS[implementation](tmp_path)


def test_a_pointer_is_made_once_and_replaced_by_who_knows_its_version(pointers: Pointers) -> None:
    assert pointers.read("apps/a/head") is None
    first = pointers.swap("apps/a/head", b"1", None)
    assert first is not None
    assert pointers.read("apps/a/head") == (b"1", first)
    assert pointers.swap("apps/a/head", b"other", None) is None
    second = pointers.swap("apps/a/head", b"2", first)
    assert second not in (None, first)
    assert pointers.swap("apps/a/head", b"3", first) is None
    assert pointers.read("apps/a/head") == (b"2", second)


def test_a_version_of_a_pointer_that_is_not_there_matches_nothing(pointers: Pointers) -> None:
    made = pointers.swap("one", b"1", None)
    assert pointers.swap("two", b"2", made) is None
    assert pointers.read("two") is None


@pytest.mark.parametrize("name", ["", "/", "a//b", "..", "a b"])
def test_a_name_that_cannot_be_is_refused(pointers: Pointers, name: str) -> None:
    with raises(Invalid, "blob-name-invalid"):
        pointers.read(name)
    with raises(Invalid, "blob-name-invalid"):
        pointers.swap(name, b"", None)


def test_blobs_of_the_same_place_are_listed_all_the_same(
    pointers: Pointers, implementation: str, tmp_path: Path
) -> None:
    blobs = IMPLEMENTATIONS[implementation](tmp_path)
    blobs.put_if_absent("apps/a/blob", b"1")
    pointers.swap("apps/a/head", b"1", None)
    assert [blob.name for blob in blobs.list()] == ["apps/a/blob", "apps/a/head"]


def test_of_many_who_make_one_at_once_one_wins(pointers: Pointers) -> None:
    for number in range(10):
        barrier, won = threading.Barrier(8), []

        def make(who: int, name: str = f"race/{number}", barrier: threading.Barrier = barrier, won=won) -> None:
            barrier.wait(60)
            if pointers.swap(name, b"%d" % who, None) is not None:
                won.append(who)

        threads = [threading.Thread(target=make, args=(who,)) for who in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = won
        found = pointers.read(f"race/{number}")
        assert found is not None
        assert found.content == b"%d" % winner


def test_no_swap_is_lost_among_threads(pointers: Pointers) -> None:
    threads = [threading.Thread(target=count_up, args=(pointers, f"t{who}", EACH)) for who in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = pointers.read("counter")
    assert found is not None
    assert found.content.split()[0] == b"%d" % (WRITERS * EACH)


def test_no_swap_is_lost_among_processes(implementation: str, tmp_path: Path) -> None:
    pointers = POINTERS[implementation](tmp_path)
    words = [sys.executable, "-m", "tests.unit.objectstore.swapping_process", implementation, str(tmp_path)]
    running = [subprocess.Popen([*words, f"p{who}", str(EACH)]) for who in range(2)]
    assert [one.wait(120) for one in running] == [0, 0]
    found = pointers.read("counter")
    assert found is not None
    assert found.content.split()[0] == b"%d" % (2 * EACH)


def test_a_pointer_of_a_directory_is_forced_to_the_disk_before_it_has_its_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "pointers"
    pointers = DirectoryPointers(root)
    before = pointers.swap("apps/a/head", b"1", None)
    synced = synced_paths(monkeypatch)
    assert pointers.swap("apps/a/head", b"2", before)
    content = [path.parent for path in synced].index(root / "~partial")
    assert synced[content + 1 :] == [root / "apps/a", root / "apps", root, tmp_path]


def test_one_swap_wins_if_the_lock_file_is_deleted_while_it_is_held(tmp_path: Path) -> None:
    won: list[str | None] = []

    class Interrupted(DirectoryPointers):
        def read(self, name: str) -> PointerValue | None:
            found = super().read(name)
            if not won:
                delete_locks(tmp_path)
                won.append(DirectoryPointers(tmp_path).swap(name, b"second", first))
            return found

    first = swapped(tmp_path)
    assert Interrupted(tmp_path).swap("head", b"third", first) is None
    assert DirectoryPointers(tmp_path).read("head") == (b"second", won[0])


def test_a_swap_that_waited_for_a_deleted_lock_file_takes_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, flock = swapped(tmp_path), fcntl.flock
    locked = []

    def delete_after(file: IO[str], how: int) -> None:
        flock(file, how)
        if not locked:
            delete_locks(tmp_path)
        locked.append(how)

    monkeypatch.setattr(fcntl, "flock", delete_after)
    assert DirectoryPointers(tmp_path).swap("head", b"second", first) is not None
    assert locked == [fcntl.LOCK_EX] * 2


def test_a_swap_whose_lock_file_is_deleted_as_it_replaces_the_pointer_is_of_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, replace = swapped(tmp_path), Path.replace

    def delete_before(path: Path, target: Path) -> Path:
        delete_locks(tmp_path)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", delete_before)
    with raises(Retryable, "write-outcome-unknown", pointer="head"):
        DirectoryPointers(tmp_path).swap("head", b"second", first)


@pytest.mark.parametrize("stalls_in", ["replace", "chown"])
def test_a_swap_that_stalls_after_the_last_check_of_its_lock_file_does_not_undo_that_of_the_next_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stalls_in: str
) -> None:
    first = swapped(tmp_path)
    won: list[str | None] = []

    def stall() -> None:
        if not won:
            won.append(None)
            delete_locks(tmp_path)
            won[0] = DirectoryPointers(tmp_path).swap("head", b"second", first)

    replace, give = Path.replace, directory.give_to_owner

    def replaced(path: Path, target: Path) -> Path:
        stall()
        return replace(path, target)

    def given(path: Path) -> None:
        if path.parent.name == "~partial":
            stall()
        give(path)

    if stalls_in == "replace":
        monkeypatch.setattr(Path, "replace", replaced)
    else:
        monkeypatch.setattr(directory, "give_to_owner", given)
    assert DirectoryPointers(tmp_path).swap("head", b"third", first) is None
    assert won[0] is not None
    assert DirectoryPointers(tmp_path).read("head") == (b"second", won[0])
    assert not list((tmp_path / "~partial").iterdir())


def test_a_rename_that_nfs_repeats_because_its_answer_was_lost_has_been_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, replace = swapped(tmp_path), Path.replace

    def repeated(path: Path, target: Path) -> Path:
        replace(path, target)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", repeated)
    second = DirectoryPointers(tmp_path).swap("head", b"second", first)
    assert DirectoryPointers(tmp_path).read("head") == (b"second", second)


def test_what_a_killed_swap_has_left_is_deleted_by_the_next_of_that_pointer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(path: Path, target: Path) -> Path:
        raise Killed

    first = swapped(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(Killed):
            DirectoryPointers(tmp_path).swap("head", b"second", first)
    assert DirectoryPointers(tmp_path).swap("other", b"first", None)
    assert len(list((tmp_path / "~partial").iterdir())) == 1
    assert DirectoryPointers(tmp_path).swap("head", b"third", first)
    assert not list((tmp_path / "~partial").iterdir())


def test_pointers_share_a_bounded_number_of_lock_files(tmp_path: Path) -> None:
    pointers = DirectoryPointers(tmp_path)
    for number in range(300):
        assert pointers.swap(f"jobs/{number}", b"1", None)
    assert len(list((tmp_path / "~locks").iterdir())) <= 256


def test_what_a_killed_swap_has_left_is_deleted_by_its_age_beside_a_swap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, replace, deleted = swapped(tmp_path), Path.replace, list[int]()

    def delete_before(path: Path, target: Path) -> Path:
        if not deleted:
            deleted.extend(DirectoryBlobs(tmp_path).delete_leftovers(math.inf))
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", delete_before)
    assert DirectoryPointers(tmp_path).swap("head", b"second", first)
    assert deleted == [6]


@pytest.mark.parametrize("number", [errno.ESTALE, errno.ETIMEDOUT, errno.ENOLCK, errno.EREMOTEIO, errno.EIO])
def test_a_server_of_files_that_does_not_answer_is_worth_another_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    first = swapped(tmp_path)

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    for name, call in (
        ("directory.read_regular", lambda: DirectoryPointers(tmp_path).read("head")),
        ("directory.fcntl.flock", lambda: DirectoryPointers(tmp_path).swap("head", b"second", first)),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(f"statecore.objectstore.{name}", refuse)
            with raises(Retryable, "disk-failed", pointer="head"):
                call()


def test_a_pointer_that_another_machine_replaces_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, read, failed = swapped(tmp_path), directory.read_regular, list[Path]()

    def stale_once(path: Path) -> bytes:
        if not failed:
            failed.append(path)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return read(path)

    monkeypatch.setattr(directory, "read_regular", stale_once)
    assert DirectoryPointers(tmp_path).read("head") == (b"new", version)


def test_a_file_system_without_locks_is_unsuitable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with raises(Invalid, "object-store-unsuitable", pointer="head"):
        swapped(tmp_path)


def delete_locks(root: Path) -> None:
    for file in (root / "~locks").iterdir():
        file.unlink()


def test_a_pipe_in_the_place_of_a_pointer_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "head")
    for call in (lambda: DirectoryPointers(tmp_path).read("head"), lambda: swapped(tmp_path)):
        with raises(Invalid, "file-not-regular", pointer="head"):
            call()


def swapped(root: Path) -> str | None:
    return DirectoryPointers(root).swap("head", b"new", None)
