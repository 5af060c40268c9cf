"""What may be in the way of a migration: releases mixed in one directory, another's directory, a disk that refuses."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Capacity, Invalid
from statecore.faults import CONVERSION_POINTS, NO_FAULTS, FaultPoints
from statecore.formats.checkpoint import decode_checkpoint, encode_checkpoint
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.fields.catalog import TargetRelease
from statecore.jobs.migrate import convert as convert_module
from statecore.jobs.migrate.report import MigrateReport, MigrationOutcome
from statecore.jobs.migrate.request import MigrateRequest
from statecore.jobs.migrate.run import run_migrate
from statecore.statedir.file_trees import fingerprint
from tests.golden.directories import unpacked
from tests.harness import mounts
from tests.harness.case_selection import one_of
from tests.harness.directory import read_application
from tests.harness.raising import raises

OLD, NEW = "4.2.0-exactly-once-clean", "4.4.0-exactly-once-clean"
MANY, TASKS = ("0_0", "1_1", "global"), ("1_1", "global")
POINTS = (
    "change.after-lock",
    "change.after-plan",
    "placement.start",
    "placement.after-image-move",
    "migrate.after-copy",
    *CONVERSION_POINTS,
    "migrate.after-convert",
    "placement.after-assembly",
    "placement.before-journal",
)


def few(name: str, state_dir: Path, tasks: tuple[str, ...] = TASKS) -> Path:
    """A golden directory of which few tasks are left."""
    state_dir.mkdir(exist_ok=True)
    application = unpacked(name, state_dir)
    for task in application.glob("?_?"):
        if task.name not in tasks:
            shutil.rmtree(task)
    return application


def migrated(application: Path, to: TargetRelease, *, faults: FaultPoints = NO_FAULTS, **asked: Any) -> MigrateReport:
    where = {"application_id": application.name, "state_dir": str(application.parent), "to": to}
    return run_migrate(MigrateRequest(**{**where, "apply": True, **asked}), InProcessEngine(), faults=faults)


def seen(application: Path) -> dict[str, str]:
    return {task: fingerprint(application / task) for task in TASKS}


@pytest.mark.parametrize("to", one_of([TargetRelease.V4_3, TargetRelease.V4_2]))
def test_tasks_of_two_releases_in_one_directory_become_those_of_one(tmp_path: Path, to: TargetRelease) -> None:
    application, reference = few(OLD, tmp_path / "mixed"), few(OLD, tmp_path / "whole")
    migrated(reference, TargetRelease.V4_3)
    migrated(application, TargetRelease.V4_3, tasks=("1_1",))
    if to is TargetRelease.V4_2:
        migrated(reference, to)
    report = migrated(application, to)
    assert {task.task for task in report.tasks if task.is_changed} == (
        {"global"} if to is TargetRelease.V4_3 else {"1_1"}
    )
    assert read_application(application) == read_application(reference)


@pytest.mark.full
def test_a_task_that_is_half_of_another_release_is_brought_to_its_end(tmp_path: Path) -> None:
    """As an import leaves it that was killed: some stores have an offset inside, and the file is there all the same."""
    application, reference = few(OLD, tmp_path / "half", MANY), few(OLD, tmp_path / "whole", MANY)
    said = (application / "0_0" / ".checkpoint").read_bytes()
    for one in (application, reference):
        migrated(one, TargetRelease.V4_3)
    whole = few(OLD, tmp_path / "old", MANY)
    shutil.rmtree(application / "0_0" / "rocksdb" / "key-value")
    shutil.copytree(whole / "0_0" / "rocksdb" / "key-value", application / "0_0" / "rocksdb" / "key-value")
    behind = dict.fromkeys(decode_checkpoint(said, ""), 3)
    changelog = TopicPartition(f"{OLD}-key-value-changelog", 0)
    behind[changelog] = decode_checkpoint(said, "")[changelog]
    (application / "0_0" / ".checkpoint").write_bytes(encode_checkpoint(behind))
    report = migrated(application, TargetRelease.V4_3)
    assert report.outcome is MigrationOutcome.MIGRATED
    stored = read_application(application)
    for name, families in read_application(reference).items():
        if name[1] != "key-value":
            assert stored[name] == families, f"{name} has kept its own offset"
    assert dict(stored["0_0", "key-value"]["offsets"])[str(changelog).encode()] == behind[changelog].to_bytes(8, "big")
    assert not (application / "0_0" / ".checkpoint").exists()


@pytest.mark.parametrize(("name", "to"), [(OLD, TargetRelease.V4_3), (NEW, TargetRelease.V4_2)])
@pytest.mark.parametrize("begins_alike", [False, True])
def test_the_directory_of_another_application_is_refused(
    tmp_path: Path, name: str, to: TargetRelease, begins_alike: bool
) -> None:
    wrong = name.partition("-")[0] if begins_alike else "orders"
    application = few(name, tmp_path / "state").rename(tmp_path / "state" / wrong)
    before = seen(application)
    with raises(Invalid, "migration-refused") as caught:
        migrated(application, to)
    (problem,) = caught.value.context["problems"]
    assert problem["task"] == "1_1"
    assert f"the state of {name}, not of {wrong}" in problem["what"]  # the names of both are the point
    plan = migrated(application, to, apply=False)
    assert plan.outcome is MigrationOutcome.REFUSED
    assert [why.partition(":")[0] for why in plan.refused] == ["1_1"]
    assert seen(application) == before


@pytest.mark.parametrize("place", one_of(["1_1", "1_1/rocksdb"]))
def test_a_mount_within_the_directory_is_refused_in_the_plan(tmp_path: Path, place: str) -> None:
    application = few(OLD, tmp_path / "state")
    before = seen(application)
    with mounts.bound(application / place):
        plan = migrated(application, TargetRelease.V4_3, apply=False)
        assert plan.outcome is MigrationOutcome.REFUSED
        assert [why.partition(" is a separate mount")[0] for why in plan.refused] == [f"1_1: {application / place}"]
        with raises(Invalid, "migration-refused") as caught:
            migrated(application, TargetRelease.V4_3)
        assert [problem["task"] for problem in caught.value.context["problems"]] == ["1_1"]
    assert seen(application) == before
    assert migrated(application, TargetRelease.V4_3).outcome is MigrationOutcome.MIGRATED


def test_the_state_of_a_containers_image_is_refused_as_often_as_it_is_tried(tmp_path: Path) -> None:
    with mounts.overlay(tmp_path / "layers", lambda lower: few(OLD, lower / "state")) as merged:
        application = merged / "state" / OLD
        for _ in range(2):
            with raises(Invalid, "mount-in-the-way"):
                migrated(application, TargetRelease.V4_3)
        shutil.copytree(application, application.with_name("copy"))
        shutil.rmtree(application)
        application.with_name("copy").rename(application)
        assert migrated(application, TargetRelease.V4_3).outcome is MigrationOutcome.MIGRATED


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mounts.Disk]:
    with mounts.disk(tmp_path_factory.mktemp("migrated") / "disk", "64m") as mounted:
        yield mounted


@pytest.mark.parametrize("point", one_of(POINTS))
def test_a_full_disk_changes_nothing_and_with_space_the_job_resumes(
    disk: mounts.Disk, point: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    application, reference = few(OLD, disk.path / point), few(OLD, tmp_path / "reference")
    before = seen(application)
    faults = mounts.FullFrom(disk, point)
    monkeypatch.setattr(convert_module, "fault_points_from_environment", lambda: faults)
    with pytest.raises(Capacity) as caught:
        migrated(application, TargetRelease.V3_9, faults=faults)
    assert caught.value.exit_code == 15
    assert seen(application) == before
    assert faults.filler is not None
    faults.filler.unlink()
    assert migrated(application, TargetRelease.V3_9).outcome is MigrationOutcome.MIGRATED
    migrated(reference, TargetRelease.V3_9)
    assert read_application(application) == read_application(reference)
    shutil.rmtree(application.parent)


def test_once_the_journal_is_written_no_room_is_needed(disk: mounts.Disk) -> None:
    application = few(OLD, disk.path / "journal")
    faults = mounts.FullFrom(disk, "placement.after-journal")
    assert migrated(application, TargetRelease.V4_3, faults=faults).outcome is MigrationOutcome.MIGRATED
    assert faults.filler is not None
    assert not list(application.glob("?_?/.checkpoint"))
    faults.filler.unlink()
    assert migrated(application, TargetRelease.V4_3).outcome is MigrationOutcome.UNCHANGED


def test_a_read_only_file_system_is_reported_and_can_be_planned(disk: mounts.Disk) -> None:
    application = few(OLD, disk.path / "read-only")
    before = seen(application)
    disk.remount("ro")
    try:
        with pytest.raises(Invalid, match=r"[Rr]ead-only"):
            migrated(application, TargetRelease.V4_3)
        plan = migrated(application, TargetRelease.V4_3, apply=False)
    finally:
        disk.remount("rw")
    assert seen(application) == before
    assert plan.outcome is MigrationOutcome.PLANNED
    assert migrated(application, TargetRelease.V4_3, approved=plan.plan_id).outcome is MigrationOutcome.MIGRATED
