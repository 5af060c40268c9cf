"""RocksDB options of a user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rocksdict import BlockBasedOptions, DBCompressionType, Options

from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb.config_setter import PROTECTED_OPTIONS, PROTECTED_TABLE
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import StoreSettings
from tests.harness.raising import raises

KIND = StoreKind.TIMESTAMPED_KEY_VALUE
CHANGELOG = TopicPartition("app-store-changelog", 0)


def _sections(path: Path) -> dict[str, dict[str, str]]:
    """What RocksDB itself says a database was opened with, by section of its OPTIONS file."""
    newest = max(path.glob("OPTIONS-*"), key=lambda file: file.name)
    sections: dict[str, dict[str, str]] = {}
    for line in newest.read_text().splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        elif "=" in line:
            name, _, value = line.strip().partition("=")
            section[name] = value
    return sections


def test_a_setter_changes_the_options_of_database_and_rows_and_not_those_of_the_offsets(tmp_path: Path) -> None:
    asked = []

    def setter(name: str, options: Any) -> None:
        asked.append(name)
        options.set_write_buffer_size(3 << 20)
        options.set_max_open_files(77)
        options.set_compression_type(DBCompressionType.lz4())
        options.table.set_block_size(16 << 10)

    path = tmp_path / "0_0" / "rocksdb" / "counts"
    with RocksDBStore(path, KIND, create=True, settings=StoreSettings(rocksdb_config_setter=setter)) as store:
        store.put(b"a", b"12345678b")
        store.commit({CHANGELOG: 1})
        found = _sections(path)
    assert asked == ["counts"]
    assert found["DBOptions"]["max_open_files"] == "77"
    assert found["DBOptions"]["atomic_flush"] == "true"
    for family in ("default", "keyValueWithTimestamp"):
        assert found[f'CFOptions "{family}"']["write_buffer_size"] == str(3 << 20)
        assert found[f'CFOptions "{family}"']["compression"] == "kLZ4Compression"
        table = found[f'TableOptions/BlockBasedTable "{family}"']
        assert (table["block_size"], table["format_version"]) == ("16384", "6")
        assert table["cache_index_and_filter_blocks"] == "true"
        assert table["filter_policy"].startswith("bloomfilter")
    assert found['CFOptions "offsets"']["write_buffer_size"] == str(1 << 20)
    assert found['CFOptions "offsets"']["compression"] == "kNoCompression"
    with RocksDBStore(path, KIND, settings=StoreSettings(rocksdb_config_setter=setter), read_only=True) as store:
        assert store.get(b"a") == b"12345678b"
    assert asked == ["counts"] * 2
    with RocksDBStore(path, KIND, exactly_once=True) as store:
        assert store.get(b"a") == b"12345678b"


@pytest.mark.parametrize("name", [*PROTECTED_OPTIONS, *(f"table.{name}" for name in PROTECTED_TABLE)])
def test_what_a_setter_may_not_change_is_refused_before_anything_is_made(tmp_path: Path, name: str) -> None:
    def setter(store: str, options: Any) -> None:
        of = options.table if name.startswith("table.") else options
        getattr(of, name.removeprefix("table."))

    assert hasattr(BlockBasedOptions if name.startswith("table.") else Options, name.removeprefix("table."))
    store = RocksDBStore(tmp_path / "s", KIND, create=True, settings=StoreSettings(rocksdb_config_setter=setter))
    with raises(Invalid, "rocksdb-option-protected", store="s", option=name.removeprefix("table.")):
        store.open()
    assert not store.is_open
    assert not list(tmp_path.iterdir())


def test_a_setter_that_fails_is_named_and_nothing_is_made(tmp_path: Path) -> None:
    def setter(name: str, options: Any) -> None:
        options.set_write_buffers(3)

    store = RocksDBStore(tmp_path / "s", KIND, create=True, settings=StoreSettings(rocksdb_config_setter=setter))
    with raises(Invalid, "config-setter-failed", store="s") as caught:
        store.open()
    assert isinstance(caught.value.__cause__, AttributeError)
    assert "set_write_buffers" in caught.value.what
    assert not list(tmp_path.iterdir())


def test_rocksdict_has_no_way_to_set_comparator_or_merge_operator() -> None:
    assert not [name for name in dir(Options) if "comparator" in name or "merge_operator" in name]


def test_a_store_whose_setter_failed_is_opened_once_the_setter_works(tmp_path: Path) -> None:
    """Nothing was made and nothing is held meanwhile."""
    works = False

    def setter(_: str, options: Any) -> None:
        assert works

    path = tmp_path / "0_0" / "rocksdb" / "counts"
    store = RocksDBStore(path, KIND, create=True, settings=StoreSettings(rocksdb_config_setter=setter))
    with raises(Invalid, "config-setter-failed", store="counts"):
        store.open()
    assert not path.exists()
    works = True
    with store:
        assert store.is_open
