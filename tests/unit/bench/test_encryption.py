"""The benchmark of encryption, with little data."""

from __future__ import annotations

import pytest

from bench.encryption import Cost, main, table


def test_each_place_is_measured_with_and_without_encryption(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "")
    main(["--megabytes", "3", "--rounds", "1"])
    rows = [line.split(" | ")[0].strip("| ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows == ["S3", "S3, encrypted", "directory", "directory, encrypted"]


def test_the_best_round_counts() -> None:
    rounds = [(Cost(2.0, 1.0), Cost(1.0, 0.5)), (Cost(1.0, 2.0), Cost(4.0, 0.1))]
    assert table(100, {("S3", True): rounds}).splitlines()[-1] == "| S3, encrypted | 100 | 10.0 | 100 | 1.0 |"
