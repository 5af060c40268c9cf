"""What a commit takes for a partition and an offset, in every store and every place that takes one."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kafka
import numpy
import pytest

from statecore.errors import Invalid
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.base import StateStore
from statecore.stores.legacy_checkpointing import LegacyCheckpointingStore
from statecore.stores.rows import MAX_ROW_BYTES
from statecore.tasks.task_offsets import TaskOffsets, TaskStore
from tests.harness.raising import raises
from tests.unit.stores.implementations import IMPLEMENTATIONS, QUICK, Factory, rocksdb
from tests.unit.stores.recorded_store import RecordedStore
from tests.unit.stores.test_conformance import CHANGELOG, OTHER
from tests.unit.stores.test_legacy_conformance import both, checkpointing, metered

FACTORIES: dict[str, Factory] = {**IMPLEMENTATIONS, "checkpointing": checkpointing, "metered": metered, "both": both}


class Named:
    """As confluent-kafka's: an offset of its own, and no tuple."""

    def __init__(self, topic: Any, partition: Any) -> None:
        self.topic, self.partition, self.offset = topic, partition, -1001


class Text(str):
    pass


ALIKE: list[Callable[[], Any]] = [
    lambda: kafka.TopicPartition(*CHANGELOG),
    lambda: Named(*CHANGELOG),
    lambda: Named(Text(CHANGELOG.topic), numpy.int32(CHANGELOG.partition)),
    lambda: TopicPartition(CHANGELOG.topic, numpy.int64(0)),  # type: ignore[arg-type]
]
FOREIGN: list[Any] = [
    tuple(CHANGELOG),
    str(CHANGELOG),
    str(CHANGELOG).encode(),
    7,
    None,
    frozenset(CHANGELOG[:1]),
    namedtuple("Pair", "name number")(*CHANGELOG),
    *(Named(topic, 0) for topic in ("", None, 7, b"app-store-changelog", "a topic", "a\0b", "ä", "a" * 250, ".", "..")),
    *(Named(CHANGELOG.topic, partition) for partition in (-1, 1 << 31, 0.0, "0", None, False)),
    TopicPartition(CHANGELOG.topic, False),
    TopicPartition("a topic", 0),
]


def named(foreign: object) -> str:
    """The name of a test, the same in every process: a set has its elements in another order."""
    return "frozenset" if isinstance(foreign, frozenset) else repr(foreign)[:40]


@pytest.fixture(params=FACTORIES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateStore]:
    with FACTORIES[request.param](tmp_path, QUICK) as store:
        store.put(b"a", b"1")
        store.commit({CHANGELOG: 7})
        yield store


@pytest.mark.parametrize("alike", ALIKE)
def test_a_partition_of_another_library_is_that_partition(store: StateStore, alike: Callable[[], Any]) -> None:
    store.commit({alike(): 8})
    wanted = 8 if store.manages_offsets else None
    assert store.committed_offset(CHANGELOG) == store.committed_offset(alike()) == wanted
    with store.query_view() as view:
        assert view.committed_offset(CHANGELOG) == view.committed_offset(alike()) == wanted


@pytest.mark.parametrize("foreign", FOREIGN, ids=named)
def test_what_is_no_partition_is_refused_before_anything_changes(store: StateStore, foreign: Any) -> None:
    store.put(b"a", b"new")
    with store.query_view() as view:
        for asked in (
            lambda: store.commit({OTHER: 5, foreign: 8}),
            lambda: store.committed_offset(foreign),
            lambda: view.committed_offset(foreign),
        ):
            with pytest.raises(Invalid) as raised:
                asked()
            assert raised.value.code == "partition-invalid"
    with store.query_view() as view:
        assert (view.get(b"a"), view.committed_offset(OTHER)) == (b"1", None)
    assert store.get(b"a") == b"new"


def test_keys_that_name_one_partition_agree_or_are_refused(store: StateStore) -> None:
    store.put(b"a", b"new")
    with raises(Invalid, "partition-duplicate", topic=CHANGELOG.topic):
        store.commit({CHANGELOG: 8, Named(*CHANGELOG): 9})
    with store.query_view() as view:
        assert view.get(b"a") == b"1"
    store.commit({CHANGELOG: 8, Named(*CHANGELOG): 8})
    assert store.committed_offset(CHANGELOG) == (8 if store.manages_offsets else None)


@pytest.mark.parametrize("whole", [numpy.int64(8), numpy.uint8(8), numpy.array(8)])
def test_a_whole_number_of_any_kind_is_an_offset(store: StateStore, whole: Any) -> None:
    store.commit({CHANGELOG: whole})
    assert store.committed_offset(CHANGELOG) == (8 if store.manages_offsets else None)


@pytest.mark.parametrize(
    "wrong", [True, False, numpy.float64(8), numpy.bool_(True), 8.0, "8", b"8", 1 << 63, -1, object()]
)
def test_what_is_no_whole_number_is_refused(store: StateStore, wrong: Any) -> None:
    store.put(b"a", b"new")
    with raises(Invalid, "offset-invalid", topic=CHANGELOG.topic, partition=CHANGELOG.partition):
        store.commit({OTHER: 5, CHANGELOG: wrong})
    with store.query_view() as view:
        assert (view.get(b"a"), view.committed_offset(OTHER)) == (b"1", None)


@pytest.mark.parametrize("wrong", [None, 7, [(CHANGELOG, 7)], "app-store-changelog-0"])
def test_offsets_are_a_mapping(store: StateStore, wrong: Any) -> None:
    with pytest.raises(Invalid, match="mapping"):
        store.commit(wrong)


def test_a_row_beyond_the_limit_is_refused_and_nothing_is_staged(store: StateStore) -> None:
    store.put(b"k", bytes(99))
    staged = store.uncommitted_bytes
    large = bytes(MAX_ROW_BYTES + 1)  # takes no memory until somebody reads it, and nobody does
    rows: list[tuple[bytes, bytes | None]] = [(b"k", large), (large, b""), (large, None)]
    for key, value in rows:
        with raises(Invalid, "row-too-large"):
            store.put(key, value)
        with raises(Invalid, "row-too-large"):
            store.put_all([(b"b", b"1"), (key, value)])
        with raises(Invalid, "row-too-large"):
            store.put_all(iter([(key, value)]))
    assert (store.uncommitted_bytes, store.get(b"b")) == (staged, None)


@pytest.mark.long
def test_rows_of_two_gigabytes_are_kept_and_larger_ones_refused(tmp_path: Path) -> None:
    most = MAX_ROW_BYTES
    with rocksdb(tmp_path, QUICK) as store:
        for size in (most, 1 << 32):
            with raises(Invalid, "row-too-large"):
                store.put(b"k", bytes(size))
        store.put(b"k", bytes(most - 1))
        store.commit({CHANGELOG: 1})
    with rocksdb(tmp_path, QUICK) as store:
        assert len(store.get(b"k") or b"") == most - 1


def test_a_batch_that_leaves_a_row_out_is_not_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RocksDB's own limit, were it lower than the one that is checked."""
    with rocksdb(tmp_path, QUICK) as store:
        store.put(b"a", b"1")
        monkeypatch.setattr("statecore.stores.rocksdb.commit._write_batch", lambda: Forgetful)
        with raises(Invalid, "commit-too-large"):
            store.commit({CHANGELOG: 1})
        monkeypatch.undo()
        assert (store.committed_offset(CHANGELOG), store.get(b"a")) == (None, b"1")
        store.commit({CHANGELOG: 1})


class Forgetful:
    def __init__(self, raw_mode: bool) -> None: ...

    def put(self, key: bytes, value: bytes, family: object) -> None: ...

    delete = put

    def __len__(self) -> int:
        return 0


class TestTasks:
    def test_partitions_of_a_store_are_taken_from_any_library(self, tmp_path: Path) -> None:
        store = RecordedStore(tmp_path / "rows", manages_offsets=False)
        wrapped = LegacyCheckpointingStore(store, tmp_path, "s", [kafka.TopicPartition(*CHANGELOG)], exactly_once=False)
        task = TaskOffsets(tmp_path, [TaskStore("s", wrapped, (Named(*CHANGELOG),))], exactly_once=False)  # type: ignore[arg-type]
        task.open()
        task.commit({"s": {Named(*CHANGELOG): 5}})  # type: ignore[dict-item]
        assert task.known_offsets() == {CHANGELOG: 5}
        task.close()
        assert (tmp_path / ".checkpoint").read_text() == "0\n1\napp-store-changelog 0 5\n"

    @pytest.mark.parametrize("foreign", [tuple(CHANGELOG), "app-store-changelog-0"])
    def test_anything_else_is_refused(self, tmp_path: Path, foreign: Any) -> None:
        store = RecordedStore(tmp_path / "rows", manages_offsets=True)
        with pytest.raises(Invalid, match="Error code: partition-invalid"):
            TaskStore("s", store, (foreign,))
        beside = RecordedStore(tmp_path / "beside", manages_offsets=False)
        with pytest.raises(Invalid, match="Error code: partition-invalid"):
            LegacyCheckpointingStore(beside, tmp_path, "s", [foreign], exactly_once=False)
        task = TaskOffsets(tmp_path, [TaskStore("s", store, (CHANGELOG,))], exactly_once=False)
        task.open()
        with pytest.raises(Invalid, match="Error code: partition-invalid"):
            task.commit({"s": {OTHER: 1, foreign: 2}})
        assert task.known_offsets() == {}
        task.close()
