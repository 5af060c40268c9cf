"""Which files of a database's directory RocksDB or this library wrote."""

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from statecore.errors import Corrupted, Invalid
from statecore.formats.kinds import StoreKind
from statecore.spec.model import StoreSpec
from statecore.statedir.known_files import foreign_files, is_database_file, read_offset_file, unlogged_files
from statecore.stores.legacy_offsets import read_offsets
from statecore.stores.rocksdb.directory import CONFIG_FILE
from statecore.stores.rocksdb.manifest_guard import LOST_DIRECTORY, RECORD_FILE
from statecore.stores.rocksdb.store import RocksDBStore


def test_a_database_has_no_foreign_files_but_what_was_added(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with RocksDBStore(path, StoreKind.KEY_VALUE, create=True) as store:
        store.put(b"a", b"1")
        store.commit({})
    assert not foreign_files(path)
    (path / "000001.sst.bak").touch()
    (path / "notes").touch()
    assert set(foreign_files(path)) == {"000001.sst.bak", "notes"}


@pytest.mark.parametrize(
    "name", ["CURRENT", "LOG.old.17", "MANIFEST-000005", "000012.sst", RECORD_FILE, LOST_DIRECTORY, CONFIG_FILE]
)
def test_names_of_rocksdb_and_of_this_library_are_known(name: str) -> None:
    assert is_database_file(name)


@pytest.mark.parametrize("name", ["CURRENT.bak", "xCURRENT", "MANIFEST", "12.txt", ".checkpoint"])
def test_other_names_are_not(name: str) -> None:
    assert not is_database_file(name)


@pytest.mark.parametrize("what", ["bytes", "directory", "pipe", "closed"])
def test_the_reason_for_an_unreadable_file_is_that_of_the_error(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a file that this user may not read is as it should be."""
    file = tmp_path / ".checkpoint"
    if what == "directory":
        file.mkdir()
    elif what == "pipe":
        os.mkfifo(file)
    else:
        file.write_text("0\n")
    if what == "closed":
        refused = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
        monkeypatch.setattr(os, "open", Mock(side_effect=refused))
    with pytest.raises(Corrupted if what == "bytes" else Invalid) as raised:
        read_offsets(file)
    read = read_offset_file(file)
    assert read.damaged is (what != "closed")
    assert read.unreadable == raised.value.context["why"]
    assert str(file) not in read.unreadable


def test_a_missing_directory_has_no_files(tmp_path: Path) -> None:
    assert foreign_files(tmp_path / "none") == ()


def test_files_of_no_database_are_unlogged_unless_a_custom_store_with_a_changelog_has_them(tmp_path: Path) -> None:
    known = ["rocksdb/s/CURRENT", "w/w.0/000012.sst", "rocksdb/s/lost/000003.sst", "w/w.0/lost/000003.sst"]
    known += [".checkpoint", ".checkpoint_s", ".checkpoint.tmp", ".lock", "s.position", "s.position.tmp"]
    logged = ["index/segments_1", "rocksdb/index/a/b", "index.db", "index.lck"]
    unlogged = ["index.v2.db", "lucene.db", "lucene/a/b/x", "lucene/segments_1", "notes", "rocksdb/lucene/segments_1"]
    unlogged += ["rocksdb/s/000012.sst.bak", "rocksdb/stray", "w/000012.sst", "w/w.0/a/000012.sst"]
    for name in (*known, *logged, *unlogged):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"rows")
    declared = [
        StoreSpec("index", StoreKind.CUSTOM, 0, "app-index-changelog"),
        StoreSpec("index.v2", StoreKind.CUSTOM, 0, "none"),
        StoreSpec("lucene", StoreKind.CUSTOM, 0, "none"),
    ]
    assert unlogged_files(tmp_path, declared) == sorted(unlogged)
    assert unlogged_files(tmp_path, []) == sorted([*logged, *unlogged])
    assert unlogged_files(tmp_path / "none", declared) == []
