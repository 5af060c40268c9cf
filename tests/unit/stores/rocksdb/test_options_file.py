"""A database with more levels than RocksDB's default, as a ``rocksdb.config.setter`` of an application makes it."""

from __future__ import annotations

from pathlib import Path

import pytest
import rocksdict

from statecore.doctor.diagnosis import diagnose_directory
from statecore.doctor.finding_catalog import Severity
from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.options_file import (
    families_in,
    family_options,
    levels_in,
    newest_options,
    unopenable_there,
    unreadable_here,
)
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.rocksdb.writes import ChangedDatabase

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
    offsets = database.create_column_family("offsets", rocksdict.Options(raw_mode=True))
    offsets[str(PARTITION).encode()], offsets[b"status"] = (7).to_bytes(8), bytes(8)
    offsets.close()
    for number in range(ROWS):
        database[b"%06d" % number] = b"v" * 50
    database.compact_range(None, None)
    database.close()
    for name in ("rocksdict-config.json", "LOG"):
        (path / name).unlink()
    return path


def levels(path: Path) -> dict[str, int]:
    return dict(levels_in(newest_options(path)))


def test_the_doctor_reads_it_and_finds_nothing(deep: Path, tmp_path: Path) -> None:
    assert diagnose_directory(StateDirectory(tmp_path, "app"), scan=True).findings == ()


def test_without_its_options_it_is_not_called_damaged(deep: Path, tmp_path: Path) -> None:
    for file in deep.glob("OPTIONS-*"):
        file.unlink()
    (found,) = diagnose_directory(StateDirectory(tmp_path, "app")).findings
    assert (found.code, found.severity, found.repair) == ("not-readable-here", Severity.WARNING, None)


@pytest.mark.parametrize("read_only", [True, False])
def test_a_store_opens_it_and_each_family_keeps_its_levels(deep: Path, read_only: bool) -> None:
    with RocksDBStore(deep, StoreKind.KEY_VALUE, read_only=read_only) as store:
        assert store.get(b"000007") == b"v" * 50
        assert store.committed_offset(PARTITION) == 7
    assert levels(deep) == {"default": LEVELS, "offsets": 7}


def test_it_is_changed_and_keeps_its_levels(deep: Path) -> None:
    with ChangedDatabase(deep, 6) as opened:
        opened.put("offsets", {str(PARTITION).encode(): (9).to_bytes(8)})
        opened.rewrite("default")
    assert levels(deep) == {"default": LEVELS, "offsets": 7}
    with RocksDBStore(deep, StoreKind.KEY_VALUE, read_only=True) as store:
        assert store.committed_offset(PARTITION) == 9
        assert store.get(b"002999") == b"v" * 50


def test_an_invalid_options_file_is_ignored(deep: Path) -> None:
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


def text(**families: str) -> bytes:
    head = "[Version]\n  rocksdb_version=10.1.3\n\n[DBOptions]\n  wal_dir=/somewhere\n  comparator=none\n"
    return (head + "".join(f'\n[CFOptions "{name}"]\n{said}\n' for name, said in families.items())).encode()


USUAL = (
    "  comparator=leveldb.BytewiseComparator\n  table_factory=BlockBasedTable\n  num_levels=7\n  merge_operator=nullptr"
)
TABLE = '\n[TableOptions/BlockBasedTable "default"]\n  checksum=kXXH3\n  num_levels=3\n'


def test_options_are_read_by_family() -> None:
    said = family_options(text(default=USUAL, offsets="  ttl=5") + TABLE.encode())
    assert said["default"]["comparator"] == "leveldb.BytewiseComparator"
    assert said["offsets"] == {"ttl": "5"}
    assert said.keys() == {"default", "offsets"}
    assert family_options(b"") == family_options(bytes(range(256))) == {}


@pytest.mark.parametrize(
    ("changed", "unreadable", "unopenable"),
    [
        ("", 0, False),
        ("merge_operator=StringAppendOperator", 0, False),
        ("compression=kZlibCompression", 0, False),  # the blocks say so
        ("num_levels=12", 0, False),
        ("num_levels=2", 0, True),
        ("num_levels=-1", 0, False),
        ("num_levels=99999999", 0, False),
        ("comparator=rocksdb.ReverseBytewiseComparator", 1, True),
        ("table_factory=PlainTable", 1, True),
        ("comparator=mine\n  table_factory=PlainTable", 2, True),
    ],
)
def test_what_cannot_be_read_here_or_opened_there(
    tmp_path: Path, changed: str, unreadable: int, unopenable: bool
) -> None:
    options = text(default=f"{USUAL}\n  {changed}", offsets=USUAL)
    assert len(unreadable_here(options)) == unreadable
    (tmp_path / "OPTIONS-000007").write_bytes(options)
    assert bool(unopenable_there(tmp_path)) == unopenable


def test_few_levels_are_kept_too(tmp_path: Path) -> None:
    path = tmp_path / "s"
    few = rocksdict.Options(raw_mode=True)
    few.set_num_levels(2)
    few.set_compaction_style(rocksdict.DBCompactionStyle.universal())
    database = rocksdict.Rdict(str(path), few)
    database.create_column_family("offsets", rocksdict.Options(raw_mode=True)).close()
    database.close()
    (path / "rocksdict-config.json").unlink()
    with RocksDBStore(path, StoreKind.KEY_VALUE) as store:
        store.put(b"k", b"v")
        store.commit({PARTITION: 1})
    assert levels(path) == {"default": 2, "offsets": 7}
