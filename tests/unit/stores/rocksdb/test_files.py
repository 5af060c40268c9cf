"""A database whose SST files an application keeps in other directories (db_paths, cf_paths), which nothing says."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.doctor.diagnosis import diagnose_directory
from statecore.doctor.finding_catalog import CATALOG, Severity
from statecore.formats.rocksdb_log import read_manifest
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.directory import current_manifest
from statecore.stores.rocksdb.files import files_elsewhere
from tests.unit.doctor.stored import offsets, write_database


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Two SST files of rows and one of offsets."""
    path = tmp_path / "app/0_0/rocksdb/s"
    families = {"default": [(b"k", b"v")], "data": [(b"k", b"v")], "offsets": offsets("app-s-changelog", 0, 7)}
    write_database(path, families)
    assert sorted(file.family for file in named(path).values()) == ["data", "default", "offsets"]
    return path


def named(path: Path):
    return read_manifest(current_manifest(path)[1]).files


def move(path: Path, *families: str) -> None:
    elsewhere = path.parents[4] / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    for file in named(path).values():
        if file.family in families:
            (path / file.name).rename(elsewhere / file.name)


@pytest.mark.parametrize("families", [("default", "data", "offsets"), ("default", "data")])
def test_where_no_file_of_rows_is_there_nothing_is_called_damaged(database: Path, families: tuple[str, ...]) -> None:
    assert files_elsewhere(database) == ""
    move(database, *families)
    assert files_elsewhere(database)
    (found,) = diagnose_directory(StateDirectory(database.parents[3], "app")).findings
    assert (found.code, found.severity, found.repair) == ("not-readable-here", Severity.WARNING, None)
    assert not found.evidence["damage"]
    known = CATALOG[found.code]
    assert "deleted" in known.means, "nobody can tell, so it is no all-clear"
    assert "db_paths" in known.remedy


@pytest.mark.parametrize("families", [("default",), ("data", "offsets"), ("offsets",)])
def test_where_one_is_there_the_others_were_lost(database: Path, families: tuple[str, ...]) -> None:
    move(database, *families)
    assert files_elsewhere(database) == ""
    (found,) = diagnose_directory(StateDirectory(database.parents[3], "app")).findings
    assert found.code == "file-missing"


def test_what_is_no_database_says_nothing(tmp_path: Path) -> None:
    assert files_elsewhere(tmp_path) == files_elsewhere(tmp_path / "none") == ""
    (tmp_path / "CURRENT").write_text("MANIFEST-000001\n")
    (tmp_path / "MANIFEST-000001").write_bytes(b"nonsense")
    assert files_elsewhere(tmp_path) == ""
