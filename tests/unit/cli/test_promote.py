"""What ``statecore promote`` prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from statecore.cli.main import main
from statecore.errors import Invalid, Retryable
from tests.unit.standby.promote.promoting import World


def words(world: World, *more: str) -> list[str]:
    where = ["--standby-dir", str(world.warm.state_dir), "--state-dir", str(world.live.state_dir)]
    return ["promote", "--spec", str(world.spec), *where, "--offline", *more]


def test_the_plan_says_of_each_task_what_becomes_of_it_and_why(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    world = World(tmp_path)
    world.store(world.live, "totals", 1_005)
    world.store(world.warm, "totals", 2_009)
    world.store(world.warm, "totals", 9, task="0_1")
    world.store(world.live, "totals", 11, task="0_1")
    assert main(words(world)) == 0
    said = capfd.readouterr().out
    lines = {line.split()[0]: line.replace(",", "").split()[1:] for line in said.splitlines() if line.strip()}
    assert lines["0_0"][:3] == ["taken", "1004", "1"]
    assert lines["0_1"][0] == "left"
    assert {"totals", "11", "9"} <= set(lines["0_1"])
    assert "--apply" in said


def test_a_plan_without_changes_does_not_ask_for_apply(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    world = World(tmp_path)
    world.store(world.live, "totals", 9)
    world.store(world.warm, "totals", 9)
    assert main(words(world)) == 0
    said = capfd.readouterr().out
    assert "--apply" not in said


def test_a_refused_task_sets_the_exit_code_and_the_others_are_promoted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    world = World(tmp_path)
    world.store(world.warm, "totals", 9)
    world.store(world.warm, "totals", 9, task="7_0")
    assert main(words(world, "--apply", "--json")) == Invalid.exit_code
    report = json.loads(capfd.readouterr().out)
    assert {one["task"]: one["verdict"] for one in report["tasks"]} == {"0_0": "taken", "7_0": "refused"}
    assert world.row("totals") == "warm at 9"


def test_the_plan_notes_which_stores_kafka_streams_restores_by_itself(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    world = World(tmp_path)
    world.store(world.warm, "totals", 9)
    assert main(words(world)) == 0
    said = capfd.readouterr().out
    (note,) = [line for line in said.splitlines() if line.startswith("note: ")]
    assert {"0_0:", "clicks,", "late"} <= set(note.split())


def test_brokers_that_cannot_be_reached_refuse_it_and_offline_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    world = World(tmp_path)
    world.spec.write_text(world.spec.read_text().replace("localhost:9092", "127.0.0.1:1"))
    world.store(world.warm, "totals", 9)
    asking = [word for word in words(world, "--apply", "--timeout", "1") if word != "--offline"]
    assert main(asking) == Retryable.exit_code
    assert "--offline" in capfd.readouterr().err
    assert not world.live.task_path("0_0").exists()
