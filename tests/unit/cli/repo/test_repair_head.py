"""``statecore repo repair-head``: printed first, done with ``--apply``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from statecore.cli.main import main
from tests.unit.repository.published import Publishing, flip

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def orders(tmp_path: Path) -> Publishing:
    (tmp_path / "scratch").mkdir()
    return Publishing((tmp_path / "repository").as_uri(), tmp_path / "scratch")


@pytest.fixture
def head(orders: Publishing, tmp_path: Path) -> Path:
    return tmp_path / "repository" / orders.app_repository.names.head


@pytest.fixture
def repair(capfd: pytest.CaptureFixture[str], orders: Publishing) -> Run:
    def run_command(*words: str, application_id: str = "orders") -> tuple[int, str, str]:
        code = main(
            [
                "repo",
                "repair-head",
                "--repository",
                orders.app_repository.url,
                "--application-id",
                application_id,
                *words,
            ]
        )
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run_command


def test_a_healthy_head_is_reported_healthy(orders: Publishing, head: Path, repair: Run) -> None:
    orders.publish(10)
    before = head.read_bytes()
    for words in ([], ["--apply"]):
        code, out, _ = repair(*words)
        assert code == 0
        assert "1 snapshot" in out
    document = json.loads(repair("--apply", "--json")[1])
    assert (document["wrong"], document["applied"], document["left_out"]) == (None, False, [])
    assert head.read_bytes() == before


def test_the_plan_is_printed_and_done_only_when_asked_for(
    orders: Publishing, head: Path, repair: Run, tmp_path: Path
) -> None:
    first, second, third = (orders.publish(end).snapshot for end in (10, 20, 30))
    head.unlink()
    flip(tmp_path / "repository" / orders.app_repository.names.manifest(second), 60)
    code, out, _ = repair()
    assert code == 0
    assert not head.exists()
    lines = out.splitlines()
    assert {"2", "1", "4"} <= set(lines[1].replace(",", "").split())
    assert [line.split()[0].rstrip(",") for line in lines[2:4]] == [third, first]
    assert lines[4].startswith(f"  left out: {second}: ")
    assert "--apply" in lines[-1]
    planned = json.loads(repair("--json")[1])
    code, out, _ = repair("--apply")
    assert code == 0
    assert "--apply" not in out
    head_now = orders.app_repository.head()
    assert (head_now.epoch, head_now.generation) == (1, 4)
    assert [entry.snapshot for entry in orders.app_repository.head().snapshots] == [third, first]
    assert [one["snapshot"] for one in planned["head"]["snapshots"]] == [third, first]
    assert (planned["version"], planned["applied"], planned["wrong"]) == (1, False, "it is missing")
    assert [one["snapshot"] for one in planned["left_out"]] == [second]


def test_of_many_checkpoints_that_a_head_has_let_go_some_are_named_and_the_rest_counted(
    orders: Publishing, repair: Run
) -> None:
    orders.origin = "checkpoint"
    made = [orders.publish(end, [0]).snapshot for end in range(1, 36)]
    said = [line.strip() for line in repair()[1].splitlines() if "not named" in line]
    why = "the head that is there does not name it"
    assert said[:20] == [f"not named: {one}: {why}" for one in made[22:2:-1]]
    assert said[20:] == [f"not named: 3 more: {why} (--json names them)"]
    assert len(json.loads(repair("--json")[1])["left_out"]) == 23
