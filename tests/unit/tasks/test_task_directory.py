from __future__ import annotations

from pathlib import Path

import pytest

from statecore.errors import Invalid
from statecore.formats.checkpoint import decode_checkpoint, encode_checkpoint
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.tasks.task_directory import LoggedStore, open_task_directory
from statecore.tasks.task_offsets import NextReader, TaskOffsets, TaskStore
from tests.unit.stores.rows_in_file import RowsInFile

CHANGELOG, BESIDE = TopicPartition("app-counts-changelog", 0), TopicPartition("app-beside-changelog", 0)
STORES = {"counts": LoggedStore(StoreKind.KEY_VALUE, (CHANGELOG,))}


def test_a_directory_is_made_and_opened_again_with_its_offset(tmp_path: Path) -> None:
    directory = tmp_path / "app" / "0_0"
    with open_task_directory(directory, STORES, exactly_once=True) as task:
        assert task.adopted.unknown == ("counts",)
        task.stores["counts"].put(b"a", b"1")
        task.commit({"counts": {CHANGELOG: 42}})
    assert not task.stores["counts"].is_open
    with open_task_directory(directory, STORES, exactly_once=True) as task:
        assert task.stores["counts"].committed_offset(CHANGELOG) == 42
        in_file = decode_checkpoint((directory / ".checkpoint").read_bytes(), "")
        assert in_file == {CHANGELOG: 42}, "a crash before the first checkpoint leaves it"


def test_a_directory_may_be_named_by_a_text(tmp_path: Path) -> None:
    with open_task_directory(str(tmp_path / "app" / "0_0"), STORES, exactly_once=True) as task:
        task.commit({"counts": {CHANGELOG: 42}})
    assert (tmp_path / "app" / "0_0" / "rocksdb" / "counts").is_dir()


def test_a_directory_that_cannot_be_made_is_invalid(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file", tmp_path / "file" / "0_0", tmp_path / ("n" * 300)):
        with pytest.raises(Invalid, match=directory.name):
            open_task_directory(directory, STORES, exactly_once=True)


def test_offsets_of_an_older_version_are_inherited(tmp_path: Path) -> None:
    with RocksDBStore(tmp_path / "rocksdb" / "counts", StoreKind.KEY_VALUE, create=True) as store:
        store.put(b"a", b"1")
        store.commit({CHANGELOG: None})
    (tmp_path / ".checkpoint").write_bytes(encode_checkpoint({CHANGELOG: 7}))
    with open_task_directory(tmp_path, STORES, exactly_once=True, next_reader=NextReader.KAFKA_STREAMS_4_3) as task:
        assert task.adopted.offsets == {"counts": {CHANGELOG: 7}}
        assert not (tmp_path / ".checkpoint").exists(), "Kafka Streams 4.3 would believe it"


def test_a_store_that_keeps_no_offset_is_given_a_file(tmp_path: Path) -> None:
    stores = {**STORES, "beside": LoggedStore(StoreKind.KEY_VALUE, (BESIDE,), RowsInFile(tmp_path / "beside.rows"))}
    with open_task_directory(tmp_path, stores, exactly_once=False) as task:
        task.stores["beside"].put(b"a", b"1")
        task.commit({"beside": {BESIDE: 3}})
    with open_task_directory(tmp_path, stores, exactly_once=False) as task:
        assert task.stores["beside"].committed_offset(BESIDE) == 3


def test_undeclared_stores_are_refused_before_any_change(tmp_path: Path) -> None:
    with RocksDBStore(tmp_path / "rocksdb" / "other", StoreKind.KEY_VALUE, create=True):
        pass
    with pytest.raises(Invalid, match="not declared: rocksdb/other"):
        open_task_directory(tmp_path, STORES, exactly_once=True)
    with pytest.raises(Invalid, match="a database for each segment"):
        open_task_directory(
            tmp_path, {"other": STORES["counts"], "w": LoggedStore(StoreKind.WINDOW)}, exactly_once=True
        )
    assert {path.name for path in tmp_path.iterdir()} == {"rocksdb"}
    with open_task_directory(tmp_path, STORES, exactly_once=True, ignore_foreign=True) as task:
        assert set(task.stores) == {"counts"}


def test_a_store_that_stands_at_an_offset_is_known_after_a_crash(tmp_path: Path) -> None:
    with open_task_directory(tmp_path, STORES, exactly_once=True) as task:
        task.commit({"counts": {CHANGELOG: 42}})
    with open_task_directory(tmp_path, STORES, exactly_once=True):
        store = RocksDBStore(tmp_path / "rocksdb" / "counts", StoreKind.KEY_VALUE)
        crashed = TaskOffsets(tmp_path, [TaskStore("counts", store, (CHANGELOG,))], exactly_once=True)
        assert crashed.known_offsets() == {CHANGELOG: 42}


def test_the_directory_may_be_named_by_a_text(tmp_path: Path) -> None:
    with open_task_directory(f"{tmp_path}/app/0_0", STORES, exactly_once=True) as task:
        task.stores["counts"].put(b"a", b"1")
        task.commit({"counts": {CHANGELOG: 1}})
    assert (tmp_path / "app" / "0_0" / "rocksdb" / "counts" / "CURRENT").is_file()
