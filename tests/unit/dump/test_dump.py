"""Rows of stores of every kind, decoded: what comes out, in which form, and what is refused."""

from __future__ import annotations

import io
import json
import os
import struct

import pyarrow as pa
import pytest
from pyarrow import parquet

from statecore.dump.deserializers import find_deserializer
from statecore.dump.dump import MILLISECONDS, Dump, find_store, kind_of
from statecore.dump.output import atomic_file, json_rows, write_json_lines, write_parquet
from statecore.errors import Corrupted, Invalid, NotFound
from statecore.formats.kinds import StoreKind
from statecore.statedir.state_directory import StateDirectory
from tests.harness.raising import raises
from tests.unit.doctor.stored import CASES, offsets, write_database, write_golden

BASE = 1_357_034_400_000


def dump_of(state_dir, store, *, kind=None, tasks=(), key="hex", value="hex", prefix=b""):
    places = find_store(StateDirectory(state_dir, "app"), store, tasks)
    keys, values = find_deserializer(key, "key"), find_deserializer(value, "value")
    return Dump(store, kind_of(places, kind, None), places, keys, values, prefix)


def rows_of(dump):
    return [row for batch in dump.batches() for row in json_rows(batch)]


def stamped(count):
    return [(b"k%04d" % i, struct.pack(">q", BASE + i) + b"v%d" % i) for i in range(count)]


def write_stamped(path, count, partition=0):
    families = {"default": [], "keyValueWithTimestamp": stamped(count)}
    write_database(path, {**families, "offsets": offsets("app-s-changelog", partition, 9)})


@pytest.mark.parametrize("case", CASES)
def test_every_kind_has_the_same_rows_as_json_lines_and_as_parquet(tmp_path, case):
    made = write_golden(tmp_path / "app", case)
    dump = dump_of(tmp_path, made["store"])
    lines, file = io.BytesIO(), io.BytesIO()
    count = write_json_lines(dump.batches(), lines)
    assert write_parquet(dump.batches(), dump.schema, file, {"kind": "x"}) == count > 0
    table = parquet.read_table(io.BytesIO(file.getvalue()))
    assert [row for batch in table.to_batches() for row in json_rows(batch)] == [
        json.loads(line) for line in lines.getvalue().splitlines()
    ]
    assert table.schema.names[:3] == ["task", "partition", "key"]
    assert table.schema.names[-1] == "value"
    for name in {"timestamp", "window_start", "session_end", "valid_from"} & set(table.schema.names):
        assert table.schema.field(name).type == MILLISECONDS
    assert table.schema.metadata[b"statecore.kind"] == b"x"
    # Every live record of the changelog that has a value is there under its key.
    keys = {row["key"] for row in rows_of(dump)}
    suffix = {"window": 24, "session": 32}.get(next((w for w in ("window", "session") if w in made["kind"]), ""), 0)
    if made["kind"] in ("key-value", "timestamped-key-value", "headers-key-value"):
        last = {record["key"]: record["value"] for record in made["records"]}
        assert keys == {key for key, value in last.items() if value is not None}
    elif suffix:
        assert keys <= {record["key"][:-suffix] for record in made["records"]}


def test_tasks_and_segments_come_in_order_with_their_partition(tmp_path):
    for task in ("0_10", "0_2"):
        for start in (1_200_000, 600_000):
            key = b"k" + (start + 1).to_bytes(8) + bytes(4)
            families = {"default": [], "keyValueWithTimestamp": [(key, bytes(8) + b"v")], "offsets": []}
            write_database(tmp_path / f"app/{task}/s/s.{start}", families)
    found = [(row["task"], row["partition"], row["window_start"]) for row in rows_of(dump_of(tmp_path, "s"))]
    assert found == [("0_2", 2, 600_001), ("0_2", 2, 1_200_001), ("0_10", 10, 600_001), ("0_10", 10, 1_200_001)]
    assert {row["task"] for row in rows_of(dump_of(tmp_path, "s", tasks=["0_2"]))} == {"0_2"}


def test_a_global_store_has_no_partition(tmp_path):
    write_stamped(tmp_path / "app/global/rocksdb/s", 1)
    (row,) = rows_of(dump_of(tmp_path, "s"))
    assert (row["task"], row["partition"], row["timestamp"]) == ("global", None, BASE)


def test_rows_come_in_chunks_and_none_is_lost_between_them(tmp_path):
    keys = sorted(key for key, _ in stamped(40_000))
    rows = [(key, bytes(8)) for key in [*keys, b"l"]]
    write_database(tmp_path / "app/0_0/rocksdb/s", {"default": [], "keyValueWithTimestamp": rows, "offsets": []})
    batches = list(dump_of(tmp_path, "s").batches())
    assert 1 < len(batches) < 10
    assert [key for batch in batches for key in batch.column("key").to_pylist()] == [*(key.hex() for key in keys), "6c"]
    batches = list(dump_of(tmp_path, "s", prefix=b"k").batches())
    assert [key for batch in batches for key in batch.column("key").to_pylist()] == [key.hex() for key in keys]


def test_a_prefix_takes_only_keys_that_begin_with_it(tmp_path):
    write_stamped(tmp_path / "app/0_0/rocksdb/s", 100)
    found = rows_of(dump_of(tmp_path, "s", key="string", prefix=b"k001"))
    assert [row["key"] for row in found] == [f"k001{i}" for i in range(10)]
    made = write_golden(tmp_path / "app", "emit-final-sliding-window")
    everything = rows_of(dump_of(tmp_path, made["store"]))
    found = rows_of(dump_of(tmp_path, made["store"], prefix=b"a"))
    assert found == [row for row in everything if row["key"].startswith("61")]
    assert found


def test_rows_of_older_formats_come_after_the_newer_with_nulls_for_what_they_lack(tmp_path):
    families = {
        "default": [(b"plain", b"p")],
        "keyValueWithTimestamp": [(b"stamped", struct.pack(">q", BASE) + b"s")],
        "keyValueWithTimestampAndHeaders": [(b"new", b"\0" + struct.pack(">q", BASE + 1) + b"n")],
    }
    write_database(tmp_path / "app/0_0/rocksdb/s", {**families, "offsets": []})
    dump = dump_of(tmp_path, "s", key="string", value="string")
    assert dump.kind is StoreKind.HEADERS_KEY_VALUE
    found = [(row["key"], row["timestamp"], row["headers"], row["value"]) for row in rows_of(dump)]
    assert found == [("new", BASE + 1, [], "n"), ("stamped", BASE, None, "s"), ("plain", None, None, "p")]


@pytest.mark.parametrize(
    ("older", "kind"),
    [
        ("timestamped-key-value", StoreKind.HEADERS_KEY_VALUE),
        ("timestamped-window", StoreKind.HEADERS_WINDOW),
        ("session", StoreKind.HEADERS_SESSION),
        ("emit-final-window", StoreKind.HEADERS_EMIT_FINAL_WINDOW),
        ("emit-final-sliding-window", StoreKind.HEADERS_EMIT_FINAL_WINDOW),
        ("emit-final-sliding-window", StoreKind.HEADERS_EMIT_FINAL_SLIDING_WINDOW),
    ],
)
def test_a_store_in_the_default_format_is_dumped_as_the_kind_with_headers_that_will_open_it(tmp_path, older, kind):
    made = write_golden(tmp_path / "app", older)
    rows = rows_of(dump_of(tmp_path, made["store"]))
    assert rows
    named = [{name: row.get(name) for name in rows[0]} for row in rows_of(dump_of(tmp_path, made["store"], kind=kind))]
    assert named == rows


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [
        ("hex", b"\x00k", "006b"),
        ("bytes", b"\x00k", "006b"),
        ("string", "schlüssel".encode(), "schlüssel"),
        ("uuid", b"3ee6c347-b0d7-47a8-b9f3-19e9218fca70", "3ee6c347-b0d7-47a8-b9f3-19e9218fca70"),
        ("boolean", b"\1", True),
        ("long", struct.pack(">q", -5), -5),
        ("integer", struct.pack(">i", 7), 7),
        ("int", struct.pack(">i", 7), 7),
        ("short", struct.pack(">h", -3), -3),
        ("double", struct.pack(">d", 1.5), 1.5),
        ("float", struct.pack(">f", 0.25), 0.25),
        ("double", struct.pack(">d", float("nan")), None),
    ],
)
def test_kafkas_deserialisers(name, data, shown):
    made = find_deserializer(name, "value").convert(pa.array([None, data, b"", None][:2], pa.large_binary()))
    batch = pa.RecordBatch.from_arrays([made], ["value"])
    assert made.type == find_deserializer(name, "value").type
    assert [row["value"] for row in json_rows(batch)] == [None, shown]


@pytest.mark.parametrize(
    ("name", "data", "code", "shown"),
    [
        ("long", b"abc", "deserialization-failed", "616263 of 3 bytes"),
        ("string", b"\xff\xfe", "deserialization-failed", "fffe of 2 bytes"),
        ("json:loads", b"{", "deserializer-failed", " 7b: "),
    ],
)
def test_bytes_that_do_not_fit_are_refused_and_shown(name, data, code, shown):
    with raises(Invalid, code, deserializer=name) as refused:
        find_deserializer(name, "value").convert(pa.array([data], pa.large_binary()))
    assert shown in refused.value.what


@pytest.mark.parametrize("name", ["strnig", "nowhere_to_be_found:f", "json:nothing", "json:__name__"])
def test_a_deserialiser_that_does_not_exist_is_refused(name):
    with pytest.raises(Invalid, match="deserializer"):
        find_deserializer(name, "key")


def test_a_function_of_ones_own_may_return_anything_json_holds():
    own = find_deserializer("json:loads", "value")
    made = own.convert(pa.array([b'{"a": [1, null]}', None], pa.large_binary()))
    batch = pa.RecordBatch.from_arrays([made], ["value"])
    assert own.is_json
    assert json_rows(batch, ["value"]) == [{"value": {"a": [1, None]}}, {"value": None}]


def test_an_undecidable_kind_must_be_given(tmp_path):
    write_database(tmp_path / "app/0_0/s/s.600000", {"default": [], "offsets": offsets("t", 0, 1)})
    with raises(Invalid, "kind-undecided", store="s") as raised:
        dump_of(tmp_path, "s")
    assert "--kind" in raised.value.action
    assert rows_of(dump_of(tmp_path, "s", kind=StoreKind.SESSION)) == []


def test_a_wrong_kind_is_refused_by_the_column_families_or_by_the_rows(tmp_path):
    write_stamped(tmp_path / "app/0_0/rocksdb/s", 1)
    with raises(
        Invalid,
        "kind-mismatch",
        kind="key-value",
        families=["default", "keyValueWithTimestamp", "offsets"],
        store="s",
        task="0_0",
    ):
        rows_of(dump_of(tmp_path, "s", kind=StoreKind.KEY_VALUE))
    made = write_golden(tmp_path / "app", "key-value")
    with raises(Corrupted, "row-malformed", store=made["store"], task=made["task"]):
        rows_of(dump_of(tmp_path, made["store"], kind=StoreKind.VERSIONED_KEY_VALUE))


def test_a_store_or_task_that_is_not_there_is_answered_with_those_that_are(tmp_path):
    write_stamped(tmp_path / "app/0_0/rocksdb/orders", 1)
    with raises(NotFound, "store-not-found", store="order"):
        dump_of(tmp_path, "order")
    with raises(NotFound, "task-not-found", store="orders", task="0_9"):
        dump_of(tmp_path, "orders", tasks=["0_9"])


def test_bytes_that_do_not_fit_are_refused_with_the_store_and_task_they_lie_in(tmp_path):
    write_stamped(tmp_path / "app/0_3/rocksdb/s", 1)
    with raises(Invalid, "deserialization-failed") as refused:
        rows_of(dump_of(tmp_path, "s", value="long"))
    assert refused.value.context == {"deserializer": "long", "store": "s", "task": "0_3"}
    assert "7630 of 2 bytes" in refused.value.what
    assert "--value" in refused.value.action


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "rows.jsonl"
    with pytest.raises(ZeroDivisionError), atomic_file(target, overwrite=False) as file:
        file.write(b"%d" % (1 // 0))
    assert list(tmp_path.iterdir()) == []
    with atomic_file(target, overwrite=False) as file:
        file.write(b"whole")
    assert target.read_bytes() == b"whole"
    with raises(Invalid, "file-exists"), atomic_file(target, overwrite=False):
        pass
    with raises(Invalid, "system-refused"), atomic_file(tmp_path / "no/such", overwrite=False):
        pass
    assert list(tmp_path.iterdir()) == [target]
    with raises(Invalid, "system-refused"), atomic_file(target / "no file", overwrite=False):
        pass


def test_what_is_no_file_is_written_to_and_stays(tmp_path):
    (target := tmp_path / "null").symlink_to("/dev/null")
    with atomic_file(target, overwrite=True) as file:
        file.write(b"rows")
    assert target.is_symlink()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with atomic_file(pipe, overwrite=True) as file:
        file.write(b"rows")
    assert (os.read(reader, 9), pipe.is_fifo()) == (b"rows", True)
    os.close(reader)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["null", "pipe"]


def test_a_copy_in_a_place_that_kafka_streams_ignores_is_not_dumped_too(tmp_path):
    for place in ("rocksdb/s", "s"):
        write_stamped(tmp_path / "app/0_0" / place, 3)
    assert len(rows_of(dump_of(tmp_path, "s"))) == 3
