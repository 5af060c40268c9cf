"""Column families that are unknown, missing or of an older row format."""

from __future__ import annotations

import shutil

import pytest

from statecore.doctor.finding_catalog import Repair
from statecore.spec.reader import read_spec
from tests.unit.doctor.diagnosing import ERROR, LOSS, NOTE, SPEC, codes, diagnose, plain
from tests.unit.doctor.stored import offsets, write_database


def test_column_families(tmp_path):
    plain(tmp_path, more={"foo": []})
    (one,) = diagnose(tmp_path).findings
    assert (one.code, one.severity, one.repair) == ("column-family-unknown", ERROR, Repair.DROP_FAMILY)
    assert one.evidence["families"] == ["foo"]
    shutil.rmtree(tmp_path / "app")
    plain(tmp_path, more={"foo": [(b"k", b"v")]})
    assert diagnose(tmp_path).findings[0].repair is Repair.REBUILD


def test_one_database_with_an_unknown_family_is_the_only_finding(tmp_path):
    plain(tmp_path, "0_0")
    plain(tmp_path, "0_1", more={"foo": []})
    assert [(one.code, one.task) for one in diagnose(tmp_path).findings] == [("column-family-unknown", "0_1")]


def test_a_database_without_the_family_of_its_rows_is_read_as_empty(tmp_path):
    rows = [(b"k", bytes(8) + b"v")]
    families = {"default": [], "keyValueWithTimestamp": rows, "offsets": offsets("app-s-changelog", 0, 3)}
    write_database(tmp_path / "app/0_0/rocksdb/s", families)
    write_database(tmp_path / "app/0_1/rocksdb/s", {"default": [], "offsets": offsets("app-s-changelog", 1, 3)})
    assert [(one.code, one.task) for one in diagnose(tmp_path).findings] == [("column-family-missing", "0_1")]


def test_rows_of_an_older_format_are_a_note(tmp_path):
    plain(tmp_path, more={"keyValueWithTimestamp": [(b"k", bytes(8) + b"v")]})
    assert codes(tmp_path) == {"older-rows": NOTE}
    (one,) = diagnose(tmp_path, scan=True).findings
    assert one.evidence["rows"] == 3


def test_rows_in_a_family_of_headers_in_one_segment_of_a_store_of_unknown_kind(tmp_path):
    for start, more in ((600_000, {"sessionKeyValueWithHeaders": [(b"k" + bytes(16), b"\0v")]}), (900_000, {})):
        keys = [(b"k" + (start + 2).to_bytes(8) + (start + 1).to_bytes(8), b"v")]
        families = {"default": keys, **more, "offsets": offsets("app-s-changelog", 0, 7)}
        write_database(tmp_path / f"app/0_0/s/s.{start}", families)
    assert codes(tmp_path) == {"older-rows": NOTE}
    spec = read_spec(SPEC.format(guarantee="at_least_once", stores="s: {kind: session, retention: 10m}"))
    assert codes(tmp_path, spec=spec) == {"kind-mismatch": LOSS, "older-rows": NOTE}


def test_another_tasks_family_of_headers_makes_no_rows_of_this_one_unreadable(tmp_path):
    """Real Kafka Streams opens 0_1, whose class is not that of 0_0, and converts the row."""
    stamped, row = "keyValueWithTimestamp", [(b"k", bytes(8) + b"v")]
    plain(tmp_path, rows=0, more={stamped: row, "keyValueWithTimestampAndHeaders": []})
    plain(tmp_path, "0_1", rows=1, more={stamped: row})
    found = {(one.code, one.task, one.severity) for one in diagnose(tmp_path).findings}
    assert ("older-rows", "0_1", NOTE) in found
    assert "older-rows-misread" not in {code for code, _, _ in found}
    write_database(
        tmp_path / "app/0_2/rocksdb/s",
        {
            "default": [(b"k", b"v")],
            stamped: row,
            "keyValueWithTimestampAndHeaders": [],
            "offsets": offsets("app-s-changelog", 2, 7),
        },
    )
    misread = {(one.task, one.severity) for one in diagnose(tmp_path).findings if one.code == "older-rows-misread"}
    assert misread == {("0_2", ERROR)}


STAMP = bytes(8)
WINDOW_KEY = b"k" + (600_001).to_bytes(8)
TO_HEADERS = [
    ("headers-key-value", "rocksdb/s", "keyValueWithTimestamp", [(b"k", STAMP + b"v")]),
    ("headers-window", "s/s.600000", "keyValueWithTimestamp", [(WINDOW_KEY + bytes(4), STAMP + b"v")]),
    ("headers-window", "s/s.600000", "default", [(WINDOW_KEY + (1).to_bytes(4), b"v")]),
    ("headers-session", "s/s.600000", "default", [(b"k" + (600_001).to_bytes(8) * 2, b"v")]),
    (
        "headers-emit-final-window",
        "s/s.600000",
        "default",
        [(b"\0" + (600_001).to_bytes(8) + b"k" + bytes(4), STAMP + b"v")],
    ),
]
"""Declared kind, and a database in the default format."""


def default_format(tmp_path, kind, place, family, rows, tasks=("0_0", "0_1")):
    """Tasks of a store in the default format, and a spec that declares it with headers."""
    for task in tasks:
        said = offsets("app-s-changelog", int(task[-1]), 7)
        write_database(tmp_path / f"app/{task}/{place}", {"default": [], family: rows, "offsets": said})
    retention = ", retention: 10m" if place.startswith("s/") else ""
    return read_spec(SPEC.format(guarantee="at_least_once", stores=f"s: {{kind: {kind}{retention}}}"))


@pytest.mark.parametrize(("kind", "place", "family", "rows"), TO_HEADERS)
def test_a_store_in_the_default_format_is_upgraded_to_headers_at_the_next_start(tmp_path, kind, place, family, rows):
    spec = default_format(tmp_path, kind, place, family, rows)
    assert codes(tmp_path, spec=spec) == {"older-rows": NOTE}


@pytest.mark.parametrize(("kind", "place", "family", "rows"), TO_HEADERS)
def test_a_store_without_rows_lacks_no_family_before_its_upgrade(tmp_path, kind, place, family, rows):
    assert codes(tmp_path, spec=default_format(tmp_path, kind, place, family, [])) == {}


def test_a_database_of_another_kind_among_those_that_are_upgraded(tmp_path):
    spec = default_format(tmp_path, *TO_HEADERS[0], tasks=("0_0", "0_1"))
    plain(tmp_path, "0_2")
    found = {(one.code, one.task) for one in diagnose(tmp_path, spec=spec).findings}
    assert found == {("older-rows", "0_0"), ("older-rows", "0_1"), ("kind-mismatch", "0_2")}


@pytest.mark.parametrize("kind", ["timestamped-key-value", "headers-key-value"])
def test_plain_rows_have_no_time_so_that_a_kind_with_times_is_a_mismatch(tmp_path, kind):
    spec = default_format(tmp_path, kind, "rocksdb/s", "default", [(b"k", b"v")])
    found = codes(tmp_path, spec=spec)
    assert found.pop("kind-mismatch") is LOSS
