"""``doctor`` as a person sees it, and as a document."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from kafka.protocol.metadata import MetadataRequest

from statecore.cli.main import main
from statecore.doctor.finding_catalog import CATALOG, Repair
from statecore.jobs.diagnose.request import DiagnoseRequest
from statecore.jobs.fields.declaration import declared_fields
from statecore.jobs.repair.request import RepairRequest
from statecore.statedir.state_directory import StateDirectory
from tests.harness.raising import code_said
from tests.unit.changelog.build import Record, batch
from tests.unit.changelog.scripted import ScriptedBrokers, part
from tests.unit.doctor.stored import offsets, write_database


def spec_file(path: Path) -> Path:
    file = path / "stores.yaml"
    file.write_text(
        "application_id: shop\nbootstrap_servers: localhost:1\nprocessing_guarantee: at_least_once\n"
        "subtopologies: {0: {stores: {orders: {kind: timestamped-key-value}}}}\n"
    )
    return file


@pytest.fixture
def run(capfd, monkeypatch, tmp_path):
    """A command line over a state directory; exit code, stdout and stderr."""

    def run_command(*words, width=100, command="doctor"):
        monkeypatch.setenv("COLUMNS", str(width))
        code = main([command, "--state-dir", str(tmp_path), *words])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run_command


def store(tmp_path, task, name="orders", status=0, offset=41, rows=2):
    families = {"default": [], "keyValueWithTimestamp": [(b"k%d" % i, bytes(8) + b"v") for i in range(rows)]}
    said = offsets(f"shop-{name}-changelog", int(task[-1]), offset, status)
    write_database(tmp_path / f"shop/{task}/rocksdb/{name}", {**families, "offsets": said})


def test_a_healthy_directory_is_reported_healthy(run, tmp_path):
    store(tmp_path, "0_0")
    code, out, err = run()
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("shop in ")
    assert "4.4" in " ".join(out.split())
    assert "--scan" in out
    assert "store-" not in out


def test_one_finding_in_many_tasks_is_one_paragraph_and_the_worst_comes_first(run, tmp_path):
    for partition in range(3):
        store(tmp_path, f"0_{partition}", status=1)
    store(tmp_path, "0_3", offset=-4)
    code, out, _ = run("--processing-guarantee", "at_least_once", width=400)
    assert code == 22
    headings = [line for line in out.splitlines() if line.split("  ")[0] in ("LOSS", "ERROR", "WARNING", "NOTE")]
    assert [line.split(":")[0] for line in headings] == ["LOSS  offset-unknown", "WARNING  store-not-closed"]
    assert sum(line.startswith("  orders in 0_0, 0_1, 0_2: ") for line in out.splitlines()) == 1
    assert f"  It means: {CATALOG['store-not-closed'].means}" in out
    assert f"  Do: {CATALOG['store-not-closed'].remedy}" in out
    assert "docs/findings/store-not-closed.md" in out
    *_, counts, repair = out.splitlines()
    assert counts.endswith("1 loss, 3 warnings")
    words = ("statecore", "repair", "--application-id", "shop", "--state-dir", str(tmp_path))
    said = shlex.join([*words, "--processing-guarantee", "at_least_once", "--spec", "STORES.YAML"])
    assert repair == f"Show the plan of a repair (no store can be rebuilt without a spec): {said}"


def test_many_findings_are_limited_and_lines_fit(run, tmp_path):
    for partition in range(7):
        store(tmp_path, f"0_{partition}")
        (tmp_path / f"shop/0_{partition}/.checkpoint").write_text(f"0\n1\nshop-orders-changelog {partition} 3\n")
    code, out, _ = run(width=80)
    assert code == 20
    assert max(map(len, out.splitlines())) <= 80
    text = " ".join(out.split())
    assert re.search(r"\b3\b[^.]* 0_4, 0_5, 0_6 ", text)
    # The store is in the sentence, so it is not named once more.
    assert "0_0/.checkpoint overrules" in text
    assert "orders in 0_0: 0_0" not in text


def test_the_exit_code_is_by_the_worst_of_all_applications(run, tmp_path):
    store(tmp_path, "0_0", status=1)
    write_database(tmp_path / "other/0_0/rocksdb/s", {"default": [], "offsets": offsets("t", 0, 1)})
    code, out, _ = run("--json", "--processing-guarantee", "exactly_once_v2")
    document = json.loads(out)
    assert document["version"] == 1
    assert code == document["exit_code"] == 21
    assert [one["exit_code"] for one in document["applications"]] == [0, 21]
    (finding,) = document["applications"][1]["findings"]
    assert {name: finding[name] for name in ("code", "severity", "task", "store", "partition", "repair")} == {
        "code": "store-not-closed",
        "severity": "error",
        "task": "0_0",
        "store": "orders",
        "partition": "shop-orders-changelog-0",
        "repair": Repair.REBUILD.value,
    }
    assert run("--application-id", "other")[0] == 0


def test_a_scan_says_how_far_it_is(run, tmp_path):
    store(tmp_path, "0_0", rows=2000)
    code, out, err = run("--scan")
    assert (code, "--scan" in out) == (0, False)
    assert err.startswith("inspect: ")
    assert "bytes" in err


def test_a_spec_gives_application_and_guarantee(run, tmp_path):
    store(tmp_path, "0_0", status=1)
    spec = spec_file(tmp_path)
    assert run("--spec", str(spec), "--offline")[0] == 20
    code, _, err = run("--spec", str(spec), "--processing-guarantee", "exactly_once_v2")
    assert (code, code_said(err)) == (13, "guarantee-mismatch")
    code, _, err = run("--spec", str(spec), "--application-id", "other")
    assert (code, code_said(err)) == (13, "spec-application-mismatch")


def test_target_release_and_cleanup_age_are_options(run, tmp_path):
    store(tmp_path, "0_0")
    code, out, _ = run("--to", "4.2", "--json")
    (application,) = json.loads(out)["applications"]
    assert (code, [one["code"] for one in application["findings"]]) == (21, ["release-cannot-open"])
    assert run("--cleanup-max-age", "7d")[0] == 0
    for words in (["--to", "2.8"], ["--cleanup-max-age", "soon"], ["--processing-guarantee", "maybe"]):
        with pytest.raises(SystemExit) as exit_:
            run(*words)
        assert exit_.value.code == 2


def test_a_directory_without_an_application_is_answered_so(run, tmp_path):
    code, _, err = run()
    assert (code, code_said(err)) == (14, "state-dir-not-found")


def test_brokers_that_are_named_are_asked_by_doctor_and_by_repair(run, tmp_path):
    store(tmp_path, "0_0")
    with ScriptedBrokers() as brokers:
        brokers.add("shop-orders-changelog").error = 29
        words = ["--application-id", "shop", "--bootstrap-servers", brokers.address]
        for number, command in enumerate(("doctor", "repair")):
            code, _, err = run(*words, command=command)
            assert (code, code_said(err)) == (13, "topic-authorization-failed" if number else "")
            asked = len(brokers.asked(MetadataRequest))
            assert asked > number
            assert run(*words, "--offline", command=command)[0] == 0
            assert len(brokers.asked(MetadataRequest)) == asked


def test_the_number_of_stores_that_were_not_compared_is_in_the_last_line(run, tmp_path):
    for task in ("0_0", "0_1"):
        store(tmp_path, task, offset=1)
    records = [batch([Record(n, 0, b"k%d" % n, b"v") for n in range(2)])]
    with ScriptedBrokers() as brokers:
        brokers.add("shop-orders-changelog", [part(records), part(records)])
        words = ["--application-id", "shop", "--bootstrap-servers", brokers.address]
        code, out, _ = run(*words)
        assert (code, "not checked" in out) == (0, False)
        code, out, _ = run(*words, "--compare-time", "0", width=300)
        assert code == 0
        assert "the time to compare was over: --compare-time" in out
        assert out.splitlines()[-1].endswith("; 2 stores not checked with the brokers to the end")
        assert run(*words, "--compare-time", "-1")[0] == 13


def test_a_repair_is_of_the_application_of_the_spec_and_for_no_other_release(run, tmp_path):
    store(tmp_path, "0_0")
    spec = spec_file(tmp_path)
    code, out, _ = run("--offline", "--spec", str(spec), command="repair")
    assert (code, out.startswith("shop in ")) == (0, True)
    code, out, _ = run("--json", command="repair")
    error = json.loads(out)
    assert (code, error["code"], error["context"]) == (2, "option-missing", {"option": "application_id"})
    with pytest.raises(SystemExit, match="2"):
        run("--application-id", "shop", "--to", "4.2", command="repair")


@pytest.mark.parametrize(("command", "request_type"), [("doctor", DiagnoseRequest), ("repair", RepairRequest)])
def test_the_help_says_what_is_declared_of_the_request(capsys, monkeypatch, command, request_type):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    said = " ".join(capsys.readouterr().out.split())
    for one in declared_fields(request_type).values():
        assert (one.option in said, one.declaration.help in said) == (
            one.declaration.on_command_line,
            one.declaration.on_command_line,
        )


def test_a_repair_is_spoken_of_where_there_is_one_and_of_a_running_application_when_it_is_closed(run, tmp_path):
    store(tmp_path, "0_0")
    (tmp_path / "shop/0_0/of-another-tool").touch()
    assert "statecore repair" not in run()[1]
    (tmp_path / "shop/0_0/.checkpoint").write_text("0\n1\nshop-orders-changelog 0 3\n")
    spec = spec_file(tmp_path)
    *_, last = run("--spec", str(spec), "--offline", width=300)[1].splitlines()
    assert last.startswith("Show the plan of a repair: statecore repair --")
    assert last.endswith(f"--spec {spec} --offline")
    assert "statecore repair" not in run("--to", "4.2")[1]  # a repair is for the newest release
    write_database(tmp_path / "shop/0_0/rocksdb/more", {"default": [], "of-another-tool": []})
    with StateDirectory(tmp_path, "shop").lock():
        *_, running = run("--spec", str(spec), "--offline", width=300)[1].splitlines()
    assert running == last.replace("Show", "Close it, then show", 1)


@pytest.mark.parametrize("release", ["4.3", "4.2"])
def test_checks_skipped_for_a_running_application_are_listed(run, tmp_path, release):
    write_database(tmp_path / "shop/0_0/rocksdb/orders", {"default": [(b"a", b"1")]})
    closed, _, _ = run("--to", release, "--json")
    assert closed != 0
    with StateDirectory(tmp_path, "shop").lock():
        code, out, _ = run("--to", release, width=400)
    assert code == 0
    *_, last = out.splitlines()
    assert f"Kafka Streams {release}" in last
