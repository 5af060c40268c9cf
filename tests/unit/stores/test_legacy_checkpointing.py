from __future__ import annotations

import os
from pathlib import Path

import pytest

from statecore.errors import Corrupted, Invalid
from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel
from statecore.stores.legacy_checkpointing import LegacyCheckpointingStore
from tests.harness.raising import raises
from tests.unit.stores.recorded_store import RecordedStore

CHANGELOG, OTHER = TopicPartition("app-s-changelog", 0), TopicPartition("app-other-changelog", 0)


class World:
    """A task directory with one store that does not manage its offsets."""

    def __init__(self, directory: Path, exactly_once: bool) -> None:
        self.directory, self.exactly_once = directory, exactly_once
        self.checkpoint, self.position = directory / ".checkpoint_s", directory / "s.position"
        self.rows = RecordedStore(directory / "rows", manages_offsets=False)

    def store(self) -> LegacyCheckpointingStore:
        """The store as another process would make it."""
        self.rows = RecordedStore(self.directory / "rows", manages_offsets=False)
        return LegacyCheckpointingStore(self.rows, self.directory, "s", [CHANGELOG], exactly_once=self.exactly_once)

    def opened(self) -> LegacyCheckpointingStore:
        store = self.store()
        store.open()
        return store


@pytest.fixture
def at_least_once(tmp_path: Path) -> World:
    return World(tmp_path, exactly_once=False)


@pytest.fixture
def exactly_once(tmp_path: Path) -> World:
    return World(tmp_path, exactly_once=True)


@pytest.fixture(params=[False, True], ids=["at-least-once", "exactly-once"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(tmp_path, exactly_once=request.param)


def test_what_was_committed_is_known_after_a_clean_close(world: World) -> None:
    with world.store() as store:
        store.put(b"k", b"v")
        store.update_position("in", 0, 3)
        store.commit({CHANGELOG: 7})
        store.put(b"lost", b"v")
    assert world.checkpoint.read_bytes() == b"0\n1\napp-s-changelog 0 7\n"
    assert world.position.read_bytes() == b"0\n1\nin 0 3\n"
    with world.store() as store:
        assert (store.get(b"k"), store.get(b"lost")) == (b"v", None)
        assert store.committed_offset(CHANGELOG) == 7
        assert store.position == {"in": {0: 3}}
        assert store.manages_offsets


def test_under_exactly_once_a_crash_leaves_no_offset(exactly_once: World) -> None:
    with exactly_once.store() as store:
        store.commit({CHANGELOG: 7})
    crashed = exactly_once.opened()
    assert crashed.committed_offset(CHANGELOG) == 7
    crashed.commit({CHANGELOG: 9})
    crashed.checkpoint()
    assert not exactly_once.checkpoint.exists()
    assert exactly_once.opened().committed_offset(CHANGELOG) is None


def test_under_at_least_once_a_crash_leaves_the_offset_of_the_last_checkpoint(at_least_once: World) -> None:
    crashed = at_least_once.opened()
    crashed.commit({CHANGELOG: 7})
    crashed.checkpoint()
    crashed.put(b"k", b"v")
    crashed.commit({CHANGELOG: 9})
    reopened = at_least_once.opened()
    assert reopened.committed_offset(CHANGELOG) == 7
    assert reopened.get(b"k") == b"v", "the rows may be ahead of the offset, not behind it"


def test_the_file_is_written_after_the_rows_are_flushed(at_least_once: World, monkeypatch: pytest.MonkeyPatch) -> None:
    store = at_least_once.opened()
    written, replace = list[list[str]](), os.replace

    def noting(source: Path, target: Path) -> None:
        assert target == at_least_once.checkpoint
        written.append(list(at_least_once.rows.happened))
        replace(source, target)

    monkeypatch.setattr(os, "replace", noting)
    store.commit({CHANGELOG: 7})
    assert written == [], "a commit that raises an offset writes no file"
    store.checkpoint()
    store.close()
    assert written == [["open", "commit", "flush"], ["open", "commit", "flush", "close"]]


@pytest.mark.parametrize("lowered", [{CHANGELOG: 3}, {CHANGELOG: None}, None, {CHANGELOG: -4}])
def test_the_file_is_lowered_before_a_commit_that_sets_the_store_back(
    at_least_once: World, lowered: dict[TopicPartition, int | None] | None
) -> None:
    store = at_least_once.opened()
    store.commit({CHANGELOG: 7})
    store.checkpoint()
    at_least_once.rows.failing = "commit"
    with pytest.raises(Corrupted):
        store.forget_offsets() if lowered is None else store.commit(lowered)
    assert store.committed_offset(CHANGELOG) == 7, "nothing was committed"
    wanted = None if lowered is None else lowered[CHANGELOG]
    assert at_least_once.opened().committed_offset(CHANGELOG) == (-4 if wanted is None else wanted), "never ahead"


def test_a_failed_commit_publishes_no_offset(world: World) -> None:
    store = world.opened()
    store.commit({CHANGELOG: 7})
    world.rows.failing = "commit"
    with pytest.raises(Corrupted):
        store.commit({CHANGELOG: 8})
    assert store.committed_offset(CHANGELOG) == 7


def test_a_close_that_fails_writes_no_offset(exactly_once: World) -> None:
    store = exactly_once.opened()
    store.commit({CHANGELOG: 7})
    exactly_once.rows.failing = "close"
    with pytest.raises(Corrupted):
        store.close()
    assert not exactly_once.checkpoint.exists()


def test_partitions_that_are_not_named_keep_their_offset(tmp_path: Path) -> None:
    second = CHANGELOG._replace(partition=1)
    rows = RecordedStore(tmp_path / "rows", manages_offsets=False)
    with LegacyCheckpointingStore(rows, tmp_path, "s", [CHANGELOG, second], exactly_once=False) as store:
        store.commit({CHANGELOG: 7, second: 1})
        store.commit({second: 2})
        assert store.committed_offset(CHANGELOG) == 7
        store.commit({CHANGELOG: None})
    assert (tmp_path / ".checkpoint_s").read_bytes() == b"0\n1\napp-s-changelog 1 2\n"


def test_without_offsets_there_is_no_file(world: World) -> None:
    world.checkpoint.write_bytes(b"0\n1\napp-s-changelog 0 7\n")
    with world.store() as store:
        store.commit({})
        assert store.committed_offset(CHANGELOG) == 7, "a commit that names no offset keeps them"
        store.forget_offsets()
    assert not world.checkpoint.exists()


def test_an_abort_keeps_the_position_that_came_from_the_file(world: World) -> None:
    world.position.write_bytes(b"0\n1\nin 0 3\n")
    with world.store() as store:
        with store.query_view() as view:
            assert view.position == {"in": {0: 3}}
        store.update_position("in", 0, 9)
        store.update_position("new", 0, 1)
        store.abort()
        assert store.position == {"in": {0: 3}}
        store.commit({CHANGELOG: 7})
    assert world.position.read_bytes() == b"0\n1\nin 0 3\n"


def test_entries_of_other_changelogs_are_left_out(world: World) -> None:
    world.checkpoint.write_bytes(b"0\n2\napp-s-changelog 0 7\napp-other-changelog 0 5\n")
    with world.store() as store:
        assert store.committed_offset(CHANGELOG) == 7
        assert store.committed_offset(OTHER) is None
    assert world.checkpoint.read_bytes() == b"0\n1\napp-s-changelog 0 7\n"


@pytest.mark.parametrize("name", [".checkpoint_s", "s.position"])
def test_a_malformed_file_is_one_error_and_changes_nothing(world: World, name: str) -> None:
    (world.directory / name).write_bytes(b"0\n2\napp-s-changelog 0 7\n")
    store = world.store()
    with pytest.raises(Corrupted, match=f"{name} cannot be read"):
        store.open()
    assert not store.is_open
    assert world.rows.happened == []
    assert (world.directory / name).read_bytes() == b"0\n2\napp-s-changelog 0 7\n"


def test_a_store_that_cannot_be_opened_keeps_its_file(exactly_once: World) -> None:
    exactly_once.checkpoint.write_bytes(b"0\n1\napp-s-changelog 0 7\n")
    store = exactly_once.store()
    exactly_once.rows.failing = "open"
    with pytest.raises(Corrupted):
        store.open()
    assert exactly_once.checkpoint.exists()


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_an_offset_that_no_file_can_hold_is_refused_before_anything_is_committed(world: World, offset: int) -> None:
    store = world.opened()
    store.put(b"k", b"v")
    with pytest.raises(Invalid):
        store.commit({CHANGELOG: offset})
    assert "commit" not in world.rows.happened


def test_a_store_with_its_own_offsets_is_not_wrapped(tmp_path: Path) -> None:
    with raises(Invalid, "store-manages-offsets"):
        LegacyCheckpointingStore(
            RecordedStore(tmp_path / "rows", manages_offsets=True), tmp_path, "s", [CHANGELOG], exactly_once=False
        )


def test_a_closed_store_has_no_committed_offset_to_tell(world: World) -> None:
    with raises(Invalid, "store-not-open"):
        world.store().committed_offset(CHANGELOG)


def test_a_query_sees_rows_and_offset_of_the_same_commit(world: World) -> None:
    store = world.opened()
    store.put(b"k", b"1")
    store.commit({CHANGELOG: 7})
    view = store.query_view(IsolationLevel.READ_COMMITTED)
    store.put(b"k", b"2")
    store.commit({CHANGELOG: 8})
    assert (view.get(b"k"), view.committed_offset(CHANGELOG)) == (b"1", 7)
    with store.query_view() as now:
        assert (now.get(b"k"), now.committed_offset(CHANGELOG)) == (b"2", 8)


def test_a_signal_handler_may_ask_the_store_in_the_middle_of_its_commit(
    at_least_once: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = at_least_once.opened()
    store.commit({CHANGELOG: 7})
    commit, seen = at_least_once.rows.commit, []

    def interrupted(offsets: dict[TopicPartition, int | None]) -> None:
        for step in (lambda: None, lambda: commit(offsets)):
            step()
            with store.query_view() as view:
                seen.append((view.committed_offset(CHANGELOG), store.committed_offset(CHANGELOG)))

    monkeypatch.setattr(at_least_once.rows, "commit", interrupted)
    store.commit({CHANGELOG: 8})
    assert seen == [(7, 7), (7, 7)], "this store cannot tell that it has committed before its commit returns"
    assert store.committed_offset(CHANGELOG) == 8
