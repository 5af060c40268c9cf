"""Runs are applied in the order of their offsets: what stands in another order is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from statecore.errors import Invalid
from statecore.images.model import Run, RunFormat
from statecore.images.run_order import check_order, runs_of_one_partition
from tests.harness.raising import raises

RUN = Run("a" * 64, RunFormat.SST, 1, 0, 1, 1, "0" * 32, "00", "ff", topic="names", partition=0)
FIRST, SECOND = replace(RUN, end=10), replace(RUN, start=10, end=20)


def test_runs_that_ascend_are_in_order_with_and_without_a_gap() -> None:
    check_order([FIRST, SECOND])
    check_order([FIRST, replace(SECOND, start=15)])


@pytest.mark.parametrize("runs", [[SECOND, FIRST], [FIRST, replace(SECOND, start=9)], [SECOND, SECOND]])
def test_runs_that_descend_overlap_or_come_twice_are_refused(runs: list[Run]) -> None:
    with raises(Invalid, "runs-out-of-order"):
        check_order(runs)


@pytest.mark.parametrize("change", [{"segment": 1}, {"store": "other"}, {"partition": 1}])
def test_runs_of_several_databases_have_no_order(change: dict[str, int]) -> None:
    with raises(Invalid, "run-mismatch"):
        check_order([FIRST, replace(SECOND, **change)])


def test_run_names_have_a_partition_only_if_there_are_several() -> None:
    other, unsaid = replace(SECOND, partition=1), replace(SECOND, topic="", partition=-1)
    assert runs_of_one_partition([FIRST, other, SECOND, unsaid], several=True) == [[FIRST, SECOND], [other]]
    assert runs_of_one_partition([FIRST, other, unsaid], several=False) == [[FIRST, other, unsaid]]
    assert runs_of_one_partition([FIRST, replace(SECOND, segment=1)], several=False) == [
        [FIRST],
        [replace(SECOND, segment=1)],
    ]
