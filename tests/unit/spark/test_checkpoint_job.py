"""The checkpoint as a program: errors are in its report, and long tails are no error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import KINDS
from statecore.jobs.bases.planned_tails import RESUMED_NOTE
from statecore.jobs.checkpoint.read_tails import SMALL_TAIL
from statecore.jobs.engine import Engine
from statecore.jobs.restore.report import RestoreReport
from statecore.spark import checkpoint_job
from statecore.spark.checkpoint_job import SPARK_NEEDED, PlanOnlyEngine
from statecore.spark.engine import SparkEngine
from statecore.spec.reader import parse_spec

SPEC = {
    "application_id": "app",
    "bootstrap_servers": "nowhere:1",
    "processing_guarantee": "at_least_once",
    "subtopologies": {"0": {"stores": {"a": {"kind": "key-value"}}}},
}


def run(tmp_path: Path, request: dict[str, Any], *arguments: str, **instead: Any) -> tuple[int, dict[str, Any]]:
    report = tmp_path / "out.json"
    code = checkpoint_job.main(["--request", json.dumps(request), "--report", str(report), *arguments], **instead)
    return code, json.loads(report.read_text())


def test_what_is_wrong_is_in_the_report(tmp_path: Path) -> None:
    code, error = run(tmp_path, {"spec": SPEC, "repository": (tmp_path / "nowhere").as_uri()})
    assert (error["error"], code) == ("NotFound", error["exit_code"])
    assert "There is no repository" in error["what"]
    code, error = run(tmp_path, {"spec": SPEC, "repository": "file:///r", "state_dir": "/s"})
    assert (error["error"], code) == ("Invalid", error["exit_code"])


def test_no_kind_of_error_ends_with_the_exit_code_that_wants_spark() -> None:
    assert SPARK_NEEDED not in {kind.exit_code for kind in KINDS.values()}


@pytest.mark.parametrize(("arguments", "small_tail"), [((), SMALL_TAIL), (("--small-tail", "7"), 7)])
def test_long_tails_want_spark_and_leave_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], small_tail: int
) -> None:
    def starts(request: Any, engine: Engine, *_: Any, small_tail: int, **__: Any) -> None:
        seen.append(small_tail)
        with engine.start("checkpoint", parse_spec(SPEC, "test")):
            pytest.fail("an engine was started")

    seen: list[int] = []
    monkeypatch.setattr(checkpoint_job, "exit_with_parent_process", lambda: None)
    code, said = run(tmp_path, {"spec": SPEC, "repository": "file:///r"}, "--here", *arguments, checkpoint=starts)
    assert (code, "error" in said, "finished" in said) == (SPARK_NEEDED, False, False)
    assert (said["application_id"], seen) == ("app", [small_tail])


def test_a_plan_that_is_made_here_is_cut_for_the_engine_that_may_take_it_up() -> None:
    spec = parse_spec(SPEC, "test")
    assert PlanOnlyEngine(SparkEngine("local[3]")).expected(spec) == SparkEngine("local[3]").expected(spec) == 3


@pytest.mark.parametrize(("arguments", "notes"), [((), [RESUMED_NOTE, "A fact."]), (("--go-on",), ["A fact."])])
def test_whoever_goes_on_with_what_was_planned_for_it_does_not_speak_of_an_earlier_attempt(
    tmp_path: Path, arguments: tuple[str, ...], notes: list[str]
) -> None:
    report = RestoreReport("app", "p", "at_least_once", "", 1.25, {}, (), notes=(RESUMED_NOTE, "A fact."))
    code, said = run(
        tmp_path, {"spec": SPEC, "repository": "file:///r"}, *arguments, checkpoint=lambda *_, **__: report
    )
    assert (code, said["notes"]) == (0, notes)
