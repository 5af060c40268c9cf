"""``statecore diff``: what a person reads, what a program reads, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from statecore.cli.main import main
from tests.unit.jobs.diff.test_run import OTHERS, ROWS, write


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", "160")
    here, there = tmp_path / "here", tmp_path / "there"
    return ["diff", "--application-id", "app", "--state-dir", str(here), "--with-state-dir", str(there)]


def test_differences_are_shown_with_offsets_first_and_examples_last(
    tmp_path: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "here", ROWS, 5)
    write(tmp_path / "there", OTHERS, 7)
    assert main(words) == 31
    lines = capfd.readouterr().out.splitlines()
    assert {"0_0", "5", "7", "app-s-changelog-0"} <= set(lines[0].replace(",", " ").replace(":", " ").split())
    (row,) = [line.split() for line in lines if line.lstrip().startswith("0_0    s")]
    assert row[:7] == ["0_0", "s", "timestamped-key-value", "1", "1", "1", "1"]
    examples = [line.replace(",", "").split() for line in lines if " key " in line and "bytes" in line]
    assert [(one[0], one[2], [word for word in one if len(word) >= 18]) for one in examples] == [
        ("extra", "a", ["000000000000000031"]),
        ("different", "b", ["000000000000000032", "00000000000000006f74686572"]),
        ("missing", "d", ["000000000000000034"]),
    ]
    assert lines[-1].startswith("rows: 1 missing, 1 extra, 1 different; ")


def test_equal_directories_are_exit_0_and_different_ones_exit_30(
    tmp_path: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "here", ROWS)
    write(tmp_path / "there", ROWS)
    assert main(words) == 0
    capfd.readouterr()
    write(tmp_path / "there", OTHERS, store="more")
    assert main([*words, "--json"]) == 30
    document = json.loads(capfd.readouterr().out)
    assert (document["verdict"], document["version"]) == ("different", 1)
    assert {one["store"]: one["compared"]["counts"]["missing"] for one in document["stores"]} == {"s": 0, "more": 3}


def test_what_cannot_be_compared_is_an_error_of_its_kind(
    tmp_path: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "here", ROWS)
    assert main([*words, "--json"]) == 14
    error = json.loads(capfd.readouterr().out)
    assert (error["error"], error["code"]) == ("NotFound", "state-dir-not-found")
    assert main([*words, "--with-changelog"]) == 2


def test_where_nothing_could_be_compared_nothing_is_called_equal(
    tmp_path: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    for side in ("here", "there"):
        (tmp_path / side / "app").mkdir(parents=True)
    assert main(words) == 32
    capfd.readouterr()
    assert main([*words, "--json"]) == 32
    assert json.loads(capfd.readouterr().out)["verdict"] == "nothing was compared"


def test_a_spec_that_decides_nothing_lets_no_gate_pass(
    tmp_path: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    write(write(tmp_path / "here", ROWS), ROWS, task="0_1")
    spec = {
        "application_id": "app",
        "bootstrap_servers": "127.0.0.1:1",
        "processing_guarantee": "at_least_once",
        "subtopologies": {"0": {"stores": {"s": {"kind": "?", "changelog": "app-s-changelog"}}}},
    }
    (tmp_path / "stores.yaml").write_text(json.dumps(spec))
    where = ["--spec", str(tmp_path / "stores.yaml"), "--state-dir", str(tmp_path / "here")]
    assert main(["diff", *where, "--with-changelog"]) == 32
    lines = capfd.readouterr().out.splitlines()
    assert [line.partition(": ")[2].partition(": ")[0] for line in lines[-3:-1]] == ["0_0/s", "0_1/s"]
    assert {"0", "2"} <= set(lines[-1].split())
