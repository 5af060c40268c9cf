"""``statecore repo compact``: planned with ``--plan``, done without, and loud about what is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from statecore.cli.main import main
from statecore.formats.kinds import StoreKind
from statecore.jobs.compact.report import CompactionOutcome
from tests.harness.raising import code_said
from tests.unit.jobs.compact.compacting import At, Farm, some_rows, spec_of

Run = Callable[..., tuple[int, str, str]]
PLAIN = At("0_0", "plain")


@pytest.fixture
def farm(tmp_path: Path) -> Farm:
    farm = Farm(tmp_path / "farm", spec_of({"plain": StoreKind.KEY_VALUE}))
    farm.checkpoint(*({PLAIN: some_rows(number)} for number in range(13)))
    return farm


@pytest.fixture
def compact(capfd: pytest.CaptureFixture[str], farm: Farm) -> Run:
    spec = farm.root / "stores.yaml"
    spec.write_text(
        "application_id: orders\nbootstrap_servers: broker:9\nprocessing_guarantee: at_least_once\n"
        "subtopologies:\n  0:\n    stores:\n      plain:\n        kind: key-value\n"
    )

    def run_command(*words: str) -> tuple[int, str, str]:
        code = main(["repo", "compact", "--spec", str(spec), "--repository", farm.url, *words])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run_command


def test_a_plan_says_what_would_be_merged(farm: Farm, compact: Run) -> None:
    before = farm.app_repository.head()
    code, out, _ = compact("--plan")
    assert code == 0
    assert "13" in out.split()
    assert "plain" in out
    assert farm.app_repository.head() == before
    document = json.loads(compact("--plan", "--json")[1])
    assert (document["version"], document["outcome"], document["snapshot"]) == (1, "planned", None)
    assert [one["runs"] for one in document["compacted"]] == [13]


def test_a_compaction_names_its_snapshot_and_a_second_one_has_nothing_to_do(farm: Farm, compact: Run) -> None:
    code, out, _ = compact()
    assert code == 0
    assert f"published {farm.app_repository.head().snapshots[0].snapshot}: " in out
    assert "no database" in compact()[1]
    farm.check()


def test_damage_is_printed_and_sets_the_exit_code(farm: Farm, compact: Run) -> None:
    (farm.root / "repository" / farm.runs(PLAIN)[3].extent.blob).unlink()
    code, _, err = compact()
    assert code == 12
    assert "'plain' of task 0_0" in err
    document = json.loads(compact("--json")[1])
    assert (document["outcome"], len(document["findings"])) == (CompactionOutcome.NOTHING_LEFT, 1)


def test_an_application_without_a_snapshot_is_reported(tmp_path: Path, compact: Run, farm: Farm) -> None:
    spec = farm.root / "stores.yaml"
    spec.write_text(spec.read_text().replace("orders", "others"))
    code, _, err = compact()
    assert code == 14
    assert code_said(err) == "snapshots-not-found"
