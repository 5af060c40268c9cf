"""Stores that are compared with their whole changelogs: what is published, and what becomes of the others."""

from __future__ import annotations

import pytest

from statecore.changelog.model import ReadStatistics
from tests.harness.filesystems import with_free_room
from tests.unit.jobs.checkpoint.reconciling import CLICKS, END, NEW_END, OTHER, PLAIN, World
from tests.unit.jobs.published import records


@pytest.mark.parametrize("key", [PLAIN, OTHER, CLICKS])
def test_a_store_shows_what_its_log_shows_and_the_parents_runs_stay(world: World, key: tuple[str, str]) -> None:
    before = world.stores[key]
    made = world.reconcile(key)
    assert made.refused == []
    (store,) = world.published(key, made).stores
    assert world.content(store) == world.expected(key) != world.content(before)
    for old in before.databases:
        new = next((one for one in store.databases if one.segment == old.segment), None)
        assert new is None or (new.runs[: len(old.runs)] == old.runs and len(new.runs) <= len(old.runs) + 1)
    runs = [run for result in made.stores[key].results for run in result.runs]
    assert {(run.start, run.end) for run in runs} == {(END, NEW_END)}
    assert sum(run.deletes for run in runs) > 0
    assert store.changelogs[0].end == NEW_END
    assert (made.stores[key].part.start, made.stores[key].part.base) == (0, world.snapshot)


def test_what_differs_is_put_and_said_and_nothing_else_is_left(world: World) -> None:
    made = world.reconcile(PLAIN, OTHER, CLICKS)
    assert sorted(made.stores) == sorted([PLAIN, OTHER, CLICKS])
    assert world.left() == []
    extents = [one for store in made.stores.values() for result in store.results for one in result.extents]
    assert len({one.blob for one in extents}) == 1, "small ones share a pack"
    (run,) = [run for result in made.stores[PLAIN].results for run in result.runs]
    told = str(made.stores[PLAIN])
    assert all(one in told for one in (f"{run.rows:,} rows", f"{run.deletes:,} deletes", world.snapshot))


def test_a_store_that_is_as_its_log_says_needs_no_run_and_ends_later_all_the_same(world: World) -> None:
    world.logs[PLAIN] = records("plain", 0, END)
    made = world.reconcile(PLAIN)
    (store,) = world.published(PLAIN, made).stores
    assert store.databases == world.stores[PLAIN].databases
    assert (store.changelogs[0].end, store.content) == (NEW_END, world.stores[PLAIN].content)
    assert store.identity != world.stores[PLAIN].identity


def test_stores_are_taken_a_few_at_a_time_and_the_disk_is_empty_in_between(world: World) -> None:
    made = world.reconcile(PLAIN, OTHER, CLICKS, batch_bytes=1)
    assert world.batches == [[PLAIN], [OTHER], [CLICKS]]
    assert world.files_before == [0, 1, 2], "what differs waits to share a pack"
    assert len(made.stores) == 3


def test_a_damaged_run_of_the_parent_has_its_store_rebuilt_and_no_other(world: World) -> None:
    (stored,) = world.stores[OTHER].databases[0].runs[:1]
    blob = world.shop.root / "repository" / stored.extent.blob
    content = bytearray(blob.read_bytes())
    content[stored.extent.start + 9] ^= 1
    blob.chmod(0o600)
    blob.write_bytes(content)
    made = world.reconcile(PLAIN, OTHER)
    assert list(made.stores) == [PLAIN]
    (one,) = made.refused
    assert (one.key, one.missed_deletes) == (OTHER, True)
    assert one.why.startswith("compaction has removed offsets;")
    assert stored.extent.blob in one.why


def test_where_there_is_no_room_stores_are_rebuilt(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.full = True
    assert [one.key for one in world.reconcile(PLAIN, OTHER).refused] == [PLAIN, OTHER]
    world.full = False

    with_free_room(monkeypatch, sum(stored.run.file_bytes for stored in world.stores[PLAIN].databases[0].runs))
    (one,) = world.reconcile(PLAIN).refused
    assert one.why.endswith(" are needed")
    assert world.batches == []


def test_a_log_that_loses_its_start_or_its_end_meanwhile_tells_nothing(world: World) -> None:
    world.seen = ReadStatistics(records=9, log_start_moved_to=400)
    (one,) = world.reconcile(PLAIN).refused
    assert (one.missed_deletes, one.is_passing) == (False, False)
    assert (one.why.code, one.why.context["log_start"], one.why.context["end"]) == ("records-deleted", 400, 0)
    assert "the base's end" not in one.why, "the read began at the start of the log"
    world.seen, world.epoch_end = ReadStatistics(records=9), 450
    made = world.reconcile(PLAIN)
    assert made.stores == {}
    (one,) = made.refused
    assert (one.missed_deletes, one.is_passing) == (False, True)
    assert ("truncated at 450" in one.why, "end 500" in one.why) == (True, True)


def test_a_run_that_this_disk_has_changed_is_not_compared(world: World) -> None:
    world.turned = True
    (one,) = world.reconcile(PLAIN).refused
    assert "does not match its hash" in one.why
