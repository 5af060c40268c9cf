"""The command line: what goes where, which exit code, and how quickly it answers."""

from __future__ import annotations

import importlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from statecore.cli import main as cli
from statecore.cli import restore
from statecore.errors import KINDS, Capacity, Corrupted, Invalid, NotFound, Retryable, missing_option
from statecore.jobs.read_report import ReadReport, StoreReport
from statecore.repository.publish.publication import Published
from tests.harness.raising import code_said

SPEC = """\
application_id: orders
bootstrap_servers: localhost:1
processing_guarantee: at_least_once
subtopologies: {0: {stores: {s: {kind: key-value}}}}
"""


SHAPE = ["error", "code", "exit_code", "what", "action", "context"]
"""The fields of an error."""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "statecore", *words], capture_output=True, text=True, timeout=1200, check=False
    )


def test_help_names_every_command_and_loads_nothing_heavy():
    code = (
        "import sys; from statecore.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'pyspark', 'numba', 'numpy', 'pyarrow', 'kafka', 'rocksdict', 'yaml', 'rich'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1200, check=False)
    assert process.returncode == 0, process.stderr
    assert all(f"  {name} " in process.stdout for name in cli.COMMANDS if not name.startswith("repo "))


def test_every_command_explains_itself():
    for name in cli.COMMANDS:
        process = run(*name.split(), "--help")
        assert process.returncode == 0
        assert "--json" in process.stdout


@pytest.mark.parametrize("group", ["", "repo"])
def test_the_help_fits_a_terminal_and_is_what_a_missing_command_is_answered_with(group):
    shown = run(*group.split(), "--help").stdout
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    if not group:
        first_day = ("discover", "restore", "checkpoint", "fetch", "doctor")
        assert [line.split()[0] for line in lines[:24] if line.startswith("  ")][:5] == list(first_day)
    missing = run(*group.split())
    assert (missing.returncode, missing.stdout) == (2, "")
    if group:
        assert missing.stderr.startswith(shown)
    else:
        first = missing.stderr.splitlines()
        assert len(first) <= 24
        assert [line.split()[0] for line in first if line.startswith("  ")][:5] == list(first_day)


def test_version():
    assert run("--version").stdout.startswith("statecore 0.")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("unknown",),
        ("repo",),
        ("repo", "unknown"),
        ("repo", "pin", "newest"),
        ("restore",),
        ("restore", "--spec", "x", "--partition", "a"),
        ("restore", "--spec", "x", "--state-dir", "y", "--memory-budget", "lots"),
    ],
)
def test_a_wrong_command_line_exits_with_2_and_says_how(words):
    process = run(*words)
    assert process.returncode == 2
    assert "usage: statecore" in process.stderr
    assert process.stdout == ""
    process = run(*words, "--json")
    assert process.returncode == 2
    assert "usage: statecore" in process.stderr
    document = json.loads(process.stdout)
    assert list(document) == SHAPE
    assert (document["code"], document["exit_code"]) == ("arguments-invalid", 2)


@pytest.mark.parametrize(
    ("words", "usage", "near"),
    [
        (["info", "--stat-dirs", "/d"], "statecore info", "--state-dir?"),
        (["repo", "snapshots", "--repository", "file:///r", "--hold"], "statecore repo snapshots", "--held?"),
        (["doctor", "--statedir", "/d"], "statecore doctor", "--state-dir?"),
        (["chekpoint"], "statecore COMMAND", "checkpoint?"),
    ],
)
def test_a_misspelt_option_or_command_is_answered_with_the_usage_of_its_command_and_the_nearest(
    capsys, words, usage, near
):
    with pytest.raises(SystemExit) as exited:
        cli.main(words)
    said = capsys.readouterr().err
    assert exited.value.code == 2
    assert said.startswith(f"usage: {usage} ")
    assert said.rstrip().endswith(f"did you mean {near}")


def test_an_error_is_printed_to_stderr_with_its_action_and_exit_code(tmp_path):
    process = run("restore", "--spec", str(tmp_path / "absent.yaml"), "--state-dir", str(tmp_path))
    assert process.returncode == 14
    assert process.stdout == ""
    assert code_said(process.stderr) == "spec-not-found"


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_reader_that_exits_first_is_no_defect(tmp_path, more):
    (tmp_path / "app/0_0").mkdir(parents=True)
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "statecore.cli.main", "info", "--state-dir", str(tmp_path), *more]
    process = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=1200, check=False)
    os.close(writing)
    assert (process.returncode, process.stderr) == (141, b"")


def test_a_wrong_spec_is_refused_before_spark_is_loaded(tmp_path):
    spec = tmp_path / "stores.yaml"
    spec.write_text(SPEC.replace("key-value", "keyvalue"))
    code = (
        "import sys; from statecore.cli.main import main\n"
        "code = main(sys.argv[1:])\n"
        "sys.exit(100 if 'pyspark' in sys.modules else code)"
    )
    words = ["restore", "--spec", str(spec), "--state-dir", str(tmp_path), "--json"]
    command = [sys.executable, "-c", code, *words]
    process = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert process.returncode == 13
    document = json.loads(process.stdout)
    assert (document["error"], document["code"]) == ("Invalid", "spec-invalid")
    assert "'key-value'" in document["context"]["problems"][0]


def run_here(monkeypatch, capfd, action, *, as_json: bool):
    """The main function around a command that does ``action``."""

    class Fake:
        def add_arguments(self, parser):
            pass

        def run(self, arguments, output):
            return action(output)

    monkeypatch.setattr(importlib, "import_module", lambda name: Fake())
    code = cli.main(["restore", *(["--json"] if as_json else [])])
    captured = capfd.readouterr()
    return code, captured.out, captured.err


def raising(error):
    def action(output):
        raise error

    return action


@pytest.mark.parametrize("kind", KINDS.values())
def test_each_kind_of_error_has_its_exit_code_and_document(monkeypatch, capfd, kind):
    error = kind("It happened.", code="it-happened", action="Do this.", task="0_1")
    code, out, err = run_here(monkeypatch, capfd, raising(error), as_json=True)
    assert code == kind.exit_code
    assert json.loads(out) == error.to_json()
    assert code_said(err) == "it-happened"
    assert (error.what in err, error.action in err) == (True, True)


def test_a_missing_option_is_a_wrong_command_line_whoever_finds_it(monkeypatch, capfd):
    error = missing_option("No spec was given.", "Give --spec.", "spec")
    code, out, err = run_here(monkeypatch, capfd, raising(error), as_json=True)
    document = json.loads(out)
    assert (code, document["error"], document["code"]) == (2, "Misused", "option-missing")
    assert document["exit_code"] == 2
    assert code_said(err) == "option-missing"


def test_a_number_that_makes_no_sense_is_refused_alike_by_every_command(tmp_path):
    spec = tmp_path / "stores.yaml"
    spec.write_text(SPEC)
    process = run(
        "restore", "--spec", str(spec), "--state-dir", str(tmp_path), "--engine", "processes", "--processes", "0"
    )
    assert (process.returncode, code_said(process.stderr)) == (13, "processes-invalid")


@pytest.mark.parametrize(
    ("error", "code", "named"), [(KeyboardInterrupt(), 130, "interrupted"), (ZeroDivisionError("x"), 1, "defect")]
)
def test_an_interrupt_and_a_defect_have_exit_codes_and_documents_too(monkeypatch, capfd, error, code, named):
    found, out, err = run_here(monkeypatch, capfd, raising(error), as_json=True)
    assert found == code
    document = json.loads(out)
    assert (document["exit_code"], document["code"]) == (code, named)
    assert [name for name in document if name != "request_id"] == SHAPE
    assert ("trace" in document["context"]) is (code == 1)
    assert ("Traceback" in err) is (code == 1)


@pytest.fixture
def default_sigint():
    """Python's own handler: a SparkContext in this process leaves another one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("number", "kind", "code"), [(signal.SIGINT, "Interrupted", 130), (signal.SIGTERM, "Terminated", 143)]
)
def test_what_fails_after_a_signal_is_of_the_signal(monkeypatch, capfd, default_sigint, number, kind, code):
    def broken_by_it(output):
        try:
            os.kill(os.getpid(), number)
            time.sleep(600)
        except KeyboardInterrupt:
            raise Retryable("A worker was lost.", code="test-error", action="Wait.") from None

    before = signal.getsignal(number)
    found, out, err = run_here(monkeypatch, capfd, broken_by_it, as_json=True)
    document = json.loads(out)
    assert (found, document["error"], document["code"]) == (code, kind, kind.lower())
    assert document["context"] == {"signal": number.name}
    assert "A worker was lost" not in err
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(
    ("error", "code"),
    [(Capacity("It happened.", code="test-error", action="Do this."), Capacity.exit_code), (KeyboardInterrupt(), 130)],
)
def test_an_error_keeps_its_exit_code_if_stdout_is_closed(monkeypatch, capfd, error, code):
    def gone(output):
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, output._saved)
        os.close(writer)
        raise error

    found, _, err = run_here(monkeypatch, capfd, gone, as_json=True)
    assert found == code
    assert "Traceback" not in err


def test_under_json_nothing_but_the_document_reaches_stdout(monkeypatch, capfd):
    def noisy(output):
        print("a library prints")
        subprocess.run(["echo", "a child prints"], check=True)
        output.text("the result in words")
        output.document({"rows": 1})
        return 0

    code, out, err = run_here(monkeypatch, capfd, noisy, as_json=True)
    assert (code, json.loads(out)) == (0, {"rows": 1})
    assert "a library prints" in err
    assert "a child prints" in err
    code, out, err = run_here(monkeypatch, capfd, noisy, as_json=False)
    assert "the result in words" in out
    assert "rows" not in out


def test_a_large_document_is_written_whole(monkeypatch, capfd):
    document = {"stores": ["x" * 1000] * 2000}

    def action(output):
        output.document(document)
        return 0

    _, out, _ = run_here(monkeypatch, capfd, action, as_json=True)
    assert json.loads(out) == document


def test_the_report_is_a_table_with_every_store_and_the_tail_that_is_left(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    store = StoreReport(
        task="0_1", store="latest-[flight]", partition=1, kind="key-value", changelog="t", start=0, end=1234567,
        committed_offset=1234566, records=1234000, tombstones=3, null_keys=0, aborted=9, rows=4321, bytes=99999,
        file_bytes=123456, digest="0123456789abcdef", runs=2, seconds=1.25, tail_left=77, max_timestamp=5,
    )  # fmt: skip
    report = ReadReport("app", "p", "exactly_once_v2", "/state", 12.5, {}, (store,), ("Something to know.",))
    restore.show_report(report)
    shown = capsys.readouterr().out
    for text in ("latest-[flight]", "1,234,000", "4,321", "99,999", "1234566", "77", "1.2", "0123456789ab"):
        assert text in shown
    assert "12.5 s" in shown
    assert "note: Something to know." in shown


def test_the_offsets_of_a_global_store_are_shown_partition_by_partition_and_an_unknown_one_as_such(capsys):
    common = {
        "kind": "key-value", "changelog": "t", "start": 0, "end": 30, "records": 30, "tombstones": 0, "null_keys": 0,
        "aborted": 0, "rows": 4, "bytes": 9, "file_bytes": 9, "digest": "0", "runs": 2, "seconds": 1.0, "tail_left": 0,
        "max_timestamp": 5,
    }  # fmt: skip
    of_global = StoreReport("global", "table", -1, committed_offset=30, offsets={"t-0": 11, "t-1": 19}, **common)
    empty = StoreReport("0_0", "empty", 0, committed_offset=-4, offsets={"e-0": -4}, **common)
    restore.show_report(ReadReport("app", "p", "at_least_once", "/state", 1.0, {}, (of_global, empty)))
    lines = {name: line for line in capsys.readouterr().out.splitlines() for name in ("table", "empty") if name in line}
    assert "11, 19" in lines["table"]
    assert "unknown" in lines["empty"]


def test_a_published_restore_is_shown_without_uncounted_rows(capsys):
    common = {
        "kind": "key-value", "changelog": "t", "start": 0, "end": 30, "tombstones": 0, "null_keys": 0, "aborted": 0,
        "file_bytes": 9, "digest": "", "seconds": 1.0, "tail_left": 0, "runs": 2, "max_timestamp": 5, "records": 30,
    }  # fmt: skip
    store = StoreReport("0_0", "by-id", 0, committed_offset=29, offsets={"t-0": 29}, rows=-1, bytes=-1, **common)
    published = Published("20261123T000000Z-0a1b2c3d", "8cc6", "2026-11-23T00:00:00.000Z", 1, 9, 9)
    of = {"repository": "s3://states/a", "published": published}
    restore.show_report(ReadReport("app", "p", "at_least_once", "", 1.0, {}, (store,), **of))
    shown = capsys.readouterr().out
    assert "app in s3://states/a" in shown
    assert "-1" not in shown
    assert "rows" not in shown.splitlines()[-2]
    assert published.snapshot in shown.splitlines()[-1]


def test_the_request_is_what_the_command_line_says(monkeypatch, tmp_path, capfd):
    seen = {}

    def fake_restore(request, engine, progress, *, faults, say):
        seen.update(request=request, master=engine.master, spark_conf=engine.conf)
        raise Corrupted("Stop here.", code="test-error", action="Nothing.")

    import statecore.jobs.restore.run as module

    monkeypatch.setattr(module, "run_restore", fake_restore)
    spec = tmp_path / "stores.yaml"
    spec.write_text(SPEC)
    words = ["restore", "--spec", str(spec), "--state-dir", str(tmp_path / "state"), "--store", "b", "--store", "a",
             "--partition", "3", "--partition", "1", "--replace", "--plan", "--master", "local[1]",
             "--memory-budget", "64m", "--transaction-wait", "5", "--timeout", "7", "--request-id", "r",
             "--staging-dir", str(tmp_path / "staging"), "--owner", "4242:4243", "--spark-conf", "spark.cores.max=8",
             "--spark-conf", "spark.driver.extraJavaOptions=-Da=b"]  # fmt: skip
    assert cli.main(words) == 12
    assert seen["spark_conf"] == {"spark.cores.max": "8", "spark.driver.extraJavaOptions": "-Da=b"}
    request = seen["request"]
    assert (request.stores, request.partitions) == (("b", "a"), (1, 3))
    assert (request.replace, request.plan_only, seen["master"]) == (True, True, "local[1]")
    assert (request.memory_budget, request.transaction_wait, request.timeout) == (64 << 20, 5.0, 7.0)
    assert (request.state_dir, request.spec_path, request.request_id) == (str(tmp_path / "state"), str(spec), "r")
    assert request.staging_dir == str(tmp_path / "staging")
    assert request.owner == "4242:4243"


def test_a_base_that_no_restore_can_have_is_refused():
    process = run("restore", "--spec", "x", "--state-dir", "y", "--from", "yesterday")
    assert process.returncode in (13, 14)


@pytest.mark.parametrize(
    ("error", "goes_on"),
    [
        (Retryable("It broke.", code="test-error", action="Wait."), True),
        (Capacity("It is full.", code="test-error", action="Make room."), True),
        (KeyboardInterrupt(), True),
        (Corrupted("It is damaged.", code="test-error", action="Repair the head.", goes_on=True), True),
        (Invalid("No.", code="test-error", action="Do."), False),
    ],
)
def test_only_resumable_errors_have_the_request_id(monkeypatch, capfd, error, goes_on):
    def action(output):
        output.set_request_id("4711")
        raise error

    _, out, err = run_here(monkeypatch, capfd, action, as_json=True)
    assert ("--request-id 4711" in err) is goes_on
    assert json.loads(out).get("request_id") == ("4711" if goes_on else None)


@pytest.mark.parametrize(("phases", "is_retry", "goes_on"), [
    ((), False, False), (("plan",), False, False), (("plan",), True, True), (("plan", "read"), False, True),
])  # fmt: skip
def test_before_a_plan_is_frozen_there_is_nothing_to_go_on_with(monkeypatch, capfd, phases, is_retry, goes_on):
    def action(output):
        output.set_request_id("4711", is_retry=is_retry)
        progress = output.progress
        for phase in phases:
            progress.phase(phase)
        raise Retryable("No broker is there.", code="test-error", action="Start one.")

    _, out, err = run_here(monkeypatch, capfd, action, as_json=True)
    assert ("--request-id 4711" in err) is goes_on
    assert ("request_id" in json.loads(out)) is goes_on


def test_a_failure_begins_on_a_line_of_its_own_and_its_lines_stay_lines(monkeypatch, capfd):
    """On a terminal the line of the progress is rewritten in place, and still open when something fails."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)

    def action(output):
        output.progress.phase("read", 10, "records")
        output.progress.advance(1)
        output.say("A word on the way.")
        output.progress.advance(1)
        raise Invalid("Wrong:\n  0_0 holds s\n  0_1 holds s\n", code="it-is", action="Do it.")

    _, _, err = run_here(monkeypatch, capfd, action, as_json=False)
    lines = [line.rpartition("\r")[2].rstrip() for line in err.split("\n")]
    at = lines.index("statecore: [it-is] Wrong:")
    assert lines[at + 1 : at + 4] == ["  0_0 holds s", "  0_1 holds s", "Do it."]
    assert "A word on the way." in lines


@pytest.mark.parametrize("words", [(), ("--json",)])
@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_standard_stream_that_is_closed_leads_nowhere(tmp_path, words, closed):
    command = shlex.join(
        [sys.executable, "-m", "statecore.cli.main", "info", "--state-dir", str(tmp_path / "x"), *words]
    )
    process = subprocess.run(["bash", "-c", f"{command} {closed}>&-"], capture_output=True, text=True, check=False)
    assert process.returncode == NotFound.exit_code
    assert "Traceback" not in process.stderr
    if words and closed != 1:
        assert json.loads(process.stdout)["code"] == "state-dir-not-found"
    if closed != 2:
        assert code_said(process.stderr) == "state-dir-not-found"


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_result_that_its_disk_has_no_room_for_is_no_defect(words):
    code = (
        "import sys; from statecore.cli import main, info\n"
        "info.run = lambda arguments, output: output.text('x') or output.document({}) or 0\n"
        "sys.exit(main.main(sys.argv[1:]))"
    )
    with Path("/dev/full").open("wb") as full:
        process = subprocess.run(
            [sys.executable, "-c", code, "info", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert process.returncode == Capacity.exit_code, process.stderr
    assert code_said(process.stderr) == "no-space"
    assert "Traceback" not in process.stderr
