"""``statecore diff``: what a person reads, what a program reads, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from statecore.cli.main import main
from tests.unit.jobs.test_diff import OTHERS, ROWS, write


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
    assert lines[0] == "0_0 s: offset 5 against 7 of app-s-changelog-0"
    (row,) = [line.split() for line in lines if line.lstrip().startswith("0_0    s")]
    assert row[:7] == ["0_0", "s", "timestamped-key-value", "1", "1", "1", "1"]
    assert "  missing key d, there 9 bytes 000000000000000034" in lines
    assert "  extra key a, here 9 bytes 000000000000000031" in lines
    assert "  different key b, here 9 bytes 000000000000000032, there 13 bytes 00000000000000006f74686572" in lines
    assert lines[-1].startswith(
        "rows: 1 missing, 1 extra, 1 different; all of these in stores that stand at other offsets: 1 stores,"
    )


def test_equal_directories_are_exit_0_and_different_ones_exit_30(
    tmp_path: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "here", ROWS)
    write(tmp_path / "there", ROWS)
    assert main(words) == 0
    assert "every row is equal: 1 stores" in capfd.readouterr().out
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
    assert json.loads(capfd.readouterr().out)["error"] == "NotFound"
    assert main([*words, "--with-changelog"]) == 13
