"""Which files of a database's directory RocksDB or this library wrote."""

from pathlib import Path

import pytest

from statecore.formats.kinds import StoreKind
from statecore.statedir.known_files import foreign_files, is_database_file, read_offset_file
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


def test_the_reason_for_an_unreadable_file_does_not_name_it_again(tmp_path: Path) -> None:
    file = tmp_path / ".checkpoint"
    file.write_text("0\n")
    read = read_offset_file(file)
    assert read.damaged
    assert read.unreadable.startswith("it has 1 lines")


def test_a_missing_directory_has_no_files(tmp_path: Path) -> None:
    assert foreign_files(tmp_path / "none") == ()
