"""The index of reports says what reading all of them says, and reads only what is new."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from statecore.jobs.attempt import Instance
from statecore.jobs.history import report_index
from statecore.jobs.history.report_head import ReportOutcome
from statecore.jobs.history.report_index import ApplicationReports, InstanceReports, ReportIndex
from statecore.jobs.history.restored_store import restored_stores
from tests.unit.jobs.reports import attempt, done, entry, failed, write


def read(directory: Path, name: str = "orders") -> ApplicationReports:
    """As somebody sees it who has the index on disk; the same as one who has none."""
    found = ReportIndex(directory).application(name)
    shutil.rmtree(directory / report_index.INDEX, ignore_errors=True)
    assert ReportIndex(directory).application(name) == found
    return found


def emptied(path: Path) -> Callable[[], object]:
    """Other bytes in a report, which nobody sees who does not read it; what is returned brings its own back."""
    content, status = path.read_bytes(), path.stat()

    def put(data: bytes) -> None:
        with path.open("r+b") as file:
            file.write(data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    put(bytes(len(content)))
    return lambda: put(content)


def rows(one: InstanceReports) -> dict[tuple[str, int], int]:
    return {(part.store, part.partition): part.rows for part in one.partitions}


def test_a_directory_that_is_not_there_holds_no_application(tmp_path: Path) -> None:
    index = ReportIndex(tmp_path / "absent")
    assert index.names() == []
    assert index.application("orders").instances == ()
    assert list(index.heads()) == []


def test_what_is_restored_elsewhere_changes_nothing_here(tmp_path: Path) -> None:
    """All partitions to A, then one to B: A keeps all of its own, and B has the one."""
    write(tmp_path, 1, done(attempt(1, "/a"), *(entry("s", number, 1) for number in range(16))))
    write(tmp_path, 2, done(attempt(2, "/b"), entry("s", 3, 2)))
    write(tmp_path, 3, done(attempt(3, "/a", host="two"), entry("s", 5, 3)))
    instances = {one.instance: rows(one) for one in read(tmp_path).instances}
    assert instances == {
        Instance("orders", "one", "/a"): {("s", number): 1 for number in range(16)},
        Instance("orders", "one", "/b"): {("s", 3): 2},
        Instance("orders", "two", "/a"): {("s", 5): 3},
    }
    assert [one.instance.host for one in read(tmp_path).instances] == ["two", "one", "one"]


def test_each_store_partition_is_as_it_was_last_restored(tmp_path: Path) -> None:
    index = ReportIndex(tmp_path)
    write(tmp_path, 2, done(attempt(2), entry("a", 1, 2)))
    assert rows(index.application("orders").instances[0]) == {("a", 1): 2}
    write(tmp_path, 1, done(attempt(1), entry("a", 0, 1), entry("a", 1, 1)))  # seen later, made before
    assert rows(index.application("orders").instances[0]) == {("a", 0): 1, ("a", 1): 2}
    (one,) = read(tmp_path).instances
    assert rows(one) == {("a", 0): 1, ("a", 1): 2}
    assert [part.request_id for part in one.partitions] == [attempt(1).request_id, attempt(2).request_id]


def test_a_failure_and_a_try_without_an_end_are_the_last_word_until_a_later_one(tmp_path: Path) -> None:
    write(tmp_path, 1, done(attempt(1), entry("a", 0)))
    write(tmp_path, 2, failed(attempt(2)))
    write(tmp_path, 3, failed(attempt(3, "/elsewhere")))
    here = next(one for one in read(tmp_path).instances if one.instance.state_dir == "/s")
    assert (here.last.outcome, here.last.error["what"]) == (ReportOutcome.FAILED, "It runs.")
    assert here.last_restored is not None
    assert len(here.partitions) == 1
    write(tmp_path, 4, attempt(4).begun())
    here = read(tmp_path).instances[0]
    assert [head.outcome for head in here.attempts] == [
        ReportOutcome.BEGUN,
        ReportOutcome.FAILED,
        ReportOutcome.RESTORED,
    ]
    write(tmp_path, 5, {**attempt(5).begun(), "partitions": [], "finished": attempt(5).started})
    assert read(tmp_path).instances[0].last.outcome is ReportOutcome.BEGUN  # a plan changes nothing
    write(tmp_path, 6, done(attempt(6), entry("a", 0)))
    assert read(tmp_path).instances[0].last.outcome is ReportOutcome.RESTORED


@pytest.mark.parametrize(
    "broken", ["{half", "[]", "{}", '{"stores": [{"task": "0_0"}]}', '{"stores": 3}', '{"version": 3, "stores": []}']
)
def test_a_report_that_cannot_be_read_is_named_and_hides_no_other(tmp_path: Path, broken: str) -> None:
    write(tmp_path, 1, done(attempt(1), entry("a", 0)))
    write(tmp_path, 2, broken)
    found = read(tmp_path)
    assert found.unreadable == ("r2.json",)
    assert rows(found.instances[0]) == {("a", 0): 1}
    assert [head is None for head in ReportIndex(tmp_path).heads()] == [True, False]


def test_a_deleted_or_rewritten_report_replaces_its_entries(tmp_path: Path) -> None:
    write(tmp_path, 1, done(attempt(1), entry("a", 0, 1)))
    write(tmp_path, 2, done(attempt(2), entry("a", 0, 2)))
    index = ReportIndex(tmp_path)
    assert rows(index.application("orders").instances[0]) == {("a", 0): 2}
    write(tmp_path, 2, failed(attempt(2)))
    again = index.application("orders").instances[0]
    assert (rows(again), again.last.outcome) == ({("a", 0): 1}, ReportOutcome.FAILED)
    (tmp_path / "orders" / "r2.json").unlink()
    assert index.application("orders").instances[0].last.outcome is ReportOutcome.RESTORED


def test_a_failure_that_is_written_again_has_no_other_report_read_again(tmp_path: Path) -> None:
    write(tmp_path, 1, done(attempt(1), entry("a", 0, 1)))
    write(tmp_path, 2, failed(attempt(2)))
    index = ReportIndex(tmp_path)
    index.application("orders")
    whole = emptied(tmp_path / "orders" / "r1.json")
    write(tmp_path, 2, failed(attempt(3), phase="plan"))
    again = index.application("orders").instances[0]
    assert (again.last.attempt, len(again.attempts)) == (attempt(3), 2)
    (tmp_path / "orders" / "r2.json").unlink()
    left = index.application("orders").instances[0]
    assert (left.last.outcome, rows(left)) == (ReportOutcome.RESTORED, {("a", 0): 1})
    whole()
    assert left == read(tmp_path).instances[0]


def test_only_the_newest_reports_are_read(tmp_path: Path) -> None:
    write(tmp_path, 0, done(attempt(0), entry("old", 0)))
    index = ReportIndex(tmp_path, most=3)
    assert rows(index.application("orders").instances[0]) == {("old", 0): 1}
    for second in (1, 2, 3):
        write(tmp_path, second, done(attempt(second), entry("new", 0)))
    assert rows(index.application("orders").instances[0]) == {("new", 0): 1}
    shutil.rmtree(tmp_path / "orders" / report_index.INDEX, ignore_errors=True)
    assert rows(ReportIndex(tmp_path, most=3).application("orders").instances[0]) == {("new", 0): 1}


def test_what_was_read_once_is_not_read_again_by_anybody(tmp_path: Path) -> None:
    for second, store in ((1, "a"), (2, "b")):
        write(tmp_path, second, done(attempt(second), entry(store, 0)))
    index = ReportIndex(tmp_path)
    known = {("a", 0): 1, ("b", 0): 1}
    assert rows(index.application("orders").instances[0]) == known
    for second in (1, 2):
        emptied(tmp_path / "orders" / f"r{second}.json")
    for looks in (index, ReportIndex(tmp_path)):
        assert rows(looks.application("orders").instances[0]) == known
    write(tmp_path, 3, done(attempt(3), entry("c", 0)))
    assert rows(index.application("orders").instances[0]) == {**known, ("c", 0): 1}
    emptied(tmp_path / "orders" / "r3.json")
    assert rows(ReportIndex(tmp_path).application("orders").instances[0]) == {**known, ("c", 0): 1}


@pytest.mark.parametrize("torn", [b"", b"{", b"[]", b'{"version": 99}', b'{"version": 2, "files": {"x": 3}}'])
def test_a_truncated_index_is_recreated(tmp_path: Path, torn: bytes) -> None:
    write(tmp_path, 1, done(attempt(1), entry("a", 0)))
    found = ReportIndex(tmp_path).application("orders")
    (file,) = (tmp_path / report_index.INDEX).iterdir()
    file.write_bytes(torn)
    assert ReportIndex(tmp_path).application("orders") == found
    assert json.loads(file.read_bytes())["version"] == 2


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"process": Infinity, "started": "2026-01-01T00:00:00Z"}',
        '{"finished": "x", "started": "x", "stores": [{"store": "a", "rows": 1e999}]}',
    ],
    ids=["deep", "infinite process", "infinite rows"],
)
def test_no_damaged_file_hides_the_other_reports(tmp_path: Path, text: str) -> None:
    write(tmp_path, 1, done(attempt(1), entry("a", 0)))
    (tmp_path / "orders" / "damaged.json").write_text(text)
    (tmp_path / report_index.INDEX).mkdir()
    (tmp_path / report_index.INDEX / "orders.json").write_text("[" * 200_000)
    index = ReportIndex(tmp_path)
    assert rows(index.application("orders").instances[0]) == {("a", 0): 1}
    assert sorted(head is None for head in index.heads()) == [False, True]


def test_where_no_index_can_be_written_the_reports_are_read_all_the_same(tmp_path: Path) -> None:
    (tmp_path / report_index.INDEX).write_text("a file is in its place")
    write(tmp_path, 1, done(attempt(1), entry("a", 0)))
    assert rows(ReportIndex(tmp_path).application("orders").instances[0]) == {("a", 0): 1}


@pytest.mark.parametrize("name", ["", ".", "..", "../orders", "a/b", report_index.INDEX, "a\0b", "absent"])
def test_no_name_leads_out_of_the_directory(tmp_path: Path, name: str) -> None:
    write(tmp_path, 1, done(attempt(1), entry("a", 0)))
    (tmp_path / "outside.json").write_text(json.dumps(done(attempt(1), entry("b", 0))))
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    assert ReportIndex(tmp_path).application(name).instances == ()
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_applications_are_in_the_order_of_their_newest_reports(tmp_path: Path) -> None:
    for second, name in enumerate(("b", "c", "a")):
        write(tmp_path, second, done(attempt(second, application=name), entry("s", 0)), name)
    index = ReportIndex(tmp_path)
    assert index.names() == ["a", "c", "b"]
    heads = [head.attempt.application_id for head in index.heads() if head]
    assert heads == ["a", "c", "b"]
    assert [head.attempt.application_id for head in index.heads(lambda name: name != "c", 1) if head] == ["b"]
    for name in index.names():
        index.application(name)
    os.utime(tmp_path / "b" / "r0.json")
    assert index.names() == ["b", "a", "c"]


def test_a_store_is_shown_over_its_partitions(tmp_path: Path) -> None:
    write(tmp_path, 1, done(attempt(1), entry("s", 0, 5, committed_offset=7), entry("s", 1, 6, committed_offset=-4)))
    write(tmp_path, 2, done(attempt(2), entry("s", 2, 7, tail_left=3)))
    (one,) = restored_stores(ReportIndex(tmp_path).application("orders").instances[0].partitions)
    assert (one.partitions, one.rows, one.offsets, one.unknown, one.tail_left) == (3, 18, (7, 9), 1, 3)
    assert one.oldest < one.newest
    assert one.request_ids == (attempt(2).request_id, attempt(1).request_id)


def test_uncounted_rows_are_not_summed(tmp_path: Path) -> None:
    """A job that only publishes builds no stores, and counts no rows."""
    parts = [entry("a", 0, -1, digest="", bytes=-1), entry("a", 1, 5), entry("b", 0, 7)]
    published = {"repository": "file:///r", "published": {"snapshot": "s1"}}
    write(tmp_path, 1, done(attempt(1, state_dir=""), *parts, **published))
    (one,) = read(tmp_path).instances
    assert one.last_restored is None
    assert one.last_published is not None
    assert (one.last.outcome, one.last.rows, one.last.snapshot) == (ReportOutcome.PUBLISHED, -1, "s1")
    a, b = restored_stores(one.partitions)
    assert (a.rows, a.digest, b.rows, bool(b.digest)) == (-1, "", 7, True)


def test_what_is_published_says_nothing_of_a_state_directory(tmp_path: Path) -> None:
    write(tmp_path, 1, done(attempt(1), entry("a", 0)))
    published = {"repository": "file:///r", "published": {"snapshot": "s1"}}
    write(tmp_path, 2, done(attempt(2, state_dir=""), entry("a", 0, -1, digest=""), **published))
    found = {one.instance.state_dir: one for one in read(tmp_path).instances}
    assert {where: one.last.outcome for where, one in found.items()} == {
        "/s": ReportOutcome.RESTORED,
        "": ReportOutcome.PUBLISHED,
    }
    assert [part.rows for part in found["/s"].partitions] == [1]


def test_stores_of_several_repositories_are_kept_apart_also_by_another_process(tmp_path: Path) -> None:
    for second, repository in ((1, "file:///r"), (2, "file:///other")):
        tried = attempt(second, state_dir="")
        write(
            tmp_path,
            second,
            done(tried, entry("by-id", 0, second), repository=repository, published={"snapshot": f"s{second}"}),
        )
    for index in (ReportIndex(tmp_path), ReportIndex(tmp_path)):
        (one,) = index.application("orders").instances
        assert [part.rows for part in one.partitions] == [2]
        there = one.of_repository("file:///r")
        assert ([part.rows for part in there.partitions], there.last_published) == ([1], one.attempts[1])
        nowhere = one.of_repository("file:///nowhere")
        assert (nowhere.partitions, nowhere.last_published) == ((), None)
    write(tmp_path, 3, done(attempt(3), entry("by-id", 0, 3)))
    restored = ReportIndex(tmp_path).application("orders").instances[0]
    assert restored.of_repository("file:///r") == restored, "a state directory has no repository"
