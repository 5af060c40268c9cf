"""Writes that fail for want of room, and databases that a killed process had only begun to make."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

from statecore.errors import Fenced, Invalid, NotFound
from statecore.formats.kinds import StoreKind
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.raising import raises
from tests.unit.stores.rocksdb.test_store import CHANGELOG, PLAIN, ROWS, fresh

TIMESTAMPED = StoreKind.TIMESTAMPED_KEY_VALUE

NO_ROOM = """
import os, resource, signal, sys
from pathlib import Path
from statecore.errors import Capacity
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb.store import RocksDBStore

CHANGELOG = TopicPartition("app-store-changelog", 0)
what, path = int(sys.argv[1]), Path(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

def limited(soft):
    resource.setrlimit(what, (soft, resource.getrlimit(what)[1]))

def batch(store, number):
    store.put_all((b"%03d" % key, b"%d;" % number + os.urandom(1000)) for key in range(100))
    store.update_position("in", 0, number)

def fails(call):
    try:
        call()
    except Capacity as error:
        return error                            # kept, with whatever its traceback holds
    raise AssertionError("there was room")

store = RocksDBStore(path, StoreKind.TIMESTAMPED_KEY_VALUE, create_if_missing=True)
store.open()
batch(store, 1)
store.commit({CHANGELOG: 1})
view = store.query_view()
before = resource.getrlimit(what)[0]
limited(150_000 if what == resource.RLIMIT_FSIZE else len(os.listdir("/proc/self/fd")) - 1)
batch(store, 2)
errors = [fails(lambda: store.commit({CHANGELOG: 2}) or store.flush())]
done = store.committed_offset(CHANGELOG)        # a commit needs no further file, only the flush does
assert done == (1 if what == resource.RLIMIT_FSIZE else 2)
assert (store.query_view().committed_offset(CHANGELOG), store.query_view().position) == (done, {"in": {0: done}})
assert {row[:2] for _, row in store.query_view().all()} == {b"%d;" % done}
assert {row[:2] for _, row in store.all()} == {b"2;"}
batch(store, 3)
store.abort()
assert ({row[:2] for _, row in store.all()}, store.position) == ({b"%d;" % done}, {"in": {0: done}})
assert {row[:2] for _, row in view.all()} == {b"1;"}
batch(store, 4)
errors += [fails(lambda: store.commit({CHANGELOG: 4})), fails(store.flush), fails(store.close)]
assert not store.is_open
assert not [name for name in os.listdir(path) if name.startswith("LOG") or "rocksdict" in name]
limited(before)
assert all("close and reopen" in str(error) for error in errors)
with store:                                     # nothing holds the lock
    assert store.committed_offset(CHANGELOG) == done
    assert ({row[:2] for _, row in store.all()}, store.position) == ({b"%d;" % done}, {"in": {0: done}})
    batch(store, 5)
    store.commit({CHANGELOG: 5})
with RocksDBStore(path, StoreKind.TIMESTAMPED_KEY_VALUE, exactly_once=True) as store:
    assert ({row[:2] for _, row in store.all()}, store.committed_offset(CHANGELOG)) == ({b"5;"}, 5)
"""


@pytest.mark.parametrize("limit", ["RLIMIT_FSIZE", "RLIMIT_NOFILE"])
def test_a_commit_without_room_publishes_nothing_and_the_store_can_be_opened_again(tmp_path: Path, limit: str) -> None:
    import resource

    command = [sys.executable, "-c", NO_ROOM, str(getattr(resource, limit)), str(tmp_path / "db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr


KILLED = """
import os, signal, sys
from pathlib import Path
from statecore.formats.kinds import StoreKind
from statecore.stores.rocksdb import handles
from statecore.stores.rocksdb.store import RocksDBStore

open_database = handles.open_database

def killed(*arguments, **options):
    if sys.argv[2] == "made":
        open_database(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)

handles.open_database = killed
RocksDBStore(Path(sys.argv[1]), StoreKind.TIMESTAMPED_KEY_VALUE, create_if_missing=True).open()
"""


@pytest.mark.parametrize("moment", ["directory", "made"])
def test_what_a_killed_process_had_begun_to_make_is_finished(tmp_path: Path, moment: str) -> None:
    path = tmp_path / "0_0" / "rocksdb" / "counts"
    command = [sys.executable, "-c", KILLED, str(path), moment]
    assert subprocess.run(command, timeout=300, check=False).returncode == -signal.SIGKILL
    assert path.is_dir()
    for turn in (1, 2):
        with RocksDBStore(path, TIMESTAMPED, create_if_missing=True, exactly_once=turn == 2) as store:
            assert store.committed_offset(CHANGELOG) == (None if turn == 1 else 1)
            store.put(b"a", b"%d" % turn)
            store.commit({CHANGELOG: turn})


def test_a_directory_that_another_process_makes_at_the_same_moment_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, mkdir = tmp_path / "counts", Path.mkdir

    def beaten(directory: Path, *arguments: Any, **options: Any) -> None:
        mkdir(directory)
        mkdir(directory, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", beaten)
    with raises(Fenced, "store-open", store_path=str(path)):
        RocksDBStore(path, TIMESTAMPED, create_if_missing=True).open()
    monkeypatch.undo()
    with RocksDBStore(path, TIMESTAMPED, create_if_missing=True) as store:  # it was killed: what it began is finished
        assert list(store.all()) == []


def test_a_database_may_be_begun_at_any_file(tmp_path: Path) -> None:
    """What RocksDB writes before CURRENT; and CURRENT without the store's own column family, and without options."""
    for number, names in enumerate([["LOCK", "LOG"], ["LOCK", "LOG", "LOG.old.17", "IDENTITY", "MANIFEST-000001"]]):
        (tmp_path / f"{number}").mkdir()
        for name in [*names, "000001.dbtmp", "rocksdict-config.json"]:
            (tmp_path / f"{number}" / name).write_bytes(b"")
    plain = Options(raw_mode=True)
    plain.create_if_missing(True)
    Rdict(str(tmp_path / "2"), plain).close()
    plain.create_missing_column_families(True)
    Rdict(str(tmp_path / "3"), plain, column_families={"offsets": Options(raw_mode=True)}).close()
    for options in tmp_path.glob("*/OPTIONS-*"):  # the last that RocksDB writes of a database it makes
        options.rename(options.with_suffix(".dbtmp"))
    for number in range(4):
        path = tmp_path / f"{number}"
        for options in [{}, {"read_only": True}]:
            with raises(NotFound, "database-not-found" if number < 2 else "database-incomplete", store_path=str(path)):
                RocksDBStore(path, TIMESTAMPED, **options).open()
        with RocksDBStore(path, TIMESTAMPED, create_if_missing=True) as store:
            assert list(store.all()) == []
            store.put(b"a", b"1")
            store.commit({CHANGELOG: 1})
        with RocksDBStore(path, TIMESTAMPED, exactly_once=True) as store:
            assert list(store.all()) == [(b"a", b"1")]


@pytest.mark.parametrize(
    ("families", "kind", "code"),
    [
        ([], PLAIN, "upgrade-required"),
        (["keyValueWithTimestamp"], TIMESTAMPED, "upgrade-required"),
        ([], TIMESTAMPED, "kind-mismatch"),
        (["offsets"], TIMESTAMPED, "kind-mismatch"),
    ],
)
def test_an_empty_database_that_was_made_whole_is_not_taken_for_a_beginning(
    tmp_path: Path, families: list[str], kind: StoreKind, code: str
) -> None:
    """The application that has it could not open it any more: a partition without records has such a store."""
    path = tmp_path / "db"
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    Rdict(str(path), options, column_families={name: Options(raw_mode=True) for name in families}).close()
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    with raises(Invalid, code, store_path=str(path)):
        RocksDBStore(path, kind, create_if_missing=True).open()
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_what_is_there_is_opened_when_one_is_made_only_if_missing(tmp_path: Path) -> None:
    path = fresh(tmp_path / "db")
    with RocksDBStore(path, PLAIN, create_if_missing=True) as store:
        assert dict(store.all()) == ROWS
    with raises(Invalid, "kind-mismatch"):
        RocksDBStore(path, TIMESTAMPED, create_if_missing=True).open()


def test_a_directory_of_something_else_is_not_made_into_a_database(tmp_path: Path) -> None:
    """A database that lost its CURRENT least of all: RocksDB would delete its rows."""
    path = fresh(tmp_path / "db")
    (path / "CURRENT").unlink()
    (tmp_path / "file").write_bytes(b"")
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_bytes(b"dear")
    before = sorted(file.name for file in path.iterdir())
    for taken in (path, other, tmp_path / "file"):
        with raises(Invalid, "store-exists"):
            RocksDBStore(taken, PLAIN, create_if_missing=True).open()
    assert sorted(file.name for file in path.iterdir()) == before
    assert [file.name for file in other.iterdir()] == ["letter.txt"]


def test_one_that_another_process_makes_meanwhile_is_its(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other, mkdir = tmp_path / "db", fresh(tmp_path / "other"), Path.mkdir

    def beaten(directory: Path, *arguments: Any, **options: Any) -> None:
        other.rename(directory)
        mkdir(directory, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", beaten)
    with raises(Fenced, "store-open", store_path=str(path)):
        RocksDBStore(path, PLAIN, create_if_missing=True).open()


def test_ways_of_opening_exclude_each_other(tmp_path: Path) -> None:
    for ways in (("create", "read_only"), ("create_if_missing", "read_only"), ("create", "create_if_missing")):
        with raises(Invalid, "options-conflict"):
            RocksDBStore(tmp_path / "db", PLAIN, **dict.fromkeys(ways, True))
    assert not (tmp_path / "db").exists()


def test_rows_in_the_log_of_another_kind_are_not_taken_for_a_beginning(tmp_path: Path) -> None:
    """Rows that no file holds yet, of a database that was written plainly and not closed."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    database = Rdict(str(tmp_path / "db"), options)
    database[b"a"] = b"1"
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in (tmp_path / "db").iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    database.close()
    assert not list(copy.glob("*.sst"))
    with raises(Invalid, "kind-mismatch"):
        RocksDBStore(copy, TIMESTAMPED, create_if_missing=True).open()
    with RocksDBStore(copy, PLAIN, upgrade=True) as store:
        assert list(store.all()) == [(b"a", b"1")]
