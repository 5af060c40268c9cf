"""Every task has its copies, at most one a member and no more on a host than it may; even, and moved only for that."""

from __future__ import annotations

import numpy as np
from hypothesis import given as forall
from hypothesis import settings as how
from hypothesis import strategies as st

from statecore.standby.assignment.balance import Balance, Shape

Table = list[list[int]]


@st.composite
def tables(draw: st.DrawFn) -> tuple[Shape, Table, int]:
    """Members, what tasks cost there, and how many copies there are to be of each."""
    count, number = draw(st.integers(1, 6)), draw(st.integers(0, 9))
    hosts = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    numbers = sorted(set(hosts))
    hosts = [numbers.index(host) for host in hosts]
    few = st.sampled_from([0, 1, 2, 30, 31, 1_000])
    costs = draw(st.lists(st.lists(few, min_size=count, max_size=count), min_size=number, max_size=number))
    copies = draw(st.integers(1, 2))
    return Shape(hosts, -(-copies // len(numbers))), costs, copies


def spread(shape: Shape, costs: Table, copies: int) -> list[set[int]]:
    made = Balance(shape, np.array(costs, np.int64).reshape(len(costs), len(shape.hosts)))
    made.start(copies)
    assert made.even_out(lambda: False)
    return made.members()


def loads(found: list[set[int]], shape: Shape) -> list[int]:
    return [sum(at in members for members in found) for at in range(len(shape.hosts))]


@how(deadline=None, max_examples=300)
@forall(tables())
def test_every_task_has_its_copies_and_no_move_makes_it_more_even(case: tuple[Shape, Table, int]) -> None:
    shape, _, copies = case
    found = spread(*case)
    load = loads(found, shape)
    for members in found:
        on = [shape.hosts[at] for at in members]
        assert max((on.count(host) for host in on), default=0) <= shape.on_a_host
        assert len(members) == copies or all(
            at in members or on.count(shape.hosts[at]) == shape.on_a_host for at in range(len(load))
        )
        for at in members:
            for to in set(range(len(load))) - members:
                others = [shape.hosts[other] for other in members - {at}]
                fits = others.count(shape.hosts[to]) < shape.on_a_host
                assert not fits or load[at] <= load[to] + 1
    assert found == spread(*case)


@how(deadline=None, max_examples=200)
@forall(st.integers(1, 6), st.integers(0, 12), st.integers(1, 2))
def test_on_hosts_of_their_own_no_member_has_two_more_than_another_and_nothing_moves_again(
    count: int, number: int, copies: int
) -> None:
    shape = Shape(range(count), 1)
    found = spread(shape, [[1] * count for _ in range(number)], copies)
    load = loads(found, shape)
    assert max(load) - min(load) <= 1
    kept = [[0 if at in members else 1 for at in range(count)] for members in found]
    assert spread(shape, kept, copies) == found


def test_of_copies_that_may_move_the_cheapest_does() -> None:
    shape = Shape([0, 1], 1)
    assert spread(shape, [[0, 9], [0, 9], [0, 5], [0, 9]], 1) == [{1}, {0}, {1}, {0}]


def test_it_ends_early_when_it_is_late() -> None:
    made = Balance(Shape([0, 1], 1), np.array([[0, 9]] * 4, np.int64))
    made.start(1)
    late = iter([False, True])
    assert not made.even_out(lambda: next(late))
    assert sorted(len(members & {1}) for members in made.members()) == [0, 0, 0, 1]
