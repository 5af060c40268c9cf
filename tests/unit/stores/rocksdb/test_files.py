"""Footers of SST files, and a database whose files an application keeps in other directories (db_paths, cf_paths)."""

from __future__ import annotations

import struct
import tarfile
from pathlib import Path

import pytest
import rocksdict
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.doctor.diagnosis import diagnose_directory
from statecore.doctor.finding_catalog import CATALOG, Repair, Severity
from statecore.formats.rocksdb_log import read_manifest
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.directory import current_manifest
from statecore.stores.rocksdb.files import FOOTER_BYTES, files_elsewhere, sst_format_version
from tests.unit.doctor.stored import offsets, write_database

MAGIC, LEGACY = 0x88E241B785F4CFF7, 0xDB4775248B80FB57
GOLDEN = Path(__file__).parents[3] / "golden"


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


@pytest.mark.parametrize("moved", [("default", "data", "offsets"), ("default", "data"), ("default",)])
def test_where_files_of_another_moment_are_there_those_it_names_were_lost(
    database: Path, moved: tuple[str, ...]
) -> None:
    """A copy of a running application: its MANIFEST is older than a compaction, and its SST files are newer."""
    families = {file.name: file.family for file in named(database).values()}
    for number, name in enumerate(sorted(families)):
        if families[name] in moved:
            (database / name).rename(database / f"{900 + number:06d}.sst")
    assert files_elsewhere(database) == ""
    (found,) = diagnose_directory(StateDirectory(database.parents[3], "app")).findings
    assert (found.code, found.severity, found.repair) == ("file-missing", Severity.ERROR, Repair.REBUILD)


@pytest.mark.parametrize("here", [True, False])
@pytest.mark.parametrize("moved", [("default", "data", "offsets"), ("default", "data")])
def test_where_another_task_keeps_its_files_those_of_this_one_were_lost(
    database: Path, moved: tuple[str, ...], here: bool
) -> None:
    """Both tasks have the options of one setter, which is told nothing but the store's name."""
    other = database.parents[2] / "0_1/rocksdb/s"
    write_database(
        other, {"default": [(b"k", b"v")], "data": [(b"k", b"v")], "offsets": offsets("app-s-changelog", 1, 7)}
    )
    move(database, *moved)
    if not here:
        min(other.glob("*.sst")).unlink()  # as where db_paths has this directory and a larger one
    assert bool(files_elsewhere(database)) is not here
    found = diagnose_directory(StateDirectory(database.parents[3], "app")).findings
    assert {one.code for one in found if one.task == "0_0"} == {"file-missing" if here else "not-readable-here"}


def test_a_segment_whose_files_are_gone_beside_one_that_has_them_lost_them(tmp_path: Path) -> None:
    first, second = (tmp_path / f"0_0/windows/windows.{number}" for number in (0, 60000))
    for path in (first, second):
        write_database(path, {"default": [(b"k", b"v")], "offsets": offsets("app-windows-changelog", 0, 7)})
    for file in first.glob("*.sst"):
        file.unlink()
    assert files_elsewhere(first) == ""
    for file in second.glob("*.sst"):
        file.unlink()
    assert files_elsewhere(first)


def test_what_is_no_database_says_nothing(tmp_path: Path) -> None:
    assert files_elsewhere(tmp_path) == files_elsewhere(tmp_path / "none") == ""
    (tmp_path / "CURRENT").write_text("MANIFEST-000001\n")
    (tmp_path / "MANIFEST-000001").write_bytes(b"nonsense")
    assert files_elsewhere(tmp_path) == ""


@settings(deadline=None)
@given(st.binary(max_size=80), st.integers(1, 2**32 - 1))
def test_the_version_is_read_from_any_file_that_ends_in_a_footer(before: bytes, version: int) -> None:
    footer = bytes(41) + struct.pack("<IQ", version, MAGIC)
    assert len(footer) == FOOTER_BYTES
    assert sst_format_version(before + footer) == version


@settings(deadline=None)
@given(st.binary(min_size=40, max_size=80))
def test_the_oldest_format_has_no_version(before: bytes) -> None:
    assert sst_format_version(before + struct.pack("<Q", LEGACY)) == 0


@settings(deadline=None)
@given(st.binary(max_size=120))
def test_anything_else_is_refused_and_never_a_crash(data: bytes) -> None:
    ends_in_magic = data[-8:] in (struct.pack("<Q", MAGIC), struct.pack("<Q", LEGACY))
    if not ends_in_magic:
        with pytest.raises(ValueError, match="footer"):
            sst_format_version(data)


@pytest.mark.parametrize("length", [0, 7, 8, 47, FOOTER_BYTES - 1])
def test_a_truncated_file_has_no_footer(length: int) -> None:
    with pytest.raises(ValueError, match="footer"):
        sst_format_version((bytes(41) + struct.pack("<IQ", 5, MAGIC))[:length])


def test_a_footer_of_version_0_is_refused() -> None:
    with pytest.raises(ValueError, match="version 0"):
        sst_format_version(bytes(41) + struct.pack("<IQ", 0, MAGIC))


@pytest.mark.parametrize("version", [2, 5, 6])
def test_rocksdb_writes_the_configured_format_version(version: int, tmp_path: Path) -> None:
    table = rocksdict.BlockBasedOptions()
    table.set_format_version(version)
    options = rocksdict.Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    writer = rocksdict.SstFileWriter(options)
    writer.open(str(tmp_path / "made.sst"))
    writer[b"key"] = b"value"
    writer.finish()
    assert sst_format_version((tmp_path / "made.sst").read_bytes()[-FOOTER_BYTES:]) == version


@pytest.mark.parametrize(("release", "version"), [("3.9.1", 5), ("4.2.0", 6)])
def test_real_applications_left_files_of_their_format(release: str, version: int, tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / f"kafka-streams-{release}-task.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    files = list(tmp_path.rglob("*.sst"))
    assert files
    assert {sst_format_version(file.read_bytes()[-FOOTER_BYTES:]) for file in files} == {version}
