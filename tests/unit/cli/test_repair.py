"""``repair`` as a person sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from statecore.cli.main import main
from statecore.cli.repair import show
from statecore.jobs.attempt import Attempt
from statecore.jobs.repair.report import REPAIR_REPORT, RebuiltStores, RepairedTask, RepairOutcome, RepairReport
from tests.unit.doctor.stored import offsets, write_database

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """A repair of the application ``shop``; exit code, stdout and stderr."""

    def run_command(*words: str, width: int = 300) -> tuple[int, str, str]:
        monkeypatch.setenv("COLUMNS", str(width))
        code = main(["repair", "--state-dir", str(tmp_path), *words])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run_command


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "stores.yaml"
    path.write_text(
        "application_id: shop\nbootstrap_servers: nowhere:1\nprocessing_guarantee: exactly_once_v2\n"
        "subtopologies: {0: {stores: {orders: {kind: key-value}}}}\n"
    )
    return str(path)


def store(tmp_path: Path, task: str, status: int = 0) -> None:
    said = offsets("shop-orders-changelog", int(task[-1]), 41, status)
    write_database(tmp_path / f"shop/{task}/rocksdb/orders", {"default": [(b"a", b"1")], "offsets": said})


def test_a_plan_without_a_spec_promises_no_rebuild(run: Run, tmp_path: Path) -> None:
    store(tmp_path, "0_0", status=1)
    for words in ((), ("--apply",)):
        code, out, _ = run("--application-id", "shop", "--processing-guarantee", "exactly_once_v2", "--json", *words)
        report = json.loads(out)
        assert code == 21
        assert (report["rebuilt"], report["outcome"]) == ([], RepairOutcome.UNCHANGED)
        (left,) = report["remaining"]
        assert (left["task"], left["store"], left["code"]) == ("0_0", "orders", "store-not-closed")
        assert "--spec" in left["remedy"]


def test_nothing_to_repair_is_said_only_where_nothing_is_left(run: Run, tmp_path: Path) -> None:
    words = ("--application-id", "shop", "--processing-guarantee", "exactly_once_v2")
    store(tmp_path, "0_0", status=0)
    code, out, _ = run(*words)
    assert (code, out.splitlines()[-1]) == (0, "nothing to repair")
    store(tmp_path, "0_1", status=1)
    code, out, _ = run(*words)
    assert (code, "nothing to repair" in out, "nothing was changed" in out) == (21, False, True)


def test_a_plan_says_which_brokers_a_rebuild_needs(run: Run, spec: str, tmp_path: Path) -> None:
    store(tmp_path, "0_0", status=1)
    code, out, _ = run("--spec", spec, "--offline", "--json")
    (rebuilt,) = json.loads(out)["rebuilt"]
    assert (code, rebuilt["stores"], rebuilt["tasks"], rebuilt["codes"]) == (
        0,
        ["orders"],
        ["0_0"],
        ["store-not-closed"],
    )
    assert "nowhere:1" in rebuilt["sources"]
    assert "nowhere:1" in run("--spec", spec, "--offline")[1]


def test_notes_are_counted_where_there_are_any(run: Run, spec: str, tmp_path: Path) -> None:
    store(tmp_path, "0_0", status=1)
    assert run("--spec", spec, "--offline")[1].splitlines()[1] == "1 finding"
    (tmp_path / "shop/0_0/something.txt").write_text("of another tool")
    assert run("--spec", spec, "--offline")[1].splitlines()[1] == "2 findings, including 1 note"


def test_the_directory_of_replaced_files_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    attempt = Attempt.begin("app", "/state", "one")
    mended = (RepairedTask("0_0", ("set the status to closed",), ("global-store-not-closed",)),)
    rebuilt = (RebuiltStores(("table",), ("0_1",), ("file-missing",), 7, kept="/state/app/.statecore/replaced/two"),)
    kept = "/state/app/.statecore/replaced/one"
    report = RepairReport(**vars(attempt), finished="now", outcome=RepairOutcome.REPAIRED, plan_id="p", exit_code=0)
    show(replace(report, repaired=mended, rebuilt=rebuilt, kept=kept))
    said = " ".join(capsys.readouterr().out.split())
    assert said.endswith(f": {kept}, {rebuilt[0].kept}")
    assert REPAIR_REPORT.decode(REPAIR_REPORT.encode(replace(report, rebuilt=rebuilt))).rebuilt == rebuilt
    show(report)
    assert "kept" not in capsys.readouterr().out


def test_a_doubtful_rebuild_is_shown_with_its_doubts_and_approval_option(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    attempt = Attempt.begin("app", "/state", "one")
    doubt = "Nothing would be left of table: it is rebuilt from app-table-changelog-1 of topic 7, which has no record."
    rebuilt = (RebuiltStores(("table",), ("0_1",), ("file-missing",), doubts=(doubt,)),)
    report = RepairReport(**vars(attempt), finished="now", outcome=RepairOutcome.PLANNED, plan_id="p", exit_code=0)
    show(replace(report, rebuilt=rebuilt))
    said = capsys.readouterr().out
    assert doubt in said
    assert "--apply --approved p" in said
    show(report)
    assert "--approved" not in capsys.readouterr().out


@pytest.mark.parametrize(("words", "said"), [((), "Nothing was changed."), (("--apply",), "Every task is complete")])
def test_an_interruption_prints_the_state_of_the_tasks(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("statecore.jobs.repair.run.run_repair", stopped)
    code, _, err = run("--application-id", "shop", *words)
    assert code == 130
    assert f"statecore: Interrupted. {said}" in err
    assert err.count("same command") == bool(words)
    assert err.count("--request-id") == bool(words)
