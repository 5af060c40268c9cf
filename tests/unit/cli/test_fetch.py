"""``statecore fetch`` on a command line: what it prints, and what its exit code says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from statecore.cli.main import main
from tests.unit.jobs.published import Shop


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    shop = Shop(tmp_path_factory.mktemp("shop"))
    shop.publish([150, 200])
    return shop


def fetch(shop: Shop, state_dir: Path, *more: str, application: str = "orders") -> int:
    where = ["--repository", shop.url, "--application-id", application, "--state-dir", str(state_dir)]
    return main(["fetch", *where, *more])


def test_people_see_a_table_the_snapshot_and_what_came(
    shop: Shop, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert fetch(shop, tmp_path, "--plan") == 0
    planned = capfd.readouterr().out
    assert "would fetch 5 stores of 3 tasks" in planned
    assert not (tmp_path / "orders").exists()
    assert fetch(shop, tmp_path, "--task", "0_1", "--task", "global") == 0
    said = capfd.readouterr()
    for word in (
        f"orders in {tmp_path}",
        "0_1",
        "plain",
        "clicks",
        "names",
        "199",
        "200, 200",
        "fetched 3 stores of 2 tasks",
    ):
        assert word in said.out
    assert f"snapshot {shop.shelf.head().snapshots[0].snapshot}, of" in said.out
    assert "hours ago" in said.out or "days ago" in said.out
    assert "0_0" not in said.out
    assert "download:" in said.err
    assert fetch(shop, tmp_path) == 0
    assert "kept as they were: 0_1, global" in capfd.readouterr().out
    assert fetch(shop, tmp_path) == 0
    assert "nothing was to be fetched; kept as they were: 0_0, 0_1, global" in capfd.readouterr().out


def test_programs_get_one_document_with_a_version(
    shop: Shop, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert fetch(shop, tmp_path, "--json", "--instance", "1/2") == 0
    document = json.loads(capfd.readouterr().out)
    assert document["version"] == 1
    assert {store["task"] for store in document["stores"]} == {"0_1", "global"}
    assert document["placed"] is True
    assert document["downloaded_bytes"] > 0


def test_none_there_and_could_not_look_have_codes_of_their_own(
    shop: Shop, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fetch(shop, tmp_path, "--json", application="others") == 14
    assert json.loads(capfd.readouterr().out)["error"] == "NotFound"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    url = "s3://states/x?endpoint=http://127.0.0.1:1&region=us-east-1"
    words = ["--repository", url, "--application-id", "orders", "--state-dir", str(tmp_path)]
    assert main(["fetch", "--json", *words]) == 10
    document = json.loads(capfd.readouterr().out)
    assert document["error"] == "Retryable"
    assert "request_id" not in document, "the same command goes on"


@pytest.mark.parametrize(
    "words", [["--instance", "3/3"], ["--task", "0_0", "--instance", "0/1"], ["--task", "x"], ["--processes", "0"]]
)
def test_what_makes_no_sense_is_refused(shop: Shop, tmp_path: Path, words: list[str]) -> None:
    assert fetch(shop, tmp_path, *words) == 13
    assert not (tmp_path / "orders").exists()
