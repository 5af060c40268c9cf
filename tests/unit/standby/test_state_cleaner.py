"""Unassigned task directories are deleted, and never the best copy."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from statecore.errors import Fenced
from statecore.faults import CLEANING_POINTS
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import StoreSpec
from statecore.standby import state_cleaner
from statecore.standby.state_cleaner import CleanupResult
from statecore.statedir.database_state import create_database
from statecore.statedir.quarantine import quarantined
from statecore.statedir.task_layout import stores_in
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.case_selection import one_of, three_of
from tests.harness.filesystems import refusing
from tests.harness.raising import raises
from tests.unit.tasks.startup_tasks_world import APPLICATION, KV, World, changelog, lock_lost, spec_of

LONG_AGO = 1_000_000
clean_unowned = partial(state_cleaner.clean_unowned, cleanup_delay_ms=600_000)
removable_tasks = partial(state_cleaner.removable_tasks, cleanup_delay_ms=600_000)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "state")
    with world.directory.lock():
        yield world


def put(world: World, task: str, offset: int = 4, changed: float = LONG_AGO) -> None:
    world.put_task(task, offset)
    os.utime(world.path(task), (changed, changed))


def clean(world: World, others: dict[str, int], owned: tuple[str, ...] = (), force: bool = False) -> CleanupResult:
    return clean_unowned(world.directory, owned, others, spec=spec_of(), force=force)


def test_an_unassigned_task_is_deleted_if_another_copy_has_its_offsets(world: World) -> None:
    put(world, "0_0")
    put(world, "0_1")
    assert clean(world, {"0_0": 10, "0_1": 11}, owned=("0_1",)).deleted == ("0_0",)
    assert not world.path("0_0").exists()
    assert world.path("0_1").is_dir()
    assert not list((world.directory.work_path / "cleaned").iterdir())


@pytest.mark.parametrize(
    ("others", "says"),
    [({"0_0": 9}, "best copy: its offset sum is 10"), ({}, "No other process"), ({"0_1": 99}, "No other process")],
)
def test_the_best_copy_is_kept_unless_configured_otherwise(world: World, others: dict[str, int], says: str) -> None:
    put(world, "0_0")
    found = clean(world, others)
    assert says in found.kept["0_0"]
    assert (found.deleted, world.path("0_0").is_dir()) == ((), True)
    forced = clean(world, others, force=True)
    assert (forced.deleted, list(forced.moved_away)) == ((), ["0_0"])
    assert not world.path("0_0").exists()
    assert stores_in(forced.moved_away["0_0"])


def test_a_forced_deletion_is_quarantined_for_a_week(world: World) -> None:
    put(world, "0_0")
    put(world, "0_1")
    now = 2e9
    (lies,) = clean_unowned(
        world.directory, (), {"0_1": 10}, spec=spec_of(), force=True, clock=lambda: now
    ).moved_away.values()
    for later, there in ((7 * 86_400, True), (7 * 86_400 + 1, False)):
        clean_unowned(world.directory, (), {}, spec=spec_of(), clock=lambda later=later: now + later)  # type: ignore[misc]
        assert lies.exists() is there


def test_a_task_whose_log_lost_records_is_quarantined_for_a_week(world: World) -> None:
    put(world, "0_0")
    done = clean_unowned(world.directory, (), {"0_0": 10}, spec=spec_of(), shortened=("0_0",))
    assert (done.deleted, done.kept) == ((), {})
    assert (done.moved_away["0_0"] / "rocksdb").is_dir()
    assert not world.path("0_0").exists()


def test_a_disk_that_is_full_keeps_a_task_and_ends_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    put(world, "0_0")

    refusing(monkeypatch, "rename", errno.ENOSPC, lambda _: True)
    assert "No space left" in clean(world, {"0_0": 10}).kept["0_0"]


def test_a_task_opened_after_the_scan_is_kept(world: World) -> None:
    put(world, "0_0")
    opened = RocksDBStore(world.path("0_0") / "rocksdb" / KV, StoreKind.KEY_VALUE)

    def may_delete(_: str) -> bool:
        opened.open()
        return True

    try:
        done = clean_unowned(world.directory, (), {"0_0": 10}, spec=spec_of(), may_delete=may_delete)
    finally:
        opened.close()
    assert "is open" in done.kept["0_0"]
    assert world.path("0_0").is_dir()


def test_a_task_stays_until_it_was_not_changed_for_the_delay(world: World) -> None:
    put(world, "0_0", changed=1000)
    now = [0.0]
    for moment, deleted in ((1004.9, ()), (1005.0, ()), (1005.1, ("0_0",))):
        now[0] = moment
        found = clean_unowned(
            world.directory, (), {"0_0": 10}, spec=spec_of(), cleanup_delay_ms=5000, clock=lambda: now[0]
        )
        assert (found.deleted, found.kept) == (deleted, {})


def test_a_young_task_stays_even_by_force(world: World) -> None:
    world.put_task("0_0", 4)
    assert clean(world, {}, force=True) == CleanupResult()


@pytest.mark.parametrize("force", [True, False])
def test_an_open_task_stays(world: World, force: bool) -> None:
    put(world, "0_0")
    with RocksDBStore(world.path("0_0") / "rocksdb" / KV, StoreKind.KEY_VALUE):
        assert "open" in clean(world, {"0_0": 1000}, force=force).kept["0_0"]
    assert world.path("0_0").is_dir()


@pytest.mark.parametrize("task", ["7_0", "0_1"])
def test_a_foreign_directory_is_kept_while_a_process_has_it_open(world: World, task: str) -> None:
    """``7_0`` is of an undeclared subtopology, ``0_1`` another application's."""
    world.put_plain(task, 30, application="other" if task == "0_1" else APPLICATION)
    os.utime(world.path(task), (LONG_AGO, LONG_AGO))
    with RocksDBStore(world.path(task) / "rocksdb" / KV, StoreKind.KEY_VALUE):
        assert "open" in clean(world, {task: 1000}, force=True).kept[task]
    assert world.path(task).is_dir()


def test_a_store_with_rows_of_which_nothing_says_how_far_they_are_does_not_count_as_nothing(world: World) -> None:
    world.put_plain("0_0", None)
    world.put_segment("0_0", 0, 4)
    os.utime(world.path("0_0"), (LONG_AGO, LONG_AGO))
    found = clean(world, {"0_0": 1000})
    assert "cannot be compared" in found.kept["0_0"]
    assert list(clean(world, {}, force=True).moved_away) == ["0_0"]


def put_store(world: World, store: str, kind: StoreKind, offsets: dict[TopicPartition, int], *, rows: bool) -> None:
    path = world.path("0_0") / "rocksdb" / store
    create_database(path, kind, offsets)
    if rows:
        with RocksDBStore(path, kind) as opened:
            opened.put(b"k" * 20, b"v" * 40)
            opened.commit(offsets)
            opened.flush_memtables()
    os.utime(world.path("0_0"), (LONG_AGO, LONG_AGO))


@pytest.mark.parametrize("rows", [True, False])
def test_a_store_without_a_changelog_keeps_its_task_where_it_has_rows(world: World, rows: bool) -> None:
    put(world, "0_0")
    put_store(world, "scratch", StoreKind.KEY_VALUE, {}, rows=rows)
    found = clean(world, {"0_0": 1000})
    assert found.deleted == (() if rows else ("0_0",))
    if rows:
        assert "scratch has no changelog" in found.kept["0_0"]
        assert list(clean(world, {"0_0": 1000}, force=True).moved_away) == ["0_0"]


@pytest.mark.parametrize("rows", [True, False])
def test_a_versioned_store_keeps_its_task_where_it_has_rows_and_its_offset_counts_nothing(
    world: World, rows: bool
) -> None:
    put(world, "0_0")
    put_store(world, "scratch", StoreKind.VERSIONED_KEY_VALUE, {changelog("scratch"): 90}, rows=rows)
    spec = spec_of()
    versioned = StoreSpec("scratch", StoreKind.VERSIONED_KEY_VALUE, 0, changelog("scratch").topic, retention_ms=1_000)
    spec = replace(spec, stores=tuple(versioned if one.name == "scratch" else one for one in spec.stores))
    found = clean_unowned(world.directory, (), {"0_0": 10}, spec=spec)
    assert found.deleted == (() if rows else ("0_0",))
    if rows:
        assert "scratch is versioned" in found.kept["0_0"]


def test_an_undeclared_store_keeps_its_task(world: World) -> None:
    put(world, "0_0")
    put_store(world, "forgotten", StoreKind.KEY_VALUE, {changelog("forgotten"): 3}, rows=False)
    assert "forgotten is not declared" in clean(world, {"0_0": 1000}).kept["0_0"]


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("changelog_of_it", [None, "none", changelog("index").topic])
@pytest.mark.parametrize("name", ["index/segments_1", "rocksdb/index/segments_1", "index.db", "index/a/b/x"])
def test_files_of_a_store_that_is_no_database_keep_their_task_unless_they_are_logged(
    world: World, name: str, changelog_of_it: str | None, alone: bool
) -> None:
    if not alone:
        put(world, "0_0")
    rows = world.path("0_0") / name
    rows.parent.mkdir(parents=True, exist_ok=True)
    rows.write_bytes(b"the only rows")
    os.utime(world.path("0_0"), (LONG_AGO, LONG_AGO))
    spec = spec_of()
    if changelog_of_it is not None:
        spec = replace(spec, stores=(*spec.stores, StoreSpec("index", StoreKind.CUSTOM, 0, changelog_of_it)))
    elsewhere = {"0_0": 0 if alone else 10}
    is_kept = changelog_of_it in (None, "none")
    assert removable_tasks(world.directory, (), elsewhere, spec=spec) == ([] if is_kept else ["0_0"])
    done = clean_unowned(world.directory, (), elsewhere, spec=spec)
    assert (list(done.kept), list(done.deleted)) == ((["0_0"], []) if is_kept else ([], ["0_0"]))
    assert rows.exists() is is_kept


@pytest.mark.parametrize("store", ["scratch", "other"])
def test_rows_that_no_database_reads_keep_their_task(world: World, store: str) -> None:
    """A copy or a deletion of a store without a changelog, or of an undeclared one, ended in the middle."""
    put(world, "0_0")
    rows = world.path("0_0") / "rocksdb" / store / "000007.sst"
    rows.parent.mkdir()
    rows.write_bytes(b"rows")
    assert list(clean(world, {"0_0": 10}).kept) == ["0_0"]
    assert rows.exists()


def test_another_application_s_task_stays_also_by_force(world: World) -> None:
    world.put_plain("0_1", 30, application="other")
    os.utime(world.path("0_1"), (LONG_AGO, LONG_AGO))
    assert clean(world, {"0_1": 1000}, force=True).moved_away == {}


def test_a_task_in_use_by_the_group_is_kept(world: World) -> None:
    put(world, "0_0")
    put(world, "0_1")
    asked: list[str] = []

    def may_delete(task: str) -> bool:
        asked.append(task)
        assert world.path(task).is_dir()
        return task == "0_1"

    found = clean_unowned(world.directory, (), {"0_0": 10, "0_1": 10}, spec=spec_of(), may_delete=may_delete)
    assert (found.deleted, asked) == (("0_1",), ["0_0", "0_1"])


def test_what_could_go_is_what_only_others_sums_keep(world: World) -> None:
    for task in ("0_0", "0_1", "0_2"):
        put(world, task)
    world.put_task("0_3", 4)
    asked = (world.directory, ("0_2",), {"0_0"})
    assert removable_tasks(*asked, spec=spec_of()) == ["0_0"]
    assert removable_tasks(*asked, spec=spec_of(), force=True) == ["0_0", "0_1"]


def test_what_cannot_be_compared_stays_and_what_is_empty_goes(world: World) -> None:
    put(world, "7_0")
    world.put_plain("0_1", 30, application="other")
    put(world, "0_2")
    next((world.path("0_2") / "rocksdb" / KV).glob("MANIFEST-*")).write_bytes(b"nonsense")
    world.path("0_3").mkdir()
    for task in ("0_1", "0_2", "0_3"):
        os.utime(world.path(task), (LONG_AGO, LONG_AGO))
    found = clean(world, {"7_0": 1000, "0_1": 1000, "0_2": 1000})
    assert (set(found.kept), found.deleted) == ({"7_0", "0_1", "0_2"}, ("0_3",))
    assert all("cannot be compared" in reason for reason in found.kept.values())


def test_global_stores_the_process_id_and_the_lock_stay_whatever_is_asked(world: World) -> None:
    put(world, "0_0")
    create_database(world.path("global") / "rocksdb" / "names", StoreKind.KEY_VALUE, {})
    process = world.directory.path / "kafka-streams-process-metadata"
    process.write_text('{"processId":"3ee6c347-b0d7-47a8-b9f3-19e9218fca70"}')
    for path in (world.path("global"), process):
        os.utime(path, (LONG_AGO, LONG_AGO))
    assert list(clean(world, {}, force=True).moved_away) == ["0_0"]
    assert sorted(path.name for path in world.directory.path.iterdir()) == [
        ".lock",
        ".statecore",
        "global",
        "kafka-streams-process-metadata",
    ]


def test_a_directory_whose_name_kafka_streams_never_writes_stays_whatever_is_asked(world: World) -> None:
    put(world, "0_1")
    world.path("0_1").rename(world.directory.path / "00_1")
    os.utime(world.directory.path / "00_1", (LONG_AGO, LONG_AGO))
    found = clean(world, {"0_1": 1000}, force=True)
    assert (found.deleted, found.moved_away, found.kept) == ((), {}, {})
    assert list((world.directory.path / "00_1").iterdir())


def test_a_failed_deletion_is_reported_and_retried(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    put(world, "0_0")

    with monkeypatch.context() as patched:
        refusing(patched, "rmdir", errno.EBUSY, lambda _: True)
        assert list(clean(world, {"0_0": 10}).failed) == ["0_0"]
    assert not world.path("0_0").exists()
    assert clean(world, {}).deleted == ("0_0",)


def test_nothing_goes_without_the_lock(tmp_path: Path) -> None:
    world = World(tmp_path)
    put(world, "0_0")
    with pytest.raises(Fenced):
        clean(world, {"0_0": 10})


@pytest.mark.parametrize("point", three_of(CLEANING_POINTS))
@pytest.mark.parametrize("nth", one_of(["1", "2"]))
def test_killed_at_any_point_a_task_is_whole_or_gone_and_the_next_cleaner_ends_it(
    tmp_path: Path, point: str, nth: str
) -> None:
    world = World(tmp_path / "state")
    for partition in range(3):
        put(world, f"0_{partition}")
    files = {path.relative_to(world.path("0_0")) for path in world.path("0_0").rglob("*")}
    command = [
        sys.executable,
        "-m",
        "tests.unit.tasks.startup_tasks_world",
        "clean",
        str(tmp_path / "state"),
        point,
        nth,
    ]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    for task in world.directory.task_directories():
        assert {path.relative_to(world.path(task)) for path in world.path(task).rglob("*")} == files
    with world.directory.lock():
        clean(world, {"0_0": 10, "0_1": 10})
    assert world.directory.task_directories() == ["0_2"]
    assert not quarantined(world.directory, "cleaned")


@pytest.mark.parametrize("call", ["rename", "rmdir"])
def test_a_lock_that_is_lost_meanwhile_ends_the_cleaning(
    world: World, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    put(world, "0_0")
    lock_lost(world, monkeypatch, call)
    with raises(Fenced, "lock-lost"):
        clean(world, {"0_0": 10})
