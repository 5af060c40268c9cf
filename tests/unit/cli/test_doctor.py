"""``doctor`` as a person sees it, and as a document."""

from __future__ import annotations

import json

import pytest

from statecore.cli.main import main
from statecore.maintenance.catalogue import CATALOGUE
from tests.unit.maintenance.stored import offsets, write_database


@pytest.fixture
def run(capfd, monkeypatch, tmp_path):
    """A command line over a state directory; exit code, stdout and stderr."""

    def run_command(*words, width=100):
        monkeypatch.setenv("COLUMNS", str(width))
        code = main(["doctor", "--state-dir", str(tmp_path), *words])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run_command


def store(tmp_path, task, name="orders", status=0, offset=41, rows=2):
    families = {"default": [], "keyValueWithTimestamp": [(b"k%d" % i, bytes(8) + b"v") for i in range(rows)]}
    said = offsets(f"shop-{name}-changelog", int(task[-1]), offset, status)
    write_database(tmp_path / f"shop/{task}/rocksdb/{name}", {**families, "offsets": said})


def test_a_directory_that_is_well_is_said_to_be(run, tmp_path):
    store(tmp_path, "0_0")
    code, out, err = run()
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("shop in ")
    assert "guarantee not known, so judged by the worse; to be opened by Kafka Streams 4.3" in " ".join(out.split())
    assert "rows not read (--scan): nothing found" in " ".join(out.split())


def test_one_finding_in_many_tasks_is_one_paragraph_and_the_worst_comes_first(run, tmp_path):
    for partition in range(3):
        store(tmp_path, f"0_{partition}", status=1)
    store(tmp_path, "0_3", offset=-4)
    code, out, _ = run("--processing-guarantee", "at_least_once", width=300)
    assert code == 22
    headings = [line for line in out.splitlines() if line.split("  ")[0] in ("LOSS", "ERROR", "WARNING", "NOTE")]
    assert [line.split(":")[0] for line in headings] == ["LOSS  offset-unknown", "WARNING  store-not-closed"]
    assert "  orders in 0_0, 0_1, 0_2: was not closed, its process died" in out
    assert f"  It means: {CATALOGUE['store-not-closed'].means}" in out
    assert f"  Do: {CATALOGUE['store-not-closed'].remedy}" in out
    assert "  More: docs/findings/store-not-closed.md" in out
    assert out.rstrip().endswith("1 loss, 3 warnings")


def test_many_different_sentences_are_cut_and_lines_fit(run, tmp_path):
    for partition in range(7):
        store(tmp_path, f"0_{partition}")
        (tmp_path / f"shop/0_{partition}/.checkpoint").write_text(f"0\n1\nshop-orders-changelog {partition} 3\n")
    code, out, _ = run(width=80)
    assert code == 20
    assert max(map(len, out.splitlines())) <= 80
    text = " ".join(out.split())
    assert "and 3 more, in 0_4, 0_5, 0_6 (--json shows all)" in text
    # The store is in the sentence, so it is not named once more.
    assert "0_0/.checkpoint overrules" in text
    assert "orders in 0_0: 0_0" not in text


def test_the_exit_code_is_by_the_worst_of_all_applications(run, tmp_path):
    store(tmp_path, "0_0", status=1)
    write_database(tmp_path / "other/0_0/rocksdb/s", {"default": [], "offsets": offsets("t", 0, 1)})
    code, out, _ = run("--json", "--processing-guarantee", "exactly_once_v2")
    document = json.loads(out)
    assert code == document["exit_code"] == 21
    assert [one["exit_code"] for one in document["applications"]] == [0, 21]
    (finding,) = document["applications"][1]["findings"]
    assert {name: finding[name] for name in ("code", "severity", "task", "store", "partition", "repair")} == {
        "code": "store-not-closed",
        "severity": "error",
        "task": "0_0",
        "store": "orders",
        "partition": "shop-orders-changelog-0",
        "repair": "rebuild the store from its changelog or from a snapshot, and keep the others",
    }
    assert run("--application-id", "other")[0] == 0


def test_a_scan_says_how_far_it_is(run, tmp_path):
    store(tmp_path, "0_0", rows=2000)
    code, out, err = run("--scan")
    assert (code, "every row read: nothing found" in " ".join(out.split())) == (0, True)
    assert err.startswith("look: ")
    assert "bytes" in err


def test_a_spec_gives_application_and_guarantee(run, tmp_path):
    store(tmp_path, "0_0", status=1)
    spec = tmp_path / "stores.yaml"
    spec.write_text(
        "application_id: shop\nbootstrap_servers: localhost:1\nprocessing_guarantee: at_least_once\n"
        "subtopologies: {0: {stores: {orders: {kind: timestamped-key-value}}}}\n"
    )
    assert run("--spec", str(spec), "--offline")[0] == 20
    code, _, err = run("--spec", str(spec), "--processing-guarantee", "exactly_once_v2")
    assert (code, "Leave --processing-guarantee out" in err) == (13, True)
    code, _, err = run("--spec", str(spec), "--application-id", "other")
    assert (code, "is the spec of shop, not of other" in err) == (13, True)


def test_what_is_to_open_it_and_what_cleans_up_can_be_said(run, tmp_path):
    store(tmp_path, "0_0")
    code, out, _ = run("--for", "4.2")
    assert (code, "opens no database that has the column family offsets" in " ".join(out.split())) == (21, True)
    assert run("--cleanup-max-age", "7d")[0] == 0
    for words in (["--for", "2.8"], ["--cleanup-max-age", "soon"], ["--processing-guarantee", "maybe"]):
        with pytest.raises(SystemExit) as exit_:
            run(*words)
        assert exit_.value.code == 2


def test_a_directory_without_an_application_is_answered_so(run, tmp_path):
    code, _, err = run()
    assert (code, "has no directory of an application" in err) == (14, True)
