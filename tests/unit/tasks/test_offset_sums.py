"""The offsets of the tasks in a directory, and their sums."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from statecore.formats.integers import INT64_MAX
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import StoreSpec
from statecore.statedir.database_state import create_database
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.tasks.offset_sums import (
    OffsetSource,
    TaskDirectoryState,
    TaskSum,
    is_empty_task,
    offset_sum,
    open_task_sum,
    read_offset_sums,
    read_task_sum,
)
from tests.golden.directories import unpacked
from tests.harness.damage_cases import EXACTLY_ONCE, STAMPED
from tests.harness.damage_functions import TASK, cut_manifest, database_of
from tests.harness.filesystems import refusing
from tests.unit.tasks.startup_tasks_world import KV, WINDOW, OpenStores, World, changelog, spec_of


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "state")


def read(world: World, task: str = "0_0", declared: bool = True) -> TaskSum:
    return read_task_sum(world.directory, task, spec_of() if declared else None)


def by_store(found: TaskSum) -> dict[str, tuple[int | None, OffsetSource]]:
    return {one.store: (one.offset, one.source) for one in found.stores}


def test_a_sum_counts_what_comes_next_and_nothing_for_what_is_not_known() -> None:
    assert offset_sum([]) == 0
    assert offset_sum([0, None, -4, 9]) == 11
    assert offset_sum([INT64_MAX - 1, 5]) == INT64_MAX


def test_closed_stores_are_read_from_their_databases(world: World) -> None:
    world.put_plain("0_0", 41)
    world.put_segment("0_0", 0, 9)
    found = read(world)
    assert by_store(found) == {KV: (41, OffsetSource.DATABASES), WINDOW: (9, OffsetSource.DATABASES)}
    assert (found.sum, found.state, found.databases) == (52, TaskDirectoryState.KNOWN, 2)
    assert found.offsets == {changelog(KV): 41, changelog(WINDOW): 9}


@pytest.mark.parametrize("declared", [True, False])
def test_stores_that_are_not_logged_or_global_do_not_count(world: World, declared: bool) -> None:
    world.put_task("0_0", 4)
    world.put_plain("0_0", None, "scratch")
    create_database(world.path("global") / "rocksdb" / "names", StoreKind.KEY_VALUE, {TopicPartition("names", 0): 70})
    sums = read_offset_sums(world.directory, spec_of() if declared else None)
    assert {task: one.sum for task, one in sums.items()} == {"0_0": 10}
    assert set(by_store(sums["0_0"])) == {KV, WINDOW}


@pytest.mark.parametrize("declared", [True, False])
def test_a_newer_checkpoint_file_is_used_without_opening_databases(world: World, declared: bool) -> None:
    world.put_task("0_0", 4)
    world.write_checkpoint("0_0", {changelog(KV): 3, changelog(WINDOW): 4})
    for manifest in world.path("0_0").rglob("MANIFEST-*"):  # who opens the database sees no more than damage
        status = manifest.stat()
        manifest.write_bytes(b"nonsense")
        os.utime(manifest, ns=(status.st_atime_ns, status.st_mtime_ns))
    found = read(world, declared=declared)
    assert by_store(found) == {KV: (3, OffsetSource.FILE), WINDOW: (4, OffsetSource.FILE)}
    assert found.sum == 9


def test_an_older_checkpoint_was_left_by_who_died_and_the_databases_are_asked(world: World) -> None:
    world.put_task("0_0", 4)
    world.write_checkpoint("0_0", {changelog(KV): 3, changelog(WINDOW): 3})
    os.utime(world.path("0_0") / ".checkpoint", (1, 1))
    assert by_store(read(world)) == {KV: (4, OffsetSource.DATABASES), WINDOW: (4, OffsetSource.DATABASES)}


def test_an_older_checkpoint_is_all_there_is_of_stores_that_keep_no_offset_inside(world: World) -> None:
    world.put_plain("0_0", None)
    world.put_segment("0_0", 0, None)
    world.write_checkpoint("0_0", {changelog(KV): 3, changelog(WINDOW): -4})
    os.utime(world.path("0_0") / ".checkpoint", (1, 1))
    found = read(world)
    assert by_store(found) == {KV: (3, OffsetSource.FILE), WINDOW: (None, OffsetSource.FILE)}
    assert found.sum == 4
    assert "not known" in found.stores[1].reason


def test_a_checkpoint_says_nothing_of_a_store_without_a_database(world: World) -> None:
    world.put_plain("0_0", 4)
    (world.path("0_0") / WINDOW).mkdir()
    world.write_checkpoint("0_0", {changelog(KV): 4, changelog(WINDOW): 100})
    found = read(world)
    assert (found.sum, found.state) == (5, TaskDirectoryState.KNOWN)
    shutil.rmtree(world.path("0_0") / WINDOW)
    assert read(world).sum == 5
    assert [one.reason for one in read(world).stores] == ["", "It has no directory."]


def test_a_broken_checkpoint_file_is_reported_and_the_databases_are_read(world: World) -> None:
    world.put_task("0_0", 4)
    (world.path("0_0") / ".checkpoint").write_text("0\nnonsense\n")
    found = read(world)
    assert (found.sum, found.state) == (10, TaskDirectoryState.KNOWN)
    assert "line 2" in found.reason


def test_the_smallest_segment_offset_counts_and_a_disagreement_is_reported(world: World) -> None:
    world.put_plain("0_0", 4)
    world.put_segment("0_0", 0, 7)
    world.put_segment("0_0", 3_600_000, 9)
    assert [(one.offset, one.databases_differ) for one in read(world).stores] == [(4, False), (7, True)]
    world.put_segment("0_0", 7_200_000, None)
    assert read(world).stores[1].offset == 7
    world.put_segment("0_0", 10_800_000, -4)
    assert read(world).sum == 5


def test_a_grace_buffer_has_its_offset_in_its_own_file(world: World) -> None:
    world.put_segment("0_0", 0, None)
    (world.path("0_0") / f".checkpoint_{WINDOW}").write_text(f"0\n1\n{changelog(WINDOW).topic} 0 12\n")
    assert by_store(read(world))[WINDOW] == (12, OffsetSource.FILE)


@pytest.mark.parametrize(("entry", "counts"), [(7, 7), (20, 20), (-4, 12)])
def test_an_entry_of_the_task_wins_over_the_own_file_unless_it_is_unknown(
    world: World, entry: int, counts: int
) -> None:
    world.put_segment("0_0", 0, None)
    (world.path("0_0") / f".checkpoint_{WINDOW}").write_text(f"0\n1\n{changelog(WINDOW).topic} 0 12\n")
    world.write_checkpoint("0_0", {changelog(WINDOW): entry})
    os.utime(world.path("0_0") / ".checkpoint", (1, 1))
    assert by_store(read(world))[WINDOW] == (counts, OffsetSource.FILE)


def test_an_unknown_offset_in_a_younger_checkpoint_does_not_hide_that_in_the_database(world: World) -> None:
    world.put_plain("0_0", 4)
    world.write_checkpoint("0_0", {changelog(KV): -4})
    assert by_store(read(world))[KV] == (4, OffsetSource.DATABASES)


def test_an_open_task_is_asked(world: World) -> None:
    world.put_task("0_0", 4)
    task = OpenStores(world, "0_0", [])
    try:
        task.stores[0].commit({changelog(KV): 50})  # not on the disk yet
        world.write_checkpoint("0_0", {changelog(KV): 3})
        found = open_task_sum(task, "app", spec_of())
    finally:
        task.close()
    assert (by_store(found), found.sum) == ({KV: (50, OffsetSource.TASK), WINDOW: (4, OffsetSource.TASK)}, 56)


def test_an_unknown_offset_of_an_open_task_counts_nothing() -> None:
    class Unknown:
        name = "0_0"

        def offsets(self) -> Mapping[TopicPartition, int]:
            return {changelog(KV): -4}

        def close(self) -> None:
            pass

    assert open_task_sum(Unknown(), "app", spec_of()).sum == 0


def test_an_open_store_has_its_flushed_offset(world: World) -> None:
    world.put_task("0_0", 4)
    with RocksDBStore(world.path("0_0") / "rocksdb" / KV, StoreKind.KEY_VALUE):
        world.write_checkpoint("0_0", {changelog(KV): 90, changelog(WINDOW): 90})
        found = read(world)
    assert (found.state, found.sum) == (TaskDirectoryState.OPEN, 10)
    assert "open" in found.reason


def test_every_other_directory_is_an_entry_with_its_reason(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put_task("0_0", 4)
    world.put_task("7_0", 4)
    world.put_plain("0_1", 30, application="other")
    world.path("0_2").mkdir()
    (world.path("0_2") / ".checkpoint").write_text("0\n0\n")
    half = world.put_plain("0_3", 4)
    with RocksDBStore(half, StoreKind.KEY_VALUE) as store:
        store.put(b"a", b"b")
        store.commit({changelog(KV, 3): 5})
        store.flush()
    (half / "CURRENT").unlink()
    broken = world.put_plain("0_4", 4)
    next(broken.glob("MANIFEST-*")).write_bytes(b"nonsense")
    world.put_task("0_5", 4)
    refusing(monkeypatch, "scandir", errno.EACCES, lambda path: path.parent.name == "0_5")
    sums = read_offset_sums(world.directory, spec_of())
    assert {task: one.state for task, one in sums.items()} == {
        "0_0": TaskDirectoryState.KNOWN,
        "0_1": TaskDirectoryState.FOREIGN,
        "0_2": TaskDirectoryState.EMPTY,
        "0_3": TaskDirectoryState.DAMAGED,
        "0_4": TaskDirectoryState.DAMAGED,
        "0_5": TaskDirectoryState.UNREADABLE,
        "7_0": TaskDirectoryState.UNDECLARED,
    }
    assert "other" in sums["0_1"].reason
    assert sums["0_1"].sum == 0
    assert all(one.reason for task, one in sums.items() if task != "0_0")
    assert "no CURRENT" in sums["0_3"].reason


def test_a_store_whose_name_is_that_of_a_lock_is_no_empty_task(tmp_path: Path) -> None:
    assert is_empty_task(tmp_path)
    for name in (".lock", ".checkpoint", ".checkpoint_late"):
        (tmp_path / name).touch()
    assert is_empty_task(tmp_path)
    (tmp_path / "orders.lock").mkdir()
    assert not is_empty_task(tmp_path)


def test_an_expired_partly_deleted_segment_is_no_damage(world: World) -> None:
    world.put_plain("0_0", 4)
    for start in (0, 14_400_000):
        world.put_segment("0_0", start, 4)
    (world.path("0_0") / WINDOW / f"{WINDOW}.0" / "000009.sst").touch()
    (world.path("0_0") / WINDOW / f"{WINDOW}.0" / "CURRENT").unlink()
    assert read_offset_sums(world.directory, spec_of())["0_0"].state is TaskDirectoryState.KNOWN
    assert read_offset_sums(world.directory)["0_0"].state is TaskDirectoryState.DAMAGED


def test_the_checkpoint_of_another_application_is_seen_as_such(world: World) -> None:
    world.put_plain("0_0", None)
    world.write_checkpoint("0_0", {changelog(KV, application="other"): 30})
    found = read(world)
    assert (found.state, found.sum) == (TaskDirectoryState.FOREIGN, 0)
    assert read(world, declared=False).state is TaskDirectoryState.FOREIGN


@pytest.mark.parametrize("kind", [StoreKind.CUSTOM, StoreKind.IN_MEMORY])
def test_an_entry_of_a_store_that_is_not_followed_is_no_other_application_s(tmp_path: Path, kind: StoreKind) -> None:
    """The changelog of its store ``v2-day`` could be that of ``day`` of an application ``app-v2``."""
    world = World(tmp_path)
    world.put_plain("0_0", 5, "day")
    world.write_checkpoint("0_0", {changelog("day"): 5, changelog("v2-day"): 7})
    stores = (
        StoreSpec("day", StoreKind.KEY_VALUE, 0, changelog("day").topic),
        StoreSpec("v2-day", kind, 0, changelog("v2-day").topic),
    )
    found = read_task_sum(world.directory, "0_0", replace(spec_of(), stores=stores))
    assert (found.state, found.sum) == (TaskDirectoryState.KNOWN, 6)


def test_without_a_spec_a_source_topic_in_the_checkpoint_counts(world: World) -> None:
    world.put_plain("0_0", None)
    world.write_checkpoint("0_0", {TopicPartition("orders", 0): 30, TopicPartition("orders", 1): 60})
    assert read(world, declared=False).sum == 31


def test_reading_offset_sums_changes_nothing(world: World) -> None:
    world.put_task("0_0", 4)

    def everything() -> dict[Path, tuple[int, int]]:
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in world.directory.state_dir.rglob("*")}

    before = everything()
    assert read(world).sum == 10
    assert everything() == before


def test_a_store_whose_manifest_lost_its_end_counts_nothing(tmp_path: Path) -> None:
    application = unpacked(EXACTLY_ONCE, tmp_path)
    cut_manifest(database_of(application, STAMPED), between=True)
    found = read_task_sum(StateDirectory(tmp_path, application.name), TASK)
    assert found.state is TaskDirectoryState.DAMAGED
    assert [(one.offset, one.is_damaged) for one in found.stores if one.store == STAMPED] == [(None, True)]
