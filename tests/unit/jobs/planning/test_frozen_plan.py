"""Frozen plans on disk: read back, refused when damaged, and swept."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from statecore.errors import Invalid
from statecore.jobs.planning.frozen_plan import FROZEN_PLAN, FrozenPlan, load_plan, sweep_plans
from tests.unit.jobs.planning.plans import frozen_plan
from tests.unit.jobs.support import save_plan


@pytest.fixture
def frozen(tmp_path: Path) -> FrozenPlan:
    save_plan(tmp_path / "plans" / "one.json", frozen_plan())
    loaded = load_plan(tmp_path / "plans" / "one.json")
    assert loaded is not None
    return loaded


def test_a_plan_comes_back_from_its_file(frozen: FrozenPlan) -> None:
    assert frozen == frozen_plan()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "version None, and this release supports 5"),
        ('{"version": 4, "request_id": "one"}', "version 4, and this release supports 5"),
        ('{"version": 6}', "version 6"),
        ('{"version": true}', "version True"),
        ('{"version": 5, "plan": []}', "plan"),
        ('{"version": 5, "plan": {}, "partitions": [], "made_at": 1, "request_id": "one"}', "application_id"),
    ],
)
def test_a_plan_file_that_is_torn_or_of_another_release_is_refused(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "p.json").write_text(content)
    with pytest.raises(Invalid, match=said) as refused:
        load_plan(tmp_path / "p.json")
    assert "recreates" in refused.value.action


def test_a_changed_plan_file_is_refused(tmp_path: Path, frozen: FrozenPlan) -> None:
    """A hole in its ranges would be a smaller store that nobody could tell from the whole one."""
    path = tmp_path / "plans" / "one.json"
    document = json.loads(path.read_bytes())
    document["plan"]["partitions"][0]["ranges"] = [[0, 1]]
    changed = [json.dumps(document).encode()]
    source, data = random.Random(7), path.read_bytes()
    for _ in range(300):
        at = source.randrange(len(data))
        flipped = bytes([data[at] ^ 1 << source.randrange(7)])
        if not flipped.isspace() or not data[at : at + 1].isspace():
            changed.append(data[:at] + flipped + data[at + 1 :])
    for content in changed:
        path.write_bytes(content)
        with pytest.raises(Invalid, match="frozen plan") as refused:
            load_plan(path)
        assert "recreates" in refused.value.action


def test_an_unknown_field_of_a_plan_file_is_refused_by_name(tmp_path: Path, frozen: FrozenPlan) -> None:
    document = FROZEN_PLAN.to_json(frozen)
    document["plan"]["partitions"][1]["colour"] = "snapshot"
    (tmp_path / "p.json").write_text(json.dumps(document))
    with pytest.raises(Invalid, match=r"the unknown field plan\.partitions\[1\]\.colour"):
        load_plan(tmp_path / "p.json")


def test_without_a_plan_file_there_is_no_plan(tmp_path: Path) -> None:
    assert load_plan(tmp_path / "p.json") is None


def test_old_plans_and_reports_are_deleted_except_the_newest(tmp_path: Path) -> None:
    plans = tmp_path / "plans"
    plans.mkdir()
    day = 86_400
    for name, age in {"new.json": 0, "old.json": 40, "older.report": 50, "oldest.report": 60, "young.json": 20}.items():
        (plans / name).touch()
        os.utime(plans / name, (1e9 - age * day, 1e9 - age * day))
    sweep_plans(tmp_path, 1e9, keep_files=2)
    assert {file.name for file in plans.iterdir()} == {"new.json", "young.json"}
    os.utime(plans / "young.json", (1e9 - 90 * day, 1e9 - 90 * day))
    sweep_plans(tmp_path, 1e9, keep_files=2)
    assert {file.name for file in plans.iterdir()} == {"new.json", "young.json"}
