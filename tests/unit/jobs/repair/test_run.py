"""What is found in a state directory is mended in copies of its tasks, or not at all."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Fenced, Invalid
from statecore.faults import CHANGE_POINTS, PLACEMENT_POINTS, REPAIR_POINTS, FaultInjected, FaultPoints, InjectedFault
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.repair import run
from statecore.jobs.repair.report import REPAIR_REPORT, RepairOutcome, RepairReport
from statecore.jobs.repair.request import RepairRequest
from statecore.jobs.repair.run import run_repair
from statecore.spec.model import ProcessingGuarantee
from statecore.statedir.database_state import read_database_state
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.case_selection import three_of
from tests.harness.raising import raises
from tests.unit.doctor.stored import offsets, write_database

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
ALOS, EOS = ProcessingGuarantee.AT_LEAST_ONCE, ProcessingGuarantee.EXACTLY_ONCE_V2
HOUR = 3_600_000


@pytest.fixture
def application(tmp_path: Path) -> Path:
    """An application's directory in which nothing is wrong: a table in two tasks."""
    path = tmp_path / "app"
    for partition in (0, 1):
        table(path / f"0_{partition}", partition)
    return path


def table(task: Path, partition: int, *, name: str = "table", status: int = 0, **families: Any) -> None:
    said = offsets(f"app-{name}-changelog", partition, 9, status)
    write_database(task / "rocksdb" / name, {"default": [(b"a", b"1")], "offsets": said, **families})


def window(hour: int) -> bytes:
    return b"k" + (hour * HOUR).to_bytes(8) + bytes(4)


def windows(task: Path, at: Mapping[int, int]) -> None:
    """A store of windows, the segment of each hour at an offset."""
    (task / "clicks").mkdir(parents=True)
    for hour, offset in at.items():
        said = offsets("app-clicks-changelog", 0, offset)
        families = {"default": [], "keyValueWithTimestamp": [(window(hour), b"12345678v")], "offsets": said}
        write_database(task / "clicks" / f"clicks.{hour * HOUR}", families)


BOTH = '  "0": {stores: {table: {kind: key-value}, clicks: {kind: timestamped-window, retention: 2h}}}\n'


def spec_file(application: Path, subtopologies: str) -> str:
    """Path of a spec of the application with these subtopologies, beside it."""
    file = application.parent / "stores.yaml"
    file.write_text(
        "application_id: app\nbootstrap_servers: nowhere:1\nprocessing_guarantee: exactly_once_v2\nsubtopologies:\n"
        + subtopologies
    )
    return str(file)


def repaired(application: Path, guarantee: ProcessingGuarantee = EOS, **asked: Any) -> RepairReport:
    request = RepairRequest(
        **{
            "application_id": "app",
            "state_dir": str(application.parent),
            "offline": True,
            "apply": True,
            "processing_guarantee": guarantee,
            **asked,
        }
    )
    return run_repair(request, InProcessEngine())


def said(database: Path) -> set[int]:
    return set(read_database_state(database).offsets.values())


def test_nothing_is_done_where_nothing_is_wrong(application: Path) -> None:
    before = fingerprint(application)
    report = repaired(application, apply=False)
    assert (report.outcome, report.exit_code, report.found) == (RepairOutcome.UNCHANGED, 0, ())
    assert fingerprint(application) == before
    assert repaired(application).outcome is RepairOutcome.UNCHANGED


def test_segments_that_disagree_are_lowered_to_the_smallest_offset(application: Path) -> None:
    windows(application / "0_0", {4: 70, 5: 99, 6: 80})
    before = fingerprint(application)
    plan = repaired(application, ALOS, apply=False)
    assert fingerprint(application) == before
    assert [(task.task, task.codes) for task in plan.repaired] == [("0_0", ("segments-disagree",))]
    assert (plan.outcome, plan.exit_code) == (RepairOutcome.PLANNED, 0)
    report = repaired(application, ALOS, approved=plan.plan_id)
    assert (report.outcome, report.exit_code, report.remaining) == (RepairOutcome.REPAIRED, 0, ())
    segments = sorted((application / "0_0" / "clicks").iterdir())
    assert [said(segment) for segment in segments] == [{70}] * 3
    with RocksDBStore(segments[1], StoreKind.TIMESTAMPED_WINDOW, read_only=True) as store:
        assert list(store.all()) == [(window(5), b"12345678v")]
    kept = Path(report.kept) / "0_0" / "clicks"
    assert [said(kept / segment.name) for segment in segments] == [{70}, {99}, {80}]
    assert REPAIR_REPORT.decode(REPAIR_REPORT.encode(report)) == report


def test_a_store_without_a_segment_gets_one_that_keeps_an_offset(application: Path) -> None:
    (application / "0_0" / "clicks").mkdir()
    spec = spec_file(application, BOTH)
    assert repaired(application, spec_path=spec, tasks=("0_0",)).outcome is RepairOutcome.REPAIRED
    state = read_database_state(application / "0_0" / "clicks" / "clicks.0")
    assert state.offsets == {TopicPartition("app-clicks-changelog", 0): -4}
    assert state.closed_cleanly


def test_a_segment_of_an_unknown_changelog_is_not_created(application: Path) -> None:
    (application / "0_0" / "clicks").mkdir()
    spec = spec_file(
        application, '  "0": {stores: {clicks: {kind: timestamped-window, retention: 2h, changelog: "?"}}}\n'
    )
    before = fingerprint(application / "0_0")
    with raises(Invalid, "repair-impossible", task="0_0", store="clicks"):
        repaired(application, spec_path=spec)
    assert fingerprint(application / "0_0") == before


@pytest.mark.parametrize("with_others", [True, False])
def test_a_rebuild_that_the_directory_refuses_keeps_no_other_repair_from_being_done(
    application: Path, monkeypatch: pytest.MonkeyPatch, with_others: bool
) -> None:
    next((application / "0_0/rocksdb/table").glob("MANIFEST-*")).unlink()
    if with_others:
        (application / "0_1" / "clicks").mkdir()
    spec = spec_file(application, BOTH)
    windows(application / "0_0", {4: 70})

    def refuse(*_: object) -> None:
        raise Invalid("0_0 has a mount.", code="placement-refused", action="Unmount it.")

    monkeypatch.setattr(run, "rebuild", refuse)
    if not with_others:
        shutil.rmtree(application / "0_1")
        with raises(Invalid, "placement-refused"):
            repaired(application, spec_path=spec)
        return
    report = repaired(application, spec_path=spec)
    assert [task.codes for task in report.repaired] == [("segment-missing",)]
    assert (report.rebuilt, report.exit_code) == ((), 21)
    assert ["table in 0_0 could not be rebuilt: 0_0 has a mount." in one for one in report.notes] == [True]
    assert [one["task"] for one in report.remaining] == ["0_0"]


def test_a_global_store_that_was_not_closed_is_closed(application: Path) -> None:
    rows = [*offsets("products", 0, 7, 1), *offsets("products", 1, 8, None)]
    write_database(application / "global" / "rocksdb" / "products", {"default": [(b"a", b"1")], "offsets": rows})
    assert repaired(application).outcome is RepairOutcome.REPAIRED
    state = read_database_state(application / "global" / "rocksdb" / "products")
    assert (state.closed_cleanly, set(state.offsets.values())) == (True, {7, 8})


@pytest.mark.parametrize("offset", [3, 30])
def test_a_checkpoint_that_contradicts_its_stores_is_moved_aside(application: Path, offset: int) -> None:
    (application / "0_0" / ".checkpoint").write_text(f"0\n1\napp-table-changelog 0 {offset}\n")
    report = repaired(application)
    assert not (application / "0_0" / ".checkpoint").exists()
    assert (Path(report.kept) / "0_0" / ".checkpoint").read_text().endswith(f"{offset}\n")
    assert said(application / "0_0" / "rocksdb" / "table") == {9}


def test_a_half_migrated_task_is_finished(application: Path) -> None:
    task = application / "0_0"
    write_database(task / "rocksdb" / "older", {"default": [(b"a", b"1")]})
    (task / ".checkpoint").write_text("0\n2\napp-table-changelog 0 3\napp-older-changelog 0 5\n")
    report = repaired(application)
    assert report.remaining == ()
    assert not (task / ".checkpoint").exists()
    assert (said(task / "rocksdb" / "table"), said(task / "rocksdb" / "older")) == ({9}, {5})


def test_entries_of_no_store_are_taken_out_of_a_file_of_an_older_release_which_it_stays(application: Path) -> None:
    task = application / "0_2"
    write_database(task / "rocksdb" / "table", {"default": [(b"a", b"1")]})
    (task / ".checkpoint").write_text("0\n2\napp-table-changelog 2 7\napp-gone-changelog 2 5\n")
    plan = repaired(application, apply=False)
    assert [(one.task, one.codes) for one in plan.repaired] == [("0_2", ("checkpoint-stray",))]
    assert "(app-gone-changelog-2)" in plan.repaired[0].steps[0]
    report = repaired(application)
    assert report.remaining == ()
    assert (task / ".checkpoint").read_text() == "0\n1\napp-table-changelog 2 7\n"
    assert "offsets" not in read_database_state(task / "rocksdb" / "table").column_families
    assert "gone" in (Path(report.kept) / "0_2" / ".checkpoint").read_text()


def test_times_of_a_task_of_an_older_release_are_repaired_without_migration(application: Path) -> None:
    task = application / "0_2"
    write_database(task / "rocksdb" / "table", {"default": [(b"a", b"1")]})
    (task / ".checkpoint").write_text("0\n1\napp-table-changelog 2 7\n")
    os.utime(task, (1_000_000, 1_000_000))
    report = repaired(application, cleanup_max_age_ms=86_400_000)
    assert ([(one.task, one.codes) for one in report.repaired], report.remaining) == (
        [("0_2", ("cleaning-deletes",))],
        (),
    )
    assert (task / ".checkpoint").exists()
    assert "offsets" not in read_database_state(task / "rocksdb" / "table").column_families


def test_stray_entries_are_dropped_from_the_file_of_a_half_migrated_task(application: Path) -> None:
    task = application / "0_0"
    write_database(task / "rocksdb" / "older", {"default": [(b"a", b"1")]})
    (task / ".checkpoint").write_text("0\n2\napp-gone-changelog 0 3\napp-older-changelog 0 5\n")
    plan = repaired(application, apply=False)
    assert [one.task for one in plan.repaired] == ["0_0"]
    assert "(without app-gone-changelog-0)" in plan.repaired[0].steps[0]
    assert repaired(application).remaining == ()
    assert not (task / ".checkpoint").exists()
    assert said(task / "rocksdb" / "older") == {5}


def test_what_is_found_in_one_task_leaves_the_others_as_they_are(application: Path) -> None:
    before = fingerprint(application / "0_1")
    (application / "0_0" / ".checkpoint").write_text("0\n1\napp-table-changelog 0 30\n")
    assert repaired(application).outcome is RepairOutcome.REPAIRED
    assert fingerprint(application / "0_1") == before


def test_a_directory_that_cleaning_would_delete_gets_the_time_of_now(application: Path) -> None:
    os.utime(application / "0_1", (1_000_000, 1_000_000))
    assert repaired(application).outcome is RepairOutcome.UNCHANGED
    report = repaired(application, cleanup_max_age_ms=86_400_000)
    assert ([task.codes for task in report.repaired], report.remaining) == ([("cleaning-deletes",)], ())
    assert time.time() - (application / "0_1").stat().st_mtime < 600


def test_an_empty_column_family_of_another_tool_is_dropped(application: Path) -> None:
    table(application / "0_2", 2, foo=[])
    assert repaired(application).remaining == ()
    assert "foo" not in read_database_state(application / "0_2" / "rocksdb" / "table").column_families


@as_root
@pytest.mark.parametrize("link", [True, False])
def test_files_that_the_application_may_not_use_are_given_to_it_and_the_live_ones_stay_as_they_were(
    application: Path, link: bool
) -> None:
    for path in (application, *application.rglob("*")):
        os.chown(path, 4242, 4343)
    database = application / "0_0" / "rocksdb" / "table"
    table_file = next(database.glob("*.sst"))
    table_file.chmod(0o040 if link else 0)
    os.chown(database / "LOCK", 0, 0)
    database.chmod(0o500)
    if not link:
        os.chown(table_file, 0, 0)
    found = repaired(application, tasks=("0_0",), apply=False)
    assert [(task.task, task.codes) for task in found.repaired] == [("0_0", ("rights",))]
    report = repaired(application, tasks=("0_0",))
    assert (report.outcome, report.remaining) == (RepairOutcome.REPAIRED, ())
    for path in (database, *database.iterdir()):
        seen = path.stat()
        assert (seen.st_uid, seen.st_gid) == (4242, 4343)
        assert seen.st_mode & 0o700 >= (0o700 if path.is_dir() else 0o600 if path.name == "LOCK" else 0o400), path
    kept = Path(report.kept) / "0_0" / "rocksdb" / "table"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (kept, kept / table_file.name)] == [
        0o500,
        0o040 if link else 0,
    ]
    assert (kept / "LOCK").stat().st_uid == 0
    assert said(database) == {9}


def test_a_task_that_this_user_may_not_replace_is_refused_before_anything_is_changed(
    application: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (application / "0_0" / ".checkpoint").write_text("0\n1\napp-table-changelog 0 30\n")
    before = fingerprint(application / "0_0")
    access = os.access

    def no_access(path: Any, mode: int) -> bool:
        return Path(path).name != "table" and access(path, mode)

    monkeypatch.setattr(os, "access", no_access)
    plan = repaired(application, apply=False)
    (note,) = (note for note in plan.notes if str(application / "0_0" / "rocksdb" / "table") in note)
    assert f"uid {os.geteuid()}" in note
    with raises(Invalid, "permission-denied", state_dir=str(application.parent)):
        repaired(application)
    assert fingerprint(application / "0_0") == before
    assert list(application.glob(".statecore/*")) == []


def test_files_kept_by_earlier_repairs_are_reported(application: Path) -> None:
    file = application / "0_0" / ".checkpoint"
    file.write_text("0\n1\napp-table-changelog 0 30\n")
    first = repaired(application)
    assert first.notes == ()
    file.write_text("0\n1\napp-table-changelog 0 31\n")
    second = repaired(application)
    assert second.kept != first.kept
    (note,) = second.notes
    assert first.kept in note
    assert second.kept not in note


def test_without_a_spec_only_rebuilds_remain_and_the_rest_is_repaired(application: Path) -> None:
    table(application / "0_2", 2, status=1)
    (application / "0_0" / ".checkpoint").write_text("0\n1\napp-table-changelog 0 30\n")
    before = fingerprint(application / "0_2")
    plan = repaired(application, apply=False)
    report = repaired(application, approved=plan.plan_id)
    for one in (plan, report):
        assert (one.rebuilt, one.exit_code) == ((), 21)
        assert [task.codes for task in one.repaired] == [("checkpoint-ahead",)]
        ((left),) = one.remaining
        assert (left["code"], left["task"]) == ("store-not-closed", "0_2")
        assert "--spec" in left["remedy"]
    assert (plan.outcome, report.outcome) == (RepairOutcome.PLANNED, RepairOutcome.PARTLY_REPAIRED)
    assert fingerprint(application / "0_2") == before
    assert repaired(application).outcome is RepairOutcome.UNCHANGED


def test_stores_that_no_restore_would_rebuild_are_listed_and_the_rest_is_repaired(application: Path) -> None:
    for name in ("gone", "elsewhere", "undecided", "unlogged"):
        table(application / "0_0", 0, name=name, status=1)
    table(application / "0_2", 2, status=1)
    (application / "0_1" / ".checkpoint").write_text("0\n1\napp-table-changelog 1 30\n")
    spec = spec_file(
        application,
        '  "0": {stores: {table: {kind: key-value}, undecided: {kind: "?"}, '
        "unlogged: {kind: key-value, changelog: none}}}\n"
        '  "1": {stores: {elsewhere: {kind: key-value}}}\n',
    )
    plan = repaired(application, apply=False, spec_path=spec)
    assert [(one.stores, one.tasks) for one in plan.rebuilt] == [(("table",), ("0_2",))]
    assert [(one.task, one.codes) for one in plan.repaired] == [("0_1", ("checkpoint-ahead",))]
    left = {(one["store"], one["code"]): one["remedy"] for one in plan.remaining}
    for name in ("gone", "elsewhere", "undecided"):
        assert "declares its kind" in left[name, "store-not-closed"]


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
def test_no_rebuild_is_planned_beside_a_store_that_cannot_be_opened_and_is_kept(
    application: Path, guarantee: ProcessingGuarantee
) -> None:
    """Under exactly-once its placement would be refused; the other task, which has no row of it, is rebuilt."""
    for task in ("0_0", "0_1"):
        partition = int(task[-1])
        table(application / task, partition, name="other", default=[(b"a", b"1")][partition:])
        for file in (application / task / "rocksdb" / "table").glob("*.sst"):
            file.rename(file.with_name("000900.sst"))
    for file in (application / "0_0" / "rocksdb" / "other").glob("*.sst"):
        file.unlink()
    spec = Path(spec_file(application, '  "0": {stores: {table: {kind: key-value}, other: {kind: key-value}}}\n'))
    spec.write_text(spec.read_text().replace(str(EOS), str(guarantee)))
    plan = repaired(application, guarantee, apply=False, spec_path=str(spec))
    (planned,) = plan.rebuilt
    left = {(one["task"], one["store"], one["code"]) for one in plan.remaining}
    kept = {("0_0", "other", "not-readable-here")}
    if guarantee is EOS:
        assert (planned.tasks, left) == (("0_1",), {*kept, ("0_0", "table", "file-missing")})
        assert (plan.exit_code, plan.notes[0].endswith("[not-readable-here]")) == (21, True)
    else:
        assert (planned.tasks, left, plan.exit_code) == (("0_0", "0_1"), kept, 20)


def test_a_kind_that_every_task_contradicts_is_doubted_without_brokers_too(application: Path) -> None:
    spec = spec_file(application, '  "0": {stores: {table: {kind: timestamped-key-value}}}\n')
    plan = repaired(application, apply=False, spec_path=spec)
    assert [(one.codes, len(one.doubts)) for one in plan.rebuilt] == [(("kind-mismatch",), 1)]
    with raises(Invalid, "rebuild-source-unverified"):
        repaired(application, spec_path=spec)


def test_a_repair_that_leaves_a_store_that_may_not_be_opened_is_one_in_part(application: Path) -> None:
    table(application / "0_0", 0, name="other")
    for file in (application / "0_0" / "rocksdb" / "other").glob("*.sst"):
        file.unlink()
    (application / "0_1" / ".checkpoint").write_text("0\n1\napp-table-changelog 1 30\n")
    report = repaired(application)
    assert [task.codes for task in report.repaired] == [("checkpoint-ahead",)]
    assert (report.outcome, report.exit_code) == (RepairOutcome.PARTLY_REPAIRED, 20)
    assert [one["code"] for one in report.remaining] == ["not-readable-here"]


def test_what_else_is_found_in_a_store_that_has_to_be_rebuilt_is_left_with_it(application: Path) -> None:
    windows(application / "0_0", {4: 70, 5: 99})
    (application / "0_0" / "clicks" / f"clicks.{4 * HOUR}" / "CURRENT").unlink()
    table(application / "0_2", 2, status=1, foo=[])
    report = repaired(application)
    assert (report.outcome, report.repaired, report.rebuilt) == (RepairOutcome.UNCHANGED, (), ())
    assert {(one["task"], one["code"]) for one in report.remaining} >= {
        ("0_0", "current-missing"),
        ("0_2", "store-not-closed"),
        ("0_2", "column-family-unknown"),
    }


def test_of_a_task_of_an_older_release_no_rebuild_is_promised(application: Path) -> None:
    write_database(application / "0_2" / "rocksdb" / "table", {"default": [(b"a", b"1")]})
    (application / "0_0" / ".checkpoint").write_text("0\n1\napp-table-changelog 0 30\n")
    plan, report = repaired(application, apply=False), repaired(application)
    assert report.outcome is RepairOutcome.PARTLY_REPAIRED
    for one in (plan, report):
        assert [(left["code"], left["task"]) for left in one.remaining] == [("older-release", "0_2")]
        assert not any("--spec" in left["remedy"] for left in one.remaining)


def test_a_plan_says_what_a_rebuild_is_made_from(application: Path) -> None:
    table(application / "0_2", 2, status=1)
    spec = spec_file(application, '  "0": {stores: {table: {kind: key-value}}}\n')
    (planned,) = repaired(application, apply=False, spec_path=spec).rebuilt
    assert (planned.stores, planned.sources) == (("table",), "the brokers at nowhere:1")
    (planned,) = repaired(application, apply=False, spec_path=spec, repository="file:///r").rebuilt
    assert planned.sources.endswith(" in file:///r")


def test_the_deleted_only_store_of_a_task_is_rebuilt(application: Path) -> None:
    shutil.rmtree(application / "0_1" / "rocksdb" / "table")
    spec = spec_file(application, '  "0": {stores: {table: {kind: key-value}}}\n')
    for tasks in ((), ("0_1",)):
        plan = repaired(application, apply=False, spec_path=spec, tasks=tasks)
        assert [(one.stores, one.tasks, one.codes) for one in plan.rebuilt] == [
            (("table",), ("0_1",), ("store-absent",))
        ]
        assert (plan.outcome, plan.exit_code) == (RepairOutcome.PLANNED, 0)


def test_only_the_plan_that_was_approved_is_applied(application: Path) -> None:
    (application / "0_0" / ".checkpoint").write_text("0\n1\napp-table-changelog 0 30\n")
    plan_id = repaired(application, apply=False).plan_id
    (application / "0_0" / ".checkpoint").write_text("0\n1\napp-table-changelog 0 31\n")
    for approved in (plan_id, "123"):
        with raises(Invalid, "plan-changed") as refused:
            repaired(application, approved=approved)
        assert f"{approved} was approved: the directory has changed since, or that id" in str(refused.value)
    assert (application / "0_0" / ".checkpoint").exists()


def test_a_directory_in_use_is_left_alone(application: Path) -> None:
    with StateDirectory(application.parent, "app").lock():
        for apply in (True, False):
            with pytest.raises(Fenced, match="in use"):
                repaired(application, apply=apply)


NEVER_REACHED = {"repair.after-rebuild", "placement.after-siblings", "placement.between-renames", "placement.done"}
"""A copy has no siblings, an exchange takes no renames, and nothing is rebuilt here."""


class Meddling(FaultPoints):
    """An application that tries to start at every point."""

    def __init__(self, directory: StateDirectory) -> None:
        self.directory, self.refused, self.reached = directory, 0, 0

    def reach(self, point: str) -> None:
        super().reach(point)
        self.reached += 1
        try:
            with self.directory.lock():
                pass
        except Fenced:
            self.refused += 1


def test_the_directory_is_locked_from_the_first_check_to_the_last(application: Path) -> None:
    (application / "0_0" / ".checkpoint").write_text("0\n1\napp-table-changelog 0 30\n")
    request = RepairRequest(
        application_id="app", state_dir=str(application.parent), apply=True, processing_guarantee=EOS
    )
    faults = Meddling(StateDirectory(application.parent, "app"))
    report = run_repair(request, InProcessEngine(), faults=faults)
    assert (report.outcome, report.remaining, report.notes) == (RepairOutcome.REPAIRED, (), ())
    assert faults.refused == faults.reached > len(POINTS) / 2
    assert Path(report.kept, "0_0", ".checkpoint").is_file()
    assert [file.suffix for file in (application / ".statecore" / "plans").iterdir()] == [".repair"]


POINTS = [point for point in (*CHANGE_POINTS, *REPAIR_POINTS, *PLACEMENT_POINTS) if point not in NEVER_REACHED]


@pytest.mark.parametrize("point", three_of(POINTS))
def test_a_job_stopped_at_any_point_is_completed_by_a_rerun(application: Path, point: str) -> None:
    for partition in (0, 1):
        (application / f"0_{partition}" / ".checkpoint").write_text(f"0\n1\napp-table-changelog {partition} 30\n")
    request = RepairRequest(
        application_id="app", state_dir=str(application.parent), apply=True, processing_guarantee=EOS
    )
    with pytest.raises(FaultInjected):
        run_repair(request, InProcessEngine(), faults=InjectedFault(point))
    assert run_repair(request, InProcessEngine()).remaining == ()
    for partition in (0, 1):
        assert not (application / f"0_{partition}" / ".checkpoint").exists()
        assert said(application / f"0_{partition}" / "rocksdb" / "table") == {9}
    assert not list((application / ".statecore").glob("placement-*"))
