"""The goals of compactions, held by the simulation on fixed seeds: bytes, runs, publications, and the way back."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from bench.compactions import ANY, CASES, DAY, GB, MB, NEW, SAME, Case, equal, simulated, table
from tests.harness.case_selection import one_of, three_of

FEW = 4
"""Databases of each application here: enough for some to be compacted along with others."""


@pytest.mark.parametrize("case", three_of(CASES), ids=lambda case: case.name)
@pytest.mark.parametrize("seed", one_of([1, 2]))
def test_a_day_of_checkpoints_holds_the_goals(case: Case, seed: int) -> None:
    course = simulated(replace(case, databases=FEW), DAY, seed)
    assert course.checkpoints == DAY
    assert course.written <= 6
    assert course.runs <= 12, "besides those that a restore has left"
    assert 0 < course.compaction_share <= 0.25
    assert course.dollars * 50 * 30 * DAY < 20
    if not case.base:  # files of RocksDB are never written again: a snapshot made anew helps
        assert median(course.fetches) <= 1.3


@pytest.mark.full
def test_most_applications_write_a_byte_four_times_and_a_half_at_most() -> None:
    courses = [simulated(replace(case, databases=FEW)) for case in CASES]
    assert sorted(course.written for course in courses)[len(courses) * 2 // 3] <= 4.5


@pytest.mark.full
def test_a_hundred_store_partitions_compaction_together_however_their_changes_differ() -> None:
    case = next(case for case in CASES if case.name == "bursts of new keys in some databases")
    course = simulated(replace(case, databases=100), DAY)
    assert course.compaction_share <= 1 / 3
    assert course.written <= 6
    assert course.runs <= 12


@pytest.mark.parametrize("keys", [ANY, NEW])
def test_a_week_costs_not_much_more_than_a_day(keys: object) -> None:
    case = Case("a week", change=equal(MB), keys=keys, databases=1)  # type: ignore[arg-type]
    day, week = (simulated(case, days * DAY).written for days in (1, 7))
    assert day < 4
    assert week < 7


def test_what_comes_again_is_merged_away() -> None:
    assert ANY.merged([GB / 2, GB / 2], GB) == 0.75 * GB
    assert NEW.merged([GB / 2, GB / 2], GB) == GB
    assert SAME.merged([GB / 2, GB / 4], GB) == GB / 2


def test_a_seed_gives_the_same_figures() -> None:
    case = replace(CASES[-1], databases=FEW)
    once, again, other = (simulated(case, 50, seed) for seed in (1, 1, 2))
    assert table([(case, once)]) == table([(case, again)])
    assert once.changed != other.changed
