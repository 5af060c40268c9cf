"""Which tasks are promoted: by offsets, log ends and what Kafka Streams would wipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.formats.checkpoint import encode_checkpoint
from statecore.standby.promote.report import PROMOTE_REPORT, PromoteVerdict
from tests.unit.standby.promote.promoting import World, ends, killed, verdicts, where


def test_a_task_is_promoted_only_if_its_copy_has_higher_offsets(world: World) -> None:
    for task, live, warm in (("0_0", 5, 9), ("0_1", 9, 9), ("0_2", 11, 9)):
        world.store(world.live, "totals", live, task=task)
        world.store(world.warm, "totals", warm, task=task)
    report = world.promote()
    assert verdicts(report) == {"0_0": PromoteVerdict.PROMOTED, "0_1": PromoteVerdict.KEPT, "0_2": PromoteVerdict.KEPT}
    assert [one.code for one in report.tasks] == ["standby-ahead", "same-offsets", "application-ahead"]
    left = {"store": "totals", "offset": 11, "standby_offset": 9}
    assert report.tasks[2].context == {**left, **where(world.changelog("totals", "0_2"))}
    assert PROMOTE_REPORT.decode(PROMOTE_REPORT.encode(report)) == report
    assert report.tasks[0].ahead == 4
    assert [world.row("totals", task=f"0_{task}") for task in range(3)] == ["warm at 9", "live at 9", "live at 11"]
    (kept,) = Path(report.kept).iterdir()
    assert kept.name == "0_0"


def test_a_task_with_a_store_at_a_higher_offset_is_kept_whole(world: World) -> None:
    world.store(world.live, "totals", 5)
    world.store(world.live, "clicks", 8)
    world.store(world.warm, "totals", 9)
    world.store(world.warm, "clicks", 7)
    assert verdicts(world.promote()) == {"0_0": PromoteVerdict.KEPT}
    assert world.row("totals") == "live at 5"


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_killed_store_is_replaced_only_if_the_application_would_wipe_it(tmp_path: Path, guarantee: str) -> None:
    world = World(tmp_path, guarantee)
    world.store(world.warm, "totals", 9)
    path = world.store(world.live, "totals", 11)
    killed(path)
    wiped = guarantee == "exactly_once_v2"
    report = world.promote()
    assert verdicts(report) == {"0_0": PromoteVerdict.PROMOTED if wiped else PromoteVerdict.KEPT}
    assert world.row("totals") == ("warm at 9" if wiped else "live at 11")


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_store_that_the_copy_lacks_and_that_lost_its_current_is_created_empty(tmp_path: Path, guarantee: str) -> None:
    world = World(tmp_path, guarantee)
    world.store(world.warm, "totals", 9)
    world.store(world.live, "totals", 5)
    (world.store(world.live, "late", 5) / "CURRENT").unlink()
    report = world.promote()
    assert verdicts(report) == {"0_0": PromoteVerdict.PROMOTED}
    assert (world.row("totals"), world.row("late")) == ("warm at 9", "")
    assert any("late" in note and "created empty" in note for note in report.tasks[0].notes)
    assert list(world.live.work_path.glob("replaced/*/0_0/late/late.0/*.sst"))


def test_a_copy_contradicted_by_its_changelog_is_refused_and_the_others_are_promoted(world: World) -> None:
    for task in ("0_0", "0_1"):
        world.store(world.live, "totals", 5, task=task)
        world.store(world.warm, "totals", 9, task=task)

    ask = ends({world.changelog("totals"): 8, world.changelog("totals", "0_1"): 10})
    report = world.promote(ask, offline=False)
    assert verdicts(report) == {"0_0": PromoteVerdict.REFUSED, "0_1": PromoteVerdict.PROMOTED}
    (task, _) = report.tasks
    assert (task.code, task.context["store"], task.context["reason"]) == (
        "standby-store-stale",
        "totals",
        "log-ends-before-base",
    )
    assert (world.row("totals"), world.row("totals", task="0_1")) == ("live at 5", "warm at 9")


def test_a_store_beyond_the_end_of_its_changelog_is_replaced(world: World) -> None:
    world.store(world.live, "totals", 120)
    world.store(world.warm, "totals", 99)
    (task,) = world.promote(ends({world.changelog("totals"): 100}), offline=False).tasks
    assert task.verdict is PromoteVerdict.PROMOTED
    assert task.code == "application-beyond-changelog"
    assert task.context == {**where(world.changelog("totals")), "store": "totals", "offset": 120, "end": 100}
    assert (task.ahead, task.behind) == (100, 0)
    assert world.row("totals") == "warm at 99"
    assert list(world.live.path.glob(".statecore/replaced/*"))


@pytest.mark.parametrize(("log_end", "verdict"), [(121, PromoteVerdict.KEPT), (120, PromoteVerdict.REFUSED)])
def test_the_last_offset_of_a_changelog_is_not_beyond_its_end(
    world: World, log_end: int, verdict: PromoteVerdict
) -> None:
    """At 120 the store is beyond its changelog, and the age of the tail after the copy is unknown."""
    world.store(world.live, "totals", 120)
    world.store(world.warm, "totals", 99)
    report = world.promote(ends({world.changelog("totals"): log_end}), offline=False)
    assert verdicts(report) == {"0_0": verdict}
    assert world.row("totals") == "live at 120"


def test_a_store_beyond_the_end_is_not_replaced_by_a_copy_that_cannot_be_continued(world: World) -> None:
    world.store(world.live, "totals", 120)
    world.store(world.warm, "totals", 99)
    report = world.promote(ends({world.changelog("totals"): 50}), offline=False)
    assert verdicts(report) == {"0_0": PromoteVerdict.REFUSED}
    assert report.tasks[0].code == "standby-store-stale"
    assert world.row("totals") == "live at 120"


def test_a_store_is_not_called_stale_without_its_changelog(world: World) -> None:
    world.store(world.live, "totals", 120)
    world.store(world.warm, "totals", 99)
    (task,) = world.promote().tasks
    assert (task.verdict, task.behind) == (PromoteVerdict.KEPT, None)


def test_the_tail_that_kafka_streams_restores_is_counted(world: World) -> None:
    world.store(world.warm, "totals", 99)
    world.store(world.warm, "clicks", 49)
    logs = {world.changelog("totals"): 100, world.changelog("clicks"): 50}
    assert world.promote(ends(logs), offline=False, apply=False).tasks[0].behind == 0
    assert world.promote(apply=False).tasks[0].behind is None


def test_a_refused_task_notes_that_kafka_streams_would_wipe_it(world: World) -> None:
    killed(world.store(world.live, "totals", 5))
    killed(world.store(world.warm, "totals", 9))
    (task,) = world.promote().tasks
    assert task.verdict is PromoteVerdict.REFUSED
    (note,) = task.notes
    assert "totals" in note
    assert "wipe" in note


def test_an_offline_plan_notes_the_missing_check_of_a_grace_buffer(world: World) -> None:
    world.store(world.warm, "late", 3)
    (task,) = world.promote(apply=False).tasks
    assert any("late" in note and "grace-buffer-miskeyed" in note for note in task.notes)


def test_the_offset_of_a_grace_buffer_is_that_in_its_file(world: World) -> None:
    world.store(world.live, "late", 3)
    world.store(world.warm, "late", 9)
    file = world.live.task_path("0_0") / ".checkpoint_late"
    file.write_bytes(encode_checkpoint({world.changelog("late"): 11}))
    (task,) = world.promote().tasks
    assert (task.verdict, task.code) == (PromoteVerdict.KEPT, "application-ahead")
    assert all(value in task.why for value in ("late", " 11 ", " 9"))


@pytest.mark.parametrize("transactional", [False, True])
def test_a_grace_buffer_that_has_lost_its_file_is_replaced_under_exactly_once(
    world: World, transactional: bool
) -> None:
    if transactional:
        world.spec.write_text("transactional_state_stores: true\n" + world.spec.read_text())
    world.store(world.live, "totals", 11)
    world.store(world.live, "late", 3)
    (world.live.task_path("0_0") / ".checkpoint_late").unlink()
    world.store(world.warm, "totals", 9)
    world.store(world.warm, "late", 3)
    (task,) = world.promote().tasks
    assert (task.verdict, task.code, task.why.startswith("late ")) == (PromoteVerdict.PROMOTED, "offset-missing", True)
    assert world.row("totals") == "warm at 9"
