"""Task directories that real applications on older versions of Kafka Streams left, opened by real stores.

``tests/golden/make_older.py`` made them, and says what is in them.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from statecore.errors import Corrupted, Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.tasks.checkpoint_policy import CheckpointSettings, TaskCheckpointer
from statecore.tasks.task_offsets import NextReader, TaskOffsets, TaskStore
from tests.harness.raising import raises

GOLDEN = Path(__file__).parents[2] / "golden"
KINDS = {"plain": StoreKind.KEY_VALUE, "stamped": StoreKind.TIMESTAMPED_KEY_VALUE}
VERSIONS = {"3.9.1": "old391", "4.2.0": "old420"}
"""Application id of each version's directory."""
OFFSET = 20
"""Last applied offset of each store."""


class Task:
    """The directory of one version."""

    def __init__(self, directory: Path, version: str) -> None:
        self.application_id = VERSIONS[version]
        with tarfile.open(GOLDEN / f"kafka-streams-{version}-task.tar.gz") as archive:
            archive.extractall(directory, filter="data")
        self.directory = directory / "0_1"
        self.changelogs = {name: TopicPartition(f"{self.application_id}-{name}-changelog", 1) for name in KINDS}

    def stores(self) -> dict[str, RocksDBStore]:
        return {
            name: RocksDBStore(self.directory / "rocksdb" / name, kind, exactly_once=True, upgrade=True)
            for name, kind in KINDS.items()
        }

    def offsets(self, stores: dict[str, RocksDBStore], next_reader: NextReader = NextReader.STATECORE) -> TaskOffsets:
        listed = [TaskStore(name, store, (self.changelogs[name],)) for name, store in stores.items()]
        return TaskOffsets(self.directory, listed, exactly_once=True, next_reader=next_reader)

    def files(self) -> set[str]:
        return {path.name for path in self.directory.iterdir() if path.is_file()}


@pytest.fixture(params=VERSIONS)
def task(request: pytest.FixtureRequest, tmp_path: Path) -> Task:
    return Task(tmp_path, request.param)


def test_offsets_and_positions_move_into_the_stores_and_stay_there(task: Task) -> None:
    assert task.files() == {".checkpoint", "plain.position", "stamped.position"}
    stores = task.stores()
    checkpointer = TaskCheckpointer(task.offsets(stores, NextReader.KAFKA_STREAMS_4_3), CheckpointSettings(0))
    taken = checkpointer.open()
    assert taken.offsets == {name: {changelog: OFFSET} for name, changelog in task.changelogs.items()}
    assert set(taken.positions) == set(KINDS)
    assert len(dict(stores["plain"].all())) == 9
    checkpointer.close()
    assert task.files() == set()
    for name, store in task.stores().items():
        with store:
            assert store.committed_offset(task.changelogs[name]) == OFFSET
            assert store.position == {f"{task.application_id}-in": {1: 19}}
            assert len(dict(store.all())) == 9


def test_a_directory_can_be_given_the_files_of_its_version_again(task: Task) -> None:
    before = {name: (task.directory / name).read_text() for name in task.files()}
    stores = task.stores()
    offsets = task.offsets(stores, NextReader.KAFKA_STREAMS_4_2)
    offsets.open()
    offsets.checkpoint()
    assert task.files() == set(), "under exactly-once an older version must find none after a crash"
    offsets.close()
    after = {name: (task.directory / name).read_text() for name in task.files()}
    assert after.keys() == before.keys()
    assert all(sorted(after[name].splitlines()) == sorted(before[name].splitlines()) for name in before)


def test_a_torn_file_changes_nothing_and_leaves_the_stores_usable(task: Task) -> None:
    file = task.directory / ".checkpoint"
    file.write_bytes(file.read_bytes()[:-30] + bytes(30))
    before = {path: path.read_bytes() for path in task.directory.rglob("*") if path.is_file()}
    with pytest.raises(Corrupted, match=r"\.checkpoint cannot be read"):
        task.offsets(task.stores()).open()
    assert {path: path.read_bytes() for path in task.directory.rglob("*") if path.is_file()} == before
    with task.stores()["stamped"] as store:
        assert len(dict(store.all())) == 9


def test_one_store_that_cannot_be_read_leaves_the_other_one_usable(task: Task) -> None:
    (task.directory / "rocksdb" / "stamped" / "CURRENT").write_bytes(b"MANIFEST-999999\n")
    stores = task.stores()
    with pytest.raises(Corrupted):
        task.offsets(stores).open()
    assert not any(store.is_open for store in stores.values())
    assert ".checkpoint" in task.files()
    with stores["plain"] as store:
        assert len(dict(store.all())) == 9


@pytest.mark.parametrize("name", KINDS)
def test_a_database_of_an_older_version_is_opened_for_writing_only_when_its_upgrade_is_asked_for(
    task: Task, name: str
) -> None:
    path = task.directory / "rocksdb" / name
    before = {file.name: file.read_bytes() for file in path.iterdir() if file.name != "LOCK"}
    for create_if_missing in (False, True):
        with raises(Invalid, "upgrade-required") as refused:
            RocksDBStore(path, KINDS[name], create_if_missing=create_if_missing).open()
        assert "upgrade=True" in refused.value.action
    with RocksDBStore(path, KINDS[name], read_only=True) as store:
        assert len(dict(store.all())) == 9
    assert {file.name: file.read_bytes() for file in path.iterdir() if file.name != "LOCK"} == before
    with RocksDBStore(path, KINDS[name], upgrade=True) as store:
        store.commit({task.changelogs[name]: OFFSET})
    with RocksDBStore(path, KINDS[name]) as store:
        assert store.committed_offset(task.changelogs[name]) == OFFSET


def test_a_store_that_is_only_read_is_not_upgraded(task: Task) -> None:
    with raises(Invalid, "options-conflict"):
        RocksDBStore(task.directory / "rocksdb" / "plain", KINDS["plain"], read_only=True, upgrade=True)
