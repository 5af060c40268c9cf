from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statecore.airflow.directory_change import migration
from statecore.airflow.reports import read_report
from statecore.errors import Corrupted
from statecore.jobs.program import main
from tests.harness.raising import raises

REQUEST = {"application_id": "orders", "state_dir": "/srv/state", "to": "4.3"}


def finding(severity: str, task: str = "0_1") -> migration.Found:
    return {"severity": severity, "code": "store-not-closed", "task": task, "store": "by-id", "what": "It is."}


@pytest.mark.parametrize(
    "fields", [{}, {"spec_path": "/a.yaml", "processing_guarantee": "at_least_once"}, {"tasks": ["0_1", "global"]}]
)
def test_what_was_migrated_is_examined_for_that_release_and_without_brokers(fields: dict[str, Any]) -> None:
    asked = migration.doctor_request({**REQUEST, **fields, "lose_headers": True}).to_json()
    said = {"application_id": "orders", "state_dir": "/srv/state", "release": "4.3", "offline": True, **fields}
    assert {name: value for name, value in asked.items() if value and name not in ("timeout", "compare_time")} == said


def test_the_program_takes_what_it_is_given_and_what_it_reports_is_understood(tmp_path: Path) -> None:
    report = migration.doctor_report_path(tmp_path / "reports" / "one.json")
    (tmp_path / "orders" / "0_0").mkdir(parents=True)
    asked = migration.doctor_request({**REQUEST, "state_dir": str(tmp_path)})
    assert main(["diagnose", "--request", json.dumps(asked.to_json()), "--report", str(report)]) == 0
    found = migration.findings_of(read_report(report))
    assert all(migration.finding_in_words(one) for one in found)


def test_what_cannot_be_examined_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "one.json"
    for asked, kind in (
        (json.dumps({"state_dir": str(tmp_path / "nowhere")}), "NotFound"),
        (json.dumps({"state_dirr": "/srv"}), "Invalid"),
        ("{", "Invalid"),
    ):
        code = main(["diagnose", "--request", asked, "--report", str(report)])
        assert (read_report(report)["error"], read_report(report)["exit_code"]) == (kind, code)
        assert capsys.readouterr().err


def test_what_is_bad_is_refused_unless_it_was_left_as_it_is() -> None:
    migration.check_findings([finding("note"), finding("warning"), finding("error", "0_0")], {"0_0"}, "here")
    problem = {"code": "store-not-closed", "what": "It is.", "task": "0_1", "store": "by-id"}
    with raises(Corrupted, "migrated-state-unsound", problems=[problem, {**problem, "task": ""}]) as refused:
        migration.check_findings([finding("loss"), finding("error", ""), finding("error", "0_0")], {"0_0"}, "here")
    lines = refused.value.what.splitlines()[1:]
    assert [line.split()[:2] for line in lines] == [["loss", "store-not-closed"], ["error", "store-not-closed"]]
    assert "(by-id of 0_1)" in lines[0]
    with raises(Corrupted, "migrated-state-unsound") as refused:
        migration.check_findings([finding("error")] * (migration._SHOWN + 5), set(), "here")
    assert refused.value.what.endswith("and 5 more")
    assert len(refused.value.context["problems"]) == migration._SHOWN + 5
