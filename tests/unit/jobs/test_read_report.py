"""Reports of a restore or a checkpoint: attempt, older versions, and unknown fields."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from statecore.errors import Invalid
from statecore.jobs.attempt import REPORT_VERSION, Attempt
from statecore.jobs.engine.protocol import RanOn
from statecore.jobs.history.report_head import ReportError, ReportHead, ReportOutcome, read_head, read_partitions
from statecore.jobs.read_report import REPORT, ReadReport, StoreReport
from tests.harness.raising import raises
from tests.unit.jobs.reports import attempt, done, entry, failed

STORE = StoreReport(
    task="0_0",
    store="s",
    partition=0,
    kind="key-value",
    changelog="c",
    start=0,
    end=10,
    committed_offset=9,
    records=10,
    tombstones=0,
    null_keys=0,
    aborted=0,
    rows=7,
    bytes=70,
    file_bytes=90,
    digest="d",
    runs=1,
    seconds=0.1,
    tail_left=0,
    max_timestamp=5,
)


def report(**fields: object) -> ReadReport:
    return ReadReport("orders", "p", "at_least_once", "/s", 1.0, {"read": 0.5}, (STORE,), **fields)  # type: ignore[arg-type]


def test_a_report_says_version_instance_maker_and_times() -> None:
    document = report(**vars_of(attempt(3)), finished="2023-11-14T22:13:24.000Z").to_json()
    assert document["version"] == REPORT_VERSION
    assert [document[name] for name in ("application_id", "host", "state_dir", "user")] == [
        "orders", "one", "/s", "kafka"
    ]  # fmt: skip
    assert list(document)[-1] == "stores"
    assert ReadReport.from_json(document).to_json() == document


def vars_of(tried: Attempt) -> dict[str, object]:
    return {name: value for name, value in vars(tried).items() if name not in ("application_id", "state_dir")}


def test_a_report_with_fields_of_a_later_release_can_be_read_back() -> None:
    later = {**report().to_json(), "weather": "fine"}
    later["stores"] = [{**later["stores"][0], "mood": "good"}]
    assert ReadReport.from_json(later) == report()


def test_a_report_that_is_written_again_keeps_what_a_later_release_has_added() -> None:
    later = {**report().to_json(), "weather": "fine"}
    later["stores"] = [{**later["stores"][0], "mood": "good"}]
    found = REPORT.read(json.dumps(later).encode())
    again = REPORT.rewritten(found, replace(found.value, finished="2023-11-14T22:13:24.000Z"))
    assert again == {**later, "finished": "2023-11-14T22:13:24.000Z"}


@pytest.mark.parametrize("version", [0, 3, "2", None, 2.0])
def test_a_report_of_another_version_is_refused_by_name(version: object) -> None:
    document = {**report().to_json(), "version": version}
    with raises(Invalid, "format-unsupported"):
        ReadReport.from_json(document)
    for other in (document, {**attempt(1).begun(), "version": version}, {**failed(attempt(1)), "version": version}):
        with pytest.raises(ReportError, match=f"has version {version}, and this release supports 2"):
            read_head(other)


def test_a_report_that_lacks_what_every_report_says_is_refused() -> None:
    for name in ("plan_id", "stores"):
        document = {field: value for field, value in report().to_json().items() if field != name}
        with pytest.raises(Invalid, match=name):
            ReadReport.from_json(document)


def test_an_attempt_resolves_the_state_directory(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    made = Attempt.begin("orders", str(tmp_path / "link" / ".." / "link"), "r")
    assert made.instance == ("orders", socket.gethostname(), str(tmp_path / "real"))
    assert made.process == os.getpid()
    assert Attempt.of(made.begun()) == made


@pytest.mark.parametrize(
    ("document", "outcome"),
    [
        (done(attempt(1), entry("a", 0)), ReportOutcome.RESTORED),
        (done(attempt(1), entry("a", 0), finished=""), ReportOutcome.BEGUN),
        (done(attempt(1), entry("a", 0), repository="file:///r"), ReportOutcome.RESTORED),
        (
            done(attempt(1, state_dir=""), entry("a", 0), repository="file:///r", published={"snapshot": "s"}),
            ReportOutcome.PUBLISHED,
        ),
        (
            done(attempt(1, state_dir=""), entry("a", 0), repository="file:///r", published=None),
            ReportOutcome.UNCHANGED,
        ),
        (failed(attempt(1)), ReportOutcome.FAILED),
        (attempt(1).begun(), ReportOutcome.BEGUN),
        ({**attempt(1).begun(), "partitions": [], "finished": "x"}, ReportOutcome.PLANNED),
    ],
)
def test_how_an_attempt_ended_is_read_from_every_report(document: dict[str, object], outcome: ReportOutcome) -> None:
    head = read_head(document)
    assert head.outcome is outcome
    assert msgspec.convert(json.loads(json.dumps(head.to_json())), ReportHead) == head  # which an index relies on
    assert len(list(read_partitions(document, head))) == head.succeeded
    assert head.succeeded == (outcome in (ReportOutcome.RESTORED, ReportOutcome.PUBLISHED, ReportOutcome.UNCHANGED))


@pytest.mark.parametrize("broken", [{"started": ""}, {"stores": 3}, {"stores": [{"task": "0_0"}]}, {"stores": [3]}])
def test_a_document_that_is_no_report_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(ReportError, match="no report"):
        read_head({**attempt(1).begun(), **broken})


def test_a_global_store_shows_the_next_offset_of_each_partition() -> None:
    entries = entry("g", -1, task="global", committed_offset=30, offsets={"t-0-10": 9, "t-0-2": 21})
    document = done(attempt(1), entries)
    (part,) = read_partitions(document, read_head(document))
    assert list(part.offsets.items()) == [("2", 21), ("10", 9)]


def test_where_a_job_ran_is_part_of_the_document_and_comes_back() -> None:
    ran_on = RanOn("spark://m:7077", 3, ("a", "b"))
    report = ReadReport("orders", "plan", "at_least_once", "/state", 1.5, {"read": 1.0}, (), ran_on=ran_on)
    document = json.loads(json.dumps(report.to_json()))
    assert (document["master"], document["executors"], document["hosts"]) == ("spark://m:7077", 3, ["a", "b"])
    assert ReadReport.from_json(document) == report


def test_a_report_of_an_earlier_release_says_nothing_of_it() -> None:
    document = ReadReport("orders", "plan", "at_least_once", "/state", 1.5, {}, ()).to_json()
    for name in ("master", "executors", "hosts"):
        del document[name]
    assert ReadReport.from_json(document).ran_on == RanOn()
