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


def test_a_refused_task_sets_the_exit_code_and_the_others_are_promoted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    world = World(tmp_path)
    world.store(world.warm, "totals", 9)
    world.store(world.warm, "totals", 9, task="7_0")
    assert main(words(world, "--apply", "--json")) == Invalid.exit_code
    report = json.loads(capfd.readouterr().out)
    assert {one["task"]: one["verdict"] for one in report["tasks"]} == {"0_0": "promoted", "7_0": "refused"}
    assert world.row("totals") == "warm at 9"


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
