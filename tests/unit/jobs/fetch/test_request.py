"""What a fetch is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Invalid
from statecore.jobs.fetch.request import FetchRequest
from tests.harness.raising import raises


@pytest.mark.parametrize(("task", "of_three"), [("0_0", 0), ("1_0", 1), ("2_5", 1), ("1_1", 2), ("10_11", 0)])
def test_a_task_is_the_share_of_one_instance(tmp_path: Path, task: str, of_three: int) -> None:
    wanting = [
        number
        for number in range(3)
        if FetchRequest(
            repository="file:///r", application_id="a", state_dir=str(tmp_path), instance=f"{number}/3"
        ).wants(task)
    ]
    assert wanting == [of_three]


@pytest.mark.parametrize("instance", ["3/3", "1", "-1/3", "0/0", "a/b", "0/3/4"])
def test_what_is_no_instance_is_refused(tmp_path: Path, instance: str) -> None:
    with raises(Invalid, "instance-invalid", instance=instance):
        FetchRequest(repository="file:///r", application_id="a", state_dir=str(tmp_path), instance=instance)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"tasks": ("0",)}, "task-invalid"),
        ({"tasks": ("0_0",), "instance": "0/1"}, "options-conflict"),
        ({"processes": 0}, "processes-invalid"),
        ({"replicas": ("s3://user:key@bucket/r",)}, "credentials-in-url"),
        ({"replicas": ("ftp://r",)}, "repository-url-invalid"),
    ],
)
def test_requests_that_make_no_sense_are_refused(tmp_path: Path, changes: dict[str, Any], code: str) -> None:
    with raises(Invalid, code):
        FetchRequest(repository="file:///r", application_id="a", state_dir=str(tmp_path), **changes)
