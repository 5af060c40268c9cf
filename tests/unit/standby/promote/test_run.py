"""Standby tasks replace those of a stopped application: each task wholly or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from statecore.errors import Fenced, Invalid, NotFound
from statecore.faults import CHANGE_POINTS, PLACEMENT_POINTS, PROMOTION_POINTS, FaultInjected, InjectedFault
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.standby.promote.report import PROMOTE_REPORT, PromoteOutcome, PromoteVerdict
from statecore.standby.promote.run import run_promote
from statecore.statedir import file_trees as trees
from statecore.statedir.file_trees import fingerprint
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.case_selection import one_of, three_of
from tests.harness.raising import raises
from tests.unit.standby.promote.promoting import APPLICATION, World, killed, verdicts


def test_missing_tasks_are_promoted_and_the_copy_is_not_changed(world: World) -> None:
    for task in ("0_0", "0_1"):
        world.store(world.warm, "totals", 9, task=task)
        world.store(world.warm, "clicks", 7, task=task)
        world.store(world.warm, "late", 3, task=task)
    before = {task: fingerprint(world.warm.task_path(task)) for task in ("0_0", "0_1")}

    report = world.promote()

    assert report.outcome is PromoteOutcome.DONE
    assert verdicts(report) == {"0_0": PromoteVerdict.PROMOTED, "0_1": PromoteVerdict.PROMOTED}
    assert (report.tasks[0].ahead, report.tasks[0].stores) == (22, ("totals", "clicks", "late"))
    assert world.row("totals", task="0_1") == "warm at 9"
    assert world.row("clicks", task="0_1") == "warm at 7"
    assert (world.live.task_path("0_1") / ".checkpoint_late").read_text().endswith("orders-late-changelog 1 3\n")
    assert not list(world.live.path.rglob("statecore-witness"))
    assert {task: fingerprint(world.warm.task_path(task)) for task in before} == before


def test_without_apply_the_plan_is_reported_and_nothing_is_changed(world: World) -> None:
    world.store(world.warm, "totals", 9)
    report = world.promote(apply=False)
    assert (report.outcome, verdicts(report)) == (PromoteOutcome.PLANNED, {"0_0": PromoteVerdict.PROMOTED})
    assert list(world.live.path.iterdir()) == []


def test_a_report_of_an_older_release_is_read(world: World) -> None:
    world.store(world.live, "totals", 11)
    world.store(world.warm, "totals", 9)
    document = world.promote().to_json()
    del document["tasks"][0]["context"]
    (task,) = PROMOTE_REPORT.from_json(document).tasks
    assert (task.code, task.context) == ("application-ahead", {})


def test_a_copy_that_was_killed_is_refused_and_the_others_are_promoted(world: World) -> None:
    killed(world.store(world.warm, "totals", 9))
    world.store(world.warm, "totals", 9, task="0_1")
    report = world.promote()
    assert verdicts(report) == {"0_0": PromoteVerdict.REFUSED, "0_1": PromoteVerdict.PROMOTED}
    assert (report.exit_code, report.tasks[0].code) == (Invalid.exit_code, "standby-store-not-closed")
    assert not world.live.task_path("0_0").exists()


def test_segments_that_do_not_agree_are_refused(world: World) -> None:
    world.store(world.warm, "clicks", 7, start=0)
    world.store(world.warm, "clicks", 8, start=60_000)
    report = world.promote()
    assert (report.outcome, verdicts(report)) == (PromoteOutcome.UNCHANGED, {"0_0": PromoteVerdict.REFUSED})
    (task,) = report.tasks
    assert (task.code, task.context["store"], task.context["offsets"]) == ("segment-offsets-differ", "clicks", [7, 8])
    assert (task.context["topic"], task.context["partition"]) == world.changelog("clicks")


def test_a_stray_directory_among_segments_refuses_that_task_alone(world: World) -> None:
    world.store(world.warm, "clicks", 7)
    (world.warm.task_path("0_0") / "clicks" / "notes").mkdir()
    world.store(world.warm, "clicks", 7, task="0_1")
    report = world.promote()
    assert verdicts(report) == {"0_0": PromoteVerdict.REFUSED, "0_1": PromoteVerdict.PROMOTED}
    assert (report.tasks[0].code, "notes" in report.tasks[0].why) == ("stray-segment", True)


def test_a_copy_of_another_changelog_refuses_that_task_alone(world: World) -> None:
    path = world.store(world.warm, "totals", 9)
    with RocksDBStore(path, StoreKind.KEY_VALUE) as store:
        store.commit({world.changelog("totals"): 9, TopicPartition("elsewhere", 0): 4})
    world.store(world.warm, "totals", 9, task="0_1")
    report = world.promote()
    assert verdicts(report) == {"0_0": PromoteVerdict.REFUSED, "0_1": PromoteVerdict.PROMOTED}
    assert (report.tasks[0].code, "elsewhere-0" in report.tasks[0].why) == ("changelog-mismatch", True)


def test_a_store_that_is_a_link_is_refused(world: World, tmp_path: Path) -> None:
    path = world.store(world.warm, "totals", 9)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    report = world.promote()
    assert verdicts(report) == {"0_0": PromoteVerdict.REFUSED}
    assert report.tasks[0].code == "symlink-in-store"


def test_a_damaged_copy_is_refused_and_the_others_are_promoted(world: World) -> None:
    path = world.store(world.warm, "totals", 9)
    (path / "CURRENT").write_text("MANIFEST-999999\n")
    world.store(world.warm, "totals", 9, task="0_1")
    assert verdicts(world.promote()) == {"0_0": PromoteVerdict.REFUSED, "0_1": PromoteVerdict.PROMOTED}


def test_only_named_tasks_are_promoted(world: World) -> None:
    for task in ("0_0", "0_1"):
        world.store(world.warm, "totals", 9, task=task)
    assert verdicts(world.promote(tasks=("0_1",))) == {"0_1": PromoteVerdict.PROMOTED}
    assert not world.live.task_path("0_0").exists()


def test_a_task_of_an_undeclared_subtopology_is_refused(world: World) -> None:
    world.store(world.warm, "totals", 9, task="7_0")
    report = world.promote()
    assert verdicts(report) == {"7_0": PromoteVerdict.REFUSED}
    assert report.tasks[0].code == "task-not-declared"


@pytest.mark.parametrize("apply", [False, True])
@pytest.mark.parametrize("whose", ["live", "warm"])
def test_nothing_is_promoted_while_another_process_has_either_directory(world: World, whose: str, apply: bool) -> None:
    world.store(world.warm, "totals", 9)
    directory = getattr(world, whose)
    locks = "import sys; from pathlib import Path; from statecore.statedir.state_directory import StateDirectory\n"
    locks += f"lock = StateDirectory(Path({str(directory.state_dir)!r}), {APPLICATION!r}).lock()\n"
    locks += "print('locked', flush=True); sys.stdin.read()"
    holder = subprocess.Popen([sys.executable, "-c", locks], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"locked\n"
    try:
        with pytest.raises(Fenced):
            world.promote(apply=apply)
    finally:
        holder.communicate()
    assert not world.live.task_path("0_0").exists()


def test_a_directory_is_not_promoted_into_itself_by_another_path(world: World, tmp_path: Path) -> None:
    world.store(world.warm, "totals", 9)
    (tmp_path / "link").symlink_to(world.warm.state_dir)
    with raises(Invalid, "directories-identical"):
        world.promote(state_dir=str(tmp_path / "link"))


def test_a_missing_copy_or_task_is_named(world: World, tmp_path: Path) -> None:
    with raises(NotFound, "task-not-found", tasks=[]):
        world.promote()
    world.store(world.warm, "totals", 9)
    with raises(NotFound, "task-not-found", tasks=["0_5"]):
        world.promote(tasks=("0_5",))
    with raises(NotFound, "state-dir-not-found"):
        world.promote(standby_dir=str(tmp_path / "nowhere"))


def test_files_that_cannot_be_linked_are_copied(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.store(world.warm, "totals", 9)

    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(trees.os, "link", refuse)
    world.promote()
    assert world.row("totals") == "warm at 9"


REACHED = [*CHANGE_POINTS, *PROMOTION_POINTS, *PLACEMENT_POINTS]


@pytest.mark.parametrize("point", three_of(REACHED))
def test_a_promotion_that_failed_leaves_each_task_old_or_new_and_resumes(world: World, point: str) -> None:
    for task in ("0_0", "0_1"):
        world.store(world.live, "totals", 5, task=task)
        world.store(world.warm, "totals", 9, task=task)
    request = world.request()
    try:
        run_promote(request, faults=InjectedFault(point))
    except FaultInjected:
        pass
    else:
        assert point not in (*CHANGE_POINTS, *PROMOTION_POINTS, "placement.start", "placement.after-swap")
    seen = {world.row("totals", task=task) for task in ("0_0", "0_1") if world.live.task_path(task).exists()}
    assert seen <= {"live at 5", "warm at 9"}
    run_promote(request)
    assert [world.row("totals", task=task) for task in ("0_0", "0_1")] == ["warm at 9"] * 2
    assert not list(world.live.work_path.glob("placement-*"))
    assert not list(world.live.work_path.glob("plans/*.attempt"))


@pytest.mark.parametrize("apply", one_of([False, True]))
def test_a_task_that_cannot_be_placed_is_refused_and_the_others_are_promoted(world: World, apply: bool) -> None:
    for task in ("0_0", "0_1"):
        world.store(world.live, "totals", 5, task=task)
        world.store(world.warm, "totals", 9, task=task)
    undeclared = world.live.task_path("0_0") / "rocksdb" / "old"
    with RocksDBStore(undeclared, StoreKind.KEY_VALUE, create=True) as old:
        old.commit({})
    killed(undeclared)
    before = fingerprint(world.live.task_path("0_0"))
    report = world.promote(apply=apply)
    assert verdicts(report) == {"0_0": PromoteVerdict.REFUSED, "0_1": PromoteVerdict.PROMOTED}
    assert (report.tasks[0].code, " old," in report.tasks[0].why) == ("placement-refused", True)
    assert report.exit_code == Invalid.exit_code
    assert fingerprint(world.live.task_path("0_0")) == before
    assert world.row("totals", task="0_1") == ("warm at 9" if apply else "live at 5")
