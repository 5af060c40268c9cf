"""The job as ``spark-submit`` runs it: whatever happens, the report says it and the exit code is the error's."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Fenced
from statecore.jobs.attempt import REPORT_VERSION, moment
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.history.report_head import Outcome, read_head
from statecore.jobs.planning.plan import RestorePlan
from statecore.progress import parse_machine_line
from statecore.spark import job
from statecore.spec.model import ProcessingGuarantee

ROOT = Path(__file__).resolve().parents[3]

SPEC = {
    "application_id": "app",
    "bootstrap_servers": "nowhere:1",
    "processing_guarantee": "at_least_once",
    "subtopologies": {"0": {"stores": {"a": {"kind": "key-value"}}}},
}


def run(tmp_path: Path, request: str, **instead: Any) -> tuple[int, dict[str, Any]]:
    code = job.main(["--request", request, "--report", str(tmp_path / "reports" / "out.json")], **instead)
    document = json.loads((tmp_path / "reports" / "out.json").read_text())
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

    found, error = run(tmp_path, json.dumps({"state_dir": str(tmp_path), "spec": SPEC}), restore=fail)
    assert (found, error["error"]) == (code, kind)
    assert str(raised.args[-1]) in error["what"]


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
    started, finished = moment(error["started"]), moment(error["finished"])
    assert started is not None
    assert finished is not None
    assert started <= finished


def test_a_job_that_is_killed_has_said_that_it_began(tmp_path: Path) -> None:
    """What lies at the report's path while the job runs is what a kill leaves there."""
    seen: list[dict[str, Any]] = []

    def killed(*_: Any, **__: Any) -> None:
        seen.append(json.loads((tmp_path / "reports" / "out.json").read_text()))
        raise Fenced("in use", code="test-error", action="stop it")

    run(tmp_path, json.dumps({"state_dir": str(tmp_path), "spec": SPEC, "request_id": "one"}), restore=killed)
    head = read_head(seen[0], 0.0)
    assert (head.outcome, head.finished) == (Outcome.BEGUN, "")
    assert head.attempt.instance == ("app", socket.gethostname(), str(tmp_path))


def test_a_plan_is_reported_as_a_plan(tmp_path: Path) -> None:
    plan = RestorePlan("app", ProcessingGuarantee.AT_LEAST_ONCE, ())
    request = json.dumps({"state_dir": str(tmp_path), "spec": SPEC, "plan_only": True})
    code, document = run(tmp_path, request, restore=lambda *_, **__: plan)
    assert code == 0
    assert {name: document[name] for name in plan.to_json()} == plan.to_json()
    assert read_head(document, 0.0).outcome is Outcome.PLANNED


def test_the_first_word_of_the_job_comes_before_all_that_it_has_to_load(tmp_path: Path) -> None:
    script = (
        "import builtins, runpy, sys\n"
        "real = builtins.__import__\n"
        "def seen(name, *rest):\n"
        "    if name == 'statecore.spark.job': print('LOADING THE JOB')\n"
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
