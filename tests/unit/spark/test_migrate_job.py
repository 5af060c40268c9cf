"""The migration as a program: errors are in its report, and Spark's executors are asked before anything is done."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Invalid
from statecore.jobs.engine import Engine, Question
from statecore.jobs.processes import ProcessEngine
from statecore.jobs.report import RanOn
from statecore.placement.trees import fingerprint
from statecore.spark import migrate_job
from statecore.spark.engine import SparkEngine
from statecore.spark.migrate_job import SharedEngine
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "kafka-streams-4.2.0-task.tar.gz"
SPEC = ApplicationSpec("orders", "", ProcessingGuarantee.EXACTLY_ONCE_V2, ())


def run(tmp_path: Path, request: dict[str, Any], *arguments: str) -> tuple[int, dict[str, Any]]:
    report = tmp_path / "out.json"
    code = migrate_job.main(["--request", json.dumps(request), "--report", str(report), *arguments])
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


@pytest.mark.parametrize(("arguments", "kind"), [(("--here",), ProcessEngine), ((), SharedEngine)])
def test_who_converts_is_who_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], kind: type[Any]
) -> None:
    def runs(_: Any, engine: Engine, *__: Any, **___: Any) -> Any:
        seen.append(engine)
        raise Invalid("That was all.", action="None.")

    seen: list[Engine] = []
    monkeypatch.setattr(migrate_job, "run_migrate", runs)
    monkeypatch.setattr(migrate_job, "end_with_the_starter", lambda: None)
    run(tmp_path, {"application_id": "orders", "state_dir": "/srv", "to": "4.3"}, *arguments)
    (engine,) = seen
    assert isinstance(engine, kind)
    if isinstance(engine, SharedEngine):
        assert isinstance(engine.engine, SparkEngine)
        assert engine.directory == Path("/srv/orders/.statecore")


class Workers:
    """Workers that answer the question that they are asked with an error, or with where they run."""

    def __init__(self, error: Invalid | None) -> None:
        self.error = error
        self.asked: list[Question] = []

    @contextmanager
    def start(self, *_: Any) -> Iterator[Workers]:
        yield self

    def check(self, question: Question) -> RanOn:
        self.asked.append(question)
        if self.error:
            raise self.error
        return RanOn("spark://m:7077", 2, ("a", "b"))


def test_executors_are_asked_whether_they_see_the_directory_and_where_they_run_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    workers: Any = Workers(None)
    with SharedEngine(workers, Path("/srv/orders/.statecore")).start("migrate", SPEC) as started:
        assert started is workers
    assert workers.asked == [Question(Path("/srv/orders/.statecore"), (), ())]
    assert "Spark runs on spark://m:7077 with 2 executors on a, b." in capsys.readouterr().err


def test_nothing_is_done_where_an_executor_does_not_see_it() -> None:
    workers: Any = Workers(Invalid("b does not see it.", action="Mount it."))
    with pytest.raises(Invalid, match="does not see it"):
        with SharedEngine(workers, Path("/srv")).start("migrate", SPEC):
            pytest.fail("the job went on")
