"""A job as a program: whatever happens, the report has it, and the exit code is the error's."""

from __future__ import annotations

import errno
import io
import json
import os
import socket
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import KINDS, Fenced, Invalid
from statecore.jobs import program
from statecore.jobs.attempt import REPORT_VERSION, parsed_time
from statecore.jobs.engine.processes import ProcessEngine
from statecore.jobs.engine.protocol import Engine, PlanOnlyEngine
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.fields.declaration import Request
from statecore.jobs.history.report_head import ReportOutcome, read_head
from statecore.jobs.planning.plan import ReadPlan
from statecore.jobs.program import PROGRAMS, SPARK_NEEDED, main, reporting, write_report
from statecore.jobs.read_report import ReadReport
from statecore.metrics import CHECKPOINT_INTERVAL, CHECKPOINT_SUCCESS, SNAPSHOT_READ_AT
from statecore.progress import parse_machine_line
from statecore.spark.engine import SparkEngine
from statecore.spec.model import ProcessingGuarantee
from statecore.spec.reader import parse_spec
from statecore.statedir.file_trees import fingerprint
from tests.harness.collector import Collector
from tests.harness.raising import code_said

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "kafka-streams-4.2.0-task.tar.gz"

SPEC = {
    "application_id": "app",
    "bootstrap_servers": "nowhere:1",
    "processing_guarantee": "at_least_once",
    "subtopologies": {"0": {"stores": {"a": {"kind": "key-value"}}}},
}


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("it was begun")


def run(
    tmp_path: Path, request: str | dict[str, Any], *arguments: str, verb: str = "restore", run: Any = None
) -> tuple[int, dict[str, Any]]:
    text = request if isinstance(request, str) else json.dumps(request)
    report = tmp_path / "reports" / "out.json"
    given = ["--request", text, "--report", str(report), *arguments]
    code = main(given, verb=verb, spark=SparkEngine, run=run)
    document = json.loads(report.read_text())
    assert isinstance(document, dict)
    return code, document


@pytest.mark.parametrize(
    ("request_text", "kind", "words"),
    [
        ("{", "Invalid", "not JSON"),
        ("[]", "Invalid", "not a JSON object"),
        ('{"state_dir": "/s", "spec_path": "/nowhere/stores.yaml"}', "NotFound", "/nowhere/stores.yaml"),
        ('{"state_dir": "/s", "spec": {"application_id": "app"}}', "Invalid", "bootstrap_servers"),
        ('{"state_dir": "/s", "spec_path": "a", "replace": "false"}', "Invalid", "'false'"),
    ],
)
def test_a_bad_request_is_in_the_report(tmp_path: Path, request_text: str, kind: str, words: str) -> None:
    code, error = run(tmp_path, request_text)
    assert error["error"] == kind
    assert code == error["exit_code"] != 0
    assert words in error["what"]
    assert error["action"]


def test_a_state_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    code, error = run(tmp_path, json.dumps({"state_dir": str(tmp_path / "state"), "spec": SPEC}))
    assert (code, error["error"]) == (13, "Invalid")
    assert "not a directory" in error["what"]


@pytest.mark.parametrize(
    ("raised", "code", "kind"),
    [
        (Fenced("in use", code="test-error", action="stop it"), 11, "Fenced"),
        (OSError(28, "No space left on device"), 15, "Capacity"),
        (RuntimeError("unforeseen"), 1, "StatecoreError"),
    ],
)
def test_whatever_stops_the_job_is_in_the_report(tmp_path: Path, raised: Exception, code: int, kind: str) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise as_statecore_error(raised, "stores were rebuilt")

    found, error = run(tmp_path, json.dumps({"state_dir": str(tmp_path), "spec": SPEC}), run=fail)
    assert (found, error["error"]) == (code, kind)
    assert str(raised.args[-1]) in error["what"]


class Unread(io.StringIO):
    """A pipe whose reader is gone."""

    def write(self, _: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_a_reader_of_its_output_that_is_gone_stops_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(*_: Any, say: Any, progress: Any, **__: Any) -> None:
        progress.phase("read")
        say("It reads.")
        progress.done()
        raise Fenced("in use", code="test-error", action="stop it")

    monkeypatch.setattr(sys, "stdout", Unread())
    monkeypatch.setattr(sys, "stderr", Unread())
    code, error = run(tmp_path, json.dumps({"state_dir": str(tmp_path), "spec": SPEC}), run=told)
    assert (code, error["error"], error["code"]) == (11, "Fenced", "test-error")


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [
        (RuntimeError("unforeseen"), ReportOutcome.BEGUN),
        (Fenced("in use", code="test-error", action="stop it"), ReportOutcome.FAILED),
    ],
)
def test_what_fails_unexpectedly_in_an_orphan_is_reported_as_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, outcome: ReportOutcome
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        monkeypatch.setattr(os, "getppid", lambda: 1)  # its starter was killed
        raise as_statecore_error(raised, "stores were rebuilt")

    monkeypatch.setattr(os, "getppid", lambda: 4711)
    _, document = run(tmp_path, json.dumps({"state_dir": str(tmp_path), "spec": SPEC}), run=fail)
    assert read_head(document).outcome == outcome


def test_a_failure_says_who_tried_what_where_and_when(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("")
    link = tmp_path / "link"
    link.symlink_to(state)
    _, error = run(tmp_path, json.dumps({"state_dir": str(link), "spec": SPEC, "request_id": "dag/run/restore/0"}))
    assert error["version"] == REPORT_VERSION
    assert (error["application_id"], error["request_id"]) == ("app", "dag/run/restore/0")
    assert (error["state_dir"], error["host"]) == (str(state), socket.gethostname())
    assert error["user"]
    assert error["process"] == os.getpid()
    started, finished = parsed_time(error["started"]), parsed_time(error["finished"])
    assert started is not None
    assert finished is not None
    assert started <= finished


def test_a_killed_job_has_reported_its_start(tmp_path: Path) -> None:
    """What lies at the report's path while the job runs is what a kill leaves there."""
    seen: list[dict[str, Any]] = []

    def killed(*_: Any, **__: Any) -> None:
        seen.append(json.loads((tmp_path / "reports" / "out.json").read_text()))
        raise Fenced("in use", code="test-error", action="stop it")

    run(tmp_path, json.dumps({"state_dir": str(tmp_path), "spec": SPEC, "request_id": "one"}), run=killed)
    head = read_head(seen[0])
    assert (head.outcome, head.finished) == (ReportOutcome.BEGUN, "")
    assert head.attempt.instance == ("app", socket.gethostname(), str(tmp_path))


def test_a_plan_is_reported_as_a_plan(tmp_path: Path) -> None:
    plan = ReadPlan("app", ProcessingGuarantee.AT_LEAST_ONCE, ())
    request = json.dumps({"state_dir": str(tmp_path), "spec": SPEC, "plan_only": True})
    code, document = run(tmp_path, request, run=lambda *_, **__: plan)
    assert code == 0
    assert {name: document[name] for name in plan.to_json()} == plan.to_json()
    assert read_head(document).outcome is ReportOutcome.PLANNED


def test_the_first_word_of_the_job_comes_before_all_that_it_has_to_load(tmp_path: Path) -> None:
    script = (
        "import builtins, runpy, sys\n"
        "real = builtins.__import__\n"
        "def seen(name, *rest):\n"
        "    if name == 'statecore.jobs.program': print('LOADING THE JOB')\n"
        "    return real(name, *rest)\n"
        "builtins.__import__ = seen\n"
        f"runpy.run_path({str(ROOT / 'spark_jobs' / 'restore.py')!r}, run_name='__main__')\n"
    )
    arguments = ["--request", "{", "--report", str(tmp_path / "report.json")]
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 13, done.stderr
    first, second = done.stdout.splitlines()
    said = parse_machine_line(first)
    assert said is not None
    assert (said["event"], said["phase"]) == ("begin", "loading")
    assert second == "LOADING THE JOB"


@pytest.mark.parametrize("verb", PROGRAMS)
def test_a_report_that_cannot_be_written_is_refused_before_anything_is_done(
    tmp_path: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    report = tmp_path / "file" / "report.json"
    assert main([verb, "--report", str(report), "--request", "{"], run=never) == Invalid.exit_code
    err = capsys.readouterr().err
    assert (code_said(err), "Traceback" in err) == ("system-refused", False)


@pytest.mark.parametrize(("report", "code"), [("/dev/null", "file-not-regular"), ("/dev", "system-refused")])
def test_what_is_no_file_is_not_replaced_by_a_report(
    report: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reporting(Path(report), never) == Invalid.exit_code
    assert code_said(capsys.readouterr().err) == code
    assert not Path(report).is_file()


def test_the_directories_of_a_report_are_made_and_an_earlier_report_stays_until_there_is_a_new_one(
    tmp_path: Path,
) -> None:
    report = tmp_path / "new" / "reports" / "report.json"
    assert reporting(report, lambda: 0) == 0
    assert list(report.parent.iterdir()) == []
    report.write_text("earlier")
    assert reporting(report, lambda: int(report.read_text() != "earlier")) == 0
    write_report(report, {"now": 1})
    assert json.loads(report.read_text()) == {"now": 1}


def test_a_report_that_can_no_longer_be_written_at_the_end_has_the_exit_code_of_its_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"

    def work() -> int:
        report.mkdir()
        write_report(report, {})
        return 0

    assert reporting(report, work) == Invalid.exit_code
    assert code_said(capsys.readouterr().err) == "system-refused"


@pytest.mark.parametrize("verb", PROGRAMS)
def test_every_verb_has_a_request_and_a_function_that_runs_it(verb: str) -> None:
    assert issubclass(PROGRAMS[verb].request_type(), Request)
    assert callable(PROGRAMS[verb].run())


def test_the_usage_names_the_program_and_its_verb() -> None:
    def usage(*command: str) -> str:
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=ROOT, check=False)
        assert done.returncode == 2
        return done.stderr.split(" [")[0]

    module = ("-m", "statecore.jobs.program")
    assert usage(*module) == "usage: python -m statecore.jobs.program"
    assert usage(*module, "migrate") == "usage: python -m statecore.jobs.program migrate"
    assert usage("spark_jobs/restore.py") == "usage: restore.py"


def test_what_is_wrong_with_a_checkpoint_is_in_the_report(tmp_path: Path) -> None:
    code, error = run(tmp_path, {"spec": SPEC, "repository": (tmp_path / "nowhere").as_uri()}, verb="checkpoint")
    assert (error["error"], code) == ("NotFound", error["exit_code"])
    assert "There is no repository" in error["what"]
    code, error = run(tmp_path, {"spec": SPEC, "repository": "file:///r", "state_dir": "/s"}, verb="checkpoint")
    assert (error["error"], code) == ("Invalid", error["exit_code"])


def test_no_kind_of_error_ends_with_the_exit_code_that_wants_spark() -> None:
    assert SPARK_NEEDED not in {kind.exit_code for kind in KINDS.values()}


@pytest.mark.parametrize(("arguments", "small_tail"), [((), None), (("--small-tail", "7"), 7)])
def test_long_tails_want_spark_and_leave_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], small_tail: int | None
) -> None:
    def starts(request: Any, engine: Engine, *_: Any, small_tail: int | None = None, **__: Any) -> None:
        seen.append(small_tail)
        with engine.start("checkpoint", parse_spec(SPEC, "test")):
            pytest.fail("an engine was started")

    seen: list[int | None] = []
    monkeypatch.setattr(program, "exit_with_parent_process", lambda: None)
    code, said = run(
        tmp_path, {"spec": SPEC, "repository": "file:///r"}, "--local", *arguments, verb="checkpoint", run=starts
    )
    assert (code, "error" in said, "finished" in said) == (SPARK_NEEDED, False, False)
    assert (said["application_id"], seen) == ("app", [small_tail])


def test_a_plan_that_is_made_here_is_cut_for_the_engine_that_may_take_it_up() -> None:
    spec = parse_spec(SPEC, "test")
    assert PlanOnlyEngine("local[3]").expected(spec) == SparkEngine("local[3]").expected(spec) == 3


@pytest.mark.parametrize(("arguments", "continues_own_plan"), [((), False), (("--continues-own-plan",), True)])
def test_a_checkpoint_knows_whether_its_own_first_process_has_made_the_plan(
    tmp_path: Path, arguments: tuple[str, ...], continues_own_plan: bool
) -> None:
    def resumes(*_: Any, continues_own_plan: bool, **__: Any) -> ReadReport:
        return ReadReport("app", "p", "at_least_once", "", 1.25, {}, (), notes=(str(continues_own_plan),))

    request = {"spec": SPEC, "repository": "file:///r"}
    code, said = run(tmp_path, request, *arguments, verb="checkpoint", run=resumes)
    assert (code, said["notes"]) == (0, [str(continues_own_plan)])


def test_a_checkpoint_exports_when_it_succeeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def publishes(*_: Any, **__: Any) -> ReadReport:
        return ReadReport("app", "p", "at_least_once", "", 1.25, {}, (), started="2026-11-23T01:02:03.500Z")

    request = {"spec": SPEC, "repository": "file:///r"}
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        assert run(tmp_path, request, verb="checkpoint", run=publishes)[0] == 0
        assert collector.last(CHECKPOINT_SUCCESS.name).keys() == {("application-id", "app")}
        assert collector.last(CHECKPOINT_INTERVAL.name) == {("application-id", "app"): 300}
        assert collector.last(SNAPSHOT_READ_AT.name) == {("application-id", "app"): 1_795_395_723.5}


def test_what_is_wrong_with_a_migration_is_in_the_report(tmp_path: Path) -> None:
    code, error = run(tmp_path, {"application_id": "orders", "state_dir": str(tmp_path), "to": "4.3"}, verb="migrate")
    assert (error["error"], code) == ("NotFound", error["exit_code"])
    assert (error["application_id"], error["state_dir"]) == ("orders", str(tmp_path))
    code, error = run(tmp_path, {"application_id": "orders", "to": "4.3"}, verb="migrate")
    assert (error["error"], code) == ("Invalid", error["exit_code"])


def test_a_plan_needs_no_spec_no_spark_and_changes_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "state" / "old420"
    directory.mkdir(parents=True)
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(directory, filter="data")
    before = fingerprint(directory)
    code, plan = run(
        tmp_path, {"application_id": "old420", "state_dir": str(tmp_path / "state"), "to": "4.3"}, verb="migrate"
    )
    assert (code, plan["outcome"]) == (0, "planned")
    assert [task["task"] for task in plan["tasks"]] == ["0_1"]
    assert fingerprint(directory) == before


@pytest.mark.parametrize(("arguments", "kind"), [(("--local",), ProcessEngine), ((), SparkEngine)])
def test_who_converts_is_who_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], kind: type[Any]
) -> None:
    def runs(_: Any, engine: Engine, *__: Any, **___: Any) -> Any:
        seen.append(engine)
        raise Invalid("That was all.", code="test-error", action="None.")

    seen: list[Engine] = []
    monkeypatch.setattr(program, "exit_with_parent_process", lambda: None)
    run(tmp_path, {"application_id": "orders", "state_dir": "/srv", "to": "4.3"}, *arguments, verb="migrate", run=runs)
    (engine,) = seen
    assert isinstance(engine, kind)
