"""``statecore checkpoint`` and ``advance``: what their command lines refuse, and what they say."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statecore.cli.checkpoint import line_of, show
from statecore.cli.main import main
from statecore.cli.restore import show_plan, show_report
from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.jobs.checkpoint.last_checkpoint import complete_until
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.planning.plan import PartitionPlan, ReadPlan
from statecore.jobs.planning.planned_tails import RESUMED_NOTE
from statecore.jobs.read_report import ReadReport, StoreReport
from statecore.jobs.restore.planned_restore import RefusedPlan
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import ReadPosition
from statecore.repository.publish.publication import Publication, Published
from statecore.spec.model import ProcessingGuarantee
from statecore.spec.reader import parse_spec
from tests.harness.raising import code_said
from tests.unit.jobs.backup.snapshots import World

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


@pytest.mark.parametrize("interval", ["0s", "0", "soon", "1.5h", "", "1ms", "999ms", "366d", "4000000d"])
def test_no_time_between_two_checkpoints_is_a_wrong_command_line(
    spec: Path, capsys: pytest.CaptureFixture[str], interval: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        run("checkpoint", "--spec", spec, "--repository", "file:///r", "--follow", f"--interval={interval}")
    assert caught.value.code == 2
    assert "--interval" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--interval", "5m"], ("option-missing", {"option": "follow"})),
        (["--follow", "--plan"], ("options-conflict", {"options": ["follow", "plan_only"]})),
        (
            ["--versioned-interval", "1h", "--master", "local[1]"],
            ("options-conflict", {"options": ["engine", "master"]}),
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    spec: Path, capfd: pytest.CaptureFixture[str], words: list[str], expected: tuple[str, dict[str, Any]]
) -> None:
    assert run("checkpoint", "--spec", spec, "--repository", "file:///r", *words, "--json") == 2
    error = json.loads(capfd.readouterr().out)
    assert (error["code"], error["context"]) == expected


def test_a_report_without_stores_is_a_verdict_and_its_notes(capsys: pytest.CaptureFixture[str]) -> None:
    report = ReadReport("orders", "", "at_least_once", "/state", 1.25, {}, ())
    show_report(replace(report, notes=("Two are kept.",)))
    verdict, note = capsys.readouterr().out.splitlines()
    assert (verdict.startswith("orders in /state: "), note) == (True, "note: Two are kept.")
    show_report(report)
    assert capsys.readouterr().out.splitlines() == [verdict]
    show_plan(ReadPlan("orders", ProcessingGuarantee.AT_LEAST_ONCE, ()))
    assert len(capsys.readouterr().out.splitlines()) == 1


def large(partition: int) -> StoreReport:
    common: dict[str, Any] = dict.fromkeys(("tombstones", "null_keys", "aborted", "runs"), 0)
    return StoreReport(
        **common, task=f"0_{partition}", store="flights-by-id-and-departure", partition=partition,
        kind="timestamped-key-value", changelog="orders-flights-by-id-and-departure-changelog", start=1_000_000,
        end=3_600_000, committed_offset=1_299_999, records=2_600_000, rows=1_300_000, bytes=123_456_789,
        file_bytes=123_456_789, digest="0123456789abcdef", seconds=12.5, tail_left=0, max_timestamp=-1, offsets={},
        base="20261123T010203Z-5f3a9c21",
    )  # fmt: skip


@pytest.mark.parametrize("columns", ["30", "60", "80", "100", "200"])
def test_numbers_are_whole_however_narrow_the_terminal_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    stores = (large(0), large(11))
    show_report(ReadReport("orders", "", "at_least_once", "/state", 1.25, {}, stores))
    shown = capsys.readouterr().out
    table = shown.partition("restored 2")[0]
    assert all(len(line) <= int(columns) for line in table.splitlines())
    assert {"1,300,000", "2,600,000", "1299999"} <= set(re.findall("[0-9,.]+[0-9]", table))
    assert ("123,456,789" in table) is ("omitted" not in table or "bytes" not in table.partition("omitted")[2])
    show(ReadReport("orders", "", "at_least_once", "", 1.25, {}, stores, repository="file:///r"))
    table = capsys.readouterr().out.partition("no new records")[0]
    assert all(len(line) <= int(columns) for line in table.splitlines())
    assert {"3,600,000", "2,600,000"} <= set(re.findall("[0-9,.]+[0-9]", table))


def test_an_advance_needs_a_state_directory(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run("advance", "--spec", spec)
    assert caught.value.code == 2
    assert "--state-dir" in capsys.readouterr().err.splitlines()[-1]
    with pytest.raises(SystemExit):
        run("advance", "--help")
    assert "nothing is placed" not in " ".join(capsys.readouterr().out.split())


def test_a_plan_that_is_refused_is_shown_all_the_same(
    spec: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*_: object, **__: object) -> None:
        part = PartitionPlan("plain", StoreKind.KEY_VALUE, "0_0", "topic", "id", 0, 3, 77_000, 77_000, ((3, 77_000),))
        plan = ReadPlan("orders", ProcessingGuarantee.AT_LEAST_ONCE, (part,))
        raise RefusedPlan.of(plan, Invalid("A store is there.", code="replace-missing", action="Set replace."))

    monkeypatch.setattr("statecore.jobs.restore.run.run_restore", refused)
    words = ("restore", "--spec", spec, "--state-dir", tmp_path, "--engine", "processes", "--plan")
    assert run(*words) == 13
    out, err = capsys.readouterr()
    assert "77000" in out
    assert code_said(err) == "replace-missing"
    assert run(*words, "--json") == 13


def test_no_number_of_a_plan_is_wrapped_and_an_empty_plan_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    part = PartitionPlan(
        "flights-by-id", StoreKind.KEY_VALUE, "0_0", "orders-flights-by-id-changelog", "id", 0, 1_300_000, 2_600_000,
        2_600_000, ((1_300_000, 2_600_000),),
    )  # fmt: skip
    show_plan(ReadPlan("orders", ProcessingGuarantee.AT_LEAST_ONCE, (part,)))
    assert {"1300000", "2600000"} <= set(capsys.readouterr().out.split())


def test_a_checkpoint_is_printed_in_one_line() -> None:
    report = ReadReport("orders", "", "at_least_once", "", 1.25, {}, ())
    assert "1.2 s" in line_of(report)
    made = Published("20261123T010203Z-5f3a9c21", "", "", 3, 5000, 1234)
    line = line_of(replace(report, published=made))
    assert line.startswith(f"{made.snapshot}: ")
    assert {"0", "1.2"} <= set(line.split())
    assert line.endswith(", 1 KiB of 5 KiB new")
    assert line_of(replace(report, published=replace(made, earlier=True))).startswith(f"{line} (")


STARTED = "2026-11-23T01:02:03.500Z"
SECONDS = 1_795_395_723.5


def looked(**fields: Any) -> ReadReport:
    """Of a checkpoint that found nothing new."""
    given = {"plan_id": "p", "processing_guarantee": "at_least_once", "state_dir": "", "seconds": 1.25, "phases": {}}
    return ReadReport(**{"application_id": "app", **given, "stores": (), "started": STARTED, **fields})


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An application with a snapshot whose ends were the ends of its changelogs at a known moment."""
    world = World(tmp_path)
    world.write({b"a": b"1"}, 9)
    world.snapshot()
    app_repository = ApplicationRepository.open(world.url, "app")
    publication = Publication(app_repository, parse_spec(world.spec), request="r", origin="checkpoint", clock=time.time)
    assert (
        publication.publish([], drops_other_tasks=False, read_positions={"0_0": ReadPosition(READ_AT_MS, None)})
        is not None
    )
    return world


READ_AT_MS = 1_900_000_000_500


def request(world: World, **fields: Any) -> CheckpointRequest:
    return CheckpointRequest.from_json({"spec": world.spec, "repository": world.url, **fields})


def test_without_changes_the_newest_snapshot_is_complete_until_the_last_check(world: World) -> None:
    assert complete_until(looked(), request(world)) == SECONDS


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"published": Published("s", "", "", 1, 5000, 1234)}, {}),
        ({"plan_id": ""}, {}),
        ({"notes": (RESUMED_NOTE,)}, {}),
        ({"stores": (SimpleNamespace(tail_left=3),)}, {}),
        ({}, {"stores": ["counts"]}),
        ({}, {"partitions": [0]}),
    ],
    ids=["published", "made by others", "looked earlier", "a tail is left", "of a store", "of a partition"],
)
def test_else_it_is_complete_until_the_moment_that_it_says(
    world: World, fields: dict[str, Any], asked: dict[str, Any]
) -> None:
    assert complete_until(looked(**fields), request(world, **asked)) == READ_AT_MS / 1000


def test_an_unknown_completeness_time_is_not_printed(world: World, tmp_path: Path) -> None:
    made = looked(plan_id="")
    away = {"repository": (tmp_path / "nowhere").as_uri()}
    assert complete_until(made, request(world, **away)) is None
    assert complete_until(replace(made, application_id="other"), request(world)) is None
