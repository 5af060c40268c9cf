"""What is said of the restores of a directory: the last, the one that did not end, and what they left."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from statecore.formats.kinds import StoreKind
from statecore.jobs.attempt import Attempt
from statecore.jobs.history.instance_history import Restores, directories, read_history
from statecore.jobs.history.report_head import ReportOutcome
from statecore.jobs.history.report_index import ReportIndex
from statecore.jobs.planning.frozen_plan import ATTEMPT_SUFFIX, IMAGES, REPORT_SUFFIX, RUNS, FrozenPlan, plan_path
from statecore.jobs.planning.plan import PartitionPlan, ReadPlan
from statecore.spec.model import ProcessingGuarantee
from statecore.statedir.journal import Journal, JournalTask
from statecore.statedir.link_scratch import scratch
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.work_directory import BACKUP_LINKS_PREFIX
from tests.unit.jobs.reports import BEGAN, FAILURE, attempt, done, entry, failed, write
from tests.unit.jobs.support import save_plan

PLAN = ReadPlan(
    "orders",
    ProcessingGuarantee.EXACTLY_ONCE_V2,
    tuple(
        PartitionPlan("s", StoreKind.KEY_VALUE, f"0_{number}", "t", "id", number, 0, 20, 20, ((0, 10), (10, 20)))
        for number in range(2)
    ),
)
HERE = socket.gethostname()


class Directory:
    """The directory of ``orders`` with requests in it that were made at a second."""

    def __init__(self, state_dir: Path) -> None:
        self.directory = StateDirectory(state_dir, "orders")
        self.work = self.directory.work_path
        self.work.mkdir(parents=True)

    def attempt(self, second: int) -> Attempt:
        return attempt(second, str(self.directory.state_dir), HERE)

    def plan(self, second: int, staging: str = "", words: tuple[str, ...] = ()) -> Path:
        path = plan_path(self.work, self.attempt(second).request_id)
        save_plan(path, FrozenPlan(PLAN, (), BEGAN + second, self.attempt(second).request_id, staging, command=words))
        return self._at(path, second)

    def say(self, second: int, suffix: str, document: dict[str, Any]) -> Path:
        path = plan_path(self.work, self.attempt(second).request_id).with_suffix(suffix)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(document))
        return self._at(path, second)

    def restored(self, second: int, *entries: dict[str, Any]) -> None:
        self.plan(second)
        self.say(second, REPORT_SUFFIX, done(self.attempt(second), *(entries or [entry("s", 0)])))

    def journal(self, second: int) -> None:
        task = JournalTask("0_0", 1, {}, None, None, ())
        Journal(self.attempt(second).request_id, "placement-x", "swapping", (task,)).write(self.work)

    def info(self) -> Restores:
        found = read_history(self.directory)
        json.dumps(found.to_json())
        return found

    @staticmethod
    def _at(path: Path, second: int) -> Path:
        os.utime(path, (BEGAN + second, BEGAN + second))
        return path


@pytest.fixture
def orders(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


def test_a_directory_without_a_restore_has_nothing_to_say(orders: Directory) -> None:
    found = orders.info()
    assert (found.last_restored, found.unfinished, found.leftovers, found.problems, found.holder) == (
        None,
        (),
        (),
        (),
        None,
    )
    assert directories(orders.directory.state_dir) == ["orders"]


def test_the_last_restore_is_listed_with_its_author_and_stores(orders: Directory) -> None:
    orders.restored(1, entry("s", 0, 1), entry("s", 1, 2))
    orders.restored(2, entry("s", 1, 5))
    found = orders.info()
    assert found.last_restored is not None
    assert (found.last_restored.attempt.user, found.last_restored.attempt.request_id) == (
        "kafka",
        orders.attempt(2).request_id,
    )
    assert [(part.partition, part.rows) for part in found.partitions] == [(0, 1), (1, 5)]
    (store,) = found.stores
    assert (store.partitions, store.rows) == (2, 6)
    assert found.unfinished == ()


@pytest.mark.parametrize(
    ("runs", "images", "report", "journal", "reached"),
    [
        (None, 0, False, False, ("plan", 0, 0)),
        (0, 0, False, False, ("read", 0, 4)),
        (3, 0, False, False, ("read", 3, 4)),
        (4, 0, False, False, ("build", 0, 2)),
        (4, 1, False, False, ("build", 1, 2)),
        (4, 2, True, False, ("place", 0, 2)),
        (4, 2, True, True, ("place", 0, 1)),
    ],
)
def test_an_unfinished_restore_says_how_far_it_came(
    orders: Directory, runs: int | None, images: int, report: bool, journal: bool, reached: tuple[str, int, int]
) -> None:
    orders.restored(1)
    orders.plan(2, str(orders.work))
    orders.say(2, ATTEMPT_SUFFIX, orders.attempt(2).begun())
    staging = orders.work / PLAN.plan_id
    for kind, number in ((RUNS, runs or 0), (IMAGES, images)):
        for one in range(number):
            (staging / kind / "0_0" / str(one)).mkdir(parents=True)
            (staging / kind / "0_0" / str(one) / "result.json").write_text("{}")
    if runs is not None:
        staging.mkdir(exist_ok=True)
    if report:
        orders.say(2, REPORT_SUFFIX, done(orders.attempt(2), entry("s", 0), finished=""))
    if journal:
        orders.journal(2)
    found = orders.info()
    (one,) = found.unfinished
    assert (one.reached, one.done, one.total) == reached
    assert (one.request_id, one.plan_id, one.running) == (orders.attempt(2).request_id, PLAN.plan_id, False)
    assert one.attempt is not None
    assert one.attempt.outcome is ReportOutcome.BEGUN
    assert found.last_restored is not None
    assert found.last_restored.attempt.request_id == orders.attempt(1).request_id
    if runs is not None:
        assert [(left.name, one.request_id in left.meaning) for left in found.leftovers] == [(PLAN.plan_id, True)]


def test_a_failed_attempt_is_listed_with_its_error(orders: Directory) -> None:
    orders.plan(1)
    orders.say(1, ATTEMPT_SUFFIX, orders.attempt(1).failed(FAILURE, "read"))
    (one,) = orders.info().unfinished
    assert one.attempt is not None
    assert dict(one.attempt.error) == {"error": "Fenced", "what": "It runs.", "action": "Stop it.", "phase": "read"}


def test_requests_with_one_plan_are_resumed_by_the_newest_or_by_the_one_in_progress(orders: Directory) -> None:
    orders.plan(1)
    orders.plan(2)
    assert [one.request_id for one in orders.info().unfinished] == [orders.attempt(2).request_id]
    orders.journal(1)
    assert [one.request_id for one in orders.info().unfinished] == [orders.attempt(1).request_id]


def test_a_rebuild_is_resumed_by_its_repair(orders: Directory) -> None:
    repair = plan_path(orders.work, "repair").with_suffix(ATTEMPT_SUFFIX)
    request = "repair-0123abcd"
    save_plan(plan_path(orders.work, request), FrozenPlan(PLAN, (), BEGAN, request))
    assert [one.request_id for one in orders.info().unfinished] == [request]
    began = {**Attempt.begin("orders", "/s", "repair").begun(), "job": "repair", "words": ["repair", "--apply"]}
    repair.write_text(json.dumps(began))
    found = orders.info()
    assert found.unfinished == ()
    assert [one.job for one in found.changes.unfinished] == ["repair"]


def test_a_plan_that_was_given_up_before_the_last_restore_is_not_unfinished(orders: Directory) -> None:
    orders.plan(1)
    orders.say(1, ATTEMPT_SUFFIX, orders.attempt(1).begun())
    orders.restored(2)
    assert orders.info().unfinished == ()


def test_an_interrupted_placement_is_unfinished_also_when_its_plan_is_gone(orders: Directory) -> None:
    orders.restored(2)
    orders.journal(1)
    (one,) = orders.info().unfinished
    assert (one.request_id, one.reached, one.total) == (orders.attempt(1).request_id, "place", 1)


def test_the_process_that_holds_the_lock_is_named_and_a_restore_at_work_is_known(orders: Directory) -> None:
    with orders.directory.lock():
        tried = Attempt.begin("orders", str(orders.directory.state_dir), orders.attempt(2).request_id)
        orders.plan(2)
        orders.say(2, ATTEMPT_SUFFIX, tried.begun())
        found = orders.info()
        assert found.holder is not None
        assert found.holder.process == os.getpid()
        assert [one.running for one in found.unfinished] == [True]
        orders.directory.check_locked()  # looking has not let go of it
    assert orders.info().holder is None
    assert [one.running for one in orders.info().unfinished] == [False]


def test_leftovers_are_named_with_their_size(orders: Directory) -> None:
    for name, size in (("placement-1", 10), ("set-aside", 20), ("replaced", 25), ("0123456789abcdef", 30)):
        (orders.work / name / "deep").mkdir(parents=True)
        (orders.work / name / "deep" / "file").write_bytes(b"x" * size)
    assert [(left.name, left.bytes, left.meaning.split()[0]) for left in orders.info().leftovers] == [
        ("0123456789abcdef", 30, "staging"),
        ("placement-1", 10, "staging"),
        ("replaced", 25, "task"),
        ("set-aside", 20, "old"),
    ]


def test_an_unreadable_report_is_listed_and_hides_no_other(orders: Directory) -> None:
    orders.restored(1)
    orders.say(2, REPORT_SUFFIX, {"half": 1})
    (orders.work / "journal.json").write_text("{")
    found = orders.info()
    assert found.last_restored is not None
    assert len(found.problems) == 2
    assert "journal.json" in found.problems[1]


def test_reports_elsewhere_add_the_tries_that_touched_nothing(orders: Directory, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    orders.restored(1)
    write(reports, 1, done(orders.attempt(1), entry("s", 0)))  # the same try, told twice
    write(reports, 2, failed(orders.attempt(2)))
    found = read_history(orders.directory, ReportIndex(reports).application("orders").instances)
    assert [head.outcome for head in found.attempts] == [ReportOutcome.FAILED, ReportOutcome.RESTORED]
    assert found.later is not None
    assert found.later.error["what"] == "It runs."
    assert len(found.partitions) == 1
    write(reports, 3, orders.attempt(3).begun())
    found = read_history(orders.directory, ReportIndex(reports).application("orders").instances)
    assert found.later is not None
    assert found.later.outcome is ReportOutcome.BEGUN
    orders.restored(3)
    found = read_history(orders.directory, ReportIndex(reports).application("orders").instances)
    assert found.later is None


def test_files_that_vanish_while_a_restore_is_at_work_hide_nothing(tmp_path: Path) -> None:
    """A link to nowhere is listed and cannot be looked at, as a file that is deleted in between."""
    one = Directory(tmp_path)
    one.restored(1)
    for path in (one.work / "journal.json.new", plan_path(one.work, "x").with_suffix(ATTEMPT_SUFFIX)):
        path.symlink_to(tmp_path / "nowhere")
    found = read_history(one.directory)
    assert found.last_restored is not None
    assert found.problems == ()


def test_a_plan_of_an_older_release_hides_nothing(tmp_path: Path) -> None:
    one = Directory(tmp_path)
    one.restored(1)
    plan = plan_path(one.work, one.attempt(1).request_id)
    document = json.loads(plan.read_text())
    document["plan"]["version"] = 2
    plan.write_text(json.dumps(document))
    found = read_history(one.directory)
    assert found.last_restored is not None
    assert found.unfinished == ()


def test_the_scratch_directory_of_a_snapshot_is_told_from_staging_and_a_killed_one_from_one_at_work(
    tmp_path: Path,
) -> None:
    directory = StateDirectory(tmp_path, "orders")
    dead = directory.work_path / f"{BACKUP_LINKS_PREFIX}dead"
    dead.mkdir(parents=True)
    (dead / "held").touch()
    with scratch(directory) as path:
        meanings = {left.name: left.meaning for left in read_history(directory).leftovers}
    assert "running backup" in meanings[path.name]
    assert "killed" in meanings[dead.name]
