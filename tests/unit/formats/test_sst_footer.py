"""The format version of SST files, as several RocksDB versions end them."""

from __future__ import annotations

import tarfile

import pytest

from statecore.formats.sst_footer import FOOTER_BYTES, format_version
from tests.unit.maintenance.stored import GOLDEN, write_database


@pytest.mark.parametrize(("version", "expected"), [("3.9.1", 5), ("4.2.0", 6)])
def test_files_of_kafka_streams(version, expected):
    with tarfile.open(GOLDEN / f"kafka-streams-{version}-task.tar.gz") as archive:
        files = [archive.extractfile(one).read() for one in archive if one.name.endswith(".sst")]
    assert files
    assert {format_version(data) for data in files} == {format_version(data[-FOOTER_BYTES:]) for data in files}
    assert {format_version(data) for data in files} == {expected}


def test_files_of_this_library(tmp_path):
    write_database(tmp_path / "db", {"default": [(b"k", b"v")]})
    assert {format_version(file.read_bytes()) for file in (tmp_path / "db").glob("*.sst")} == {6}


def test_the_oldest_format_names_no_version():
    assert format_version(bytes(40) + (0xDB4775248B80FB57).to_bytes(8, "little")) == 0


@pytest.mark.parametrize("tail", [b"", b"short", bytes(12), b"x" * 53])
def test_what_was_cut_has_no_footer(tail):
    assert format_version(tail) is None
