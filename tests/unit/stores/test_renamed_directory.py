"""The directory of an open store is renamed, by a supervisor or by hand: the store follows it, and what takes its
place stays as it is."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Corrupted, Fenced, NotFound
from statecore.stores.rocksdb import directory_lock as rocksdb_ownership
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.raising import raises
from tests.unit.stores.rocksdb.test_store import CHANGELOG, PLAIN, ROWS, fresh, sst
from tests.unit.stores.test_bad_input import contents

LATER = {b"later-%03d" % number: b"%d" % number * 50 for number in range(200)}


def work(store: RocksDBStore, scratch: Path) -> dict[bytes, bytes]:
    """Everything that makes a store write files, or delete them; the rows it has afterwards."""
    for number in range(3):
        store.put_all(list(LATER.items())[number::3])
        store.commit({CHANGELOG: 10 + number})
        store.flush()
    store.compact()
    run = sst(scratch / "run.sst", {b"ingested": b"1"})
    assert store.ingest([run]), "the files are found"
    store.commit({CHANGELOG: 20})
    store.put(b"logged", b"2")
    store.commit({CHANGELOG: 21})
    rows = {**ROWS, **LATER, b"ingested": b"1", b"logged": b"2"}
    with store.query_view() as view:
        assert (dict(view.all()), view.committed_offset(CHANGELOG)) == (rows, 21)
    assert store.verify() == len(rows)
    return rows


def swapped(path: Path) -> Path:
    """As ``mv`` or placement does it: another database, as old as the first, has its name."""
    other = fresh(path.with_name("other"), {b"other": b"1"})
    path.rename(moved := path.with_name("moved"))
    other.rename(path)
    return moved


def swapped_above(path: Path) -> Path:
    fresh(path.parents[1] / "other" / path.name, {b"other": b"1"})
    path.parent.rename(moved := path.parents[1] / "moved")
    (path.parents[1] / "other").rename(path.parent)
    return moved / path.name


def emptied(path: Path) -> Path:
    path.rename(moved := path.with_name("moved"))
    path.mkdir()
    return moved


def gone(path: Path) -> Path:
    path.rename(moved := path.with_name("moved"))
    return moved


@pytest.mark.parametrize("create", [False, True], ids=["opened", "made"])
@pytest.mark.parametrize("rename", [swapped, swapped_above, emptied, gone])
def test_a_store_follows_its_directory_and_what_takes_its_place_is_untouched(
    tmp_path: Path, rename: Callable[[Path], Path], create: bool
) -> None:
    path = tmp_path / "0_0" / "db"
    path.parent.mkdir()
    if not create:
        fresh(path)
    store = RocksDBStore(path, PLAIN, create=create)
    store.open()
    if create:
        store.put_all(list(ROWS.items()))
        store.commit({CHANGELOG: 7})
    moved = rename(path)
    before = contents(path) if path.exists() else None
    rows = work(store, tmp_path)
    store.close()
    assert (contents(path) if path.exists() else None) == before
    assert not {"LOG", "rocksdict-config.json"} & {file.name for file in moved.iterdir()}
    with RocksDBStore(moved, PLAIN, exactly_once=True) as again:
        assert dict(again.all()) == rows
        assert again.committed_offset(CHANGELOG) == 21
        assert again.verify() == len(rows)
    if before:
        with RocksDBStore(path, PLAIN, exactly_once=True) as other:
            assert dict(other.all()) == {b"other": b"1"}


def test_a_store_opens_at_the_name_that_another_one_lost(tmp_path: Path) -> None:
    path = fresh(tmp_path / "db")
    with RocksDBStore(path, PLAIN) as first:
        moved = swapped(path)
        with RocksDBStore(path, PLAIN) as second:
            with raises(Fenced, "store-open-in-process"):
                RocksDBStore(moved, PLAIN).open()
            rows = work(first, tmp_path)
            second.put(b"second", b"2")
            second.commit({CHANGELOG: 8})
            second.flush()
    for where, expected in ((moved, rows), (path, {b"other": b"1", b"second": b"2"})):
        with RocksDBStore(where, PLAIN, exactly_once=True) as store:
            assert dict(store.all()) == expected


def test_an_error_after_a_rename_names_the_moved_store(tmp_path: Path) -> None:
    path = fresh(tmp_path / "db")
    store = RocksDBStore(path, PLAIN)
    store.open()
    moved = swapped(path)
    store.put_all(list(LATER.items()))
    store.commit({CHANGELOG: 8})
    store.flush()
    for file in moved.glob("*.sst"):
        file.write_bytes(b"?" * file.stat().st_size)
    with pytest.raises(Corrupted, match=f"{path}[: /]") as raised:
        store.verify()
    assert "/proc/" not in str(raised.value)
    store.close()


def test_a_renamed_directory_that_is_deleted_is_gone_whatever_has_its_name(tmp_path: Path) -> None:
    path = fresh(tmp_path / "db")
    store = RocksDBStore(path, PLAIN)
    store.open()
    moved = swapped(path)
    before = contents(path)
    for file in moved.iterdir():
        file.unlink()
    moved.rmdir()
    store.put(b"a", b"b")
    store.commit({CHANGELOG: 8})
    with pytest.raises(NotFound, match=str(path)):
        store.flush()
    with pytest.raises(NotFound, match=str(path)):
        store.close()
    assert contents(path) == before


def test_a_directory_stays_claimed_as_long_as_anything_of_its_database_lives(tmp_path: Path) -> None:
    """RocksDB would go on under the descriptor's number, which would soon mean another directory."""
    path = fresh(tmp_path / "db")
    store = RocksDBStore(path, PLAIN)
    store.open()
    held = store._opened.column_families["default"]
    store.close()
    taken = [os.open(tmp_path, os.O_RDONLY) for _ in range(20)]
    with pytest.raises(Fenced):
        RocksDBStore(path, PLAIN).open()
    held = None  # noqa: F841
    gc.collect()
    for descriptor in taken:
        os.close(descriptor)
    with RocksDBStore(path, PLAIN) as again:
        assert dict(again.all()) == ROWS
    assert not rocksdb_ownership._claimed


def test_without_proc_the_path_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = os.stat

    def without_proc(path: Any, **options: Any) -> os.stat_result:
        if str(path).startswith("/proc/"):
            raise FileNotFoundError(2, os.strerror(2), str(path))
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", without_proc)
    path = fresh(tmp_path / "db")
    with RocksDBStore(path, PLAIN) as store:
        rows = work(store, tmp_path)
    with RocksDBStore(path, PLAIN, exactly_once=True) as again:
        assert dict(again.all()) == rows
