"""Task directories are replaced by changed copies of themselves, or stay as they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import mkdtemp

import pytest

from statecore.errors import Fenced, Invalid, Retryable
from statecore.faults import NO_FAULTS, PLACEMENT_POINTS, FaultInjected, InjectedFault
from statecore.progress import NullProgress
from statecore.statedir.file_trees import file_sizes, fingerprint
from statecore.statedir.placement import recover
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.task_copies import PlacementOutcome, TaskCopies
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.another_user import another_user
from tests.harness.raising import raises
from tests.harness.syncing import synced_paths
from tests.unit.statedir import support
from tests.unit.statedir.support import KIND, changelog, make_database

TASKS = ("0_0", "0_1", "global")


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    """Three tasks with a store of three rows each, and a file with offsets beside it."""
    made = StateDirectory(tmp_path, "app")
    for task in TASKS:
        path = made.task_path(task)
        with RocksDBStore(path / "rocksdb" / "s", KIND, create=True) as store:
            for number in range(3):
                store.put(b"%d" % number, b"old")
            store.commit({changelog("0_0", "s"): 5})
        (path / ".checkpoint").write_text("0\n0\n")
    return made


def exchanged(directory: StateDirectory, *tasks: str, keeps: bool = False, faults: InjectedFault | None = None) -> Path:
    """A row more in each copy, and no file beside it; where what was kept lies."""
    with (
        directory.lock(),
        TaskCopies(directory, "request", faults or NO_FAULTS, NullProgress(), keeps=keeps) as exchange,
    ):
        for task in tasks:
            exchange.keep(task, [".checkpoint"])
            copy = exchange.copy(task)
            (copy / ".checkpoint").unlink()
            with RocksDBStore(copy / "rocksdb" / "s", KIND) as store:
                store.put(b"new", b"new")
                store.commit({changelog("0_0", "s"): 6})
        assert exchange.swap(tasks) == dict.fromkeys(tasks, PlacementOutcome.PLACED)
        return exchange.kept_path


def rows(path: Path) -> int:
    with RocksDBStore(path / "rocksdb" / "s", KIND, read_only=True) as store:
        return len(list(store.all()))


def is_new(directory: StateDirectory, task: str) -> bool:
    path = directory.task_path(task)
    new = rows(path) == 4
    assert new is not (path / ".checkpoint").exists()
    return new


def test_copies_take_the_place_of_the_live_directories(directory: StateDirectory) -> None:
    other = fingerprint(directory.task_path("global"))
    kept = exchanged(directory, "0_0", "0_1")
    assert [is_new(directory, task) for task in TASKS] == [True, True, False]
    assert fingerprint(directory.task_path("global")) == other
    assert file_sizes(kept) == {"0_0/": 0, "0_0/.checkpoint": 4, "0_1/": 0, "0_1/.checkpoint": 4}
    assert {path.name for path in directory.work_path.iterdir()} == {"placed.json", "replaced"}


def test_what_was_replaced_is_kept_for_a_week_if_that_is_asked_for(directory: StateDirectory) -> None:
    kept = exchanged(directory, "0_0", keeps=True)
    assert rows(kept / "0_0") == 3
    now = kept.stat().st_mtime
    for days, there in ((6.9, True), (7.1, False)):
        with directory.lock():
            recover(directory, clock=lambda days=days: now + days * 86_400)
        assert kept.exists() is there


def test_what_was_replaced_while_the_clock_was_wrong_is_kept_for_a_week_by_the_right_one(
    directory: StateDirectory,
) -> None:
    kept = exchanged(directory, "0_0", keeps=True)
    now = kept.stat().st_mtime
    os.utime(kept, (60, 60))
    for days, there in ((0.1, True), (7.0, True), (7.2, False)):
        with directory.lock():
            recover(directory, clock=lambda days=days: now + days * 86_400)
        assert kept.exists() is there


def test_a_copy_shares_the_data_with_the_live_directory(directory: StateDirectory) -> None:
    with directory.lock(), TaskCopies(directory, "r", NO_FAULTS, NullProgress(), keeps=False) as exchange:
        live, copy = directory.task_path("0_0"), exchange.copy("0_0")
        assert list(live.rglob("*.sst"))
        for file in live.rglob("*"):
            assert file.samefile(copy / file.relative_to(live)) is (file.suffix == ".sst")


def test_nothing_is_left_where_nothing_was_put_in_place(directory: StateDirectory) -> None:
    before = {task: fingerprint(directory.task_path(task)) for task in TASKS}
    with directory.lock(), TaskCopies(directory, "r", NO_FAULTS, NullProgress(), keeps=False) as exchange:
        exchange.copy("0_0")
        assert list(directory.work_path.iterdir())
    assert {task: fingerprint(directory.task_path(task)) for task in TASKS} == before
    assert not list(directory.work_path.iterdir())


def test_a_directory_that_changed_meanwhile_is_not_replaced(directory: StateDirectory) -> None:
    with directory.lock(), TaskCopies(directory, "r", NO_FAULTS, NullProgress(), keeps=False) as exchange:
        for task in ("0_0", "0_1"):
            exchange.copy(task)
        with RocksDBStore(directory.task_path("0_1") / "rocksdb" / "s", KIND) as store:
            store.put(b"late", b"late")
            store.commit({changelog("0_0", "s"): 6})
        with raises(Retryable, "task-directory-changed", task="0_1"):
            exchange.swap(["0_0", "0_1"])
    assert [rows(directory.task_path(task)) for task in TASKS] == [3, 4, 3]


def test_a_store_that_is_open_is_neither_copied_nor_replaced(directory: StateDirectory) -> None:
    with directory.lock(), TaskCopies(directory, "r", NO_FAULTS, NullProgress(), keeps=False) as exchange:
        with RocksDBStore(directory.task_path("0_0") / "rocksdb" / "s", KIND), pytest.raises(Fenced):
            exchange.copy("0_0")


@pytest.mark.parametrize("name", ["", "rocksdb", "rocksdb/s"])
def test_what_is_a_link_is_not_copied_for_a_change_would_be_one_of_the_live_directory(
    directory: StateDirectory, tmp_path: Path, name: str
) -> None:
    place = directory.task_path("0_0") / name
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with directory.lock(), TaskCopies(directory, "r", NO_FAULTS, NullProgress(), keeps=False) as exchange:
        with pytest.raises(Invalid, match="is a link to"):
            exchange.copy("0_0")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_keeps_belongs_to_the_owner_who_deletes_it_a_week_later(directory: StateDirectory) -> None:
    for path in (directory.path, *directory.path.rglob("*")):
        os.chown(path, 4242, 4243)
    kept = exchanged(directory, "0_0")
    assert {(path.stat().st_uid, path.stat().st_gid) for path in (kept, *kept.rglob("*"))} == {(4242, 4243)}


@pytest.mark.parametrize("point", [point for point in PLACEMENT_POINTS if point != "placement.between-renames"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_change_that_failed_at_any_point_leaves_each_task_old_or_new(
    directory: StateDirectory, point: str, nth: int
) -> None:
    tasks = ("0_0", "0_1")
    fault = InjectedFault(point, nth=nth)
    try:
        exchanged(directory, *tasks, keeps=True, faults=fault)
    except FaultInjected:
        assert [is_new(directory, task) for task in TASKS] in ([False] * 3, [True, False, False], [True, True, False])
    with directory.lock():
        recover(directory)
    news = [is_new(directory, task) for task in TASKS]
    assert news in ([False] * 3, [True, True, False])
    replaced = directory.work_path / "replaced"
    if news[0]:
        assert [rows(next(replaced.iterdir()) / task) for task in tasks] == [3, 3]
    else:
        assert not replaced.exists()
        exchanged(directory, *tasks)
        assert is_new(directory, "0_0")
    assert not list(directory.work_path.glob("placement-*"))


_JOB = """
import sys
from pathlib import Path

from statecore.errors import Invalid
from statecore.faults import NO_FAULTS
from statecore.statedir.placement import recover
from statecore.statedir.task_copies import TaskCopies
from statecore.statedir.state_directory import StateDirectory
from statecore.progress import NullProgress

directory = StateDirectory(Path(sys.argv[1]), "app")
with directory.lock():
    print(recover(directory))
    with TaskCopies(directory, "request", NO_FAULTS, NullProgress(), keeps=True) as exchange:
        exchange.copy("0_0")
        try:
            print(exchange.swap(["0_0"]))
        except Invalid as error:
            print(error.code, error.context)
"""


def test_copies_kept_by_another_user_stay_and_stop_no_job(directory: StateDirectory) -> None:
    with another_user("022") as user:
        state_dir = user.home / "state"
        application = state_dir / "app"
        shutil.copytree(directory.path, application)
        for path in (state_dir, *state_dir.rglob("*")):
            os.chown(path, user.uid, user.uid)
        kept = application / ".statecore" / "replaced" / "placement-of-root"
        (kept / "0_0").mkdir(parents=True)
        (kept / "0_0" / ".checkpoint").write_text("0\n0\n")
        long_ago = (time.time() - 8 * 86_400,) * 2
        os.utime(kept / "0_0" / ".checkpoint", long_ago)
        os.utime(kept, long_ago)
        os.chown(application / ".statecore", user.uid, user.uid)
        command = user.command(sys.executable, "-c", _JOB, str(state_dir))
        before = fingerprint(application / "0_0")
        for closed in (True, False):
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=user.environment)
            assert "replaced/placement-of-root" in done.stdout.splitlines()[0]
            assert (kept / "0_0" / ".checkpoint").exists()
            assert ("permission-denied" in done.stdout and "'owner': 'root'" in done.stdout) is closed
            assert ("PlacementOutcome.PLACED" in done.stdout) is not closed
            assert (fingerprint(application / "0_0") == before) is closed
            os.chown(kept.parent, user.uid, user.uid)
            os.utime(kept, long_ago)
        os.chown(kept, user.uid, user.uid)
        os.chown(kept / "0_0", user.uid, user.uid)
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=user.environment)
        assert "no longer needed" not in done.stdout
        assert not kept.exists()


def test_a_copy_is_on_the_disk_before_the_journal_says_that_it_is_to_be_put_in_place(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = synced_paths(monkeypatch)
    with pytest.raises(FaultInjected):
        exchanged(directory, "0_0", faults=InjectedFault("placement.after-journal"))
    journal = [path.name for path in synced].index("journal.json.tmp")
    (staging,) = directory.work_path.glob("placement-*")
    copy = staging / "tasks" / "0_0"
    made = {copy, copy.parent, staging, *copy.rglob("*")}
    assert {path for path in made if path.name != "LOCK"} <= set(synced[:journal])


def test_databases_that_tests_copy_lie_where_pytest_clears_up(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(support, "mkdtemp", lambda **said: made.append(mkdtemp(**said)) or made[-1])
    make_database(tmp_path / "database", None, rows=17)
    (where,) = made
    assert Path(where).is_relative_to(tmp_path_factory.getbasetemp())
