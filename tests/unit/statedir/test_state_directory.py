"""Where things are in a state directory, and that only one process may change it."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from statecore.errors import Capacity, Fenced, Invalid
from statecore.filesystem import make_directories, write_durably
from statecore.formats.kinds import StoreKind
from statecore.statedir import state_directory
from statecore.statedir.file_ownership import Process
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness import mounts
from tests.harness.raising import raises
from tests.unit.statedir.lost_lock import at_work


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path / "state", "orders")


def in_another_process(code: str, *arguments: object) -> str:
    run = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip()


TRY_LOCK = """
    import fcntl, sys
    file = open(sys.argv[1], "r+")
    try:
        # What Java's FileChannel.tryLock() does: a write lock from 0 to Long.MAX_VALUE.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 2**63 - 1, 0)
        print("free")
    except OSError:
        print("taken")
"""


def test_store_paths_are_those_of_kafka_streams(directory):
    assert directory.store_path("0_1", "s", StoreKind.TIMESTAMPED_KEY_VALUE) == directory.path / "0_1/rocksdb/s"
    assert directory.store_path("0_1", "s", StoreKind.VERSIONED_KEY_VALUE) == directory.path / "0_1/rocksdb/s"
    assert directory.store_path("0_1", "s", StoreKind.LIST) == directory.path / "0_1/rocksdb/s"
    for kind in (StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION, StoreKind.GRACE_BUFFER, StoreKind.JOIN_WINDOW):
        assert directory.store_path("0_1", "s", kind) == directory.path / "0_1/s"


@pytest.mark.parametrize("task", ["", "0", "0_", "../0_1", "0_1/x", "global/x", "a_b", "-1_0", ".statecore"])
def test_what_is_no_task_has_no_path(directory, task):
    with pytest.raises(ValueError, match="is not a task"):
        directory.task_path(task)


def test_the_stores_of_a_task_are_listed_with_their_databases(directory):
    for task in ("0_0", "global"):
        path = directory.path / task
        for database in ("rocksdb/plain", "rocksdb/a.position", "w/w.60000", "w/w.120000", "w/w.0", "b/b.0"):
            (path / database).mkdir(parents=True)
            (path / database / "CURRENT").touch()
        for empty in ("rocksdb/new", "idle", "w/rest"):
            (path / empty).mkdir()
        for file in (".checkpoint", ".checkpoint_b", "plain.position", "rocksdb/file"):
            (path / file).touch()
        found = directory.stores(task)
        assert [
            (one.store, one.name, one.segmented, [str(database.relative_to(path)) for database in one.databases])
            for one in found
        ] == [
            ("a.position", "rocksdb/a.position", False, ["rocksdb/a.position"]),
            ("new", "rocksdb/new", False, []),
            ("plain", "rocksdb/plain", False, ["rocksdb/plain"]),
            ("b", "b", True, ["b/b.0"]),
            ("idle", "idle", True, []),
            ("w", "w", True, ["w/w.0", "w/w.60000", "w/w.120000"]),
        ]
        assert {one.store: one.checkpoint for one in found if one.checkpoint} == {"b": path / ".checkpoint_b"}
        assert all(one.path == path / one.name for one in found)
    assert directory.stores("0_9") == []
    assert directory.global_path == directory.task_path("global") == directory.path / "global"


def test_a_database_is_found_also_where_a_processor_keeps_it_in_a_place_for_segments(directory):
    for database in ("odd", "rocksdb/strange/strange.0"):
        (directory.path / "0_0" / database).mkdir(parents=True)
        (directory.path / "0_0" / database / "CURRENT").touch()
    found = {one.name: one.databases for one in directory.stores("0_0")}
    path = directory.path / "0_0"
    assert found == {"rocksdb/strange": (path / "rocksdb/strange/strange.0",), "odd": (path / "odd",)}


def test_task_directories_are_found_in_numeric_order_and_nothing_else_is(directory):
    for name in ("0_10", "0_2", "1_0", "__north__/x", "global", ".statecore/0_9", "0_1x"):
        (directory.path / name).mkdir(parents=True)
    (directory.path / "0_7").touch()
    assert directory.task_directories() == ["0_2", "0_10", "1_0"]
    assert StateDirectory(directory.state_dir, "other").task_directories() == []


def test_a_directory_with_tasks_of_a_named_topology_is_refused_and_stays_as_it_is(directory):
    (directory.path / "__north__" / "0_3").mkdir(parents=True)
    with raises(Invalid, "named-topology-unsupported", path=str(directory.path / "__north__")):
        directory.task_directories()
    with raises(Invalid, "named-topology-unsupported"), directory.lock():
        pass
    assert [path.name for path in directory.path.iterdir() if path.name != ".lock"] == ["__north__"]


def test_the_lock_excludes_others_until_it_is_released_and_makes_the_directory(directory):
    file = directory.path / ".lock"
    with directory.lock():
        assert directory.path.stat().st_mode & 0o7777 == 0o750
        assert directory.work_path.is_dir()
        assert in_another_process(TRY_LOCK, file) == "taken"
    assert in_another_process(TRY_LOCK, file) == "free"
    assert file.exists()


def test_a_lock_that_another_process_holds_fences_us(directory):
    directory.path.mkdir(parents=True)
    code = """
        import fcntl, sys
        file = open(sys.argv[1], "w")
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print("locked", flush=True)
        sys.stdin.read()
    """
    run = [sys.executable, "-c", textwrap.dedent(code), str(directory.path / ".lock")]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(Fenced, match=rf"in use: process {process.pid} \(\w+.*\) holds its lock") as caught:
            directory.lock()
        assert "Stop the application orders" in caught.value.action
        assert not directory.work_path.exists()
        process.communicate("")
    directory.lock().release()


def test_a_second_lock_in_one_process_is_refused_and_does_not_drop_the_first(directory):
    with directory.lock():
        with pytest.raises(Fenced, match="this process"):
            StateDirectory(directory.state_dir, "orders").lock()
        assert in_another_process(TRY_LOCK, directory.path / ".lock") == "taken"
    directory.lock().release()


@pytest.mark.parametrize("task", ["0_1", "global"])
@pytest.mark.parametrize("how", ["lost", "released"])
def test_an_application_that_has_lost_its_lock_and_works_on_fences_us(directory, task, how):
    """Who has let go of the lock may have stores open, as a processor on this library's stores has.

    A store that its topology has no more is opened by nobody.
    """
    left = directory.store_path(task, "a", StoreKind.KEY_VALUE)
    left.parent.mkdir(parents=True)
    with RocksDBStore(left, StoreKind.KEY_VALUE, create=True):
        pass
    with at_work(directory, directory.store_path(task, "s", StoreKind.KEY_VALUE), how) as process:
        lock = directory.path / ".lock"
        holder = directory.in_use_by()
        if how == "lost":
            with raises(Fenced, "application-running-without-lock", process=process):
                directory.lock()
            assert in_another_process(TRY_LOCK, lock) == "free"
            assert holder is not None
            assert (holder.process, holder.lost) == (process, True)
            assert "lost its lock" in str(holder)
        else:
            assert holder is None
            directory.lock().release()
    assert directory.in_use_by() is None
    directory.lock().release()


def test_work_without_the_lock_is_refused(directory):
    with raises(Fenced, "lock-not-held"):
        directory.check_locked()
    with directory.lock():
        directory.check_locked()
    with raises(Fenced, "lock-lost"):
        directory.check_locked()


def test_a_directory_that_was_replaced_below_us_is_noticed(directory):
    with directory.lock():
        (directory.path / ".lock").rename(directory.path / "old")
        (directory.path / ".lock").touch()
        with raises(Fenced, "lock-lost"):
            directory.check_locked()


def test_a_lock_that_was_dropped_and_taken_by_another_is_noticed(directory):
    with directory.lock() as lock:
        fcntl.lockf(lock._descriptor, fcntl.LOCK_UN)  # what closing any other descriptor of the file does
        code = TRY_LOCK + "\n    print('holding', flush=True)\n    sys.stdin.read()"
        run = [sys.executable, "-c", textwrap.dedent(code), str(directory.path / ".lock")]
        with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(2)] == ["free\n", "holding\n"]
            with raises(Fenced, "lock-lost"):
                directory.check_locked()
            process.communicate("")


def test_a_path_that_cannot_be_a_state_directory_is_invalid(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "app").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    codes = {"file": "state-directory-invalid", "state": "state-directory-invalid"}
    codes |= {"dangling": "state-directory-invalid", "file/below": "permission-denied"}
    for state_dir, code in codes.items():
        with raises(Invalid, code):
            StateDirectory(tmp_path / state_dir, "app").lock()


def test_the_application_s_own_directory_is_no_state_directory(tmp_path):
    inner = tmp_path / "state" / "orders"
    (inner / "0_1").mkdir(parents=True)
    with (
        raises(Invalid, "application-directory-given", state_dir=str(inner), expected=str(tmp_path / "state")),
        StateDirectory(inner, "orders").lock(),
    ):
        pass
    assert [path.name for path in inner.iterdir()] == ["0_1"]
    with StateDirectory(inner, "0_1").lock():
        assert (inner / "0_1" / ".lock").exists(), "an application may be called like a task"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="Linux")
def test_an_uncreatable_directory_is_not_reported_as_another_job(monkeypatch):
    with raises(Invalid, "state-directory-invalid", state_dir="/proc/state"):
        StateDirectory(Path("/proc/state"), "orders").check_usable()
    monkeypatch.setattr("statecore.statedir.state_directory.is_virtual_file_system", lambda _: False)
    with (
        raises(Invalid, "system-refused", state_dir="/proc/state/orders"),
        StateDirectory(Path("/proc/state"), "orders").lock(),
    ):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_rights_is_invalid(tmp_path):
    tmp_path.chmod(0o500)
    with raises(Invalid, "permission-denied", path=str(tmp_path)):
        StateDirectory(tmp_path / "state", "app").lock()


@pytest.mark.parametrize("made", [False, True])
def test_a_read_only_file_system_is_named_as_such(tmp_path, made):
    with mounts.disk(tmp_path / "disk", "1m") as disk:
        directory = StateDirectory(disk.path / "state", "app")
        if made:
            directory.path.mkdir(parents=True)
        disk.remount("ro")
        for use in (directory.lock, directory.check_usable):
            with raises(Invalid, "read-only-file-system") as caught:
                use()
        assert str(disk.path) in caught.value.what
        assert "Remount it writable" in caught.value.action


def test_too_little_room_is_refused_with_both_numbers(directory):
    directory.ensure_free_space(1 << 20)
    with raises(Capacity, "no-space", needed=1 << 50):
        directory.ensure_free_space(1 << 50)
    assert not directory.state_dir.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_what_root_makes_in_the_directory_of_another_user_belongs_to_that_user(tmp_path):
    directory = StateDirectory(tmp_path / "state", "app")
    directory.path.mkdir(parents=True)
    for path in (directory.state_dir, directory.path):
        os.chown(path, 65534, 65534)
    with directory.lock():
        make_directories(directory.work_path / "plans")
        write_durably(directory.work_path / "plans" / "one.json", b"{}")
    made = [directory.path / ".lock", directory.work_path, *directory.work_path.rglob("*")]
    assert len(made) == 4
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(65534, 65534)}


def test_a_directory_of_another_user_is_refused_because_the_application_could_not_write_the_stores(
    tmp_path, monkeypatch
):
    directory = StateDirectory(tmp_path / "state", "app")
    directory.path.mkdir(parents=True)
    mine = directory.path.stat().st_uid
    other = Process(mine + 4242, mine + 4242, frozenset({mine + 4242}), may_chown=False)
    monkeypatch.setattr(state_directory, "this_process", lambda: other)
    with raises(Invalid, "chown-not-permitted", owner=mine, user=mine + 4242):
        directory.lock()
    assert list(directory.path.iterdir()) == []


# What was made for nothing


def fail(directory: StateDirectory, plan: str | None = None) -> None:
    with directory.lock():
        make_directories(directory.work_path / "plans")
        if plan is not None:
            (directory.work_path / "plans" / plan).touch()
        (directory.path / "absent").read_bytes()


@pytest.mark.parametrize(("above", "file"), [(0o755, 0o644), (0o750, 0o640), (0o700, 0o600)])
def test_a_file_that_is_written_durably_is_no_more_open_than_its_directory(tmp_path, above, file):
    tmp_path.chmod(above)
    before = os.umask(0o022)
    try:
        write_durably(tmp_path / "one.json", b"{}")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "one.json").stat().st_mode) == file


def test_a_refused_job_leaves_nothing_behind_where_nothing_was(tmp_path):
    directory = StateDirectory(tmp_path / "var" / "state", "app")
    with pytest.raises(FileNotFoundError):
        fail(directory)
    assert list(tmp_path.iterdir()) == []


def test_a_refused_job_leaves_what_was_there_as_it_was(tmp_path):
    directory = StateDirectory(tmp_path, "app")
    directory.task_path("0_0").mkdir(parents=True)
    with pytest.raises(ValueError, match="no"), directory.lock():
        raise ValueError("no")
    assert [path.name for path in directory.path.iterdir()] == ["0_0"]
    (directory.path / ".lock").touch()
    with pytest.raises(ValueError, match="no"), directory.lock():
        raise ValueError("no")
    assert sorted(path.name for path in directory.path.iterdir()) == [".lock", "0_0"]


def test_a_job_that_failed_and_has_work_to_go_on_with_keeps_it_and_the_lock(tmp_path):
    directory = StateDirectory(tmp_path, "app")
    with pytest.raises(FileNotFoundError):
        fail(directory, plan="one.json")
    assert (directory.work_path / "plans" / "one.json").exists()
    assert (directory.path / ".lock").exists()


def test_a_lock_file_opened_before_its_deletion_is_not_held(directory, monkeypatch):
    """The file vanishes between opening and locking: the lock is taken on the file of that name, not on its ghost."""
    directory.path.mkdir(parents=True)
    (directory.path / ".lock").touch()
    real, taken = fcntl.lockf, []

    def lockf(descriptor, *arguments):
        if not taken:
            taken.append((directory.path / ".lock").unlink())
        return real(descriptor, *arguments)

    monkeypatch.setattr(fcntl, "lockf", lockf)
    with directory.lock():
        monkeypatch.undo()
        assert in_another_process(TRY_LOCK, directory.path / ".lock") == "taken"
        directory.check_locked()


def test_a_directory_that_another_refused_job_takes_away_meanwhile_is_made_again(directory, monkeypatch):
    real, goes = os.open, [True, True]

    def opened(path, flags, *more, **how):
        if flags & os.O_CREAT and path == directory.path / ".lock" and goes and goes.pop():
            shutil.rmtree(directory.path)
        return real(path, flags, *more, **how)

    monkeypatch.setattr(os, "open", opened)
    with directory.lock() as held:
        held.check()
        assert directory.work_path.is_dir()
    assert not goes


def test_releasing_a_lost_lock_keeps_that_of_the_application(directory):
    """The directory was deleted below the job, and the application started there: its lock is not ours to delete."""

    def work() -> None:
        with directory.lock():
            shutil.rmtree(directory.path)
            directory.path.mkdir()
            (directory.path / ".lock").touch()
            directory.check_locked()

    with raises(Fenced, "lock-lost"):
        work()
    assert (directory.path / ".lock").exists()


def test_a_lock_that_cannot_be_taken_away_is_released_and_does_not_hide_why_the_job_failed(directory, monkeypatch):
    def denied(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    def work() -> None:
        with directory.lock():
            monkeypatch.setattr(Path, "unlink", denied)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        work()
    monkeypatch.undo()
    directory.lock().release()
