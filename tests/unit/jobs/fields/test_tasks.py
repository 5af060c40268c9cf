"""Every task is in the share of exactly one instance; the global stores are in all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import Invalid
from statecore.jobs.fields.tasks import TaskShare

TASKS = [f"{subtopology}_{partition}" for subtopology in range(3) for partition in range(12)]


@given(st.integers(1, 9))
def test_instances_share_all_tasks_evenly_and_none_twice(count: int) -> None:
    shares = [[task for task in TASKS if TaskShare(number, count).has(task)] for number in range(count)]
    assert sorted(task for one in shares for task in one) == sorted(TASKS)
    assert max(map(len, shares)) - min(map(len, shares)) <= 3  # one for each subtopology


def test_the_global_stores_are_in_every_share() -> None:
    assert all(TaskShare(number, 3).has("global") for number in range(3))


@pytest.mark.parametrize("text", ["", "3/3", "-1/3", "1", "1/0", "a/b", "1/2/3", "0/01"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="is not an instance"):
        TaskShare.parse(text)
    assert TaskShare.parse("2/3") == TaskShare(2, 3)
