"""A database with more levels than RocksDB's default, as a ``rocksdb.config.setter`` of an application makes it."""

from __future__ import annotations

from pathlib import Path

import pytest
import rocksdict

from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.maintenance.catalogue import Severity
from statecore.maintenance.doctor import examine
from statecore.placement.state_directory import StateDirectory
from statecore.stores.rocksdb import RocksDBStore
from statecore.stores.rocksdb_changes import ChangedDatabase
from statecore.stores.rocksdb_options_file import families_in, newest_options

LEVELS, ROWS = 12, 3000
PARTITION = TopicPartition("app-s-changelog", 0)


def options() -> rocksdict.Options:
    made = rocksdict.Options(raw_mode=True)
    made.set_num_levels(LEVELS)
    made.set_compaction_style(rocksdict.DBCompactionStyle.universal())
    return made


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """A database with rows in its last level."""
    path = tmp_path / "app/0_0/rocksdb/s"
    path.mkdir(parents=True)
    database = rocksdict.Rdict(str(path), options())
    offsets = database.create_column_family("offsets", options())
    offsets[str(PARTITION).encode()], offsets[b"status"] = (7).to_bytes(8), bytes(8)
    offsets.close()
    for number in range(ROWS):
        database[b"%06d" % number] = b"v" * 50
    database.compact_range(None, None)
    database.close()
    for name in ("rocksdict-config.json", "LOG"):
        (path / name).unlink()
    return path


def levels(path: Path) -> list[bytes]:
    return [line.strip() for line in newest_options(path).splitlines() if b"num_levels" in line]


def test_the_doctor_reads_it_and_finds_nothing(deep: Path, tmp_path: Path) -> None:
    assert examine(StateDirectory(tmp_path, "app"), scan=True).findings == ()


def test_without_its_options_it_is_not_called_damaged(deep: Path, tmp_path: Path) -> None:
    for file in deep.glob("OPTIONS-*"):
        file.unlink()
    (found,) = examine(StateDirectory(tmp_path, "app")).findings
    assert (found.code, found.severity, found.repair) == ("not-readable-here", Severity.WARNING, None)


@pytest.mark.parametrize("read_only", [True, False])
def test_a_store_opens_it_and_keeps_its_levels(deep: Path, read_only: bool) -> None:
    with RocksDBStore(deep, StoreKind.KEY_VALUE, read_only=read_only) as store:
        assert store.get(b"000007") == b"v" * 50
        assert store.committed_offset(PARTITION) == 7
    assert set(levels(deep)) == {b"num_levels=12"}


def test_it_is_changed_and_keeps_its_levels(deep: Path) -> None:
    with ChangedDatabase(deep, 6) as opened:
        opened.put("offsets", {str(PARTITION).encode(): (9).to_bytes(8)})
        opened.rewrite("default")
    assert b"num_levels=12" in levels(deep)
    with RocksDBStore(deep, StoreKind.KEY_VALUE, read_only=True) as store:
        assert store.committed_offset(PARTITION) == 9
        assert store.get(b"002999") == b"v" * 50


def test_an_options_file_that_says_nonsense_is_not_believed(deep: Path) -> None:
    for file in deep.glob("OPTIONS-*"):
        file.write_bytes(file.read_bytes().replace(b"num_levels=12", b"num_levels=99999999"))
    with pytest.raises(Invalid, match="more levels"), RocksDBStore(deep, StoreKind.KEY_VALUE, read_only=True):
        pass


def test_the_newest_file_counts_and_names_its_families(tmp_path: Path) -> None:
    assert newest_options(tmp_path) == b""
    for number, family in ((9, "old"), (12, "new"), (100, "newest")):
        (tmp_path / f"OPTIONS-{number:06}").write_text(f'[CFOptions "{family}"]\n  num_levels=7\n')
    (tmp_path / "OPTIONS-000101.dbtmp").write_text('[CFOptions "in the making"]\n')
    assert families_in(newest_options(tmp_path)) == {"newest"}
