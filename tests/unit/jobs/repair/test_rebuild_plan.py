"""Doubts about rebuilds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from statecore.doctor.finding_catalog import Repair
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import GLOBAL
from statecore.jobs.repair.rebuild_plan import doubts_about

FULL, EMPTY = "names-0 of topic 7", "names-1 of topic 7, which has no record"
SHORTENED = "names-2 of topic 7, whose first records were deleted"


def rebuild() -> Any:
    return SimpleNamespace(stores=("table",), tasks=(GLOBAL,))


def test_of_a_store_of_which_one_partition_has_records_something_would_be_left() -> None:
    assert doubts_about(rebuild(), (FULL,), (), ()) == ()
    (part,), (whole,) = doubts_about(rebuild(), (FULL, EMPTY), (), ()), doubts_about(rebuild(), (EMPTY,), (), ())
    assert ("part of table" in part, "part of table" in whole) == (True, False)
    assert all(f"{EMPTY}." in said and str(FULL) not in said for said in (part, whole))


def test_rows_may_have_been_in_records_that_were_deleted() -> None:
    (doubt,) = doubts_about(rebuild(), (FULL, SHORTENED), (), ())
    assert f"{SHORTENED}." in doubt


def test_findings_are_quoted_with_or_without_a_full_stop() -> None:
    for what in ("another cluster", "another cluster."):
        found: Any = SimpleNamespace(code="offset-past-end", task=GLOBAL, store="table", what=what, repair=None)
        assert doubts_about(rebuild(), (FULL,), (found,), ()) == ("global/table: another cluster.",)


def test_rows_that_differ_are_a_doubt_unless_another_finding_of_the_store_needs_the_rebuild() -> None:
    differing: Any = SimpleNamespace(
        code="rows-differ", task=GLOBAL, store="table", what="2 of 16 rows", repair=Repair.REBUILD
    )
    lost: Any = SimpleNamespace(code="file-missing", task=GLOBAL, store="table", what="a file", repair=Repair.REBUILD)
    assert doubts_about(rebuild(), (FULL,), (differing,), ()) == ("global/table: 2 of 16 rows.",)
    assert doubts_about(rebuild(), (FULL,), (differing, lost), ()) == ()


def store_of(task: str, rows: dict[str, int], kind: StoreKind = StoreKind.WINDOW) -> Any:
    databases = [SimpleNamespace(name=name, rows=number) for name, number in rows.items()]
    return SimpleNamespace(task=task, store="w", kind=kind, databases=databases, rows=sum(rows.values()))


def found_in(code: str, task: str, segment: str = "") -> Any:
    return SimpleNamespace(code=code, task=task, store="w", segment=segment, what="", repair=Repair.REBUILD)


REBUILD: Any = SimpleNamespace(stores=("w",), tasks=("0_0",))


@pytest.mark.parametrize(
    ("segments", "misplaced", "count"),
    [
        ({"0_0": "ab", "0_1": "ab"}, {"0_0": "b", "0_1": "ab"}, 1),
        ({"0_0": "ab", "0_1": "ab"}, {"0_1": "ab"}, 0),  # one task was changed
        ({"0_0": "ab", "0_1": "", "1_0": "ab"}, {"0_0": "ab"}, 1),  # no segments; another subtopology
        ({"0_0": "ab"}, {"0_0": "b"}, 0),  # one segment was moved
        ({"0_0": "abE"}, {"0_0": "ab"}, 1),  # a segment without rows
        ({"0_0": "aE"}, {"0_0": "aE"}, 1),
        ({"0_0": "ab"}, {}, 0),
    ],
)
def test_the_retention_in_the_spec_is_doubted_where_segments_of_every_task_are_misplaced(
    segments: dict[str, str], misplaced: dict[str, str], count: int
) -> None:
    stores = [store_of(task, {name: name != "E" for name in names}) for task, names in segments.items()]
    found = [found_in("segment-misplaced", task, name) for task, names in misplaced.items() for name in names]
    assert len(doubts_about(REBUILD, (FULL,), found, stores)) == count
    of_buffer = [SimpleNamespace(**{**vars(one), "kind": StoreKind.GRACE_BUFFER}) for one in stores]
    assert doubts_about(REBUILD, (FULL,), found, of_buffer) == ()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "mismatched", "count"),
    [
        ({"0_0": 3, "0_1": 3}, {"0_0", "0_1"}, 1),
        ({"0_0": 3, "0_1": 3}, {"0_0"}, 0),  # a database was placed there from elsewhere
        ({"0_0": 3}, {"0_0"}, 1),  # there is one task
        ({"0_0": 3, "0_1": 0, "1_0": 3}, {"0_0"}, 1),  # no rows that show a kind; another subtopology
        ({"0_0": 0}, {"0_0"}, 0),  # nothing to lose
    ],
)
def test_the_kind_in_the_spec_is_doubted_where_the_store_is_of_another_kind_in_every_task(
    rows: dict[str, int], mismatched: set[str], count: int
) -> None:
    stores = [store_of(task, {"w": number}, StoreKind.KEY_VALUE) for task, number in rows.items()]
    found = [found_in("kind-mismatch", task) for task in sorted(mismatched)]
    assert len(doubts_about(REBUILD, (FULL,), found, stores)) == count


@pytest.mark.parametrize(("here", "count"), [((), 1), (("1_0",), 1), (("0_1",), 0)])
def test_the_kind_in_the_spec_is_doubted_where_every_task_has_the_store_in_the_place_of_another(
    here: tuple[str, ...], count: int
) -> None:
    note: Any = SimpleNamespace(
        code="store-undeclared", task="0_0", store="w", what="", repair=None, evidence={"ignored": "rocksdb/w"}
    )
    stores = [store_of(task, {"w": 3}) for task in here]
    empty = [store_of(task, {}) for task in ("0_0", "0_1")]
    assert len(doubts_about(REBUILD, (FULL,), (note,), [*stores, *empty])) == count
