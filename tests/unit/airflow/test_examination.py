from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statecore.airflow import examination
from statecore.cli import main as command
from statecore.errors import Corrupted

REQUEST = {"application_id": "orders", "state_dir": "/srv/state", "to": "4.3"}


def finding(severity: str, task: str = "0_1", **fields: Any) -> dict[str, Any]:
    return {
        "severity": severity,
        "code": "store-not-closed",
        "task": task,
        "store": "by-id",
        "what": "It is.",
        **fields,
    }


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, []),
        ({"spec_path": "/a.yaml", "processing_guarantee": "at_least_once"}, ["--spec", "/a.yaml"]),
        ({"processing_guarantee": "at_least_once"}, ["--processing-guarantee", "at_least_once"]),
        ({"tasks": ["0_1", "global"]}, ["--task", "0_1", "--task", "global"]),
    ],
)
def test_the_doctor_looks_at_what_was_migrated_for_that_release(fields: dict[str, Any], words: list[str]) -> None:
    said = examination.arguments({**REQUEST, **fields})
    assert said[:9] == [
        "doctor",
        "--json",
        "--offline",
        "--state-dir",
        "/srv/state",
        "--application-id",
        "orders",
        "--for",
        "4.3",
    ]
    assert said[9:] == words


def test_the_command_takes_what_it_is_given_and_what_it_says_is_understood(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "orders" / "0_0").mkdir(parents=True)
    command.main(examination.arguments({**REQUEST, "state_dir": str(tmp_path)}))
    found = examination.findings(capfd.readouterr().out.splitlines())
    assert found is not None
    assert all(examination.in_words(one) for one in found)


def test_what_is_no_examination_is_none() -> None:
    assert examination.findings(["{", "text", json.dumps({"error": "NotFound"})]) is None
    assert examination.findings([json.dumps({"applications": [{"findings": []}]}), "a last word"]) == []


def test_what_is_bad_is_refused_unless_it_was_left_as_it_is() -> None:
    examination.check([finding("note"), finding("warning"), finding("error", "0_0")], {"0_0"}, "here")
    with pytest.raises(
        Corrupted, match=r"finds 2 things .*\n  loss store-not-closed \(by-id of 0_1\): It is\.\n  error"
    ):
        examination.check([finding("loss"), finding("error", ""), finding("error", "0_0")], {"0_0"}, "here")
    with pytest.raises(Corrupted, match="and 5 more"):
        examination.check([finding("error")] * (examination._SHOWN + 5), set(), "here")
