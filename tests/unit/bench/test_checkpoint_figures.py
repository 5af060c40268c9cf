"""The tables of ``bench.checkpoint``: sums, ratios and prices."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bench.checkpoint_figures import (
    Fetched,
    Step,
    Work,
    cost_table,
    day_table,
    fetch_table,
    line_through,
    middle,
    price,
    price_table,
    rebuild_table,
)
from bench.s3_request_log import KINDS


def asked(**counts: int) -> dict[str, int]:
    return {kind: counts.get(kind.lower(), 0) for kind in KINDS}


WORK = Work(
    wall=2.0,
    cpu=1.5,
    records=200_000,
    read=15_000_000,
    put=6_000_000,
    got=50_000,
    asked=asked(put=5, get=7, delete=2),
    phases={"plan": 0.25, "read": 1.0},
)
STEP = Step(
    asked=asked(put=5, get=6),
    put=1_100_000,
    got=20_000,
    seconds=0.25,
    changed=1_000_000,
    compacted=None,
    is_idle=False,
    is_first_of_hour=False,
    runs=4,
    state=90_000_000,
)


def cells(table: str, begin: str) -> list[str]:
    """The cells of the row that begins so."""
    (row,) = [line for line in table.split("\n") if line.startswith(f"| {begin}")]
    return [cell.strip() for cell in row.strip("|").split("|")][1:]


def figures(table: str, begin: str) -> list[str]:
    """The numbers in that row, with their units."""
    return re.findall(r"\d[\d.]*(?: [KM]B)?", " ".join(cells(table, begin)))


def test_tables_have_as_many_cells_in_each_row() -> None:
    tables = (
        rebuild_table(WORK, {"one": WORK}),
        cost_table("tail", {"1": WORK}),
        day_table([STEP]),
        price_table([STEP, replace(STEP, is_idle=True)], None, 100),
        fetch_table({"one": FETCHED}),
    )
    for table in tables:
        assert len({line.count("|") for line in table.strip().split("\n")}) == 1


def test_a_checkpoint_is_held_against_the_rebuild_column_by_column() -> None:
    rebuild = replace(WORK, wall=20.0, cpu=45.0, read=1_500_000_000, put=600_000_000, records=20_000_000)
    table = rebuild_table(rebuild, {"checkpoint": WORK, "nothing new": replace(WORK, records=0)})
    assert cells(table, "checkpoint") == [
        *("200,000", "2.00 s", "10.0", "1.50 s", "30.0", "15.0 MB", "100.0", "6.0 MB", "100.0"),
        *("50.0 KB", "5 PUT, 7 GET, 2 DELETE"),
    ]
    assert cells(table, "full rebuild")[2] == "1.0"
    assert cells(table, "nothing new")[2] == ""


def test_the_middle_one_is_whole_and_of_two_the_shorter() -> None:
    three = [replace(WORK, wall=wall, cpu=cpu) for wall, cpu in ((3.0, 1.0), (1.0, 9.0), (2.0, 5.0))]
    assert middle(three) == three[2]
    assert middle(three[:2]) == three[1]


def test_a_line_says_what_a_checkpoint_takes_at_least_and_for_a_record() -> None:
    works = [replace(WORK, records=records, cpu=1.5 + records * 2e-6) for records in (100_000, 300_000, 1_000_000)]
    assert line_through(works, lambda one: one.cpu) == (pytest.approx(1.5), pytest.approx(2e-6))


def test_a_day_adds_up_what_was_put_for_each_byte_of_change() -> None:
    compaction = replace(STEP, compacted=3_000_000, put=4_300_000, runs=11, seconds=1.5)
    table = day_table([STEP, STEP, STEP, compaction])
    assert cells(table, "compactions") == ["1, one for 4.0 checkpoints"]
    assert figures(table, "runs of compactions") == ["3.0 MB", "0.75"]
    assert figures(table, "put, in all") == ["7.6 MB", "1.90", "6"]
    assert figures(table, "plans, ") == ["600.0 KB", "0.15"]
    assert figures(table, "runs of a database") == ["4", "11"]
    assert cells(table, "requests") == ["20 PUT, 24 GET"]


def test_requests_have_their_list_price() -> None:
    assert price(asked(put=1000)) == price(asked(list=1000)) == price(asked(post=1000)) == pytest.approx(0.005)
    assert price(asked(get=1000)) == price(asked(head=1000)) == pytest.approx(0.0004)
    assert price(asked(delete=1000)) == 0


def test_a_month_is_made_of_plain_checkpoints_hours_and_compactions() -> None:
    idle = replace(STEP, is_idle=True, asked=asked(get=5))
    plain = replace(STEP, asked=asked(put=5))
    first = replace(STEP, asked=asked(put=5, list=1), is_first_of_hour=True)
    compaction = replace(STEP, asked=asked(put=9), compacted=1000)
    table = price_table([idle, plain, first, compaction], 0.25, 100)
    month = 50 * 30 * (288 * 5 + 24 * 1 + 72 * 4) * 5e-6
    assert f"**${month:.2f}**" in table
    assert "a compaction for 4.0 checkpoints" in table
    assert f"${50 * 30 * 288 * 5 * 4e-7:.2f} |" in table
    assert cells(table, "something is new") == ["5 PUT", "$0.025"]


def test_no_monthly_figure_without_a_measurement_of_each_kind_of_checkpoint() -> None:
    assert "month" not in price_table([STEP, replace(STEP, is_idle=True)], 0.25, 100)


FETCHED = Fetched(wall=1.3, inside=0.6, runs=9, named=12_000_000, placed=10_000_000, records=0, rewritten=0)


def test_a_fetch_is_compared_with_that_of_the_last_snapshot() -> None:
    table = fetch_table({"after": FETCHED, "anew": replace(FETCHED, wall=1.0, inside=0.4, runs=1)})
    assert cells(table, "after")[2:6] == ["1.30 s", "1.30", "0.60 s", "1.50"]
    assert cells(table, "anew")[3] == "1.00"
