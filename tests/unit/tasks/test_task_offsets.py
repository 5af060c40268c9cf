from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from statecore.errors import Corrupted, Invalid, NotFound
from statecore.formats.checkpoint import decode_checkpoint, encode_checkpoint
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.base import StateStore
from statecore.stores.legacy_checkpointing import LegacyCheckpointingStore
from statecore.tasks.task_offsets import NextReader, TaskOffsets, TaskStore
from tests.harness.filesystems import refusing
from tests.harness.raising import raises
from tests.unit.stores.recorded_store import RecordedStore

INSIDE, BESIDE = TopicPartition("app-inside-changelog", 0), TopicPartition("app-beside-changelog", 0)


class Task:
    """A task directory with a store that manages its offsets (``inside``) and one that does not (``beside``)."""

    def __init__(
        self,
        directory: Path,
        *,
        exactly_once: bool = False,
        is_global: bool = False,
        next_reader: NextReader = NextReader.STATECORE,
    ) -> None:
        self.directory = directory
        self.inside = RecordedStore(directory / "inside", manages_offsets=True)
        self.rows_beside = RecordedStore(directory / "beside", manages_offsets=False)
        self.beside = LegacyCheckpointingStore(
            self.rows_beside, directory, "beside", [BESIDE], exactly_once=exactly_once
        )
        stores = [TaskStore("inside", self.inside, (INSIDE,)), TaskStore("beside", self.beside, (BESIDE,))]
        self.offsets = TaskOffsets(
            directory, stores, exactly_once=exactly_once, is_global=is_global, next_reader=next_reader
        )

    def commit(self, offset: int) -> None:
        for store, changelog in ((self.inside, INSIDE), (self.beside, BESIDE)):
            store.put(b"row", b"%d" % offset)
            store.update_position("in", 0, offset)
            store.commit({changelog: offset})

    def files(self) -> dict[str, str]:
        return files(self.directory)

    @contextmanager
    def running(self) -> Iterator[Task]:
        self.offsets.open()
        yield self
        self.offsets.close()


def files(directory: Path) -> dict[str, str]:
    """What is in the files with offsets, without version and count, by name."""
    names = [path for path in directory.iterdir() if path.name.startswith(".") or path.suffix == ".position"]
    return {path.name: "; ".join(path.read_text().splitlines()[2:]) for path in names}


def rows_without_offsets(directory: Path) -> None:
    """Both stores have rows and know no offset, as an older version leaves them."""
    for name, manages in (("inside", True), ("beside", False)):
        with RecordedStore(directory / name, manages_offsets=manages) as store:
            store.put(b"row", b"old")
            store.forget_offsets()


def checkpoint(directory: Path, offsets: dict[TopicPartition, int], name: str = ".checkpoint") -> None:
    (directory / name).write_bytes(encode_checkpoint(offsets))


BOTH = "app-beside-changelog 0 7; app-inside-changelog 0 7"


@pytest.mark.parametrize("exactly_once", [False, True])
def test_offsets_of_an_older_version_are_inherited_once(tmp_path: Path, exactly_once: bool) -> None:
    rows_without_offsets(tmp_path)
    checkpoint(tmp_path, {INSIDE: 5, BESIDE: 6})
    checkpoint(tmp_path, {TopicPartition("in", 0): 3}, "inside.position")
    task = Task(tmp_path, exactly_once=exactly_once)
    taken = task.offsets.open()
    assert taken.offsets == {"inside": {INSIDE: 5}, "beside": {BESIDE: 6}}
    assert taken.positions == ("inside",)
    assert (taken.unknown, taken.without_rows) == ((), ())
    assert (task.inside.committed_offset(INSIDE), task.beside.committed_offset(BESIDE)) == (5, 6)
    assert task.inside.position == {"in": {0: 3}}
    beside = "" if exactly_once else "app-beside-changelog 0 6; "
    assert task.files() == {".checkpoint": f"{beside}app-inside-changelog 0 5"}
    survived = RecordedStore(tmp_path / "inside", manages_offsets=True)
    survived.open()
    assert (survived.committed_offset(INSIDE), survived.position) == (5, {"in": {0: 3}}), "it is durable"


def test_a_store_with_an_offset_of_its_own_keeps_it(tmp_path: Path) -> None:
    with Task(tmp_path).running() as task:
        task.commit(7)
    checkpoint(tmp_path, {INSIDE: 3000, BESIDE: 3000})
    checkpoint(tmp_path, {TopicPartition("in", 0): 3000}, "inside.position")
    task = Task(tmp_path)
    taken = task.offsets.open()
    assert (taken.offsets, taken.positions) == ({}, ())
    assert (task.inside.committed_offset(INSIDE), task.beside.committed_offset(BESIDE)) == (7, 7)
    assert task.inside.position == {"in": {0: 7}}


def test_a_store_with_an_offset_and_no_position_takes_the_position(tmp_path: Path) -> None:
    with RecordedStore(tmp_path / "inside", manages_offsets=True) as store:
        store.commit({INSIDE: 7})
    checkpoint(tmp_path, {TopicPartition("in", 0): 3}, "inside.position")
    task = Task(tmp_path)
    assert task.offsets.open().positions == ("inside",)
    assert (task.inside.committed_offset(INSIDE), task.inside.position) == (7, {"in": {0: 3}})


def test_a_store_without_rows_does_not_count_as_restored(tmp_path: Path) -> None:
    rows_without_offsets(tmp_path)
    (tmp_path / "inside").unlink()
    checkpoint(tmp_path, {INSIDE: 5, BESIDE: 6})
    task = Task(tmp_path)
    taken = task.offsets.open()
    assert taken.without_rows == taken.unknown == ("inside",)
    assert taken.offsets == {"beside": {BESIDE: 6}}
    assert task.inside.committed_offset(INSIDE) is None


def test_an_unknown_offset_stays_unknown(tmp_path: Path) -> None:
    rows_without_offsets(tmp_path)
    checkpoint(tmp_path, {INSIDE: -4, BESIDE: 6})
    task = Task(tmp_path)
    assert task.offsets.open().unknown == ("inside",)
    assert task.inside.committed_offset(INSIDE) is None


def test_offsets_of_unknown_stores_are_refused_before_any_open(tmp_path: Path) -> None:
    rows_without_offsets(tmp_path)
    foreign = TopicPartition("app-inside-changelog", 1)
    checkpoint(tmp_path, {INSIDE: 5, foreign: 6})
    task = Task(tmp_path)
    with raises(Invalid, "offsets-of-unknown-partitions", foreign=["app-inside-changelog-1"]):
        task.offsets.open()
    assert task.inside.happened == []
    assert decode_checkpoint((tmp_path / ".checkpoint").read_bytes(), "") == {INSIDE: 5, foreign: 6}
    assert task.offsets.open(ignore_foreign=True).offsets == {"inside": {INSIDE: 5}}


@pytest.mark.parametrize("name", [".checkpoint", ".checkpoint_beside", "inside.position", "beside.position"])
def test_a_malformed_file_changes_nothing_and_leaves_every_store_usable(tmp_path: Path, name: str) -> None:
    rows_without_offsets(tmp_path)
    checkpoint(tmp_path, {INSIDE: 5})
    (tmp_path / name).write_bytes(b"0\n1\n\0\0\0\0")
    before = files(tmp_path)
    task = Task(tmp_path)
    with pytest.raises(Corrupted, match=f"{name} cannot be read: line 3"):
        task.offsets.open()
    assert files(tmp_path) == before
    assert task.inside.happened == task.rows_beside.happened == []
    task.inside.open()
    assert task.inside.get(b"row") == b"old"


def test_a_store_that_cannot_be_opened_leaves_files_and_stores_as_they_were(tmp_path: Path) -> None:
    rows_without_offsets(tmp_path)
    checkpoint(tmp_path, {INSIDE: 5, BESIDE: 6})
    task = Task(tmp_path)
    task.rows_beside.failing = "open"
    with pytest.raises(Corrupted, match="open failed"):
        task.offsets.open()
    assert not task.inside.is_open
    assert decode_checkpoint((tmp_path / ".checkpoint").read_bytes(), "") == {INSIDE: 5, BESIDE: 6}
    task.rows_beside.failing = None
    assert task.offsets.open().offsets == {"inside": {INSIDE: 5}, "beside": {BESIDE: 6}}


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize(
    ("next_reader", "left"),
    [
        (NextReader.STATECORE, {".checkpoint": BOTH, ".checkpoint_beside": "app-beside-changelog 0 7"}),
        (NextReader.KAFKA_STREAMS_4_3, {".checkpoint_beside": "app-beside-changelog 0 7"}),
        (NextReader.KAFKA_STREAMS_4_2, {".checkpoint": BOTH, "inside.position": "in 0 7"}),
    ],
)
def test_a_clean_close_leaves_what_the_next_one_reads(
    tmp_path: Path, next_reader: NextReader, left: dict[str, str], exactly_once: bool
) -> None:
    with Task(tmp_path, exactly_once=exactly_once, next_reader=next_reader).running() as task:
        task.commit(5)
        task.offsets.checkpoint()
        task.commit(7)
        for store in (task.inside, task.beside):
            store.update_position("in", 0, 99)  # never committed
    assert files(tmp_path) == {"beside.position": "in 0 7", **left}


@pytest.mark.parametrize(
    ("next_reader", "exactly_once", "left"),
    [
        (NextReader.STATECORE, False, {"app-inside-changelog 0 5", "app-beside-changelog 0 5"}),
        (NextReader.STATECORE, True, {"app-inside-changelog 0 5"}),
        (NextReader.KAFKA_STREAMS_4_3, False, {"app-inside-changelog 0 5", "app-beside-changelog 0 5"}),
        (NextReader.KAFKA_STREAMS_4_3, True, {"app-inside-changelog 0 5"}),
        (NextReader.KAFKA_STREAMS_4_2, False, {"app-inside-changelog 0 5", "app-beside-changelog 0 5"}),
        (NextReader.KAFKA_STREAMS_4_2, True, set()),
    ],
)
def test_a_crash_leaves_the_offsets_of_the_last_checkpoint_valid(
    tmp_path: Path, next_reader: NextReader, exactly_once: bool, left: set[str]
) -> None:
    crashed = Task(tmp_path, exactly_once=exactly_once, next_reader=next_reader)
    crashed.offsets.open()
    crashed.commit(5)
    crashed.offsets.checkpoint()
    crashed.commit(7)
    found = files(tmp_path)
    assert set(filter(None, found.get(".checkpoint", "").split("; "))) == left
    assert (".checkpoint_beside" in found) is not exactly_once
    again = Task(tmp_path, exactly_once=exactly_once, next_reader=next_reader)
    taken = again.offsets.open()
    assert again.inside.committed_offset(INSIDE) == 7, "the store knows better than the file"
    assert again.beside.committed_offset(BESIDE) == (None if exactly_once else 5)
    assert taken.unknown == (("beside",) if exactly_once else ())


def test_offsets_of_closed_stores_are_read_from_disk_and_of_open_ones_from_memory(tmp_path: Path) -> None:
    with Task(tmp_path).running() as task:
        task.commit(7)
    task = Task(tmp_path)
    assert task.offsets.known_offsets() == {INSIDE: 7, BESIDE: 7}
    task.inside.open()
    task.inside.commit({INSIDE: 9})
    assert task.offsets.known_offsets() == {INSIDE: 9, BESIDE: 7}


def test_the_file_is_written_behind_a_flush_of_every_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(tmp_path)
    task.offsets.open()
    task.commit(5)
    seen: list[tuple[str, str]] = []

    def look(path: Path) -> bool:
        if path.name == ".checkpoint":
            seen.append((task.inside.happened[-1], task.rows_beside.happened[-1]))
        return False

    refusing(monkeypatch, "replace", errno.EIO, look)
    task.offsets.checkpoint()
    assert seen == [("flush", "flush")]


def test_a_store_that_fails_to_close_is_left_out(tmp_path: Path) -> None:
    task = Task(tmp_path, exactly_once=True, next_reader=NextReader.KAFKA_STREAMS_4_2)
    task.offsets.open()
    task.commit(7)
    task.inside.failing = "close"
    with pytest.raises(Corrupted, match="close failed"):
        task.offsets.close()
    assert not task.beside.is_open
    assert files(tmp_path) == {".checkpoint": "app-beside-changelog 0 7", "beside.position": "in 0 7"}


def test_a_file_that_would_win_is_gone_before_a_store_counts_as_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task(tmp_path, next_reader=NextReader.KAFKA_STREAMS_4_3)
    task.offsets.open()
    task.commit(5)
    task.offsets.checkpoint()
    assert ".checkpoint" in task.files()
    seen: list[bool] = []
    monkeypatch.setattr(task.inside, "close", lambda: seen.append(".checkpoint" in task.files()))
    task.offsets.close()
    assert seen == [False]


def test_only_global_stores_leave_an_unknown_offset_out(tmp_path: Path) -> None:
    for name, is_global, said in (
        ("a", False, "app-beside-changelog 0 -4; app-inside-changelog 0 -4"),
        ("b", True, ""),
    ):
        (tmp_path / name).mkdir()
        with Task(tmp_path / name, is_global=is_global).running():
            pass
        assert files(tmp_path / name).get(".checkpoint", "") == said


def test_an_offset_that_is_lowered_is_noticed(tmp_path: Path) -> None:
    with Task(tmp_path).running() as task:
        task.commit(5)
        task.offsets.checkpoint()
        assert not task.offsets.must_be_lowered()
        task.commit(6)
        assert not task.offsets.must_be_lowered()
        task.inside.commit({INSIDE: 4})
        assert task.offsets.must_be_lowered()
        task.offsets.checkpoint()
        task.inside.forget_offsets()
        assert task.offsets.must_be_lowered()


@pytest.mark.parametrize(("to", "left"), [({INSIDE: 3, BESIDE: 3}, 3), ({INSIDE: None, BESIDE: None}, -4), ({}, -4)])
@pytest.mark.parametrize("crashes", [False, True])
def test_the_files_are_lowered_before_stores_are_set_back(
    tmp_path: Path, to: dict[TopicPartition, int | None], left: int, crashes: bool
) -> None:
    task = Task(tmp_path)
    task.offsets.open()
    task.commit(5)
    task.offsets.checkpoint()
    if crashes:
        task.inside.failing = task.rows_beside.failing = "commit"
    for name, changelog in (("inside", INSIDE), ("beside", BESIDE)):
        with pytest.raises(Corrupted) if crashes else nullcontext():
            if to:
                task.offsets.commit({name: {changelog: to[changelog]}})
            else:
                task.offsets.forget_offsets(name)
    assert task.files()[".checkpoint"] == f"app-beside-changelog 0 {left}; app-inside-changelog 0 {left}"
    assert task.files()[".checkpoint_beside"] == f"app-beside-changelog 0 {left}"
    again = Task(tmp_path)
    again.offsets.open()
    own = 5 if crashes else to.get(INSIDE)
    assert again.inside.committed_offset(INSIDE) == own, "nothing was imported"
    assert again.beside.committed_offset(BESIDE) == left
    if not to:
        assert "beside.position" not in task.files()


def test_committing_through_the_task_leaves_the_files_alone_when_offsets_grow(tmp_path: Path) -> None:
    task = Task(tmp_path)
    task.offsets.open()
    task.commit(5)
    task.offsets.checkpoint()
    before = task.files()
    task.offsets.commit({"inside": {INSIDE: 6}, "beside": {BESIDE: 7}})
    assert (task.inside.committed_offset(INSIDE), task.beside.committed_offset(BESIDE)) == (6, 7)
    assert task.files() == before
    with raises(NotFound, "store-not-found", stores=["nothing"]):
        task.offsets.commit({"inside": {INSIDE: 8}, "nothing": {}})
    with pytest.raises(Invalid, match="-1 is not an offset"):
        task.offsets.commit({"inside": {INSIDE: 8}, "beside": {BESIDE: -1}})
    with raises(Invalid, "offsets-of-unknown-partitions", store="inside", foreign=["app-beside-changelog-0"]):
        task.offsets.commit({"beside": {BESIDE: 8}, "inside": {INSIDE: 8, BESIDE: 8}})
    assert task.beside.committed_offset(BESIDE) == 7
    assert task.inside.committed_offset(INSIDE) == 6


def test_two_stores_of_a_task_with_one_name_are_refused(tmp_path: Path) -> None:
    stores = [TaskStore("s", RecordedStore(tmp_path / at, manages_offsets=True), (INSIDE,)) for at in ("a", "b")]
    with pytest.raises(Invalid, match="have the name s"):
        TaskOffsets(tmp_path, stores, exactly_once=True)


def test_stores_without_a_changelog_or_a_disk_are_in_no_file(tmp_path: Path) -> None:
    class InMemory(RecordedStore):
        @property
        def persistent(self) -> bool:
            return False

    memory: StateStore = InMemory(tmp_path / "memory", manages_offsets=False)
    unlogged = RecordedStore(tmp_path / "unlogged", manages_offsets=True)
    stores = [TaskStore("memory", memory, (INSIDE,)), TaskStore("unlogged", unlogged, ())]
    offsets = TaskOffsets(tmp_path, stores, exactly_once=False)
    checkpoint(tmp_path, {INSIDE: 5})
    assert offsets.open().unknown == ()
    offsets.checkpoint()
    offsets.close()
    assert files(tmp_path) == {}
    assert (memory.is_open, unlogged.is_open) == (False, False)


def test_a_store_that_keeps_its_offset_nowhere_is_refused(tmp_path: Path) -> None:
    store = RecordedStore(tmp_path / "rows", manages_offsets=False)
    with raises(Invalid, "offsets-not-managed", store="s"):
        TaskOffsets(tmp_path, [TaskStore("s", store, (INSIDE,))], exactly_once=False)
