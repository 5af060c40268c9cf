"""``statecore checkpoint`` and ``advance``: what their command lines refuse, and what they say."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statecore.cli.checkpoint import complete_until, line_of
from statecore.cli.main import main
from statecore.cli.restore import show_report
from statecore.jobs.checkpoint_request import CheckpointRequest
from statecore.jobs.planned_tails import TAKEN_UP
from statecore.jobs.report import RestoreReport
from statecore.repository.publication import Publication, Published
from statecore.repository.shelf import Shelf
from statecore.spec.reader import parse_spec
from tests.unit.jobs.snapshots import World

SPEC = """\
application_id: orders
bootstrap_servers: localhost:9
processing_guarantee: at_least_once
subtopologies: {"0": {stores: {plain: {kind: key-value}, past: {kind: versioned-key-value, retention: 1h}}}}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "stores.yaml"
    path.write_text(SPEC)
    return path


def run(*words: object) -> int:
    return main([str(word) for word in words])


@pytest.mark.parametrize("interval", ["0s", "0", "soon", "1.5h", ""])
def test_no_time_between_two_checkpoints_is_a_wrong_command_line(
    spec: Path, capsys: pytest.CaptureFixture[str], interval: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        run("checkpoint", "--spec", spec, "--repository", "file:///r", "--follow", f"--interval={interval}")
    assert caught.value.code == 2
    assert "is no time between two checkpoints; expected a duration such as 90s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--interval", "5m"], "--interval is for --follow"),
        (["--follow", "--plan"], "A service does not only plan"),
        (["--versioned-interval", "1h", "--master", "local[1]"], "--master and --spark-conf are Spark's"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    spec: Path, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    assert run("checkpoint", "--spec", spec, "--repository", "file:///r", *words) == 13
    assert why in capsys.readouterr().err


def test_a_repository_that_is_not_there_is_not_found(
    spec: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run("checkpoint", "--spec", spec, "--repository", (tmp_path / "none").as_uri()) == 14
    assert "statecore init" in capsys.readouterr().err


def test_a_directory_without_tasks_has_nothing_to_advance(
    spec: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run("advance", "--spec", spec, "--state-dir", tmp_path) == 14
    assert "has no task: there is nothing to advance" in capsys.readouterr().err


def test_versioned_stores_that_are_named_are_not_advanced(
    spec: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "orders" / "0_0").mkdir(parents=True)
    assert run("advance", "--spec", spec, "--state-dir", tmp_path, "--store", "past") == 13
    assert "Versioned stores are not advanced: past" in capsys.readouterr().err


def test_a_restore_names_the_snapshot_that_it_published(capsys: pytest.CaptureFixture[str]) -> None:
    made = Published("20261123T010203Z-5f3a9c21", "", "", 3, 5000, 1234)
    show_report(RestoreReport("orders", "", "at_least_once", "", 1.25, {}, (), repository="file:///r", published=made))
    assert "\nsnapshot 20261123T010203Z-5f3a9c21 in file:///r\n" in capsys.readouterr().out


def test_a_checkpoint_is_said_in_one_line() -> None:
    report = RestoreReport("orders", "", "at_least_once", "", 1.25, {}, ())
    assert line_of(report) == "nothing is new: 0 records in 1.2 s"
    made = Published("20261123T010203Z-5f3a9c21", "", "", 3, 5000, 1234)
    assert line_of(replace(report, published=made)) == (
        "20261123T010203Z-5f3a9c21: 0 records in 1.2 s, 1,234 bytes new of 5,000"
    )
    assert line_of(replace(report, published=replace(made, earlier=True))).endswith(
        "(by an earlier try of this request)"
    )


STARTED = "2026-11-23T01:02:03.500Z"
SECONDS = 1_795_395_723.5


def looked(**fields: Any) -> RestoreReport:
    """Of a checkpoint that found nothing new."""
    given = {"plan_id": "p", "processing_guarantee": "at_least_once", "state_dir": "", "seconds": 1.25, "phases": {}}
    return RestoreReport(**{"application_id": "app", **given, "stores": (), "started": STARTED, **fields})


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An application with a snapshot whose ends were the ends of its changelogs at a known moment."""
    world = World(tmp_path)
    world.write({b"a": b"1"}, 9)
    world.snapshot()
    shelf = Shelf.at(world.url, "app")
    publication = Publication(shelf, parse_spec(world.spec), request="r", origin="checkpoint", clock=time.time)
    assert publication.publish([], whole=False, cuts={"0_0": CUT_MS}) is not None
    return world


CUT_MS = 1_900_000_000_500


def request(world: World, **fields: Any) -> CheckpointRequest:
    return CheckpointRequest.from_json({"spec": world.spec, "repository": world.url, **fields})


def test_where_nothing_is_new_the_newest_snapshot_is_complete_until_somebody_looked(world: World) -> None:
    assert complete_until(looked(), request(world)) == SECONDS


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"published": Published("s", "", "", 1, 5000, 1234)}, {}),
        ({"plan_id": ""}, {}),
        ({"notes": (TAKEN_UP,)}, {}),
        ({"stores": (SimpleNamespace(tail_left=3),)}, {}),
        ({}, {"stores": ["counts"]}),
        ({}, {"partitions": [0]}),
    ],
    ids=["published", "made by others", "looked earlier", "a tail is left", "of a store", "of a partition"],
)
def test_else_it_is_complete_until_the_moment_that_it_says(
    world: World, fields: dict[str, Any], asked: dict[str, Any]
) -> None:
    assert complete_until(looked(**fields), request(world, **asked)) == CUT_MS / 1000


def test_where_nobody_can_say_until_when_nobody_does(world: World, tmp_path: Path) -> None:
    made = looked(plan_id="")
    away = {"repository": (tmp_path / "nowhere").as_uri()}
    assert complete_until(made, request(world, **away)) is None
    assert complete_until(replace(made, application_id="other"), request(world)) is None
