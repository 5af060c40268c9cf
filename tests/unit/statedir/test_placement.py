"""Placement: whole tasks replaced, carried stores, and what a request has placed before."""

from __future__ import annotations

import os
import stat
import time

import pytest

from statecore.errors import Corrupted, Retryable
from statecore.faults import FaultPoints
from statecore.formats.kinds import StoreKind
from statecore.statedir.file_trees import file_sizes, fingerprint
from statecore.statedir.journal import read_record
from statecore.statedir.link_scratch import scratch
from statecore.statedir.placement import apply_placement, recover
from statecore.statedir.placement_plan import plan_placement
from statecore.statedir.replaced_tasks import replaced_in
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.raising import raises
from tests.harness.syncing import synced_paths
from tests.unit.statedir.support import (
    ALOS,
    EOS,
    KIND,
    changelog,
    interrupted,
    make_database,
    make_image,
    make_live,
    offset_of,
    place,
    refusal,
    sibling,
    state_of,
    work_content,
)


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


def test_replaced_tasks_are_kept_for_a_week_on_request(directory, swapping):
    for task in ("0_0", "0_1"):
        make_live(directory, task, "s")
    was = fingerprint(directory.task_path("0_0"))
    images = [make_image(directory, task, "s") for task in ("0_0", "0_2")]
    plan = plan_placement(directory, images, guarantee=EOS, replace=True)
    apply_placement(plan, keeps=True, placement_id="of-the-report")
    (kept,) = replaced_in(directory)
    assert kept.name == read_record(directory.work_path).attempt == "placement-of-the-report"
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
    report = recover(directory, clock=lambda: time.time() + 8 * 86_400)
    assert report.deleted == ()
    assert len(replaced_in(directory)) == 1


def test_links_of_a_running_backup_stay_and_those_that_it_deletes_meanwhile_stop_no_job(directory):
    with scratch(directory) as links:
        for path in (*links.iterdir(), links):
            os.utime(path, (0, 0))
        assert recover(directory).deleted == ()
        assert links.is_dir()
        going = directory.work_path / "snapshot-going"
        going.mkdir()

        def clock():
            going.rmdir()
            return time.time()

        assert recover(directory, clock=clock).deleted == ()
    assert work_content(directory) == set()


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


def test_under_at_least_once_and_for_stores_in_memory_nothing_is_created(directory):
    place(directory, make_image(directory, "0_0", "s"), siblings=[sibling("0_0", "gap")], guarantee=ALOS)
    assert not directory.store_path("0_0", "gap", KIND).exists()
    memory = [sibling("0_1", "gap", StoreKind.IN_MEMORY)]
    place(directory, make_image(directory, "0_1", "s"), siblings=memory, guarantee=EOS)
    assert [path.name for path in (directory.task_path("0_1") / "rocksdb").iterdir()] == ["s"]


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


def test_a_task_that_another_process_changes_is_not_replaced(directory, swapping):
    make_live(directory, "0_0", "s")

    class Writing(FaultPoints):
        def reach(self, point):
            if point == "placement.after-journal":
                (directory.task_path("0_0") / ".checkpoint").write_text("0\n0\n")

    images = [make_image(directory, task, "s") for task in ("0_0", "0_1")]
    with raises(Retryable, "task-directory-changed", tasks=["0_0"]):
        apply_placement(plan_placement(directory, images, guarantee=EOS, replace=True), Writing())
    assert (offset_of(directory, "0_0", "s"), offset_of(directory, "0_1", "s")) == (5, 9)
    assert not (directory.work_path / "journal.json").exists()


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
