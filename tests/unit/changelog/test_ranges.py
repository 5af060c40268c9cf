"""Partitions are cut into ranges that cover them exactly and keep the workers busy."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from statecore.changelog.model import OffsetRange
from statecore.changelog.ranges import plan_ranges, split_range
from statecore.changelog.record_density import PartitionShape


@given(start=st.integers(0, 1 << 50), size=st.integers(0, 1 << 40), parts=st.integers(1, 20))
def test_split_ranges_cover_the_range_without_gap_or_overlap(start: int, size: int, parts: int) -> None:
    cut = split_range(OffsetRange("t", 3, start, start + size), parts)
    assert cut[0].start == start
    assert cut[-1].end == start + size
    assert all(a.end == b.start for a, b in pairwise(cut))
    assert len(cut) <= parts
    assert len(cut) == 1 or all(part.end > part.start for part in cut)
    assert {(part.topic, part.partition) for part in cut} == {("t", 3)}


def _partitions(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange("t", n, 10, 10 + size) for n, size in enumerate(sizes)]


def test_even_partitions_that_fill_the_workers_are_not_cut() -> None:
    assert plan_ranges(_partitions(*[5_000_000] * 4), workers=2) == _partitions(*[5_000_000] * 4)
    assert len(plan_ranges(_partitions(*[5_000_000] * 4), workers=4)) == 4


def test_one_large_partition_is_split_for_the_workers_into_at_most_eight() -> None:
    for workers, ranges in ((1, 1), (2, 2), (4, 4), (7, 7), (64, 8)):
        assert len(plan_ranges(_partitions(20_000_000), workers=workers)) == ranges


def test_small_partitions_are_not_worth_cutting() -> None:
    assert len(plan_ranges(_partitions(400_000), workers=16)) == 1
    assert len(plan_ranges(_partitions(600_000), workers=16)) == 2


def test_a_large_partition_among_small_ones_is_split_and_comes_first() -> None:
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
        assert len(mine) <= min(8, workers)


def test_few_records_that_are_large_are_worth_cutting_and_many_that_are_small_are_not() -> None:
    (whole,) = _partitions(100_000)
    large = PartitionShape.of_offsets(whole, 1 << 30)
    assert len(plan_ranges([whole], 2, {whole.topic_partition: large})) == 2
    (whole,) = _partitions(10_000_000)
    compacted = PartitionShape(whole, (0.0, 1000.0, 99_000.0), 10e6)
    assert plan_ranges([whole], 2, {whole.topic_partition: compacted}) == [whole]


def test_partitions_are_weighed_by_what_is_in_them_and_not_by_their_offsets() -> None:
    wholes = _partitions(4_000_000, 4_000_000)
    shapes = {
        wholes[0].topic_partition: PartitionShape(wholes[0], (8e6,), 8e8),
        wholes[1].topic_partition: PartitionShape(wholes[1], (1e6,), 1e8),
    }
    planned = plan_ranges(wholes, 2, shapes)
    assert [part.partition for part in planned] == [0, 0, 1]


def test_a_compacted_log_is_split_at_half_of_its_records() -> None:
    (whole,) = _partitions(20_000_000)
    shape = PartitionShape(whole, (1e6, 1e6, 4e6, 4e6), 1e9)
    first, second = sorted(plan_ranges([whole], 2, {whole.topic_partition: shape}), key=lambda part: part.start)
    assert (first.start, second.end) == (whole.start, whole.end)
    assert first.end == second.start == 10 + 10_000_000 + 3_750_000


def test_a_range_above_the_memory_budget_is_split_in_three_to_limit_disk_use() -> None:
    (whole,) = _partitions(80_000_000)
    shapes = {whole.topic_partition: PartitionShape(whole, (80e6,), 80e8)}
    for budget, ranges in ((None, 8), (10**9, 8), (10**9 - 1, 3)):
        assert len(plan_ranges([whole], 16, shapes, memory_budget=budget)) == ranges
    assert len(plan_ranges([whole], 2, shapes, memory_budget=1)) == 2


@given(
    records=st.lists(st.floats(0, 1e9), min_size=1, max_size=9),
    size=st.integers(0, 1 << 40),
    workers=st.integers(1, 32),
)
def test_whatever_its_shape_a_partition_is_covered(records: list[float], size: int, workers: int) -> None:
    (whole,) = _partitions(size)
    shape = PartitionShape(whole, tuple(records), 100 * sum(records))
    planned = sorted(plan_ranges([whole], workers, {whole.topic_partition: shape}), key=lambda part: part.start)
    assert (planned[0].start, planned[-1].end) == (whole.start, whole.end)
    assert all(one.end == following.start for one, following in pairwise(planned))
    assert all(one.end > one.start for one in planned) or planned == [whole]


def test_a_partition_a_little_larger_than_its_share_is_not_cut() -> None:
    assert len(plan_ranges(_partitions(5_000_000, 5_200_000), workers=2)) == 2
