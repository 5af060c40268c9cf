"""Which runs are folded: neighbours, few of them, and never what outweighs all that came after it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.jobs.compact.policy import DEFAULT_SETTINGS, is_due, slices_to_compact

GB = 1 << 30
MB = 1 << 20
SIZES = st.lists(st.one_of(st.integers(0, 5000), st.integers(1, 1 << 40)), max_size=40)


def folded(sizes: list[int], base: int = 0) -> list[int]:
    """The sizes after a fold, where no key comes twice."""
    after = list(sizes)
    for one in reversed(slices_to_compact(sizes, base=base)):
        after[one] = [sum(after[one])]
    return after


@pytest.mark.parametrize("below", [[GB], [GB // 8] * 8, [GB // 20] + [GB // 8] * 7])
def test_a_compaction_is_due_with_eleven_new_runs_and_what_a_restore_has_left_is_none_of_them(below: list[int]) -> None:
    assert not is_due([*below, *[MB] * 10])
    assert is_due([*below, *[MB] * 11])


@pytest.mark.parametrize("below", [[GB], [GB // 8] * 8, [GB // 20] + [GB // 8] * 7])
def test_what_is_large_against_all_that_came_after_it_stays(below: list[int]) -> None:
    assert folded([*below, *[MB] * 11]) == [*below, 11 * MB]


def test_along_with_others_a_database_is_compacted_that_has_eight_new_runs() -> None:
    assert folded([GB, *[MB] * 7]) == [GB, *[MB] * 7]
    assert folded([GB, *[MB] * 8]) == [GB, 8 * MB]


def test_levels_are_merged_when_they_are_full() -> None:
    levels = [GB, *(number * MB for number in (11, 10, 9, 8, 7))]
    assert folded([*levels, *[MB] * 6]) == [*levels, 6 * MB]
    assert folded([GB, *(number * MB for number in (11, 10, 9, 8, 7, 6)), *[MB] * 5]) == [GB, 56 * MB]


def test_when_a_third_of_the_old_ones_has_come_all_become_one() -> None:
    before = [GB, *[GB // 40] * 10]
    assert len(folded(before)) > 1
    after = [GB, *[GB // 30] * 11]
    assert is_due(after)
    assert len(folded(after)) == 1


def test_from_nothing_a_compaction_is_due_with_twelve_runs_at_most() -> None:
    assert not is_due([MB] * 11)
    assert is_due([MB] * 12)


def test_on_files_of_rocksdb_all_runs_become_one_when_they_have_a_third_of_these() -> None:
    runs = [40 * MB, *[4 * MB] * 11]
    assert folded(runs, base=GB) == [40 * MB, 44 * MB]
    assert folded(runs, base=90 * MB) == [84 * MB]
    assert not is_due([MB] * 11, base=GB)
    assert is_due([MB] * 12, base=GB)


def test_a_heavy_run_is_not_written_for_little() -> None:
    """Were it merged with the light ones, there would be fewer runs."""
    runs = [GB, *[100 * MB] * 3, *[MB] * 8]
    assert slices_to_compact(runs) == [slice(4, 12)]


@settings(deadline=None)
@given(sizes=SIZES, base=st.one_of(st.just(0), st.integers(1, 1 << 40)))
def test_slices_are_neighbours_in_order_and_leave_few(sizes: list[int], base: int) -> None:
    found = slices_to_compact(sizes, base=base)
    for one in found:
        assert 0 <= one.start < one.start + 1 < one.stop <= len(sizes)
    for one, following in pairwise(found):
        assert one.stop <= following.start
    if found:
        assert len(folded(sizes, base)) <= DEFAULT_SETTINGS.max_old + DEFAULT_SETTINGS.remaining
    if is_due(sizes, base=base):
        assert found, "a fold that is due must do something, or it would be due for ever"


@settings(deadline=None)
@given(sizes=SIZES, base=st.one_of(st.just(0), st.integers(1, 1 << 40)))
def test_after_a_compaction_none_is_due(sizes: list[int], base: int) -> None:
    assert not is_due(folded(sizes, base), base=base)


def test_other_settings_are_heeded() -> None:
    few = replace(DEFAULT_SETTINGS, new_due=3, eligible=2, remaining=1, max_old=0)
    assert is_due([MB] * 3, settings=few)
    assert slices_to_compact([MB] * 3, settings=few) == [slice(0, 3)]
