"""Stores that standby tasks do not have: versioned ones, unlogged ones, and those of the application's own classes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from statecore.formats.checkpoint import decode_checkpoint, encode_checkpoint
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.standby.promote.report import PromoteVerdict
from statecore.statedir.database_state import read_database_state
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.case_selection import one_of
from tests.unit.doctor.stored import write_database
from tests.unit.standby.promote.promoting import PRICES, World, killed, price_rows, prices, verdicts, with_prices


def test_stores_missing_in_the_copy_get_the_unknown_offset(world: World) -> None:
    world.store(world.warm, "totals", 9)
    world.promote()
    state = read_database_state(world.live.task_path("0_0") / "clicks" / "clicks.0")
    assert state.offsets == {world.changelog("clicks"): OFFSET_UNKNOWN}


def test_a_store_without_a_changelog_is_kept(world: World) -> None:
    world.store(world.live, "totals", 5)
    with RocksDBStore(world.live.task_path("0_0") / "rocksdb" / "notes", StoreKind.KEY_VALUE, create=True) as notes:
        notes.put(b"key", b"nowhere else")
        notes.commit({})
    world.store(world.warm, "totals", 9)
    world.promote()
    with RocksDBStore(world.live.task_path("0_0") / "rocksdb" / "notes", StoreKind.KEY_VALUE, read_only=True) as notes:
        assert notes.get(b"key") == b"nowhere else"
    assert world.row("totals") == "warm at 9"


def test_a_sound_versioned_store_is_kept_beside_promoted_stores(tmp_path: Path) -> None:
    world = with_prices(tmp_path)
    world.store(world.live, "totals", 5)
    path = prices(world, 7)
    rows = price_rows(world)
    report = world.promote()
    assert verdicts(report) == {"0_0": PromoteVerdict.PROMOTED, "0_1": PromoteVerdict.PROMOTED}
    assert world.row("totals") == "warm at 9"
    assert rows == price_rows(world)
    assert read_database_state(path).offsets == {PRICES: 7}


def test_a_versioned_store_of_the_copy_is_skipped(tmp_path: Path) -> None:
    world = with_prices(tmp_path)
    path = world.warm.task_path("0_0") / "rocksdb" / "prices"
    with RocksDBStore(path, StoreKind.VERSIONED_KEY_VALUE) as store:
        store.put(bytes(7) + b"key", b"versions")
        store.commit({PRICES: 50})
    report = world.promote()
    assert verdicts(report)["0_0"] is PromoteVerdict.PROMOTED
    assert "prices from the start" in " ".join(report.tasks[0].notes)
    assert read_database_state(world.live.task_path("0_0") / "rocksdb" / "prices").offsets == {PRICES: OFFSET_UNKNOWN}
    assert price_rows(world) == []


@pytest.mark.parametrize("how", one_of(["killed", "without an offset"]))
def test_a_versioned_store_that_would_wipe_its_task_is_created_empty(tmp_path: Path, how: str) -> None:
    world = with_prices(tmp_path)
    world.store(world.live, "totals", 5)
    path = prices(world, 7 if how == "killed" else None)
    if how == "killed":
        killed(path, "VERSIONED_KEY_VALUE")
    plan = world.promote(apply=False)
    assert any("prices" in note and "is created empty" in note for note in plan.tasks[0].notes)
    report = world.promote()
    assert verdicts(report) == {"0_0": PromoteVerdict.PROMOTED, "0_1": PromoteVerdict.PROMOTED}
    assert world.row("totals") == "warm at 9"
    assert (read_database_state(path).offsets, price_rows(world)) == ({PRICES: OFFSET_UNKNOWN}, [])
    (kept,) = Path(report.kept).iterdir()
    assert (kept / "rocksdb" / "prices").is_dir()  # what is replaced is moved aside


def test_at_least_once_keeps_a_versioned_store_that_was_killed(tmp_path: Path) -> None:
    world = with_prices(tmp_path, "at_least_once")
    world.store(world.live, "totals", 5)
    killed(prices(world, 7), "VERSIONED_KEY_VALUE")
    rows = price_rows(world)
    assert verdicts(world.promote()) == {"0_0": PromoteVerdict.PROMOTED, "0_1": PromoteVerdict.PROMOTED}
    assert price_rows(world) == rows


def with_own_class(tmp_path: Path, guarantee: str) -> World:
    world = World(tmp_path, guarantee)
    world.spec.write_text(world.spec.read_text() + "      mine:   {kind: custom}\n")
    world.store(world.live, "totals", 11)
    world.store(world.warm, "totals", 9)
    rows = world.live.task_path("0_0") / "mine" / "rows"
    rows.parent.mkdir()
    rows.write_text("rows")
    return world


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_custom_store_without_an_offset_wipes_its_task_under_exactly_once(tmp_path: Path, guarantee: str) -> None:
    world = with_own_class(tmp_path, guarantee)
    wiped = guarantee == "exactly_once_v2"
    (task,) = world.promote().tasks
    assert task.verdict is (PromoteVerdict.PROMOTED if wiped else PromoteVerdict.KEPT)
    assert world.row("totals") == ("warm at 9" if wiped else "live at 11")
    file = world.live.task_path("0_0") / ".checkpoint_mine"
    assert file.exists() is wiped
    if wiped:
        assert decode_checkpoint(file.read_bytes(), "file") == {world.changelog("mine"): OFFSET_UNKNOWN}
        assert any("mine" in note for note in task.notes)


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_custom_store_is_kept_with_its_offset(tmp_path: Path, guarantee: str) -> None:
    world = with_own_class(tmp_path, guarantee)
    world.store(world.warm, "totals", 12)
    file = world.live.task_path("0_0") / ".checkpoint_mine"
    file.write_bytes(encode_checkpoint({world.changelog("mine"): 7}))
    assert verdicts(world.promote()) == {"0_0": PromoteVerdict.PROMOTED}
    assert world.row("totals") == "warm at 12"
    assert decode_checkpoint(file.read_bytes(), "file") == {world.changelog("mine"): 7}
    assert (world.live.task_path("0_0") / "mine" / "rows").read_text() == "rows"


def test_a_database_of_a_custom_store_is_of_no_older_release(tmp_path: Path) -> None:
    world = with_own_class(tmp_path, "at_least_once")
    world.store(world.warm, "totals", 12)
    shutil.rmtree(world.live.task_path("0_0") / "mine")
    write_database(world.live.task_path("0_0") / "rocksdb" / "mine", {"default": [(b"k", b"v")]})
    assert verdicts(world.promote()) == {"0_0": PromoteVerdict.PROMOTED}
