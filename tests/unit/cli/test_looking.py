"""``dump`` and ``inspect`` as a person sees them: on a narrow terminal, in a pipe, as a document."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

from statecore.cli.dump import iso, show
from statecore.cli.main import main
from statecore.dump.deserializers import find_deserializer
from statecore.dump.dump import Dump, find_store, kind_of
from statecore.formats.kinds import StoreKind
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.another_user import another_user
from tests.harness.raising import code_said
from tests.unit.doctor.stored import offsets, write_database, write_golden

BASE = 1_357_034_400_000


@pytest.fixture
def state_dir(tmp_path):
    rows = [(b"k%04d" % i, struct.pack(">q", BASE + i) + b"value %d" % i) for i in range(120)]
    for partition in range(2):
        families = {"default": [], "keyValueWithTimestamp": rows if not partition else rows[:1]}
        changelog = offsets("shop-orders-changelog", partition, 41 + partition)
        write_database(tmp_path / f"shop/0_{partition}/rocksdb/orders", {**families, "offsets": changelog})
    return tmp_path


@pytest.fixture
def run(capfd, monkeypatch, state_dir):
    """A command line over the state directory; exit code, stdout and stderr."""

    def run_command(*words, width=None):
        if width:
            monkeypatch.setenv("COLUMNS", str(width))
        name, *more = words
        code = main([name, "--state-dir", str(state_dir), *more])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run_command


def dump(run, *words, **how):
    return run("dump", "--application-id", "shop", "--store", "orders", *words, **how)


def test_a_table_shows_fifty_rows_and_says_how_many_more(run):
    code, out, _ = dump(run, "--key", "string", "--value", "string", width=80)
    assert code == 0
    assert out.startswith("orders: timestamped-key-value, ")
    assert out.count("\n 0_0") == 50
    assert "k0049   2013-01-01T10:00:00.049Z   value 49" in out
    assert out.splitlines()[-1].startswith("50 rows, and 71 more; ")
    assert max(map(len, out.splitlines())) <= 80
    _, out, _ = dump(run, "--limit", "200")
    assert out.rstrip().endswith("121 rows")


def test_counting_what_is_not_shown_ends_when_it_takes_long(state_dir, capfd):
    places = find_store(StateDirectory(state_dir, "shop"), "orders", ())
    key, value = find_deserializer("hex", "key"), find_deserializer("hex", "value")
    show(Dump("orders", kind_of(places, None, None), places, key, value, b""), 1, counting_seconds=-1.0)
    out = capfd.readouterr().out
    assert re.findall(r"\b[0-9]+\b", out[out.index("1 row, ") :]) == ["1", "120", "121"]


def test_rows_that_do_not_fit_side_by_side_are_shown_one_below_the_other(run, state_dir):
    made = write_golden(state_dir / "shop", "headers-session")
    code, out, _ = run("dump", "--application-id", "shop", "--store", made["store"], "--limit", "2", width=80)
    assert code == 0
    lines = [line.rstrip() for line in out.splitlines()]
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[1:3]] == ["task", "key"]
    assert out.count("session_end    2013-01-01T") == 2
    # Nothing is cut off: the folded hex is all there.
    assert "78" * 100 in "".join(line.strip() for line in lines)
    _, wide, _ = run("dump", "--application-id", "shop", "--store", made["store"], "--limit", "2", width=200)
    assert "session_start" in wide.splitlines()[2]


def test_a_very_long_value_is_truncated_visibly(run, state_dir):
    rows = [(b"k", b"x" * 100_000)]
    write_database(state_dir / "shop/0_0/rocksdb/large", {"default": rows, "offsets": offsets("t", 0, 1)})
    _, out, _ = run("dump", "--application-id", "shop", "--store", "large", "--value", "string", width=80)
    assert "100,000 characters" in out.replace("\n", "")
    assert len(out) < 3000


def test_json_lines_are_every_row(run):
    code, out, err = dump(run, "--format", "jsonl", "--key", "string", "--value", "string")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, len(rows), err) == (0, 121, "")
    assert rows[3] == {"task": "0_0", "partition": 0, "key": "k0003", "timestamp": BASE + 3, "value": "value 3"}
    _, out, _ = dump(run, "--format", "jsonl", "--limit", "3")
    assert len(out.splitlines()) == 3


def test_parquet_goes_to_a_file_only(run, tmp_path):
    code, out, err = dump(run, "--format", "parquet")
    assert (code, out) == (2, "")
    assert code_said(err) == "option-missing"
    file = tmp_path / "orders.parquet"
    code, out, err = dump(run, "--format", "parquet", "--output", str(file), "--value", "string")
    assert (code, out) == (0, "")
    assert "orders.parquet: 121 rows" in err
    table = parquet.read_table(file)
    assert table.column("key")[0].as_py() == b"k0000"
    assert table.schema.metadata[b"statecore.application_id"] == b"shop"
    code, _, err = dump(run, "--format", "parquet", "--output", str(file))
    assert (code, code_said(err)) == (13, "file-exists")
    assert dump(run, "--format", "parquet", "--output", str(file), "--force", "--limit", "2")[0] == 0
    assert parquet.read_table(file).num_rows == 2


def test_a_document_holds_rows_or_says_where_they_are(run, tmp_path):
    code, out, _ = dump(run, "--json", "--limit", "2", "--key", "string")
    document = json.loads(out)
    assert document["version"] == 1
    assert code == 0
    assert (document["kind"], document["more"], len(document["rows"])) == ("timestamped-key-value", True, 2)
    assert document["rows"][1]["key"] == "k0001"
    code, out, _ = dump(run, "--json", "--format", "jsonl", "--output", str(tmp_path / "rows"))
    assert json.loads(out)["rows"] == 121
    assert len((tmp_path / "rows").read_text().splitlines()) == 121


def test_the_spec_names_application_and_kind(run, tmp_path):
    spec = tmp_path / "stores.yaml"
    spec.write_text(
        "application_id: shop\nbootstrap_servers: localhost:1\nprocessing_guarantee: at_least_once\n"
        "subtopologies: {0: {stores: {orders: {kind: key-value}}}}\n"
    )
    code, _, err = run("dump", "--store", "orders", "--spec", str(spec))
    assert (code, code_said(err)) == (13, "kind-mismatch")
    spec.write_text(spec.read_text().replace("key-value", "timestamped-key-value"))
    assert run("dump", "--store", "orders", "--spec", str(spec))[0] == 0
    code, _, err = run("dump", "--store", "orders")
    assert (code, code_said(err)) == (2, "option-missing")


def test_a_reader_that_has_gone_ends_a_dump_quietly(state_dir):
    rows = [(b"%08d" % i, b"x" * 100) for i in range(20_000)]
    write_database(state_dir / "shop/0_0/rocksdb/many", {"default": rows, "offsets": offsets("t", 0, 1)})
    command = [sys.executable, "-m", "statecore.cli.main", "dump", "--state-dir", str(state_dir)]
    command += ["--application-id", "shop", "--store", "many", "--format", "jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert json.loads(process.stdout.readline())["key"] == b"00000000".hex()
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    "words", [["--limit", "0"], ["--limit", "many"], ["--prefix", "xyz"], ["--kind", "in-memory"], ["--format", "csv"]]
)
def test_wrong_words_are_refused_by_the_command_line(words, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["dump", "--state-dir", "d", "--application-id", "a", "--store", "s", *words])
    assert exit_.value.code == 2
    assert words[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (BASE + 7, "2013-01-01T10:00:00.007Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        ((1 << 63) - 1, "9223372036854775807 ms"),
    ],
)
def test_times_are_iso_8601_and_never_fail(time, text):
    assert iso(time) == text


def test_inspect_is_readable_at_eighty_columns(run, state_dir):
    write_golden(state_dir / "shop", "emit-final-sliding-window", renamed=True)
    code, out, _ = run("inspect", "--segments", width=80)
    assert code == 0
    lines = [line.rstrip() for line in out.splitlines()]
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("shop in")  # a long path goes on in the next line
    assert "orders: timestamped-key-value" in lines
    assert "    changelog shop-orders-changelog" in lines
    (row,) = [line for line in lines if line.startswith("  0_0") and " 120 " in line]
    assert row.split()[:4] == ["0_0", "41", "closed", "120"]
    assert "    segments of 5m, 2013-01-01 10:45Z to 2013-01-01 11:00Z" in lines
    assert any(line.startswith("      1357037100000, from 2013-01-01 10:45Z: 4 rows, ") for line in lines)
    assert "rows (counted)" in out
    assert "no problems found" in out


def test_problems_are_marked_in_place_and_summed_up_at_the_end(run, state_dir):
    for partition in (2, 3):
        said = offsets("shop-orders-changelog", partition, 7, 1)
        families = {"default": [], "keyValueWithTimestamp": [], "offsets": said}
        write_database(state_dir / f"shop/0_{partition}/rocksdb/orders", families)
    _, out, _ = run("inspect", "--application-id", "shop")
    assert [line[:5] for line in out.splitlines() if "7  not closed" in line] == ["! 0_2", "! 0_3"]
    assert "orders in 0_2, 0_3: " in out
    assert out.rstrip().endswith("1 problem")


def test_damage_has_an_exit_code_that_monitoring_can_go_by(run, state_dir):
    code, out, _ = run("inspect")
    assert (code, "damage:" in out) == (0, False)
    write_database(state_dir / "shop/0_7/rocksdb/orders", {"default": [], "offsets": []})
    assert run("inspect")[0] == 0  # trouble that the application repairs itself
    for file in (state_dir / "shop/0_1/rocksdb/orders").glob("MANIFEST*"):
        file.write_bytes(b"junk")
    code, out, _ = run("inspect", width=200)
    assert code == 12
    damage, trouble = out.index("damage: restore these stores\n"), out.index("\nproblems\n")
    assert damage < out.index("0_1/rocksdb/orders failed") < trouble < out.index("has no offset")
    assert out.rstrip().endswith("2 problems, 1 of them damage")
    code, out, _ = run("inspect", "--json")
    document = json.loads(out)
    assert document["version"] == 1
    (application,) = document["applications"]
    assert (code, document["exit_code"], application["exit_code"]) == (12, 12, 12)
    assert [store["task"] for store in application["stores"] if store["damage"]] == ["0_1"]
    found = [one for store in application["stores"] for one in store["findings"] if one["damage"]]
    assert [(one["code"], one["task"], one["store"]) for one in found] == [("database-unreadable", "0_1", "orders")]
    databases = [(store["task"], one) for store in application["stores"] for one in store["databases"]]
    assert {task: one["code"] for task, one in databases if one["error"]} == {"0_1": "database-unreadable"}
    assert {one["code"] for task, one in databases if not one["error"]} == {""}
    # Of what was not looked at nothing is said.
    assert run("inspect", "--task", "0_0")[0] == 0


def test_trouble_beyond_single_stores_has_a_code(run, state_dir):
    (state_dir / "shop/0_1/.checkpoint").write_bytes(b"0\nx\n")
    _, out, _ = run("inspect", "--json")
    (application,) = json.loads(out)["applications"]
    assert application["problems"] == [one["what"] for one in application["findings"]]
    assert [(one["code"], one["task"]) for one in application["findings"]] == [("checkpoint-unreadable", "0_1")]


def test_inspect_as_a_document(run):
    _, out, _ = run("inspect", "--json", "--estimate")
    (application,) = json.loads(out)["applications"]
    assert application["rows_are"] == "estimated"
    first = application["stores"][0]
    assert (first["task"], first["partition"], first["store"], first["kind"]) == (
        "0_0",
        0,
        "orders",
        "timestamped-key-value",
    )
    assert (first["offsets"], first["closed"], first["rows"]) == ({"shop-orders-changelog-0": 41}, True, 120)


def test_a_directory_without_an_application_is_answered_so(run, tmp_path):
    (tmp_path / "nothing").mkdir()
    code, _, err = run("inspect", "--state-dir", str(tmp_path / "nothing"))
    assert (code, code_said(err)) == (14, "state-dir-not-found")
    code, _, err = run("inspect", "--state-dir", str(tmp_path / "absent"))
    assert (code, code_said(err), str(tmp_path / "absent") in err) == (14, "state-dir-not-found", True)
    code, _, err = run("inspect", "--application-id", "shpo")
    assert (code, code_said(err)) == (14, "application-not-found")


@pytest.mark.parametrize("command", [("inspect",), ("doctor",), ("info",), ("inspect", "--application-id", "shop")])
def test_the_directory_of_the_application_is_no_state_dir(run, state_dir, command):
    code, _, err = run(*command, "--state-dir", str(state_dir / "shop"))
    assert (code, code_said(err)) == (13, "application-directory-given")


def test_the_process_that_has_a_store_open_is_named(run, state_dir):
    """A processor on this library's stores holds no lock of the application."""
    with RocksDBStore(state_dir / "shop/0_1/rocksdb/orders", StoreKind.TIMESTAMPED_KEY_VALUE):
        code, out, _ = run("inspect")
    assert code == 0
    assert f"process {os.getpid()} (this process)" in out
    assert "problems\n" not in out


@pytest.mark.parametrize("words", [["inspect", "--json"], ["doctor", "--offline", "--json"], ["info", "--json"]])
def test_an_unreadable_directory_is_skipped_and_reported(words: list[str]) -> None:
    with another_user("022") as user:
        state_dir = user.home / "state"
        (state_dir / "shop" / "0_0").mkdir(parents=True)
        (state_dir / "shop" / ".statecore").mkdir()
        for path in (state_dir, *state_dir.rglob("*")):
            os.chown(path, user.uid, user.uid)
        (state_dir / "lost+found").mkdir(mode=0o700)
        name, *more = words
        command = user.command(sys.executable, "-m", "statecore.cli.main", name, "--state-dir", str(state_dir), *more)
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=user.environment)
        assert done.returncode == 0, done.stderr
        assert [one["application_id"] for one in json.loads(done.stdout)["applications"]] == ["shop"]
        assert f"{state_dir / 'lost+found'} is skipped" in done.stderr


@pytest.mark.parametrize("words", [["inspect"], ["doctor", "--offline"], ["info"]])
def test_a_path_is_read_in_an_ascii_locale(tmp_path: Path, words: list[str]) -> None:
    state_dir = tmp_path / "st\u00e4te"
    (state_dir / "shop" / "0_0" / "rocksdb" / "rocksdb").mkdir(parents=True)
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    name, *more = words
    command = [sys.executable, "-m", "statecore.cli.main", name, "--state-dir", os.fsencode(state_dir), *more]
    done = subprocess.run(command, capture_output=True, check=False, env=environment)
    assert b"Traceback" not in done.stderr
    assert b"shop" in done.stdout


@pytest.mark.parametrize("words", [["inspect"], ["doctor", "--offline"], ["info"]])
def test_an_application_that_this_user_may_not_read_is_not_called_missing(words: list[str]) -> None:
    with another_user("022") as user:
        state_dir = user.home / "state"
        (state_dir / "shop" / "0_0").mkdir(parents=True)
        (state_dir / "shop").chmod(0o700)
        state_dir.chmod(0o755)
        command = user.command(sys.executable, "-m", "statecore.cli.main", *words, "--state-dir", str(state_dir))
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=user.environment)
        assert (done.returncode, code_said(done.stderr)) == (13, "permission-denied"), done.stderr
        assert "may not read shop" in done.stderr


def test_what_the_locale_has_no_character_for_is_printed_with_escapes(tmp_path: Path) -> None:
    (tmp_path / "schlüssel" / "shop" / "0_0").mkdir(parents=True)
    command = [sys.executable, "-m", "statecore.cli.main", "inspect", "--state-dir", str(tmp_path / "schlüssel")]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "500"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "schl\\xfcssel" in done.stdout
