"""Every task is in the share of exactly one instance; the global stores are in all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import Invalid
from statecore.jobs.instance_share import Instance, share

TASKS = [f"{subtopology}_{partition}" for subtopology in range(3) for partition in range(12)]


@given(st.integers(1, 9))
def test_instances_share_all_tasks_evenly_and_none_twice(count: int) -> None:
    shares = [share(TASKS, instance=Instance(number, count))[0] for number in range(count)]
    assert sorted(task for one in shares for task in one) == sorted(TASKS)
    assert max(map(len, shares)) - min(map(len, shares)) <= 3  # one for each subtopology


def test_a_share_is_in_order_whatever_order_the_tasks_had() -> None:
    assert share(reversed(TASKS))[0] == tuple(TASKS)


def test_named_tasks_are_selected_and_missing_ones_reported() -> None:
    assert share(TASKS, named=("1_3", "0_10", "7_7")) == (("0_10", "1_3"), ("7_7",))


def test_the_global_stores_are_in_every_share() -> None:
    assert all(Instance(number, 3).has("global") for number in range(3))
    assert share(["global", "0_0", "0_1"], instance=Instance(1, 2))[0] == ("0_1", "global")


@pytest.mark.parametrize("text", ["", "3/3", "-1/3", "1", "1/0", "a/b", "1/2/3", "0/01"])
def test_what_is_no_instance_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="is not an instance"):
        Instance.parse(text)
    assert Instance.parse("2/3") == Instance(2, 3)
