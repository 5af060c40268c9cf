"""Global stores of a closed application are rebuilt from scripted topics, or it is said why not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.errors import Invalid, Retryable
from statecore.faults import VARIABLE, FaultInjected, FaultPoints, InjectedFault
from statecore.jobs.repair.report import RepairOutcome, RepairReport
from statecore.statedir.file_trees import fingerprint
from tests.harness.case_selection import one_of, three_of
from tests.harness.raising import raises
from tests.unit.doctor.stored import offsets
from tests.unit.global_stores.global_world import log
from tests.unit.jobs.recover_global.recover_world import TRUTH
from tests.unit.jobs.recover_global.recover_world import RecoverWorld as World


def starts(report: RepairReport) -> dict[str, str]:
    return {one.store: str(one.start) for one in report.next_starts}


@pytest.fixture(params=["exactly_once_v2", "at_least_once"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(tmp_path, request.param)
    with made.brokers:
        yield made


def test_sound_stores_are_left_as_they_are(world: World) -> None:
    before = fingerprint(world.path)
    report = world.recover(apply=True)
    assert (report.outcome, report.exit_code) == (RepairOutcome.UNCHANGED, 0)
    assert starts(report) == {"prices-store": "sound", "rates-store": "sound"}
    assert fingerprint(world.path) == before


def test_a_store_with_an_unknown_offset_is_planned_and_then_rebuilt(world: World) -> None:
    world.damage("prices", -4)
    before = fingerprint(world.path)
    plan = world.recover()
    assert plan.outcome is RepairOutcome.PLANNED
    assert fingerprint(world.path) == before
    report = world.recover(apply=True, approved=plan.plan_id)
    assert (report.outcome, report.exit_code, report.remaining) == (RepairOutcome.REPAIRED, 0, ())
    assert world.rows("prices") == TRUTH
    assert world.recover().outcome is RepairOutcome.UNCHANGED


def test_what_no_repair_is_known_for_is_not_called_sound(world: World) -> None:
    world.outdate()
    before = fingerprint(world.path)
    report = world.recover(apply=True)
    assert report.remaining
    assert (report.outcome, report.exit_code >= 21) == (RepairOutcome.NOT_REPAIRED, True)
    assert starts(report)["prices-store"] in ("fails", "answers wrongly")
    assert all(one["remedy"] for one in report.remaining)
    assert fingerprint(world.path) == before


def test_a_topic_with_fewer_partitions_than_the_store_has_offsets_of_is_another_topic(world: World) -> None:
    shutil.rmtree(world.database("prices"))
    both = [*offsets("prices", 0, 2), *offsets("prices", 1, 5, None)]
    world.write("prices", {"default": [*TRUTH.items(), (b"of-1", b"x")], "offsets": both})
    plan = world.recover()
    assert (plan.outcome, starts(plan)["prices-store"]) == (RepairOutcome.PLANNED, "answers wrongly")
    with raises(Invalid, "rebuild-source-unverified"):  # the rows of the other partitions go
        world.recover(apply=True)
    report = world.recover(apply=True, approved=plan.plan_id)
    assert (report.outcome, report.remaining) == (RepairOutcome.REPAIRED, ())
    assert world.rows("prices") == TRUTH
    assert starts(world.recover()) == {"prices-store": "sound", "rates-store": "sound"}


@pytest.mark.parametrize(("partition", "offset"), [(0, 2), (0, 9), (1, 2)], ids=["fits", "past its end", "unknown"])
@pytest.mark.parametrize("beside", [True, False])
def test_offsets_of_another_topic_than_the_declared_one_rebuild_nothing(
    world: World, partition: int, offset: int, beside: bool
) -> None:
    shutil.rmtree(world.database("prices"))
    own = offsets("prices", 0, 2) if beside else ()
    families = {"default": list(TRUTH.items()), "offsets": [*own, *offsets("rates", partition, offset, None)]}
    world.write("prices", families)
    before = fingerprint(world.path)
    report = world.recover(apply=True)
    assert starts(report)["prices-store"] == ("sound" if beside else "answers wrongly")
    losses = [one["code"] for one in report.remaining if one["severity"] == "loss"]
    assert losses == ([] if beside else ["offset-foreign"])
    assert fingerprint(world.path) == before


@pytest.mark.parametrize("beside", [True, False])
def test_an_absent_topic_that_is_not_the_declared_one_does_not_prevent_a_recovery(world: World, beside: bool) -> None:
    shutil.rmtree(world.database("prices"))
    own = offsets("prices", 0, 2) if beside else ()
    world.write("prices", {"default": list(TRUTH.items()), "offsets": [*own, *offsets("gone", 0, 2, None)]})
    world.damage("rates", -4)
    report = world.recover(apply=True)
    assert starts(report)["prices-store"] == ("sound" if beside else "answers wrongly")
    ended = (RepairOutcome.REPAIRED, 0) if beside else (RepairOutcome.PARTLY_REPAIRED, 22)
    assert (report.outcome, report.exit_code) == ended
    assert world.rows("rates") == TRUTH


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("named", [(), ("prices-store",)])
def test_a_store_that_is_gone_while_a_file_keeps_its_offset_is_found_and_the_file_moved_aside(
    world: World, others: int, named: tuple[str, ...]
) -> None:
    shutil.rmtree(world.database("prices"))
    if not others:
        shutil.rmtree(world.database("rates"))
    (world.path / ".checkpoint").write_text("0\n1\nprices 0 2\n")
    plan = world.recover(stores=named)
    assert (plan.outcome, starts(plan)["prices-store"]) == (RepairOutcome.PLANNED, "answers wrongly")
    assert any(".checkpoint" in why for one in plan.next_starts for why in one.why)
    report = world.recover(apply=True, approved=plan.plan_id, stores=named)
    assert (report.outcome, report.remaining) == (RepairOutcome.REPAIRED, ())
    assert not (world.path / ".checkpoint").exists()
    assert starts(world.recover(stores=named))["prices-store"] == "recovers by itself"


def test_a_missing_store_without_traces_is_restored_by_the_start(world: World) -> None:
    shutil.rmtree(world.path)
    report = world.recover(apply=True)
    assert (report.outcome, report.exit_code) == (RepairOutcome.UNCHANGED, 0)
    assert set(starts(report).values()) == {"recovers by itself"}


def half_done(world: World) -> str:
    """Two steps are to be done: a file goes, and a store is rebuilt. Returns the plan's id."""
    shutil.rmtree(world.database("rates"))
    (world.path / ".checkpoint").write_text("0\n1\nrates 0 2\n")
    world.damage("prices", 9)
    plan = world.recover()
    assert (len(plan.repaired), len(plan.rebuilt)) == (1, 1)
    assert plan.rebuilt[0].doubts, "it is to be approved"
    return plan.plan_id


def assert_mended(world: World) -> None:
    assert world.rows("prices") == TRUTH
    assert not (world.path / ".checkpoint").exists()
    assert world.recover().outcome is RepairOutcome.UNCHANGED
    assert not list((world.path.parent / ".statecore" / "plans").glob("*.attempt"))


@pytest.mark.parametrize("again", ["the same request", "another"])
def test_a_failed_recovery_resumes_with_the_approved_plan(world: World, again: str) -> None:
    approved = half_done(world)

    class Away(FaultPoints):
        def reach(self, point: str) -> None:
            if point == "restore.after-lock":
                raise Retryable("The brokers are away.", code="broker-unreachable", action="Wait.")

    same = {"request_id": "r-1"} if again == "the same request" else {}
    for _ in range(2):
        with raises(Retryable, "broker-unreachable"):
            world.recover(apply=True, approved=approved, faults=Away(), **same)
    assert not (world.path / ".checkpoint").exists(), "a part is done"
    with pytest.raises(Invalid, match="approved"):
        world.recover(apply=True, approved="0" * 16, **same)
    report = world.recover(apply=True, approved=approved, **same)
    assert (report.outcome, report.remaining) == (RepairOutcome.REPAIRED, ())
    assert_mended(world)


def test_a_resumed_recovery_does_only_what_was_approved(world: World) -> None:
    approved = half_done(world)
    with pytest.raises(FaultInjected):
        world.recover(apply=True, approved=approved, faults=InjectedFault("repair.after-repair"))
    (world.path / ".checkpoint").write_text("0\n1\nrates 0 2\n")
    world.brokers.add("rates", [log({b"z": b"1"})])
    shutil.rmtree(world.path / "rocksdb" / "rates-store", ignore_errors=True)
    world.write("rates", {"default": [], "offsets": offsets("rates", 0, 77)})
    with pytest.raises(Invalid, match="has changed"):
        world.recover(apply=True, approved=approved)


@pytest.mark.parametrize(
    "point",
    three_of(
        [
            "change.after-lock",
            "change.after-plan",
            "repair.after-repair",
            "repair.after-rebuild",
            "placement.after-swap",
        ]
    ),
)
@pytest.mark.parametrize("world", one_of(["exactly_once_v2", "at_least_once"]), indirect=True)
def test_a_recovery_killed_at_any_point_resumes_with_the_same_command(world: World, point: str) -> None:
    approved = half_done(world)
    words = ["recover-global", "--spec", str(world.spec), "--state-dir", str(world.state_dir), "--apply"]
    command = [sys.executable, "-m", "statecore.cli.main", *words, "--approved", approved]
    root = Path(__file__).parents[4]

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **more}
        return subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False)

    killed = run(**{VARIABLE: f"{point}:kill"})
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    again = run()
    assert again.returncode == 0, again.stdout + again.stderr
    assert_mended(world)
