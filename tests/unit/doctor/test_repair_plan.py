"""Which repairs follow from what was found, and what is left to a person."""

from __future__ import annotations

import os
import shutil

import pytest

from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.repair_plan import plan_repairs
from tests.golden.directories import names as golden_names
from tests.golden.directories import unpacked
from tests.harness.damage_cases import AT_LEAST_ONCE, EXACTLY_ONCE, WINDOWS
from tests.harness.damage_functions import PLAIN, database_of, tables_of
from tests.harness.fleet import NEWEST as NEWEST_RELEASE
from tests.unit.doctor.golden import examined

OLDER = [*golden_names(moment="clean", release="4.2"), *golden_names(moment="clean", release="3.9")]


def test_files_beside_the_tasks_have_no_repair(tmp_path):
    application = unpacked(AT_LEAST_ONCE, tmp_path)
    if os.geteuid() == 0:
        for path in (application, *application.rglob("*")):
            os.chown(path, 23_456, 23_456)
        os.chown(application / "kafka-streams-process-metadata", 0, 0)
    (application / "kafka-streams-process-metadata").chmod(0o000)
    seen = examined(application, AT_LEAST_ONCE)
    plan = plan_repairs(seen.findings, seen.stores)
    assert plan.is_empty
    assert [(one.code, one.task) for one in plan.unrepaired] == [("rights", "")]


def test_no_segment_is_made_where_the_kind_of_store_is_not_known(tmp_path):
    application = unpacked(EXACTLY_ONCE, tmp_path)
    before = examined(application, EXACTLY_ONCE)
    (application / "0_0" / "index").mkdir()
    seen = examined(application, EXACTLY_ONCE)
    plan = plan_repairs(seen.findings, seen.stores)
    assert plan.actions == plan_repairs(before.findings, before.stores).actions
    assert [(one.code, one.task, one.store) for one in plan.unrepaired] == [("segment-missing", "0_0", "index")]


@pytest.mark.parametrize("name", OLDER)
def test_what_an_older_release_wrote_is_not_made_half_of_the_newest(tmp_path, name):
    application = unpacked(name, tmp_path)
    shutil.rmtree(application / "0_0" / WINDOWS)
    (application / "0_0" / WINDOWS).mkdir()  # all its segments have expired
    seen = examined(application, name)
    assert plan_repairs(seen.findings, seen.stores).is_empty


@pytest.mark.parametrize("name", OLDER)
def test_a_task_without_any_database_is_of_the_release_of_the_others(tmp_path, name):
    application = unpacked(name, tmp_path)
    for path in (application / "0_0").iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    seen = examined(application, name, declared=True)
    plan = plan_repairs(seen.findings, seen.stores)
    assert plan.rebuilds == ()
    assert [one.repair for one in plan.actions["0_0"]] == [Repair.DROP_ENTRIES]
    assert any(PLAIN in entry for entry in plan.actions["0_0"][0].names)


@pytest.mark.parametrize("name", golden_names(moment="clean", release=NEWEST_RELEASE))
def test_no_task_is_made_that_is_not_here(tmp_path, name):
    """The application's other instances have it, and a rebuild would be of all partitions."""
    application = unpacked(name, tmp_path)
    for task in [path for path in application.iterdir() if path.name.endswith("_1")]:
        shutil.rmtree(task)
    shutil.rmtree(application / "0_0/rocksdb" / PLAIN)  # in every task that is here
    seen = examined(application, name, declared=True)
    assert ("store-absent", PLAIN) in {(one.code, one.store) for one in seen.findings}
    rebuilds = plan_repairs(seen.findings, seen.stores).rebuilds
    assert {task for one in rebuilds for task in one.tasks} <= {"0_0"}
    assert {partition for one in rebuilds for partition in one.partitions} <= {0}
    assert all(one.tasks for one in rebuilds)


def test_of_an_empty_directory_nothing_is_rebuilt(tmp_path):
    application = unpacked(AT_LEAST_ONCE, tmp_path)
    for path in application.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    seen = examined(application, AT_LEAST_ONCE, declared=True)
    plan = plan_repairs(seen.findings, seen.stores)
    assert plan.is_empty
    assert plan.unrepaired == ()
    assert {(one.code, one.severity) for one in seen.findings} == {("store-absent", Severity.NOTE)}


def test_a_task_of_a_partition_that_the_topic_does_not_have_is_left_and_the_others_are_rebuilt(tmp_path):
    application = unpacked(AT_LEAST_ONCE, tmp_path)
    shutil.copytree(application / "0_1", application / "0_7")
    for task in ("0_0", "0_7"):
        tables_of(database_of(application, PLAIN, task))[-1].unlink()
    seen = examined(application, AT_LEAST_ONCE)
    unknown = Finding("partition-unknown", "the changelog has 2 partitions", Severity.ERROR, "0_7", PLAIN)
    plan = plan_repairs([*seen.findings, unknown], seen.stores)
    assert [(one.stores, one.tasks) for one in plan.rebuilds] == [((PLAIN,), ("0_0",))]
    left = {(one.code, one.task, one.store) for one in plan.unrepaired}
    assert {("partition-unknown", "0_7", PLAIN), ("file-missing", "0_7", PLAIN)} <= left


def test_an_offset_file_is_moved_aside_beside_a_store_that_cannot_be_read(tmp_path):
    application = unpacked(AT_LEAST_ONCE, tmp_path)
    (application / "0_0" / ".checkpoint").mkdir()
    tables_of(database_of(application, PLAIN))[-1].unlink()
    seen = examined(application, AT_LEAST_ONCE)
    plan = plan_repairs(seen.findings, seen.stores)
    assert [(one.repair, one.names) for one in plan.actions["0_0"]] == [(Repair.MOVE_ASIDE, (".checkpoint",))]
    assert [one.stores for one in plan.rebuilds] == [(PLAIN,)]
    assert plan.unrepaired == ()
