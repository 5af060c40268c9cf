"""``statecore info``: the first thing to type at night."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from statecore.cli.main import main
from statecore.formats.kinds import StoreKind
from statecore.jobs.planning.frozen_plan import ATTEMPT_SUFFIX, REPORT_SUFFIX
from statecore.jobs.repair.report import REPAIR_SUFFIX, RebuiltStores, RepairOutcome, RepairReport
from statecore.standby.promote.report import PROMOTE_SUFFIX, PromotedTask, PromoteOutcome, PromoteReport, PromoteVerdict
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.raising import code_said
from tests.unit.jobs.history.test_instance_history import Directory
from tests.unit.jobs.published import Shop
from tests.unit.jobs.reports import FAILURE, attempt, done, entry, failed, write

Run = Callable[..., tuple[int, str, str]]
FREE = "free: no process holds its lock"


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """A command line; exit code, stdout and stderr."""
    monkeypatch.setenv("STATECORE_REPORTS", str(tmp_path / "reports"))
    monkeypatch.delenv("STATECORE_STATE_DIR", raising=False)
    monkeypatch.setenv("COLUMNS", "160")

    def run_command(*words: object) -> tuple[int, str, str]:
        code = main(["info", *map(str, words)])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run_command


@pytest.fixture
def orders(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "state")


def test_it_says_who_restored_what_and_when(run: Run, orders: Directory) -> None:
    orders.restored(1, entry("by-id", 0, 1_234), entry("by-id", 1, 5))
    code, out, err = run("--state-dir", orders.directory.state_dir)
    assert (code, err) == (0, "")
    assert f"orders on {socket.gethostname()} in {orders.directory.state_dir}" in out
    assert FREE in out
    assert "by kafka on " in out
    assert f"request {orders.attempt(1).request_id}, plan p" in out
    assert "1,239 rows" in out


def test_the_copies_of_a_standby_are_shown(run: Run, orders: Directory) -> None:
    for task in ("0_0", "0_1", "0_2"):
        (orders.directory.task_path(task)).mkdir()
    for task in ("0_0", "0_1", "0_9"):
        logs = orders.work / "standby" / task / "logs.json"
        logs.parent.mkdir(parents=True)
        logs.touch()
    assert "copies of statecore standby: 0_0, 0_1\n" in run("--state-dir", orders.directory.state_dir)[1]
    assert orders.info().to_json()["standby_tasks"] == ["0_0", "0_1"]


def test_the_last_promotion_is_shown(run: Run, orders: Directory) -> None:
    orders.restored(1, entry("by-id", 0, 5))
    state = orders.directory.state_dir
    assert "last promotion" not in run("--state-dir", state)[1]
    tasks = (PromotedTask("0_0", PromoteVerdict.PROMOTED, "ahead"), PromotedTask("0_1", PromoteVerdict.KEPT, "as far"))
    for hour, there in ((9, "/newer"), (8, "/older")):
        finished = f"2026-11-28T0{hour}:00:00+00:00"
        attempt = vars(orders.attempt(hour))
        report = PromoteReport(
            **attempt, finished=finished, standby_dir=there, outcome=PromoteOutcome.DONE, tasks=tasks
        )
        orders.say(hour, PROMOTE_SUFFIX, report.to_json())
    code, out, _ = run("--state-dir", state)
    assert (code, "from /newer: 1 of 2 tasks promoted" in out, "/older" in out) == (0, True, False)
    (found,) = json.loads(run("--state-dir", state, "--json")[1])["applications"]
    assert found["last_promotion"]["standby_dir"] == "/newer"


def test_the_last_repair_says_what_was_rebuilt(run: Run, orders: Directory) -> None:
    orders.restored(1, entry("by-id", 0, 5))
    rebuilt = (RebuiltStores(("by-id",), ("0_0", "0_1"), ("file-missing",), 7),)
    attempt = vars(orders.attempt(2))
    report = RepairReport(
        **attempt, finished="now", outcome=RepairOutcome.REPAIRED, plan_id="p", exit_code=0, rebuilt=rebuilt
    )
    orders.say(2, REPAIR_SUFFIX, report.to_json())
    assert "by-id rebuilt in 0_0, 0_1; findings left: none" in run("--state-dir", orders.directory.state_dir)[1]


def test_uncounted_rows_are_not_shown_as_minus_one(run: Run, orders: Directory) -> None:
    orders.restored(1, entry("by-id", 0, -1, digest=""), entry("by-id", 1, -1, digest=""))
    out = run("--state-dir", orders.directory.state_dir)[1]
    assert "not counted" in out
    assert " -1" not in out


def test_a_processor_that_holds_no_lock_is_named(run: Run, orders: Directory) -> None:
    path = orders.directory.path / "0_0" / "rocksdb" / "by-id"
    path.parent.mkdir(parents=True)
    with RocksDBStore(path, StoreKind.KEY_VALUE, create=True):
        code, out, _ = run("--state-dir", orders.directory.state_dir)
        assert code == 0
        assert f"process {os.getpid()} (this process)" in out
        assert FREE not in out
        (found,) = json.loads(run("--state-dir", orders.directory.state_dir, "--json")[1])["applications"]
        assert (found["holder"], found["writer"]["process"]) == (None, os.getpid())
    assert FREE in run("--state-dir", orders.directory.state_dir)[1]


def test_an_unfinished_restore_says_how_to_go_on(run: Run, orders: Directory) -> None:
    orders.plan(1)
    orders.say(1, ATTEMPT_SUFFIX, orders.attempt(1).failed({**FAILURE, "code": "application-running"}, "read"))
    code, out, _ = run("--state-dir", orders.directory.state_dir)
    assert code == 0
    assert "unfinished restore" in out
    assert "the phase plan" in out
    assert "Fenced (application-running): " in out
    state, request = orders.directory.state_dir, orders.attempt(1).request_id
    words = " ".join(out.split())
    assert f"--state-dir {state} --request-id {request}" in words
    assert "statecore restore --spec" in words
    (found,) = json.loads(run("--state-dir", state, "--json")[1])["applications"]
    assert found["last_restore"] is None


def test_an_unfinished_job_shows_the_command_that_resumes_it(run: Run, orders: Directory) -> None:
    orders.plan(1, words=("advance", "--store", "by id", "--partition", "3"))
    _, out, _ = run("--state-dir", orders.directory.state_dir)
    assert "unfinished advance" in out
    state, request = orders.directory.state_dir, orders.attempt(1).request_id
    words = f"--spec STORES.YAML --state-dir {state} --store 'by id' --partition 3 --request-id {request}"
    assert f"statecore advance {words}" in " ".join(out.split())
    orders.plan(1, words=("advance", "--spec", "/srv/a.yaml"))
    _, out, _ = run("--state-dir", orders.directory.state_dir)
    words = f"statecore advance --state-dir {state} --spec /srv/a.yaml --request-id {request}"
    assert words in " ".join(out.split())


def test_the_doctor_prints_the_command_that_resumes_an_unfinished_job(
    run: Run, orders: Directory, capfd: pytest.CaptureFixture[str]
) -> None:
    state, request = orders.directory.state_dir, orders.attempt(1).request_id
    orders.plan(1, words=("advance",))
    (orders.directory.work_path / "0123456789abcdef" / "runs").mkdir(parents=True)
    (orders.directory.path / "0_0" / "rocksdb").mkdir(parents=True)
    command = f"statecore advance --spec STORES.YAML --state-dir {state} --request-id {request}"
    assert command in " ".join(run("--state-dir", state)[1].split())
    assert main(["doctor", "--state-dir", str(state)]) == 20
    assert command in " ".join(capfd.readouterr().out.split())


def test_where_the_last_restore_found_nothing_to_do_the_one_before_it_is_shown(run: Run, orders: Directory) -> None:
    orders.restored(1, entry("by-id", 0, 1_234), entry("by-id", 1, 5))
    orders.plan(2)
    orders.say(2, REPORT_SUFFIX, done(orders.attempt(2), notes=["Two are kept."]))
    _, out, _ = run("--state-dir", orders.directory.state_dir)
    assert "0 store partitions" not in out
    last, before = out.partition("last restore")[2].split("the restore before it")
    assert f"request {orders.attempt(2).request_id}" in last
    assert "\n    note: Two are kept." in last
    assert f"request {orders.attempt(1).request_id}" in before
    assert "1,239 rows" in before
    assert before.count("by-id") == 1, "the table of the stores"


def test_the_holder_of_the_lock_is_shown(run: Run, orders: Directory) -> None:
    code = "import sys; from pathlib import Path; from statecore.statedir.state_directory import StateDirectory\n"
    code += (
        f"with StateDirectory(Path({str(orders.directory.state_dir)!r}), 'orders').lock(): print(); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        _, out, _ = run("--state-dir", orders.directory.state_dir)
        process.communicate(b"")
    assert f"in use by process {process.pid} (" in out


def test_a_document_has_a_version_and_every_application(run: Run, orders: Directory, tmp_path: Path) -> None:
    orders.restored(1, entry("s", 0))
    (tmp_path / "state" / "payments" / "0_0").mkdir(parents=True)
    code, out, _ = run("--state-dir", tmp_path / "state", "--json")
    document = json.loads(out)
    assert (code, document["version"], document["reports"]) == (0, 1, None)
    first, second = document["applications"]
    assert (first["application_id"], first["last_restore"]["outcome"]) == ("orders", "restored")
    assert (second["application_id"], second["last_restore"], second["was_read"]) == ("payments", None, True)


def test_without_a_state_directory_it_says_what_the_reports_say(run: Run, orders: Directory, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    code, _, err = run()
    assert (code, code_said(err)) == (2, "option-missing")
    reports.mkdir()
    code, _, err = run()
    assert (code, code_said(err)) == (14, "reports-not-found")
    orders.restored(1)
    write(reports, 1, done(orders.attempt(1), entry("s", 0)))
    write(reports, 2, failed(attempt(2, "/far", "elsewhere")))
    code, out, _ = run()
    assert code == 0
    assert "elsewhere in /far" in out
    far, near = sorted(json.loads(run("--json")[1])["applications"], key=lambda one: one["was_read"])
    assert (far["state_dir"], far["was_read"], near["was_read"], near["holder"]) == ("/far", False, True, None)
    assert FREE in out
    assert not (reports / ".index").exists()  # a visitor leaves nothing behind
    assert run("--application-id", "absent")[0] == 14
    code, _, err = run("--reports", tmp_path / "nowhere")
    assert (code, code_said(err)) == (14, "directory-not-found")


def test_a_state_directory_can_be_named_by_the_site(
    run: Run, orders: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATECORE_STATE_DIR", str(orders.directory.state_dir))
    assert "orders on" in run()[1]


@pytest.mark.parametrize("words", [[], ["--application-id", "orders"]])
def test_what_is_not_there_is_not_found(run: Run, tmp_path: Path, words: list[str]) -> None:
    code, _, err = run("--state-dir", tmp_path / "absent", *words)
    assert (code, code_said(err)) == (14, "state-dir-not-found")
    (tmp_path / "empty").mkdir()
    code, out, err = run("--state-dir", tmp_path / "empty", *words)
    assert (code, out) == (14, "")
    assert "state.dir" in err


def test_a_directory_that_may_not_be_read_is_refused(
    run: Run, orders: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir
    within = ".statecore"

    def denied(path: object) -> object:
        if within in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(str(path))

    orders.restored(1)
    monkeypatch.setattr(os, "scandir", denied)
    code, _, err = run("--state-dir", orders.directory.state_dir)
    assert (code, code_said(err)) == (13, "permission-denied")
    within = "reports"
    code, out, err = run("--state-dir", orders.directory.state_dir)
    assert (code, "Permission denied" in err) == (0, True)
    assert "last restore" in out
    code, _, err = run()
    assert (code, code_said(err)) == (13, "permission-denied")


def test_a_directory_that_may_not_be_read_hides_neither_its_reports_nor_the_others(
    run: Run, orders: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def denied(path: object) -> object:
        if str(path).startswith(str(orders.work)):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(str(path))

    write(tmp_path / "reports", 1, done(orders.attempt(1), entry("by-id", 0)))
    write(tmp_path / "reports", 2, done(attempt(2, "/elsewhere", application="other"), entry("s", 0)), "other")
    monkeypatch.setattr(os, "scandir", denied)
    code, out, _ = run("--json")
    assert code == 0
    found = {one["application_id"]: one for one in json.loads(out)["applications"]}
    assert found["other"]["last_restore"] is not None
    assert found["orders"]["last_restore"] is not None
    assert found["orders"]["was_read"] is False
    assert "cannot be read" in found["orders"]["problems"][0]


@pytest.fixture
def fetched(tmp_path: Path) -> tuple[Shop, Path]:
    """A repository, and a directory that was fetched from it."""
    (tmp_path / "shop").mkdir()
    shop = Shop(tmp_path / "shop")
    shop.publish([50])
    main(["fetch", "--repository", shop.url, "--application-id", "orders", "--state-dir", str(tmp_path / "fetched")])
    return shop, tmp_path / "fetched"


def test_it_says_what_was_fetched_and_when(run: Run, fetched: tuple[Shop, Path]) -> None:
    shop, state_dir = fetched
    code, out, _ = run("--state-dir", state_dir)
    assert code == 0
    assert "last fetch " in out
    assert f"snapshot {shop.app_repository.head().snapshots[0].snapshot} in {shop.url}" in out.replace("\n    ", "")
    assert "0_0, 0_1, global" in out
    (found,) = json.loads(run("--state-dir", state_dir, "--json")[1])["applications"]
    assert found["last_restore"] is None


def test_a_fetch_that_did_not_come_to_its_end_says_how_to_go_on(run: Run, fetched: tuple[Shop, Path]) -> None:
    _, state_dir = fetched
    (report,) = (state_dir / "orders" / ".statecore" / "plans").iterdir()
    document = json.loads(report.read_text())
    report.write_text(json.dumps({**document, "finished": ""}))
    code, out, _ = run("--state-dir", state_dir)
    assert code == 0
    assert "unfinished fetch, started" in out
    assert f"--request-id {document['request_id']}" in out


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> str:
    """An object store that does not answer."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    return "s3://states/x?endpoint=http://127.0.0.1:1&region=us-east-1"


def test_a_repository_that_is_away_does_not_hide_the_directory(run: Run, orders: Directory, away: str) -> None:
    orders.restored(1, entry("by-id", 0, 1_234))
    code, out, _ = run("--state-dir", orders.directory.state_dir, "--repository", away)
    assert code == 10
    assert "1,234 rows" in out
    assert f"repository {away}" in out
    code, out, _ = run("--state-dir", orders.directory.state_dir, "--repository", away, "--json")
    document = json.loads(out)
    assert code == 10
    assert document["applications"][0]["last_restore"]["outcome"] == "restored"
    assert document["repository"]["applications"] == []
    assert document["repository"]["error"]["code"] == "object-store-unreachable"


@pytest.mark.full
def test_a_repository_that_is_away_is_the_error_where_nothing_else_was_asked_for(run: Run, away: str) -> None:
    code, out, err = run("--repository", away)
    assert (code, out) == (10, "")
    assert code_said(err) == "object-store-unreachable"


def test_a_repository_that_is_not_there_does_not_hide_the_directory(
    run: Run, orders: Directory, tmp_path: Path
) -> None:
    orders.restored(1)
    absent = (tmp_path / "absent").as_uri()
    code, out, _ = run("--state-dir", orders.directory.state_dir, "--repository", absent)
    assert code == 14
    assert "last restore" in out
    assert absent in out
    _, out, _ = run("--state-dir", orders.directory.state_dir, "--repository", absent, "--json")
    assert json.loads(out)["repository"]["error"]["code"] == "repository-not-found"
