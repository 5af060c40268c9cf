"""Placement: what is refused before anything changes, what is kept, what is created, what is left behind."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from statecore.errors import Corrupted, Fenced, Invalid
from statecore.faults import FaultInjected, FaultPoints, InjectedFault
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.statedir.application_lock import LOCK_FILE
from statecore.statedir.file_trees import file_sizes, fingerprint
from statecore.statedir.placement import apply_placement, plan_placement, recover
from statecore.statedir.placement_plan import existing_stores_error, refusals
from statecore.statedir.placement_stores import SiblingStore, StoreImage
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.task_copies import replaced_in
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.filesystems import without_exchange
from tests.harness.raising import raises
from tests.harness.syncing import synced_paths
from tests.unit.statedir.support import (
    ALOS,
    EOS,
    KIND,
    changelog,
    make_database,
    make_image,
    make_live,
    offset_of,
    place,
    problems,
    refusal,
    sibling,
    state_of,
)


@pytest.fixture
def directory(tmp_path: Path):
    directory = StateDirectory(tmp_path / "state", "app")
    with directory.lock():
        yield directory


@pytest.fixture(params=["exchange", "renames"])
def swapping(request, monkeypatch):
    """Both ways of swapping two directories."""
    if request.param == "renames":
        without_exchange(monkeypatch)


def work_content(directory) -> set[str]:
    return {entry.name for entry in directory.work_path.iterdir()}


def test_a_missing_task_is_placed_complete(directory):
    report = place(directory, make_image(directory, "0_0", "s"), make_image(directory, "0_0", "t", 11))
    assert [(task.task, [[*store.offsets.values()] for store in task.stores]) for task in report.tasks] == [
        ("0_0", [[9], [11]])
    ]
    assert (offset_of(directory, "0_0", "s"), offset_of(directory, "0_0", "t")) == (9, 11)
    with RocksDBStore(directory.store_path("0_0", "s", KIND), KIND, read_only=True) as store:
        assert store.get(b"key4") == b"value9"
    assert sorted(path.name for path in directory.task_path("0_0").iterdir()) == ["rocksdb"]


def test_placed_files_are_synced_before_the_journal_is_written(directory, monkeypatch):
    make_live(directory, "0_0", "kept")
    image = make_image(directory, "0_0", "s")
    synced = synced_paths(monkeypatch)
    interrupted(directory, "placement.after-journal", image)
    journal = [path.name for path in synced].index("journal.json.tmp")
    (staging,) = directory.work_path.glob("placement-*")
    task = staging / "tasks" / "0_0"
    made = {task, task.parent, staging, *task.rglob("*")}
    assert {path for path in made if path.name != "LOCK"} <= set(synced[:journal])


def test_a_replaced_store_is_deleted(directory, swapping):
    make_live(directory, "0_0", "s")
    (directory.task_path("0_0") / ".checkpoint").write_text("0\n1\napp-s-changelog 0 3000\n")
    (directory.task_path("0_0") / "s.position").write_text("0\n0\n")
    place(directory, make_image(directory, "0_0", "s"), replace=True)
    assert offset_of(directory, "0_0", "s") == 9
    assert sorted(path.name for path in directory.task_path("0_0").iterdir()) == ["rocksdb"]
    assert work_content(directory) == {"placed.json", "staged"}


@pytest.mark.parametrize(
    ("usual", "of_the_application"),
    [
        ("comparator=leveldb.BytewiseComparator", "comparator=rocksdb.ReverseBytewiseComparator"),
        ("table_factory=BlockBasedTable", "table_factory=PlainTable"),
        ("num_levels=7", "num_levels=3"),
    ],
)
def test_a_store_unreadable_with_the_options_of_the_application_is_refused(directory, usual, of_the_application):
    make_live(directory, "0_0", "s")
    options = max(directory.store_path("0_0", "s", KIND).glob("OPTIONS-*"))
    assert usual in options.read_text()
    options.write_text(options.read_text().replace(usual, of_the_application))
    image = make_image(directory, "0_0", "s")
    (problem,) = problems(directory, image, replace=True)
    assert (problem["task"], problem["code"], problem["store"]) == ("0_0", "not-readable-here", "s")
    assert of_the_application.partition("=")[2] in problem["why"]
    assert [one.code for one in refusals(directory, [image], guarantee=EOS)] == ["not-readable-here"]
    plan_placement(directory, [replace(image, advances=True)], guarantee=EOS)
    plan_placement(directory, [make_image(directory, "0_1", "s")], guarantee=EOS)
    shutil.rmtree(directory.store_path("0_0", "s", KIND))
    plan_placement(directory, [image], guarantee=EOS)


def test_replaced_tasks_are_kept_for_a_week_on_request(directory, swapping):
    for task in ("0_0", "0_1"):
        make_live(directory, task, "s")
    was = fingerprint(directory.task_path("0_0"))
    images = [make_image(directory, task, "s") for task in ("0_0", "0_2")]
    apply_placement(plan_placement(directory, images, guarantee=EOS, replace=True), keeps=True)
    (kept,) = replaced_in(directory)
    assert {path.name: fingerprint(path) for path in kept.iterdir()} == {"0_0": was}, "0_2 was not there before"
    assert work_content(directory) == {"placed.json", "replaced", "staged"}
    for days, there in ((6, [kept]), (8, [])):
        recover(directory, clock=lambda days=days: time.time() + days * 86_400)
        assert replaced_in(directory) == there


def test_replaced_tasks_that_cannot_be_deleted_stop_no_job(directory, monkeypatch):
    make_live(directory, "0_0", "s")
    plan = plan_placement(directory, [make_image(directory, "0_0", "s")], guarantee=EOS, replace=True)
    apply_placement(plan, keeps=True)

    def refused(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "rmdir", refused)
    report = recover(directory, keep={"staged"}, clock=lambda: time.time() + 8 * 86_400)
    assert report.deleted == ()
    assert len(replaced_in(directory)) == 1


@pytest.mark.parametrize("point", ["after-journal", "before-swap", "after-swap", "after-mark", "after-keeping"])
def test_recovery_keeps_the_replaced_tasks_of_an_interrupted_placement_once(directory, point):
    make_live(directory, "0_0", "s")
    was = fingerprint(directory.task_path("0_0"))
    plan = plan_placement(directory, [make_image(directory, "0_0", "s")], guarantee=EOS, replace=True)
    with pytest.raises(FaultInjected):
        apply_placement(plan, InjectedFault(f"placement.{point}", "raise"), keeps=True)
    for _ in range(2):
        recover(directory)
        (kept,) = replaced_in(directory)
        assert fingerprint(kept / "0_0") == was
    assert offset_of(directory, "0_0", "s") == 9


def test_placed_files_have_the_modes_and_times_that_kafka_streams_expects(directory):
    image = make_image(directory, "0_0", "s")
    (image.path / "rocksdict-config.json").write_text("{}")
    for path in (image.path, *image.path.iterdir()):
        path.chmod(0o777)
        os.utime(path, (0, 0))
    place(directory, image)
    live = directory.task_path("0_0")
    assert time.time() - live.stat().st_mtime < 60
    assert not list(live.rglob("rocksdict-config.json"))
    for path in (live, *live.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o750 if path.is_dir() else 0o640), path


def test_placed_files_are_no_more_open_than_the_umask_allows(directory):
    before = os.umask(0o077)
    try:
        place(directory, make_image(directory, "0_0", "s"))
    finally:
        os.umask(before)
    live = directory.task_path("0_0")
    for path in (live, *live.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_target_that_is_not_empty_is_refused_unless_it_may_be_replaced(directory):
    make_live(directory, "0_0", "s")
    make_live(directory, "0_1", "t")
    found = refusal(directory, make_image(directory, "0_0", "s"), make_image(directory, "0_1", "t"))
    assert found == [("0_0", "store-exists", "s"), ("0_1", "store-exists", "t")]
    place(directory, make_image(directory, "0_0", "s"), make_image(directory, "0_1", "t"), replace=True)
    assert (offset_of(directory, "0_0", "s"), offset_of(directory, "0_1", "t")) == (9, 9)


def test_a_store_of_another_shape_under_the_same_name_counts_as_the_target(directory):
    make_database(directory.task_path("0_0") / "s" / "s.0", changelog("0_0", "s"))
    assert refusal(directory, make_image(directory, "0_0", "s")) == [("0_0", "store-exists", "s")]
    place(directory, make_image(directory, "0_0", "s"), replace=True)
    assert not (directory.task_path("0_0") / "s").exists()


def test_an_empty_store_directory_is_no_target(directory):
    directory.store_path("0_0", "s", KIND).mkdir(parents=True)
    place(directory, make_image(directory, "0_0", "s"))
    assert offset_of(directory, "0_0", "s") == 9


def test_declared_and_undeclared_siblings_are_carried_unchanged(directory, swapping):
    make_live(directory, "0_0", "s")
    kept = make_live(directory, "0_0", "declared", 21)
    make_live(directory, "0_0", "undeclared", 22)
    make_database(directory.task_path("0_0") / "windows" / "windows.60000", changelog("0_0", "windows"), 23)
    (directory.task_path("0_0") / "declared.position").write_text("0\n0\n")
    sizes = file_sizes(kept)
    inodes = {path.name: path.stat().st_ino for path in kept.glob("*.sst")}
    assert inodes
    siblings = [sibling("0_0", "declared"), sibling("0_0", "windows", StoreKind.TIMESTAMPED_WINDOW)]
    place(directory, make_image(directory, "0_0", "s"), siblings=siblings, replace=True)
    assert [offset_of(directory, "0_0", store) for store in ("s", "declared", "undeclared")] == [9, 21, 22]
    windows = state_of(directory, "0_0", "windows")
    assert windows is not None
    assert windows.offsets == {changelog("0_0", "windows"): 23}
    assert file_sizes(kept) == sizes
    assert {path.name: path.stat().st_ino for path in kept.glob("*.sst")} == inodes
    assert (directory.task_path("0_0") / "declared.position").exists()


def test_a_carried_store_shares_no_file_with_the_deleted_directory(directory):
    make_live(directory, "0_0", "s")
    kept = make_live(directory, "0_0", "k", 21)
    place(directory, make_image(directory, "0_0", "s"), siblings=[sibling("0_0", "k")], replace=True)
    assert all(path.stat().st_nlink == 1 for path in kept.iterdir() if path.is_file())
    with RocksDBStore(kept, KIND) as store:
        store.put(b"new", b"row")
        store.commit({changelog("0_0", "k"): 22})
    assert offset_of(directory, "0_0", "k") == 22


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        (StoreKind.KEY_VALUE, "rocksdb/gap"),
        (StoreKind.TIMESTAMPED_KEY_VALUE, "rocksdb/gap"),
        (StoreKind.VERSIONED_KEY_VALUE, "rocksdb/gap"),
        (StoreKind.LIST, "rocksdb/gap"),
        (StoreKind.TIMESTAMPED_WINDOW, "gap/gap.0"),
        (StoreKind.SESSION, "gap/gap.0"),
    ],
)
@pytest.mark.parametrize("live", [False, True])
def test_under_exactly_once_a_missing_sibling_is_created_with_an_unknown_offset(directory, kind, where, live):
    if live:
        directory.task_path("0_0").mkdir()
    place(directory, make_image(directory, "0_0", "s"), siblings=[sibling("0_0", "gap", kind)])
    database = directory.task_path("0_0") / where
    assert (database / "CURRENT").is_file()
    state = state_of(directory, "0_0", where)
    assert state is not None
    assert state.offsets == {changelog("0_0", "gap"): OFFSET_UNKNOWN}
    assert state.status == 0
    assert not list(database.glob("rocksdict*"))


def test_a_declared_windowed_sibling_without_a_segment_gets_one_under_exactly_once(directory):
    (directory.task_path("0_0") / "w").mkdir(parents=True)
    window = sibling("0_0", "w", StoreKind.TIMESTAMPED_WINDOW)
    plan = plan_placement(directory, [make_image(directory, "0_0", "s")], siblings=[window], guarantee=EOS)
    assert [created.store for created in plan.tasks[0].created] == ["w"]
    apply_placement(plan)
    state = state_of(directory, "0_0", "w")
    assert state is not None
    assert state.offsets == {changelog("0_0", "w"): OFFSET_UNKNOWN}


def test_under_at_least_once_and_for_stores_in_memory_nothing_is_created(directory):
    place(directory, make_image(directory, "0_0", "s"), siblings=[sibling("0_0", "gap")], guarantee=ALOS)
    assert not directory.store_path("0_0", "gap", KIND).exists()
    memory = [sibling("0_1", "gap", StoreKind.IN_MEMORY)]
    place(directory, make_image(directory, "0_1", "s"), siblings=memory, guarantee=EOS)
    assert [path.name for path in (directory.task_path("0_1") / "rocksdb").iterdir()] == ["s"]


def test_a_missing_sibling_of_unknown_kind_is_refused_under_exactly_once(directory):
    image = make_image(directory, "0_0", "s")
    siblings = [sibling("0_0", "gap", StoreKind.UNKNOWN)]
    assert refusal(directory, image, siblings=siblings) == [("0_0", "kind-undecided", "gap")]
    place(directory, image, siblings=siblings, guarantee=ALOS)


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize(
    ("offset", "closed", "reason"),
    [(None, True, "offset-missing"), (5, False, "not-closed-cleanly")],
)
def test_a_kept_store_that_would_get_the_task_wiped_is_refused(directory, declared, offset, closed, reason):
    path = directory.store_path("0_0", "k", KIND)
    make_database(path, changelog("0_0", "k") if offset else None, offset or 5, closed=closed)
    siblings = [sibling("0_0", "k")] if declared else []
    image = make_image(directory, "0_0", "s")
    found = refusal(directory, image, siblings=siblings, replace=True)
    assert found == [("0_0", reason, "k")]
    place(directory, image, siblings=siblings, guarantee=ALOS)


def unlogged(task: str, store: str, kind: StoreKind = KIND) -> SiblingStore:
    return SiblingStore(task, store, kind, None, logged=False)


def test_a_store_that_is_not_logged_needs_no_offset_but_has_to_be_closed(directory):
    path = make_database(directory.store_path("0_0", "k", KIND), None)
    image = make_image(directory, "0_0", "s")
    (problem,) = problems(directory, image)
    assert (problem["task"], problem["code"], problem["store"]) == ("0_0", "offset-missing", "k")
    assert "changelog: none" in problem["what"]
    files = file_sizes(path)
    place(directory, image, siblings=[unlogged("0_0", "k")], guarantee=EOS)
    assert file_sizes(directory.store_path("0_0", "k", KIND)) == files


def test_an_unlogged_store_that_was_not_closed_is_refused_without_advice_to_restore(directory):
    path = make_database(directory.store_path("0_0", "k", KIND), None, closed=False)
    (problem,) = problems(directory, make_image(directory, "0_0", "s"), siblings=[unlogged("0_0", "k")])
    assert (problem["task"], problem["code"], problem["store"]) == ("0_0", "not-closed-cleanly", "k")
    assert f"move {path} away" in problem["what"]
    assert "restore" not in problem["what"]


@pytest.mark.parametrize("kind", [KIND, StoreKind.TIMESTAMPED_WINDOW, StoreKind.UNKNOWN])
def test_a_missing_unlogged_store_is_not_created(directory, kind):
    place(directory, make_image(directory, "0_0", "s"), siblings=[unlogged("0_0", "k", kind)], guarantee=EOS)
    assert [path.name for path in directory.task_path("0_0").iterdir()] == ["rocksdb"]
    assert [path.name for path in (directory.task_path("0_0") / "rocksdb").iterdir()] == ["s"]


def test_an_unlogged_window_store_without_segments_is_carried_unchanged(directory):
    (directory.task_path("0_0") / "k").mkdir(parents=True)
    siblings = [unlogged("0_0", "k", StoreKind.TIMESTAMPED_WINDOW)]
    place(directory, make_image(directory, "0_0", "s"), siblings=siblings, guarantee=EOS)
    assert list((directory.task_path("0_0") / "k").iterdir()) == []


def test_a_missing_store_of_an_undecided_changelog_is_refused_under_exactly_once(directory):
    image = make_image(directory, "0_0", "s")
    siblings = [SiblingStore("0_0", "gap", KIND, None)]
    assert refusal(directory, image, siblings=siblings) == [("0_0", "changelog-undecided", "gap")]
    place(directory, image, siblings=siblings, guarantee=ALOS)


def test_an_offset_of_another_topic_is_no_offset_of_a_declared_sibling(directory):
    make_database(directory.store_path("0_0", "k", KIND), changelog("0_0", "other"))
    found = refusal(directory, make_image(directory, "0_0", "s"), siblings=[sibling("0_0", "k")])
    assert found == [("0_0", "offset-missing", "k")]


def test_a_kept_store_that_cannot_be_opened_is_refused_under_exactly_once(directory):
    path = make_live(directory, "0_0", "k")
    next(path.glob("MANIFEST-*")).write_bytes(b"\0" * 100)
    assert refusal(directory, make_image(directory, "0_0", "s")) == [("0_0", "database-damaged", "k")]


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
def test_a_checkpoint_file_with_the_offset_of_a_carried_store_is_refused(directory, guarantee):
    make_live(directory, "0_0", "k")
    image = make_image(directory, "0_0", "s")
    file = directory.task_path("0_0") / ".checkpoint"
    file.write_text("0\n2\napp-s-changelog 0 3000\napp-k-changelog 0 7\n")
    (problem,) = problems(directory, image, guarantee=guarantee)
    assert (problem["code"], problem["topics"]) == ("checkpoint-of-other-stores", ["app-k-changelog"])
    file.write_bytes(b"0\n1\n\xff\n")
    assert refusal(directory, image, guarantee=guarantee) == [("0_0", "checkpoint-unreadable", "")]
    file.write_text("0\n1\napp-s-changelog 0 3000\n")
    place(directory, image, guarantee=guarantee)
    assert not file.exists()
    assert offset_of(directory, "0_0", "k") == 5


def test_a_task_directory_that_is_a_link_is_refused(directory, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    directory.task_path("0_0").symlink_to(tmp_path / "elsewhere")
    assert refusal(directory, make_image(directory, "0_0", "s")) == [("0_0", "task-directory-linked", "")]


def test_a_placement_is_planned_before_its_images_are_built(directory):
    make_live(directory, "0_0", "s")
    make_live(directory, "0_0", "k")
    wanted = make_image(directory, "0_0", "s")
    unbuilt = type(wanted)(wanted.task, wanted.store, wanted.kind, wanted.changelog)
    siblings = [sibling("0_0", "k"), sibling("0_0", "gap")]
    plan = plan_placement(directory, [unbuilt], siblings=siblings, guarantee=EOS, replace=True)
    (task,) = plan.to_json()
    assert (task["task"], task["live"], task["restored"], task["kept"]) == ("0_0", True, ["s"], ["rocksdb/k"])
    assert (task["created"], task["dropped"], len(plan.lines)) == (["gap"], ["rocksdb/s"], 1)
    with pytest.raises(ValueError, match="has no path"):
        apply_placement(plan)
    assert offset_of(directory, "0_0", "s") == 5


@pytest.mark.parametrize(
    ("offset", "closed", "expected"),
    [
        (8, True, {"offsets": {"app-s-changelog-0": 8}, "status": 0}),
        (9, False, {"offsets": {"app-s-changelog-0": 9}, "status": 1}),
        (None, True, {"offsets": {}}),
    ],
)
def test_an_image_with_wrong_offsets_or_status_replaces_nothing(directory, offset, closed, expected):
    make_live(directory, "0_0", "s")
    path = directory.work_path / "image"
    make_database(path, changelog("0_0", "s") if offset else None, offset or 0, closed=closed)
    image = type(make_image(directory, "0_0", "s"))(
        "0_0", "s", KIND, changelog("0_0", "s"), path, {changelog("0_0", "s"): 9}
    )
    with raises(Corrupted, "image-mismatch", task="0_0", store="s", **expected):
        place(directory, image, replace=True)
    assert offset_of(directory, "0_0", "s") == 5
    assert not [name for name in work_content(directory) if name.startswith("placement-")]
    assert not (directory.work_path / "journal.json").exists()


def test_a_staged_task_that_changed_is_put_back(directory, swapping):
    make_live(directory, "0_0", "s")
    make_live(directory, "0_1", "s")

    class Damaging(FaultPoints):
        swapped = 0

        def reach(self, point):
            if point == "placement.after-swap":
                self.swapped += 1
                if self.swapped == 1:
                    next(directory.task_path("0_0").rglob("*.sst")).write_bytes(b"")

    images = [make_image(directory, task, "s") for task in ("0_0", "0_1")]
    with raises(Corrupted, "staged-task-changed", tasks=["0_0"]):
        apply_placement(plan_placement(directory, images, guarantee=EOS, replace=True), Damaging())
    assert (offset_of(directory, "0_0", "s"), offset_of(directory, "0_1", "s")) == (5, 9)
    assert not (directory.work_path / "journal.json").exists()


def test_planning_and_placing_need_the_lock(tmp_path):
    directory = StateDirectory(tmp_path, "app")
    with pytest.raises(Fenced):
        plan_placement(directory, [], guarantee=EOS)
    with directory.lock():
        plan = plan_placement(directory, [make_image(directory, "0_0", "s")], guarantee=EOS)
    with pytest.raises(Fenced):
        apply_placement(plan)
    with pytest.raises(Fenced):
        recover(directory)


class LoseTheLock(FaultPoints):
    """Takes the application's lock away at one point, as who deletes the state directory or its lock file does."""

    def __init__(self, directory: StateDirectory, point: str) -> None:
        self.file, self.point = directory.path / LOCK_FILE, point

    def reach(self, point: str) -> None:
        super().reach(point)
        if point == self.point:
            self.file.unlink(missing_ok=True)
            self.file.touch()


@pytest.mark.parametrize("point", ["placement.before-swap", "placement.after-journal"])
@pytest.mark.parametrize("live", [True, False])
def test_a_lock_lost_before_the_swap_leaves_the_old_directory(directory, swapping, point, live):
    if live:
        make_live(directory, "0_0", "s")
    plan = plan_placement(directory, [make_image(directory, "0_0", "s")], guarantee=EOS, replace=True)
    before = fingerprint(directory.task_path("0_0")) if live else None
    with raises(Fenced, "lock-lost"):
        apply_placement(plan, LoseTheLock(directory, point))
    assert directory.task_path("0_0").exists() == live
    assert before is None or fingerprint(directory.task_path("0_0")) == before


def test_a_lock_lost_between_two_tasks_stops_before_the_second(directory, swapping):
    images = []
    for task in ("0_0", "0_1"):
        make_live(directory, task, "s")
        images.append(make_image(directory, task, "s"))
    plan = plan_placement(directory, images, guarantee=EOS, replace=True)
    with raises(Fenced, "lock-lost"):
        apply_placement(plan, LoseTheLock(directory, "placement.after-verify"))
    assert (offset_of(directory, "0_0", "s"), offset_of(directory, "0_1", "s")) == (9, 5)


def test_only_a_retry_of_the_same_request_counts_as_placed(directory):
    place(directory, make_image(directory, "0_0", "s"), request_id="one")
    again = plan_placement(directory, [make_image(directory, "0_0", "s")], guarantee=EOS, request_id="one")
    assert [task["already_placed"] for task in again.to_json()] == [True]
    assert [store.offsets for store in apply_placement(again).tasks[0].stores] == [{changelog("0_0", "s"): 9}]
    there = [("0_0", "store-exists", "s")]
    assert refusal(directory, make_image(directory, "0_0", "s"), request_id="two") == there
    assert refusal(directory, make_image(directory, "0_0", "s")) == there


def test_a_request_placed_in_two_steps_is_recorded_whole(directory):
    place(directory, make_image(directory, "0_0", "s"), request_id="one")
    place(directory, make_image(directory, "0_0", "s"), make_image(directory, "0_1", "s"), request_id="one")
    images = [make_image(directory, f"0_{n}", "s") for n in range(2)]
    again = plan_placement(directory, images, guarantee=EOS, request_id="one")
    assert [(task["task"], task["already_placed"]) for task in again.to_json()] == [("0_0", True), ("0_1", True)]


def test_a_request_for_more_than_it_has_placed_does_not_count_as_placed(directory):
    """The same request under a spec that was corrected since, as a cleared task of Airflow sends it."""
    place(directory, make_image(directory, "0_0", "s"), request_id="one")
    both = [make_image(directory, "0_0", "s"), make_image(directory, "0_0", "t")]
    assert refusal(directory, *both, request_id="one") == [("0_0", "store-exists", "s")]
    place(directory, *both, request_id="one", replace=True)
    assert [offset_of(directory, "0_0", store) for store in ("s", "t")] == [9, 9]


def test_another_plan_of_the_same_request_does_not_count_as_placed(directory):
    place(directory, make_image(directory, "0_0", "s"), request_id="one")
    again = {"request_id": "one", "resumes": False}
    assert refusal(directory, make_image(directory, "0_0", "s", 12), **again) == [("0_0", "store-exists", "s")]
    place(directory, make_image(directory, "0_0", "s", 12), replace=True, **again)
    assert offset_of(directory, "0_0", "s") == 12


def test_a_recreated_task_does_not_count_as_placed(directory):
    place(directory, make_image(directory, "0_0", "s"), request_id="one")
    (directory.store_path("0_0", "s", KIND) / "IDENTITY").write_text("another database")
    found = refusal(directory, make_image(directory, "0_0", "s"), request_id="one")
    assert found == [("0_0", "store-exists", "s")]


def interrupted(directory, point, *images, nth=1, **options):
    plan = plan_placement(directory, images, **{"guarantee": EOS, "replace": True, **options})
    with pytest.raises(FaultInjected):
        apply_placement(plan, InjectedFault(point, "raise", nth))


def test_recovery_does_not_change_a_task_that_the_application_has_used(directory, swapping):
    for task in ("0_0", "0_1", "0_2"):
        make_live(directory, task, "s")
    interrupted(directory, "placement.after-swap", *(make_image(directory, f"0_{n}", "s") for n in range(3)))
    # The application starts, and goes on with one new and two old directories.
    for task, offset in (("0_0", 30), ("0_1", 31)):
        with RocksDBStore(directory.store_path(task, "s", KIND), KIND) as store:
            store.commit({changelog(task, "s"): offset})
    report = recover(directory)
    assert (report.placed, report.put_back, report.skipped) == (("0_0", "0_2"), (), ("0_1",))
    assert [offset_of(directory, f"0_{n}", "s") for n in range(3)] == [30, 31, 9]


def test_recovery_quarantines_the_old_task_if_the_application_created_another(directory, monkeypatch):
    without_exchange(monkeypatch)
    make_live(directory, "0_0", "s")
    interrupted(directory, "placement.between-renames", make_image(directory, "0_0", "s"))
    assert not directory.task_path("0_0").exists()
    make_live(directory, "0_0", "s", 44)
    assert recover(directory).skipped == ("0_0",)
    assert offset_of(directory, "0_0", "s") == 44
    aside = list((directory.work_path / "set-aside").rglob("CURRENT"))
    assert len(aside) == 1


def test_recovery_puts_the_old_task_back_if_the_new_one_is_incomplete(directory, swapping):
    make_live(directory, "0_0", "s")
    make_live(directory, "0_1", "s")
    images = [make_image(directory, f"0_{n}", "s") for n in range(2)]
    interrupted(directory, "placement.before-swap", *images, nth=2)
    staged = next(directory.work_path.glob("placement-*/tasks/0_1"))
    next(staged.rglob("*.sst")).unlink()
    report = recover(directory)
    assert (report.placed, report.put_back) == (("0_0",), ("0_1",))
    assert (offset_of(directory, "0_0", "s"), offset_of(directory, "0_1", "s")) == (9, 5)


@pytest.mark.parametrize("live", [True, False])
def test_recovery_checks_databases_swapped_before_the_crash(directory, swapping, live):
    if live:
        make_live(directory, "0_0", "s")
    interrupted(directory, "placement.after-swap", make_image(directory, "0_0", "s"))
    table = next(directory.task_path("0_0").rglob("*.sst"))
    for file in (table, *directory.task_path("0_0").rglob("*.log")):
        file.write_bytes(b"\0" * file.stat().st_size)  # as after a power loss on a disk that lied
    report = recover(directory)
    assert report.put_back == ("0_0",)
    assert offset_of(directory, "0_0", "s") == (5 if live else None)
    assert directory.task_path("0_0").exists() is live


def test_recovery_deletes_dead_work_directories_and_keeps_others(directory):
    for name in ("placement-dead", "plans", "young", "old", "set-aside"):
        (directory.work_path / name).mkdir()
        (directory.work_path / name / "file").touch()
    (directory.work_path / "journal.json.tmp").touch()
    for path in ("old/file", "old", "plans", "set-aside"):
        os.utime(directory.work_path / path, (0, 0))
    assert set(recover(directory).deleted) == {"placement-dead", "journal.json.tmp", "old"}
    assert work_content(directory) == {"plans", "young", "set-aside"}
    assert recover(directory, keep={"nothing"}).deleted == ("young",)


def test_a_journal_of_another_version_is_refused(directory):
    (directory.work_path / "journal.json").write_text('{"version": 99}')
    path = str(directory.work_path / "journal.json")
    with pytest.raises(Invalid, match="version 99") as caught:
        recover(directory)
    assert caught.value.context["path"] == path
    for torn in ("{", "[]", '{"version": 2}', '{"version": 2, "request_id": "r", "tasks": 7}'):
        (directory.work_path / "journal.json").write_text(torn)
        with pytest.raises(Invalid) as caught:
            recover(directory)
        assert caught.value.context["path"] == path


def test_a_task_whose_store_a_processor_has_open_is_not_replaced(directory):
    """Such a processor does not hold the application's lock."""
    make_live(directory, "0_0", "s")
    images = make_image(directory, "0_0", "s"), make_image(directory, "0_1", "s")
    plan = plan_placement(directory, images, guarantee=EOS, replace=True)
    with RocksDBStore(directory.store_path("0_0", "s", KIND), KIND) as store:
        open_here = {"task_directory": str(directory.task_path("0_0")), "store": "s", "process": os.getpid()}
        with raises(Fenced, "store-open", **open_here):
            plan_placement(directory, images, guarantee=EOS, replace=True)
        with raises(Fenced, "store-open", **open_here):
            apply_placement(plan)
        store.put(b"more", b"rows")
        store.commit({changelog("0_0", "s"): 6})
    assert offset_of(directory, "0_0", "s") == 6
    assert not directory.task_path("0_1").exists()
    plan_placement(directory, images[1:], guarantee=EOS)  # another task is not concerned


def test_a_task_that_another_process_has_open_is_not_replaced(directory):
    live = make_live(directory, "0_0", "s")
    path = directory.store_path("0_0", "s", KIND)
    script = (
        "import sys; from statecore import RocksDBStore, StoreKind\n"
        "with RocksDBStore(sys.argv[1], StoreKind.KEY_VALUE): print('open', flush=True); sys.stdin.read()"
    )
    del live
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        with raises(Fenced, "store-open", store="s", process=process.pid):
            plan_placement(directory, [make_image(directory, "0_0", "s")], guarantee=EOS, replace=True)
        process.communicate()
    place(directory, make_image(directory, "0_0", "s"), replace=True)
    assert offset_of(directory, "0_0", "s") == 9


def test_an_advanced_store_is_not_reported_as_replaced_or_dropped(directory):
    for store in ("s", "t", "other"):
        make_live(directory, "0_0", store)
    advanced, restored = replace(make_image(directory, "0_0", "s"), advances=True), make_image(directory, "0_0", "t")
    siblings = [sibling("0_0", "t"), sibling("0_0", "other")]
    plan = plan_placement(directory, [advanced], siblings=siblings, guarantee=ALOS)
    (task,) = plan.to_json()
    assert ([image.store for image in plan.tasks[0].restored if image.advances], task["dropped"]) == (["s"], [])
    assert task["kept"] == ["rocksdb/other", "rocksdb/t"]
    assert not any("replace" in line or "drop" in line for line in plan.lines)
    plan = plan_placement(directory, [advanced, restored], siblings=siblings, guarantee=ALOS, replace=True)
    (task,) = plan.to_json()
    assert [(image.store, image.advances) for image in plan.tasks[0].restored] == [("s", True), ("t", False)]
    assert (task["kept"], task["dropped"]) == (["rocksdb/other"], ["rocksdb/t"])


def test_refusals_are_listed_for_each_task_without_the_lock(tmp_path):
    directory = StateDirectory(tmp_path, "app")
    images = [StoreImage(task, "s", KIND, changelog(task, "s")) for task in ("0_0", "0_1")]
    for task in ("0_0", "0_1"):
        path = directory.store_path(task, "k", KIND)
        make_database(path, changelog(task, "k"), 5, closed=task == "0_1")
    before = fingerprint(directory.path)
    siblings = [sibling(task, "k") for task in ("0_0", "0_1")]
    (problem,) = refusals(directory, images, siblings=siblings, guarantee=EOS)
    assert (problem.code, problem.context) == ("not-closed-cleanly", {"task": "0_0", "store": "k"})
    assert refusals(directory, images, siblings=siblings, guarantee=ALOS) == []
    assert fingerprint(directory.path) == before


def test_existing_stores_are_found_without_the_lock(tmp_path):
    directory = StateDirectory(tmp_path / "state", "app")
    image = StoreImage("0_0", "s", KIND, changelog("0_0", "s"))
    assert existing_stores_error(directory, [image]) is None
    assert not directory.path.exists()
    make_live(directory, "0_0", "s")
    (problem,) = existing_stores_error(directory, [image]).context["problems"]
    assert (problem["code"], problem["task"], problem["store"]) == ("store-exists", "0_0", "s")
    assert "--replace" in problem["what"]
    assert existing_stores_error(directory, [replace(image, advances=True)]) is None
    assert existing_stores_error(directory, [replace(image, store="t")]) is None
