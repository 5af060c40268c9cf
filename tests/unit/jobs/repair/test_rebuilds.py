"""Doubts about rebuilds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from statecore.formats.releases import GLOBAL
from statecore.jobs.repair.rebuilds import doubts_about

FULL, EMPTY = "names-0 of topic 7", "names-1 of topic 7, which has no record"


def rebuild() -> Any:
    return SimpleNamespace(stores=("table",), tasks=(GLOBAL,))


def test_of_a_store_of_which_one_partition_has_records_something_would_be_left() -> None:
    assert doubts_about(rebuild(), (FULL,), ()) == ()
    (part,), (whole,) = doubts_about(rebuild(), (FULL, EMPTY), ()), doubts_about(rebuild(), (EMPTY,), ())
    assert ("part of table" in part, "part of table" in whole) == (True, False)
    assert all(f"{EMPTY}." in said and str(FULL) not in said for said in (part, whole))


def test_findings_are_quoted_with_or_without_a_full_stop() -> None:
    for what in ("another cluster", "another cluster."):
        found: Any = SimpleNamespace(code="offset-past-end", task=GLOBAL, store="table", what=what)
        assert doubts_about(rebuild(), (FULL,), (found,)) == ("global/table: another cluster.",)
