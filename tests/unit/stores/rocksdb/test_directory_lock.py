"""A directory is one store's, by whatever path it is reached; whose it is, is known until its handles are gone."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Rdict

from statecore.errors import Corrupted, Fenced, Invalid, NotFound
from statecore.stores.rocksdb import directory_lock as rocksdb_ownership
from statecore.stores.rocksdb.options import data_options
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.open_files import open_files
from tests.harness.raising import raises
from tests.unit.stores.rocksdb.test_store import CHANGELOG, PLAIN, ROWS, TIMESTAMPED, fresh
from tests.unit.stores.test_bad_input import contents


def by_link_to_it(path: Path) -> Path:
    (link := path.parent / "link").symlink_to(path)
    return link


def by_link_above(path: Path) -> Path:
    (link := path.parent / "above").symlink_to(path.parent)
    return link / path.name


def by_parent(path: Path) -> Path:
    return path.parent / "db" / ".." / path.name


def by_relative(path: Path) -> Path:
    return Path(os.path.relpath(path))


WAYS: list[Callable[[Path], Path]] = [by_link_to_it, by_link_above, by_parent, by_relative]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("first", ["straight", "around"])
def test_a_database_is_not_opened_twice_by_another_path(
    tmp_path: Path, way: Callable[[Path], Path], first: str
) -> None:
    path = fresh(tmp_path / "db")
    one, other = (path, way(path)) if first == "straight" else (way(path), path)
    with RocksDBStore(one, PLAIN) as store:
        before = {name: data for name, data in contents(path).items() if name != "LOG"}
        for create_if_missing in (False, True):
            with raises(Fenced, "store-open-in-process"):
                RocksDBStore(other, PLAIN, create_if_missing=create_if_missing).open()
        assert {name: data for name, data in contents(path).items() if name != "LOG"} == before
        store.put(b"x", b"y")
        store.commit({CHANGELOG: 8})
    with RocksDBStore(other, PLAIN, exactly_once=True) as store:
        assert dict(store.all()) == {**ROWS, b"x": b"y"}


MOUNTED = """
import ctypes, os, sys
from pathlib import Path
from statecore.errors import Fenced
from statecore.formats.kinds import StoreKind
from statecore.stores.rocksdb.store import RocksDBStore

path, there = Path(sys.argv[1]), Path(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 4096, 16384, 1 << 18
if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
    sys.exit(77)
if libc.mount(bytes(path), bytes(there), None, MS_BIND, None):
    sys.exit(77)
with RocksDBStore(path, StoreKind.KEY_VALUE):
    try:
        RocksDBStore(there, StoreKind.KEY_VALUE).open()
    except Fenced:
        sys.exit(0)
sys.exit(1)
"""


def test_a_database_is_not_opened_twice_by_a_second_mount(tmp_path: Path) -> None:
    path = fresh(tmp_path / "db")
    (tmp_path / "there").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", MOUNTED, str(path), str(tmp_path / "there")],
        capture_output=True,
        check=False,
        timeout=1200,
    )
    if done.returncode == 77:
        pytest.skip("this user may not mount anything")
    assert done.returncode == 0, done.stderr


def test_a_change_of_the_working_directory_harms_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = RocksDBStore("db", PLAIN, create=True)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.open()
    store.put(b"a", b"b")
    monkeypatch.chdir(tmp_path)
    store.commit({CHANGELOG: 1})
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.close()
    assert not list((tmp_path / "elsewhere").iterdir())
    with RocksDBStore(tmp_path / "db", PLAIN, exactly_once=True) as store:
        assert list(store.all()) == [(b"a", b"b")]


def test_a_link_that_is_turned_elsewhere_while_the_store_is_open_changes_nothing(tmp_path: Path) -> None:
    path, other = fresh(tmp_path / "db"), fresh(tmp_path / "other")
    before = contents(other)
    link = by_link_to_it(path)
    with RocksDBStore(link, PLAIN) as store:
        link.unlink()
        link.symlink_to(other)
        store.put(b"x", b"y")
        store.commit({CHANGELOG: 8})
        store.flush()
    assert contents(other) == before
    with RocksDBStore(path, PLAIN, exactly_once=True) as store:
        assert store.get(b"x") == b"y"


def test_a_directory_is_free_again_exactly_when_its_handles_are(tmp_path: Path) -> None:
    path = fresh(tmp_path / "db")
    store = RocksDBStore(path, PLAIN)
    store.open()
    view, rows = store.query_view(), store.scan_lists()
    del store
    gc.collect()
    for held in ("view", "rows"):
        with pytest.raises(Fenced):
            RocksDBStore(path, PLAIN).open()
        if held == "view":
            del view
        else:
            del rows
        gc.collect()
    with RocksDBStore(path, PLAIN) as again:
        assert dict(again.all()) == ROWS
    assert not rocksdb_ownership._claimed


@pytest.mark.parametrize("why", ["kind", "unclean", "damage"])
def test_an_opening_that_failed_holds_nothing(tmp_path: Path, why: str) -> None:
    path = fresh(tmp_path / "db")
    if why == "damage":
        for file in path.glob("MANIFEST-*"):
            file.write_bytes(file.read_bytes()[:-1] + b"?" * 40)
    if why == "unclean":
        with RocksDBStore(path, PLAIN) as store:
            store._rows_ahead = True
    held = open_files(path)
    for _ in range(3):
        with pytest.raises(Invalid if why == "kind" else Corrupted):
            RocksDBStore(path, TIMESTAMPED if why == "kind" else PLAIN, exactly_once=True).open()
    assert not rocksdb_ownership._claimed
    assert open_files(path) == held


def test_a_directory_that_takes_the_place_of_a_deleted_one_is_another(tmp_path: Path) -> None:
    path = fresh(tmp_path / "db")
    store = RocksDBStore(path, PLAIN)
    store.open()
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
    for number in range(20):  # else one of them would have its inode
        with RocksDBStore(tmp_path / f"{number}", PLAIN, create=True) as other:
            other.commit({CHANGELOG: 1})
    with pytest.raises(NotFound):
        store.close()
    assert not path.exists()
    assert not store.is_open


def test_a_database_that_this_process_opened_without_a_store_keeps_its_lock(tmp_path: Path) -> None:
    """To look at a file's lock and close it again would let go of it."""
    path = fresh(tmp_path / "db")
    held = Rdict(str(path), data_options(), column_families={n: data_options() for n in ("default", "offsets")})
    for other in (path, by_link_to_it(path)):
        with pytest.raises(Fenced, match="this process"):
            RocksDBStore(other, PLAIN).open()
        code = "import sys; from statecore.stores.lock_holder import lock_holder; from pathlib import Path; "
        code += "print(lock_holder(Path(sys.argv[1])))"
        done = subprocess.run(
            [sys.executable, "-c", code, str(path / "LOCK")], capture_output=True, text=True, check=True, timeout=300
        )
        assert f"process {os.getpid()}" in done.stdout
    held.close()


def test_a_refused_open_changes_nothing_and_names_the_holder(tmp_path: Path) -> None:
    path = fresh(tmp_path / "db")
    code = """
import sys
from statecore.errors import Fenced
from statecore.formats.kinds import StoreKind
from statecore.stores.rocksdb.store import RocksDBStore
try:
    RocksDBStore(sys.argv[1], StoreKind.KEY_VALUE).open()
except Fenced as error:
    print(error)
"""
    with RocksDBStore(path, PLAIN):
        before = {file.name: file.stat().st_mtime_ns for file in (path, *path.iterdir())}
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, timeout=300
        )
        assert {file.name: file.stat().st_mtime_ns for file in (path, *path.iterdir())} == before
        assert f"process {os.getpid()}" in done.stdout
        assert "Stop the process" in done.stdout


@pytest.mark.parametrize("path", ["", "a\0b", 7, None, b"bytes", "\udcff"])
def test_what_is_no_path_is_refused(path: object) -> None:
    with pytest.raises(Invalid):
        RocksDBStore(path, PLAIN)  # type: ignore[arg-type]


class Named:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


def test_paths_are_text_or_whatever_says_its_path(tmp_path: Path) -> None:
    for number, kind in enumerate((str, Path, Named)):
        with RocksDBStore(kind(tmp_path / f"{number}"), PLAIN, create=True) as store:  # type: ignore[arg-type]
            store.commit({CHANGELOG: 1})
        assert (tmp_path / f"{number}").is_dir()
