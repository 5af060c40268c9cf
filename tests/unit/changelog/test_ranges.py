"""Partitions are cut into ranges that cover them exactly and keep the workers busy."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from statecore.changelog.model import OffsetRange
from statecore.changelog.ranges import plan_ranges, split_range


@given(
    start=st.integers(0, 1 << 50), size=st.integers(0, 1 << 40), parts=st.integers(1, 20), least=st.integers(1, 10**6)
)
def test_parts_cover_the_range_without_gap_or_overlap(start: int, size: int, parts: int, least: int) -> None:
    cut = split_range(OffsetRange("t", 3, start, start + size), parts, smallest=least)
    assert cut[0].start == start
    assert cut[-1].end == start + size
    assert all(a.end == b.start for a, b in pairwise(cut))
    assert len(cut) <= parts
    assert len(cut) == 1 or all(part.end - part.start >= least for part in cut)
    assert {(part.topic, part.partition) for part in cut} == {("t", 3)}


def _partitions(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange("t", n, 10, 10 + size) for n, size in enumerate(sizes)]


def test_even_partitions_that_fill_the_workers_are_not_cut() -> None:
    assert plan_ranges(_partitions(*[5_000_000] * 4), workers=2) == _partitions(*[5_000_000] * 4)
    assert len(plan_ranges(_partitions(*[5_000_000] * 4), workers=4)) == 4


def test_one_large_partition_is_cut_for_the_workers_but_never_into_more_than_four() -> None:
    assert len(plan_ranges(_partitions(20_000_000), workers=2)) == 2
    assert len(plan_ranges(_partitions(20_000_000), workers=4)) == 4
    assert len(plan_ranges(_partitions(20_000_000), workers=64)) == 4
    assert len(plan_ranges(_partitions(20_000_000), workers=64, most=8)) == 8


def test_small_partitions_are_not_worth_cutting() -> None:
    assert len(plan_ranges(_partitions(400_000), workers=16)) == 1
    assert len(plan_ranges(_partitions(600_000), workers=16)) == 2


def test_the_large_partition_among_small_ones_is_cut_and_comes_first() -> None:
    planned = plan_ranges(_partitions(100_000, 8_000_000, 100_000), workers=4)
    assert [part.partition for part in planned] == [1, 1, 1, 1, 0, 2]


def test_empty_partitions_stay_one_empty_range() -> None:
    assert plan_ranges(_partitions(0, 0), workers=4) == _partitions(0, 0)


@given(sizes=st.lists(st.integers(0, 10**8), max_size=12), workers=st.integers(1, 32))
def test_every_offset_is_planned_once(sizes: list[int], workers: int) -> None:
    planned = plan_ranges(_partitions(*sizes), workers)
    for whole in _partitions(*sizes):
        mine = sorted((p for p in planned if p.partition == whole.partition), key=lambda p: p.start)
        assert (mine[0].start, mine[-1].end) == (whole.start, whole.end)
        assert all(a.end == b.start for a, b in pairwise(mine))
        assert len(mine) <= 4
