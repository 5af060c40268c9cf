"""Files beside the stores, permissions, cleanup age and unfinished work."""

from __future__ import annotations

import os
import shutil
import time

import pytest

from statecore.doctor.finding_catalog import Repair
from statecore.doctor.repair_plan import plan_repairs
from tests.golden.directories import names as golden_names
from tests.golden.directories import unpacked
from tests.harness.damage_cases import EXACTLY_ONCE
from tests.harness.damage_functions import PLAIN, database_of, write_checkpoint
from tests.harness.fleet import NEWEST as NEWEST_RELEASE
from tests.unit.doctor.diagnosing import ERROR, NOTE, WARNING, codes, diagnose, plain
from tests.unit.doctor.golden import examined, worse


@pytest.mark.parametrize("name", golden_names(moment="clean", release=NEWEST_RELEASE))
@pytest.mark.parametrize("place", ["index", "rocksdb/index"])
def test_a_directory_of_another_engine_is_reported_and_not_changed(tmp_path, name, place):
    application = unpacked(name, tmp_path)
    (application / "0_0" / place).mkdir()
    (application / "0_0" / place / "segments_1").write_bytes(b"of another engine")
    write_checkpoint(application / "0_0/.checkpoint_index", {f"{name}-index-changelog-0": 1_234})
    seen = examined(application, name)
    assert worse(seen) == set()
    (one,) = [one for one in seen.findings if one.store == "index"]
    assert (one.code, one.repair, one.evidence["files"]) == ("store-unread", None, ["segments_1"])
    assert f".checkpoint_index says 1234 of {name}-index-changelog-0" in one.what
    assert plan_repairs(seen.findings, seen.stores).is_empty


def test_cleaning_deletes_what_is_older_than_it_allows(tmp_path):
    plain(tmp_path)
    day = 86_400_000
    old = time.time() - 3 * 86_400
    os.utime(tmp_path / "app/0_0", (old, old))
    assert codes(tmp_path) == {}
    assert codes(tmp_path, cleanup_max_age_ms=7 * day) == {}
    assert codes(tmp_path, cleanup_max_age_ms=-1) == {}
    (one,) = diagnose(tmp_path, cleanup_max_age_ms=day).findings
    assert (one.code, one.repair) == ("cleaning-deletes", Repair.TOUCH)
    assert "changed 3d ago" in one.what


def test_files_of_others_are_named_and_ours_and_rocksdbs_are_not(tmp_path):
    path = plain(tmp_path)
    for name in ("rocksdict-config.json", "LOG", "LOCK", "000077.log", "statecore-witness"):
        (path / name).touch()
    (path / "dump.txt").touch()
    (tmp_path / "app/0_0/notes.txt").touch()
    (tmp_path / "app/core.123").touch()
    (tmp_path / "app/.lock").touch()
    found = diagnose(tmp_path).findings
    assert {one.code for one in found} == {"foreign-file"}
    assert {one.task: one.evidence["files"] for one in found} == {
        "": ["core.123"],
        "0_0": ["notes.txt", "s/dump.txt"],
    }


def test_a_directory_with_a_number_that_no_task_has_is_one_finding(tmp_path):
    path = plain(tmp_path)
    for name in ("0_99999999999", "2147483648_0"):
        shutil.copytree(path, tmp_path / "app" / name / "rocksdb/s")
    (tmp_path / "app/0_2147483648").mkdir()
    (tmp_path / "app/0_2147483648/.lock").touch()
    (one,) = [one for one in diagnose(tmp_path).findings if one.severity is not NOTE]
    assert (one.code, one.severity, one.repair) == ("task-name-invalid", ERROR, None)
    assert one.evidence["files"] == ["0_99999999999", "2147483648_0"]


def test_files_that_the_application_cannot_use(tmp_path):
    if os.geteuid():
        pytest.skip("only root gives files away")
    path = plain(tmp_path)
    for one in (tmp_path / "app").rglob("*"):
        os.chown(one, 1234, 1234)
        one.chmod(0o750 if one.is_dir() else 0o640)
    os.chown(tmp_path / "app", 1234, 1234)
    assert codes(tmp_path) == {}
    os.chown(path / "CURRENT", 0, 0)
    (one,) = diagnose(tmp_path).findings
    assert (one.code, one.evidence["paths"]) == ("rights", ["0_0/rocksdb/s/CURRENT"])
    assert ("root:root" in one.what, "-rw-r-----" in one.what) == (True, True)
    os.chown(path / "CURRENT", 0, 1234)  # its group may read it
    assert codes(tmp_path) == {}
    path.chmod(0o550)
    assert codes(tmp_path) == {"rights": ERROR}


def test_work_that_was_interrupted(tmp_path):
    plain(tmp_path)
    (tmp_path / "app/.statecore/plans").mkdir(parents=True)
    assert codes(tmp_path) == {}
    (tmp_path / "app/.statecore/placement-1/tasks").mkdir(parents=True)
    assert codes(tmp_path) == {"work-unfinished": WARNING}
    assert codes(tmp_path, tasks=["0_0"]) == {}


@pytest.mark.parametrize("declared", [True, False])
def test_a_copy_of_a_task_within_a_sound_one_keeps_nothing_from_its_repair(tmp_path, declared):
    application = unpacked(EXACTLY_ONCE, tmp_path)
    shutil.copytree(application / "0_0", tmp_path / "copy")
    (tmp_path / "copy").rename(application / "0_0/0_0")
    next(database_of(application, PLAIN, "0_0").glob("MANIFEST-*")).unlink()
    seen = examined(application, EXACTLY_ONCE, declared=declared)
    assert [one.severity for one in seen.findings if one.code == "task-misplaced"] == [WARNING]
    plan = plan_repairs(seen.findings, seen.stores)
    assert [(one.stores, one.tasks) for one in plan.rebuilds] == [((PLAIN,), ("0_0",))]


@pytest.mark.parametrize("declared", [True, False])
def test_a_task_within_a_task_is_left_to_a_person_and_keeps_no_other_from_its_repair(tmp_path, declared):
    application = unpacked(EXACTLY_ONCE, tmp_path)
    (application / "0_0").rename(tmp_path / "0_0")
    (application / "0_0").mkdir()
    (tmp_path / "0_0").rename(application / "0_0/0_0")
    manifest = next(database_of(application, PLAIN, "0_1").glob("MANIFEST-*"))
    manifest.unlink()
    seen = examined(application, EXACTLY_ONCE, declared=declared)
    (one,) = [one for one in seen.findings if one.code == "task-misplaced"]
    assert (one.task, one.store, one.severity, one.repair) == ("0_0", "0_0", ERROR, None)
    assert "rocksdb" in one.evidence["files"]
    assert not [one for one in seen.findings if one.code == "store-unread"]
    plan = plan_repairs(seen.findings, seen.stores)
    assert [(one.stores, one.tasks) for one in plan.rebuilds] == [((PLAIN,), ("0_1",))]
    assert {one.task for one in plan.unrepaired} == {"0_0"}
    assert "0_0" not in plan.actions
