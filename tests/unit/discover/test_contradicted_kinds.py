"""Declared stores that are something else on disk, told before anything is placed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from statecore.discover.contradicted_kinds import contradiction_error, find_contradictions
from statecore.doctor.diagnosis import diagnose_directory
from statecore.doctor.finding_catalog import Severity
from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.rows.keys import WindowKey
from statecore.formats.rows.lists import ListKey, encode_list
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import parse_spec
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.directory import copy_of_open

CHANGELOG = TopicPartition("app-s-changelog", 0)
WINDOWED = {StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW}


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path, "app")


def spec(kind: str, store: str = "s", **more: str) -> ApplicationSpec:
    body = {"kind": kind, **({"retention": "1h"} if "window" in kind or "session" in kind else {}), **more}
    return parse_spec(
        {
            "application_id": "app",
            "bootstrap_servers": "nowhere:1",
            "processing_guarantee": "exactly_once_v2",
            "subtopologies": {"0": {"stores": {store: body}}},
        }
    )


def database(directory: StateDirectory, kind: StoreKind, offset: int | None = 5, task: str = "0_0") -> Path:
    path = directory.store_path(task, "s", kind)
    with RocksDBStore(path / "s.0" if kind.is_segmented else path, kind, create=True) as store:
        if not kind.is_segmented:
            store.put(b"key", b"value")
        store.commit({} if offset is None else {CHANGELOG: offset})
    return path


def write(directory: StateDirectory, name: str, text: str = "rows") -> None:
    path = directory.task_path("0_0") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def found(directory: StateDirectory, declared: ApplicationSpec) -> list[str]:
    return [one.store for one in find_contradictions(directory, declared, ["0_0", "0_1", "global"])]


OFFSET = "0\n1\napp-s-changelog 0 7\n"


@pytest.mark.parametrize("there", [StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.TIMESTAMPED_WINDOW])
@pytest.mark.parametrize(
    "declared",
    ["key-value", "timestamped-key-value", "timestamped-window", "window", "custom", "in-memory", "headers-session"],
)
def test_a_database_of_another_kind_is_reported(directory, there, declared):
    database(directory, there)
    assert found(directory, spec(declared)) == ([] if declared == there else ["s"])


@pytest.mark.parametrize(
    ("there", "declared", "told"),
    [
        (StoreKind.TIMESTAMPED_KEY_VALUE, "headers-key-value", []),
        (StoreKind.TIMESTAMPED_WINDOW, "headers-window", []),
        (StoreKind.SESSION, "headers-session", []),
        (StoreKind.EMIT_FINAL_WINDOW, "headers-emit-final-window", []),
        (StoreKind.KEY_VALUE, "headers-key-value", ["s"]),
        (StoreKind.HEADERS_KEY_VALUE, "timestamped-key-value", ["s"]),
    ],
)
def test_a_store_in_the_default_format_may_be_one_with_headers(directory, there, declared, told):
    database(directory, there)
    assert found(directory, spec(declared)) == told


def _int64(number: int) -> bytes:
    return number.to_bytes(8, signed=True)


MICROSECONDS = 1_795_000_000_000_000
LATE = WindowKey(b"key", MICROSECONDS // 1000)
LIST = encode_list([b"value"], left=True)
CHANCE = [
    ("key-value", _int64(-1), _int64(5), ""),
    ("key-value", _int64(-1), _int64(MICROSECONDS // 1000), ""),
    ("versioned-key-value", _int64(-1) + b"key", _int64(MICROSECONDS) + b"value", ""),
    ("list", ListKey(b"key", MICROSECONDS, True).to_bytes(), LIST, ""),
    ("emit-final-window", LATE.to_bytes(StoreKind.EMIT_FINAL_WINDOW), bytes(8) + b"value", "s.0"),
]


@pytest.mark.parametrize(("kind", "key", "value", "segment"), CHANCE)
def test_one_row_that_fits_another_kind_is_no_contradiction(directory, kind, key, value, segment):
    path = directory.store_path("0_0", "s", StoreKind(kind)) / segment
    with RocksDBStore(path, StoreKind(kind), create=True) as store:
        store.put(key, value)
        store.commit({CHANGELOG: 5})
    assert found(directory, spec(kind, **({"retention": "1h"} if "versioned" in kind else {}))) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (_int64(-1) + b"key", _int64(MICROSECONDS // 1000) + b"value"),
        (ListKey(b"key", MICROSECONDS // 1000, True).to_bytes(), LIST),
    ],
)
def test_rows_of_versions_and_of_lists_are_no_plain_ones(directory, key, value):
    with RocksDBStore(directory.store_path("0_0", "s", StoreKind.KEY_VALUE), StoreKind.KEY_VALUE, create=True) as store:
        store.put(key, value)
        store.commit({CHANGELOG: 5})
    assert found(directory, spec("key-value")) == ["s"]


@pytest.mark.parametrize("where", ["s/rows", "rocksdb/s/rows", "s/s.60000/rows"])
@pytest.mark.parametrize("declared", ["key-value", "timestamped-window", "in-memory", "custom"])
def test_files_of_a_custom_store_are_reported(directory, where, declared):
    write(directory, where)
    assert found(directory, spec(declared)) == ([] if declared == "custom" else ["s"])


@pytest.mark.parametrize(
    ("declared", "told"), [("key-value", True), ("in-memory", True), ("custom", False), ("grace-buffer", False)]
)
def test_an_offset_beside_the_store_is_one_of_the_application_s_own_class(directory, declared, told):
    write(directory, ".checkpoint_s", OFFSET)
    assert found(directory, spec(declared)) == (["s"] if told else [])


def test_an_unknown_offset_is_no_contradiction(directory):
    write(directory, ".checkpoint_s", OFFSET.replace(" 7", " -4"))
    assert found(directory, spec("key-value")) == []
    database(directory, StoreKind.KEY_VALUE)
    assert found(directory, spec("custom")) == ["s"]


def test_a_class_that_wraps_a_store_of_kafka_streams_has_its_offset_in_both_places(directory):
    database(directory, StoreKind.KEY_VALUE)
    write(directory, ".checkpoint_s", OFFSET)
    assert found(directory, spec("custom")) == []


def test_one_that_was_not_closed_may_be_of_a_class_that_wraps_a_store_of_kafka_streams(directory):
    path = directory.store_path("0_0", "s", StoreKind.KEY_VALUE)
    with RocksDBStore(path.with_name("open"), StoreKind.KEY_VALUE, create=True) as store:
        store.commit({CHANGELOG: 5})
        store.flush()
        copy_of_open(path.with_name("open"), path)
    shutil.rmtree(path.with_name("open"))
    assert found(directory, spec("custom")) == []
    assert found(directory, spec("in-memory")) == ["s"]


def test_a_database_without_an_offset_may_be_of_the_application_s_own_class(directory):
    database(directory, StoreKind.KEY_VALUE, None)
    assert found(directory, spec("custom")) == []
    assert found(directory, spec("custom", changelog="none")) == []


@pytest.mark.parametrize("declared", ["key-value", "window", "in-memory", "custom", "?"])
@pytest.mark.parametrize("name", ["s", "rocksdb/s", "s/s.0", ""])
def test_an_empty_directory_is_no_contradiction(directory, declared, name):
    (directory.task_path("0_0") / name).mkdir(parents=True)
    assert found(directory, spec(declared)) == []


@pytest.mark.parametrize("declared", ["key-value", "window", "in-memory"])
@pytest.mark.parametrize("where", ["s/.DS_Store", "rocksdb/s/.DS_Store", "s/s.0/.nfs0001"])
def test_a_hidden_file_is_no_contradiction(directory, declared, where):
    write(directory, where)
    assert found(directory, spec(declared)) == []


@pytest.mark.parametrize("lost", ["CURRENT", "MANIFEST-*", "*.sst"])
def test_damage_is_no_contradiction(directory, lost):
    for file in database(directory, StoreKind.TIMESTAMPED_KEY_VALUE).glob(lost):
        file.unlink()
    assert found(directory, spec("timestamped-key-value")) == []


def test_a_leftover_beside_the_right_store_is_no_contradiction(directory):
    database(directory, StoreKind.KEY_VALUE)
    database(directory, StoreKind.TIMESTAMPED_WINDOW)
    assert found(directory, spec("timestamped-window")) == []
    assert found(directory, spec("key-value")) == []


def test_only_the_requested_tasks_are_inspected(directory):
    database(directory, StoreKind.KEY_VALUE, task="0_1")
    declared = spec("timestamped-key-value")
    assert find_contradictions(directory, declared, ["0_0"]) == []
    assert [one.tasks for one in find_contradictions(directory, declared, ["0_0", "0_1"])] == [("0_1",)]
    assert contradiction_error(directory, declared, ["0_1"], {("0_1", "s")}) is None


def test_the_refusal_names_every_store_and_changes_nothing(directory):
    database(directory, StoreKind.KEY_VALUE)
    refusal = contradiction_error(directory, spec("window"), ["0_0"])
    assert isinstance(refusal, Invalid)
    assert refusal.code == "kind-mismatch"
    assert refusal.context["stores"] == ["s"]
    assert len(refusal.context["problems"]) == 1
    assert not directory.work_path.exists()


@pytest.mark.parametrize(
    ("there", "declared", "severity"),
    [
        ("rows", "key-value", Severity.LOSS),
        ("rows", "timestamped-window", Severity.LOSS),
        ("rows", "in-memory", Severity.WARNING),
        ("database", "in-memory", Severity.WARNING),
        ("database", "custom", Severity.LOSS),
    ],
)
def test_the_doctor_offers_no_repair_that_would_replace_a_store_of_another_class(directory, there, declared, severity):
    if there == "rows":
        write(directory, "s/rows")
        write(directory, ".checkpoint_s", OFFSET)
    else:
        database(directory, StoreKind.KEY_VALUE)
    found = [one for one in diagnose_directory(directory, spec=spec(declared)).findings if one.store == "s"]
    assert [(one.code, one.severity, one.repair) for one in found] == [("kind-mismatch", severity, None)]
