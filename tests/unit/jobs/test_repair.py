"""What is found in a state directory is mended in copies of its tasks, or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Fenced, Invalid
from statecore.faults import PLACEMENT_POINTS, REPAIR_POINTS, FaultInjected, InjectedFault
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.in_process import InProcessEngine
from statecore.jobs.repair import run_repair
from statecore.jobs.repair_report import REPAIR_REPORT, Outcome, RepairReport
from statecore.jobs.repair_request import RepairRequest
from statecore.placement.database_state import read_database_state
from statecore.placement.state_directory import StateDirectory
from statecore.placement.trees import fingerprint
from statecore.spec.model import ProcessingGuarantee
from statecore.stores.rocksdb import RocksDBStore
from tests.unit.maintenance.stored import offsets, write_database

ALOS, EOS = ProcessingGuarantee.AT_LEAST_ONCE, ProcessingGuarantee.EXACTLY_ONCE_V2
HOUR = 3_600_000
WINDOW = b"k" + (5 * HOUR).to_bytes(8) + bytes(4)


@pytest.fixture
def application(tmp_path: Path) -> Path:
    """An application's directory in which nothing is wrong: a table in two tasks."""
    path = tmp_path / "app"
    for partition in (0, 1):
        table(path / f"0_{partition}", partition)
    return path


def table(task: Path, partition: int, *, status: int = 0, **families: Any) -> None:
    said = offsets("app-table-changelog", partition, 9, status)
    write_database(task / "rocksdb" / "table", {"default": [(b"a", b"1")], "offsets": said, **families})


def windows(task: Path, at: Mapping[int, int]) -> None:
    """A store of windows, the segment of each hour at an offset."""
    (task / "clicks").mkdir(parents=True)
    for hour, offset in at.items():
        said = offsets("app-clicks-changelog", 0, offset)
        families = {"default": [], "keyValueWithTimestamp": [(WINDOW, b"12345678v")], "offsets": said}
        write_database(task / "clicks" / f"clicks.{hour * HOUR}", families)


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
    assert (report.outcome, report.exit_code, report.found) == (Outcome.UNCHANGED, 0, ())
    assert fingerprint(application) == before
    assert repaired(application).outcome is Outcome.UNCHANGED


def test_segments_that_disagree_are_lowered_to_the_smallest_offset(application: Path) -> None:
    windows(application / "0_0", {4: 70, 5: 99, 6: 80})
    before = fingerprint(application)
    plan = repaired(application, ALOS, apply=False)
    assert fingerprint(application) == before
    assert [(task.task, task.codes) for task in plan.mended] == [("0_0", ("segments-disagree",))]
    assert (plan.outcome, plan.exit_code) == (Outcome.PLANNED, 0)
    report = repaired(application, ALOS, approved=plan.plan_id)
    assert (report.outcome, report.exit_code, report.left) == (Outcome.REPAIRED, 0, ())
    segments = sorted((application / "0_0" / "clicks").iterdir())
    assert [said(segment) for segment in segments] == [{70}] * 3
    with RocksDBStore(segments[1], StoreKind.TIMESTAMPED_WINDOW, read_only=True) as store:
        assert list(store.all()) == [(WINDOW, b"12345678v")]
    kept = Path(report.kept) / "0_0" / "clicks"
    assert [said(kept / segment.name) for segment in segments] == [{70}, {99}, {80}]
    assert REPAIR_REPORT.decode(REPAIR_REPORT.encode(report)) == report


def test_a_store_without_a_segment_gets_one_that_keeps_an_offset(application: Path) -> None:
    (application / "0_0" / "clicks").mkdir()
    spec = application.parent / "stores.yaml"
    spec.write_text(
        "application_id: app\nbootstrap_servers: nowhere:1\nprocessing_guarantee: exactly_once_v2\nsubtopologies:\n"
        '  "0":\n    stores:\n      table: {kind: key-value}\n      clicks: {kind: timestamped-window, retention: 2h}\n'
    )
    assert repaired(application, spec_path=str(spec), tasks=("0_0",)).outcome is Outcome.REPAIRED
    state = read_database_state(application / "0_0" / "clicks" / "clicks.0")
    assert state.offsets == {TopicPartition("app-clicks-changelog", 0): -4}
    assert state.closed_cleanly


def test_a_global_store_that_was_not_closed_is_closed(application: Path) -> None:
    rows = [*offsets("products", 0, 7, 1), *offsets("products", 1, 8, None)]
    write_database(application / "global" / "rocksdb" / "products", {"default": [(b"a", b"1")], "offsets": rows})
    assert repaired(application).outcome is Outcome.REPAIRED
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
    assert report.left == ()
    assert not (task / ".checkpoint").exists()
    assert (said(task / "rocksdb" / "table"), said(task / "rocksdb" / "older")) == ({9}, {5})


def test_what_is_found_in_one_task_leaves_the_others_as_they_are(application: Path) -> None:
    before = fingerprint(application / "0_1")
    (application / "0_0" / ".checkpoint").write_text("0\n1\napp-table-changelog 0 30\n")
    assert repaired(application).outcome is Outcome.REPAIRED
    assert fingerprint(application / "0_1") == before


def test_a_directory_that_cleaning_would_delete_gets_the_time_of_now(application: Path) -> None:
    os.utime(application / "0_1", (1_000_000, 1_000_000))
    assert repaired(application).outcome is Outcome.UNCHANGED
    report = repaired(application, cleanup_max_age_ms=86_400_000)
    assert ([task.codes for task in report.mended], report.left) == ([("cleaning-deletes",)], ())
    assert time.time() - (application / "0_1").stat().st_mtime < 600


def test_an_empty_column_family_of_another_tool_is_dropped(application: Path) -> None:
    table(application / "0_2", 2, foo=[])
    assert repaired(application).left == ()
    assert "foo" not in read_database_state(application / "0_2" / "rocksdb" / "table").column_families


def test_a_store_that_can_only_be_rebuilt_is_refused_without_a_spec(application: Path) -> None:
    table(application / "0_2", 2, status=1)
    (application / "0_0" / ".checkpoint").write_text("0\n1\napp-table-changelog 0 30\n")
    before = {path.name: fingerprint(path) for path in application.glob("0_*")}
    plan = repaired(application, apply=False)
    assert [(one.stores, one.tasks, one.codes) for one in plan.rebuilt] == [
        (("table",), ("0_2",), ("store-not-closed",))
    ]
    with pytest.raises(Invalid, match=r"table in .* can only be rebuilt.*--spec.*nothing was changed"):
        repaired(application)
    assert {path.name: fingerprint(path) for path in application.glob("0_*")} == before


def test_only_the_plan_that_was_approved_is_applied(application: Path) -> None:
    (application / "0_0" / ".checkpoint").write_text("0\n1\napp-table-changelog 0 30\n")
    plan_id = repaired(application, apply=False).plan_id
    (application / "0_0" / ".checkpoint").write_text("0\n1\napp-table-changelog 0 31\n")
    with pytest.raises(Invalid, match=f"{plan_id} was approved: the directory has changed since"):
        repaired(application, approved=plan_id)
    assert (application / "0_0" / ".checkpoint").exists()


def test_a_directory_in_use_is_left_alone(application: Path) -> None:
    with StateDirectory(application.parent, "app").lock():
        for apply in (True, False):
            with pytest.raises(Fenced, match="in use"):
                repaired(application, apply=apply)


POINTS = (*REPAIR_POINTS[:3], *(point for point in PLACEMENT_POINTS if "between" not in point))


@pytest.mark.parametrize("point", POINTS)
def test_whoever_stops_at_any_point_and_runs_it_again_ends_in_the_right_state(application: Path, point: str) -> None:
    for partition in (0, 1):
        (application / f"0_{partition}" / ".checkpoint").write_text(f"0\n1\napp-table-changelog {partition} 30\n")
    request = RepairRequest(
        application_id="app", state_dir=str(application.parent), apply=True, processing_guarantee=EOS
    )
    with suppress(FaultInjected):
        run_repair(request, InProcessEngine(), faults=InjectedFault(point))
    assert run_repair(request, InProcessEngine()).left == ()
    for partition in (0, 1):
        assert not (application / f"0_{partition}" / ".checkpoint").exists()
        assert said(application / f"0_{partition}" / "rocksdb" / "table") == {9}
    assert not list((application / ".statecore").glob("placement-*"))
