"""Copies are spread as evenly as they can be, and no even distribution is cheaper: held against the plainest way."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import numpy as np
from hypothesis import given as forall
from hypothesis import settings as how
from hypothesis import strategies as st

from statecore.standby.assignment.balance import Balance, Shape
from statecore.standby.assignment.model import Member
from tests.unit.standby.assignment.slow_spread import SlowSpread

Table = list[list[int]]


@st.composite
def tables(draw: st.DrawFn, *, shared_hosts: bool) -> tuple[Shape, Table, list[set[int]], int]:
    """Members, what tasks cost there, who has them already, and how many copies there are to be of each."""
    count, number = draw(st.integers(1, 6)), draw(st.integers(0, 9))
    hosts = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)) if shared_hosts else list(range(count))
    numbers = sorted(set(hosts))
    hosts = [numbers.index(host) for host in hosts]
    capacities = draw(st.lists(st.sampled_from([1, 1, 1, 2, 3]), min_size=count, max_size=count))
    few = st.sampled_from([0, 1, 2, 30, 31, 1_000])
    costs = draw(st.lists(st.lists(few, min_size=count, max_size=count), min_size=number, max_size=number))
    with_taken, copies = draw(st.booleans()), draw(st.integers(1, 2))
    taken = [{draw(st.integers(0, count - 1))} if with_taken else set() for _ in costs]
    return Shape(hosts, capacities, -(-(copies + with_taken) // len(numbers))), costs, taken, copies


def spread(shape: Shape, costs: Table, taken: list[set[int]], copies: int) -> list[set[int]]:
    made = Balance(shape, np.array(costs, np.int64).reshape(len(costs), len(shape.hosts)), taken)
    made.start(copies)
    assert made.even_out(lambda: False)
    return [made.members_of(task) for task in range(len(costs))]


def loads(found: list[set[int]], shape: Shape) -> list[int]:
    return [sum(at in members for members in found) for at in range(len(shape.hosts))]


def is_even(load: list[int], shape: Shape) -> bool:
    return all(
        Fraction(load[one], shape.capacities[one]) <= Fraction(load[other] + 1, shape.capacities[other])
        for one, other in permutations(range(len(load)), 2)
    )


@how(deadline=None, max_examples=300)
@forall(tables(shared_hosts=False))
def test_it_costs_as_little_as_what_the_plainest_way_finds_and_is_as_even(
    case: tuple[Shape, Table, list[set[int]], int],
) -> None:
    shape, costs, taken, copies = case
    found = spread(*case)
    members = [
        Member(f"m{at}", str(host), capacity)
        for at, (host, capacity) in enumerate(zip(shape.hosts, shape.capacities, strict=True))
    ]
    names = [f"t{task}" for task in range(len(costs))]
    slow = SlowSpread(
        members,
        dict(zip(names, costs, strict=True)),
        dict(zip(names, taken, strict=True)),
        shape.on_a_host,
    )
    for name in names:
        slow.start(name, copies)
    slow.even_out(lambda: False)
    plain = [slow.at[name] for name in names]
    assert is_even(loads(found, shape), shape) or not is_even(loads(plain, shape), shape)
    assert [len(one) for one in found] == [len(one) for one in plain]
    assert sum(costs[task][at] for task, members_ in enumerate(found) for at in members_) == sum(
        costs[task][at] for task, members_ in enumerate(plain) for at in members_
    )
    assert found == spread(*case)


@how(deadline=None, max_examples=300)
@forall(tables(shared_hosts=True))
def test_no_host_has_more_copies_of_a_task_than_it_may_and_no_move_makes_it_more_even(
    case: tuple[Shape, Table, list[set[int]], int],
) -> None:
    shape, costs, taken, _ = case
    found = spread(*case)
    load = loads(found, shape)
    for task, members in enumerate(found):
        there = members | taken[task]
        assert not members & taken[task]
        on = [shape.hosts[at] for at in there]
        assert max((on.count(host) for host in on), default=0) <= shape.on_a_host
        for at in members:
            for to in set(range(len(load))) - there:
                others = [shape.hosts[other] for other in there - {at}]
                fits = others.count(shape.hosts[to]) < shape.on_a_host
                gain = Fraction(load[at], shape.capacities[at]) - Fraction(load[to] + 1, shape.capacities[to])
                assert not fits or gain < 0 or (gain == 0 and costs[task][to] >= costs[task][at])


def test_it_ends_early_when_it_is_late() -> None:
    made = Balance(Shape([0, 1], [1, 1], 1), np.array([[0, 9]] * 4, np.int64), [set()] * 4)
    made.start(1)
    late = iter([False, True])
    assert not made.even_out(lambda: next(late))
    assert sorted(len(made.members_of(task) & {1}) for task in range(4)) == [0, 0, 0, 1]
