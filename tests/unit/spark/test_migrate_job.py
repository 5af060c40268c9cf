"""The migration as a program: errors are in its report."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Invalid
from statecore.jobs.engine import Engine
from statecore.jobs.processes import ProcessEngine
from statecore.spark import migrate_job
from statecore.spark.engine import SparkEngine
from statecore.statedir.file_trees import fingerprint

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "kafka-streams-4.2.0-task.tar.gz"


def run(tmp_path: Path, request: dict[str, Any], *arguments: str, **instead: Any) -> tuple[int, dict[str, Any]]:
    report = tmp_path / "out.json"
    code = migrate_job.main(["--request", json.dumps(request), "--report", str(report), *arguments], **instead)
    return code, json.loads(report.read_text())


def test_what_is_wrong_is_in_the_report(tmp_path: Path) -> None:
    code, error = run(tmp_path, {"application_id": "orders", "state_dir": str(tmp_path), "to": "4.3"})
    assert (error["error"], code) == ("NotFound", error["exit_code"])
    assert (error["application_id"], error["state_dir"]) == ("orders", str(tmp_path))
    code, error = run(tmp_path, {"application_id": "orders", "to": "4.3"})
    assert (error["error"], code) == ("Invalid", error["exit_code"])


def test_a_plan_needs_no_spec_no_spark_and_changes_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "state" / "old420"
    directory.mkdir(parents=True)
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(directory, filter="data")
    before = fingerprint(directory)
    code, plan = run(tmp_path, {"application_id": "old420", "state_dir": str(tmp_path / "state"), "to": "4.3"})
    assert (code, plan["outcome"]) == (0, "planned")
    assert [task["task"] for task in plan["tasks"]] == ["0_1"]
    assert fingerprint(directory) == before


@pytest.mark.parametrize(("arguments", "kind"), [(("--here",), ProcessEngine), ((), SparkEngine)])
def test_who_converts_is_who_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], kind: type[Any]
) -> None:
    def runs(_: Any, engine: Engine, *__: Any, **___: Any) -> Any:
        seen.append(engine)
        raise Invalid("That was all.", code="test-error", action="None.")

    seen: list[Engine] = []
    monkeypatch.setattr(migrate_job, "exit_with_parent_process", lambda: None)
    run(tmp_path, {"application_id": "orders", "state_dir": "/srv", "to": "4.3"}, *arguments, migrate=runs)
    (engine,) = seen
    assert isinstance(engine, kind)
