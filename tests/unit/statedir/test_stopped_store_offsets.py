"""How far a store has come, by what the application would go by: stores, files beside them, segments."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.formats.checkpoint import encode_checkpoint
from statecore.formats.kinds import StoreKind
from statecore.formats.position import encode_position
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.stopped_store_offsets import are_known, read_stopped_store_offsets
from statecore.statedir.store_places import StorePlace, store_places
from tests.unit.doctor.stored import offsets, write_database

LOG = "app-s-changelog"
PART = TopicPartition(LOG, 0)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    return tmp_path / "app" / "0_0"


def place(task: Path) -> StorePlace:
    (found,) = store_places(StateDirectory(task.parent.parent, "app"))
    return found


def test_the_newest_segment_that_has_an_offset_counts_and_positions_are_merged(task: Path) -> None:
    for start, offset, seen in ((0, 3, {"in": {0: 9}}), (60_000, 7, {"in": {0: 5, 1: 1}})):
        said = [*offsets(LOG, 0, offset), (b"position", encode_position(seen))]
        write_database(task / "s" / f"s.{start}", {"default": [], "offsets": said})
    write_database(task / "s" / "s.120000", {"default": [], "offsets": [(b"status", bytes(8))]})
    found = read_stopped_store_offsets(place(task), [LOG], StoreKind.KEY_VALUE)
    assert found.offsets == {PART: 7}
    assert found.position == {TopicPartition("in", 0): 9, TopicPartition("in", 1): 1}
    assert sorted(found.databases) == [0, 60_000, 120_000]
    assert found.families == {"default", "offsets"}
    assert found.file_bytes > 0


@pytest.mark.parametrize(("said", "counts"), [(2, 2), (9, 9), (-4, 5)])
def test_the_file_of_a_task_wins_over_the_store_unless_it_does_not_know(task: Path, said: int, counts: int) -> None:
    write_database(task / "rocksdb" / "s", {"default": [], "offsets": offsets(LOG, 0, 5)})
    entries = {PART: said, TopicPartition("another", 0): 1}
    (task / ".checkpoint").write_bytes(encode_checkpoint(entries))
    assert read_stopped_store_offsets(place(task), [LOG], StoreKind.KEY_VALUE).offsets == {PART: counts}


def test_offsets_of_older_releases_are_in_files_beside_the_store(task: Path) -> None:
    write_database(task / "rocksdb" / "s", {"default": []})
    (task / ".checkpoint").write_bytes(encode_checkpoint({PART: 8}))
    (task / "s.position").write_bytes(encode_checkpoint({TopicPartition("in", 0): 4}))
    found = read_stopped_store_offsets(place(task), [LOG], StoreKind.KEY_VALUE)
    assert (found.offsets, found.position) == ({PART: 8}, {TopicPartition("in", 0): 4})
    assert are_known(found.offsets)


def test_a_store_that_keeps_no_offset_itself_has_a_file_of_its_own(task: Path) -> None:
    write_database(task / "s" / "s.0", {"default": [], "offsets": []})
    (task / ".checkpoint_s").write_bytes(encode_checkpoint({PART: 6}))
    assert read_stopped_store_offsets(place(task), [LOG], StoreKind.KEY_VALUE).offsets == {PART: 6}


@pytest.mark.parametrize(("entry", "counts"), [(None, 6), (-4, 6), (3, 3)])
def test_the_offset_in_the_database_of_a_grace_buffer_does_not_count(
    task: Path, entry: int | None, counts: int
) -> None:
    write_database(task / "s" / "s.0", {"default": [], "offsets": offsets(LOG, 0, 9)})
    (task / ".checkpoint_s").write_bytes(encode_checkpoint({PART: 6}))
    if entry is not None:
        (task / ".checkpoint").write_bytes(encode_checkpoint({PART: entry}))
    assert read_stopped_store_offsets(place(task), [LOG], StoreKind.GRACE_BUFFER).offsets == {PART: counts}


def test_where_nothing_says_an_offset_none_is_known(task: Path) -> None:
    write_database(task / "rocksdb" / "s", {"default": [], "offsets": offsets(LOG, 0, -4)})
    assert not are_known(read_stopped_store_offsets(place(task), [LOG], StoreKind.KEY_VALUE).offsets)
    assert not are_known({})
