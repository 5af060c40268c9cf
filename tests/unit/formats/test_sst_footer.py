"""The footer of SST files, of hypothesis, of RocksDB's own writers, and of real applications."""

from __future__ import annotations

import struct
import tarfile
from pathlib import Path

import pytest
import rocksdict
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.formats.sst_footer import FOOTER_BYTES, sst_format_version

MAGIC, LEGACY = 0x88E241B785F4CFF7, 0xDB4775248B80FB57
GOLDEN = Path(__file__).parents[2] / "golden"


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
