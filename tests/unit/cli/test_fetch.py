"""``statecore fetch`` on a command line: what it prints, and what its exit code says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from statecore.cli.main import main
from tests.harness.case_selection import one_of
from tests.harness.raising import code_said
from tests.unit.jobs.published import Shop


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    shop = Shop(tmp_path_factory.mktemp("shop"))
    shop.publish([150, 200])
    return shop


def fetch(shop: Shop, state_dir: Path, *more: str, application: str = "orders") -> int:
    where = ["--repository", shop.url, "--application-id", application, "--state-dir", str(state_dir)]
    return main(["fetch", *where, *more])


def test_tasks_that_are_placed_already_are_named_once(
    shop: Shop, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert fetch(shop, tmp_path, "--task", "0_1", "--task", "global") == 0
    assert "0_0" not in capfd.readouterr().out
    for placed in ("0_1, global", "0_0, 0_1, global"):
        assert fetch(shop, tmp_path) == 0
        out, err = capfd.readouterr()
        assert (out.count(placed), err.count(placed), err.count("--replace"), out.count("--replace")) == (1, 0, 1, 0)


def test_programs_get_one_document_with_a_version(
    shop: Shop, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert fetch(shop, tmp_path, "--json", "--instance", "1/2") == 0
    document = json.loads(capfd.readouterr().out)
    assert document["version"] == 1
    assert {store["task"] for store in document["stores"]} == {"0_1", "global"}
    assert document["placed"] is True
    assert document["downloaded_bytes"] > 0


def test_not_found_and_unreachable_have_their_own_exit_codes(
    shop: Shop, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fetch(shop, tmp_path, "--json", application="others") == 14
    assert json.loads(capfd.readouterr().out)["code"] == "snapshots-not-found"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    url = "s3://states/x?endpoint=http://127.0.0.1:1&region=us-east-1"
    words = ["--repository", url, "--application-id", "orders", "--state-dir", str(tmp_path)]
    assert main(["fetch", "--json", *words]) == 10
    document = json.loads(capfd.readouterr().out)
    assert document["code"] == "object-store-unreachable"
    assert "request_id" not in document, "the same command goes on"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Interrupted. The same command resumes it; finished downloads are reused."),
        (["--replace", "--request-id", "one"], "Interrupted. Resume it with the same command and --request-id one;"),
        (["--plan"], "Interrupted.\n"),
    ],
)
def test_an_interrupted_fetch_says_how_to_resume_it(
    shop: Shop,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    said: str,
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("statecore.jobs.fetch.run.run_fetch", interrupted)
    assert fetch(shop, tmp_path, *words) == 130
    assert f"statecore: {said}" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "exit_code", "code"),
    [
        (["--instance", "3/3"], 13, "instance-invalid"),
        (["--task", "0_0", "--instance", "0/1"], 2, "options-conflict"),
        (["--task", "x"], 13, "task-invalid"),
        (["--processes", "0"], 13, "processes-invalid"),
    ],
)
def test_what_makes_no_sense_is_refused(
    shop: Shop, tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str], exit_code: int, code: str
) -> None:
    assert fetch(shop, tmp_path, *words) == exit_code
    assert code_said(capfd.readouterr().err) == code
    assert not (tmp_path / "orders").exists()


PAGE = (Path(__file__).resolve().parents[3] / "docs" / "fetch.md").read_text()


def line_of_systemd() -> str:
    """What systemd would hand to the shell."""
    (line,) = re.findall(r"^ExecStartPre=/bin/sh -c '(.*)'$", PAGE, re.MULTILINE)
    return str(line).replace("$$", "$").replace("/opt/statecore/bin/statecore", "statecore")


def line_of_init_container() -> str:
    """What the container's shell would run, as YAML folds it."""
    (folded,) = re.findall(r"^ {10}args:\n {12}- (.*?)\n {10}volumeMounts", PAGE, re.MULTILINE | re.DOTALL)
    line = " ".join(folded.split())
    assert " --bootstrap-servers kafka:9092 " in line
    return line.replace(" --bootstrap-servers kafka:9092 ", " ")  # no broker is here


def run_documented(line: str, shop: Shop, state_dir: Path) -> int:
    words = {
        "s3://states/production": shop.url,
        "/var/lib/kafka-streams": str(state_dir),
        "--state-dir /state ": f"--state-dir {state_dir} ",
        "statecore fetch": f"{sys.executable} -m statecore.cli.main fetch",
    }
    for word, mine in words.items():
        line = line.replace(word, mine)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HOSTNAME": "orders-1"}
    return subprocess.run(["/bin/sh", "-c", line], env=environment, capture_output=True, check=False).returncode


@pytest.mark.parametrize(
    "line", one_of([line_of_systemd(), line_of_init_container()]), ids=["systemd", "init container"]
)
def test_the_lines_of_the_page_start_the_first_deployment_and_later_ones_and_stop_at_what_is_wrong(
    shop: Shop, tmp_path: Path, line: str
) -> None:
    (tmp_path / "new").mkdir()
    new = Shop(tmp_path / "new")
    new.app_repository  # noqa: B018  (made, and empty)
    state_dir = tmp_path / "state"
    assert run_documented(line, new, state_dir) == 0
    assert not state_dir.exists()
    assert run_documented(line, shop, state_dir) == 0
    tasks = {path.name for path in (state_dir / "orders").iterdir() if not path.name.startswith(".")}
    assert tasks >= {"0_1", "global"}
    before = {path: path.stat().st_ino for path in state_dir.rglob("*.sst")}
    assert run_documented(line, shop, state_dir) == 0
    assert {path: path.stat().st_ino for path in state_dir.rglob("*.sst")} == before
    (tmp_path / "file").touch()
    assert run_documented(line, shop, tmp_path / "file") == 13, "its own exit code"
