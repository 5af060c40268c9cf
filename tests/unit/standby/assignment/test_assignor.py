"""Copies are as many as wanted, even, apart, and where they are complete; nothing moves without need; rounds end."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given as forall
from hypothesis import settings as how
from hypothesis import strategies as st

from statecore.standby.assignment.assignor import assign
from statecore.standby.assignment.model import Assignment, AssignmentSettings, Copy, Member, Role
from tests.unit.standby.assignment.fleets import (
    END,
    SETTINGS,
    copies,
    fleets,
    following,
    load,
    rounds,
    settled,
    tasks,
    where,
)

STANDBYS = AssignmentSettings(replicas=1, recovery_lag=100)
PAIRS = AssignmentSettings(replicas=2, recovery_lag=100)
Fleet = tuple[list[Member], dict[str, int]]


def empty(count: int) -> list[Member]:
    return [Member(f"m{number}", f"h{number}") for number in range(count)]


def one_host_each(settings: AssignmentSettings, members: Sequence[Member]) -> bool:
    return settings.replicas <= len({member.host for member in members})


@how(deadline=None)
@forall(fleets(), SETTINGS)
def test_every_task_has_its_copies_where_there_are_hosts_enough(fleet: Fleet, settings: AssignmentSettings) -> None:
    members, ends = fleet
    for _, given in rounds(members, ends, settings):
        if not one_host_each(settings, members):
            continue
        followed = copies(given, Role.STANDBY)
        assert all(followed[task] == settings.replicas for task in ends)


@how(deadline=None)
@forall(fleets(), SETTINGS)
def test_copies_of_a_task_are_on_hosts_of_their_own_as_far_as_there_are_some(
    fleet: Fleet, settings: AssignmentSettings
) -> None:
    members, ends = fleet
    _, given = settled(members, ends, settings)
    hosts = {member.id: member.host for member in members}
    for task in ends:
        on = [hosts[at] for found, at in where(given, Role.STANDBY) if found == task]
        assert max(on.count(host) for host in on) <= -(-settings.replicas // len(set(hosts.values())))


@how(deadline=None)
@forall(fleets(shared_hosts=False), SETTINGS)
def test_when_the_rounds_have_ended_no_member_has_two_copies_more_than_another(
    fleet: Fleet, settings: AssignmentSettings
) -> None:
    members, ends = fleet
    _, given = settled(members, ends, settings)
    standby = load(given, Role.STANDBY).values()
    assert max(standby) - min(standby) <= 1


@how(deadline=None)
@forall(fleets(), SETTINGS, st.integers(1, 40_000))
def test_rounds_end_however_slowly_warm_ups_catch_up(fleet: Fleet, settings: AssignmentSettings, step: int) -> None:
    members, ends = fleet
    step = max(step, 5_000)
    *_, (_, last) = rounds(members, ends, settings, step=step)
    assert not copies(last, Role.WARMUP)


@how(deadline=None)
@forall(fleets(), SETTINGS)
def test_nothing_moves_when_nothing_has_changed(fleet: Fleet, settings: AssignmentSettings) -> None:
    members, ends = fleet
    members, given = settled(members, ends, settings)
    again = assign(members, ends, settings)
    assert again == given


@how(deadline=None)
@forall(fleets(), SETTINGS, st.randoms(use_true_random=False))
def test_the_order_of_members_and_tasks_does_not_matter(
    fleet: Fleet, settings: AssignmentSettings, shuffled: random.Random
) -> None:
    members, ends = fleet
    given = assign(members, ends, settings)
    names = list(ends)
    shuffled.shuffle(members)
    shuffled.shuffle(names)
    mixed = [
        replace(member, copies={task: member.copies[task] for task in names if task in member.copies})
        for member in members
    ]
    assert assign(mixed, {task: ends[task] for task in names}, settings) == given


@how(deadline=None)
@forall(fleets(), SETTINGS)
def test_what_is_caught_up_is_followed_on_before_what_is_not(fleet: Fleet, settings: AssignmentSettings) -> None:
    members, ends = fleet
    given = assign(members, ends, settings)
    for task in ends:
        caught_up = {member.id for member in members if member.lag(task, ends[task]) <= settings.recovery_lag}
        # Whoever is behind and no warm-up is one of the copies wanted beyond those that are caught up.
        assert not caught_up or caught_up & {at for found, at in where(given, Role.STANDBY) if found == task}


@how(deadline=None)
@forall(st.integers(1, 5), st.integers(0, 14), st.sampled_from([STANDBYS, PAIRS]))
def test_a_member_more_is_given_its_share_and_nothing_else_moves(
    count: int, number: int, settings: AssignmentSettings
) -> None:
    ends = tasks(number)
    members, before = settled(empty(count), ends, settings)
    _, after = settled([*members, Member("new", "h-new")], ends, settings)
    moved = where(after, Role.STANDBY) - where(before, Role.STANDBY)
    added = settings.replicas > count  # it has copies for which there was nobody
    share = load(after, Role.STANDBY)["new"]
    assert {at for _, at in moved} <= {"new"}
    assert share == len(moved)
    assert added or share == number * settings.replicas // (count + 1)


@how(deadline=None)
@forall(st.integers(2, 6), st.integers(0, 14), st.sampled_from([STANDBYS, PAIRS]))
def test_a_member_less_leaves_its_share_to_the_others_and_nothing_else_moves(
    count: int, number: int, settings: AssignmentSettings
) -> None:
    ends = tasks(number)
    members, before = settled(empty(count), ends, settings)
    _, after = settled(members[1:], ends, settings)
    lost = {task for task, at in where(before, Role.STANDBY) if at == members[0].id}
    moved = where(after, Role.STANDBY) - where(before, Role.STANDBY)
    if settings is STANDBYS:
        assert sorted(task for task, _ in moved) == sorted(lost)
    else:  # who was to take one over may have its other copy, and changes with another member
        assert len(moved) <= 2 * len(lost)


def test_a_new_member_warms_up_while_the_old_ones_keep_the_tasks() -> None:
    ends = tasks(6)
    members, before = settled(empty(2), ends, STANDBYS)
    first = assign([*members, Member("new", "h-new")], ends, STANDBYS)
    assert where(first, Role.STANDBY) == where(before, Role.STANDBY)
    assert load(first, Role.WARMUP) == {"m0": 0, "m1": 0, "new": 2}
    assert first.probing
    second = assign(following([*members, Member("new", "h-new")], first, ends), ends, STANDBYS)
    assert load(second, Role.STANDBY) == {"m0": 2, "m1": 2, "new": 2}
    assert not second.probing


def test_warm_ups_that_have_begun_go_on_before_others_begin() -> None:
    ends = tasks(12)
    members, _ = settled(empty(1), ends, STANDBYS)
    members.append(Member("new", "h-new"))
    seen: list[set[tuple[str, str]]] = []
    for _, given in rounds(members, ends, STANDBYS, step=END // 3):
        seen.append(where(given, Role.WARMUP))
    assert [len(one) for one in seen] == [2, 2, 2, 2, 2, 2, 2, 2, 2, 0]
    assert seen[0] == seen[1] == seen[2]


def test_a_task_goes_to_the_most_complete_of_copies_that_are_not_caught_up() -> None:
    members = [
        Member("a", "a", copies={"0_0": Copy(10_000)}),
        Member("b", "b", copies={"0_0": Copy(900_000)}),
        Member("c", "c"),
    ]
    given = assign(members, {"0_0": END}, STANDBYS)
    assert where(given, Role.STANDBY) == {("0_0", "b")}
    assert not given.probing


def test_a_copy_that_is_far_ahead_is_kept_until_the_other_has_reached_it() -> None:
    """Neither is caught up, and to be even the task should go to the empty member."""
    ends = {"0_0": END, "0_1": END}
    members = [Member("a", "a", copies={task: Copy(900_000, Role.STANDBY) for task in ends}), Member("b", "b")]
    given = assign(members, ends, STANDBYS)
    assert where(given, Role.STANDBY) == {("0_0", "a"), ("0_1", "a")}
    assert load(given, Role.WARMUP) == {"a": 0, "b": 1}


def test_an_emptied_disk_is_given_nothing_that_others_have() -> None:
    ends = tasks(4)
    members, _ = settled(empty(2), ends, PAIRS)
    emptied = replace(members[0], copies={task: Copy(0, Role.ON_DISK) for task in ends})
    given = assign([emptied, members[1]], ends, PAIRS)
    assert load(given, Role.STANDBY) == {"m0": 4, "m1": 4}  # two copies of each were wanted: it has to read them
    given = assign([emptied, members[1]], ends, STANDBYS)
    assert load(given, Role.STANDBY) == {"m0": 0, "m1": 4}
    assert load(given, Role.WARMUP) == {"m0": 2, "m1": 0}


def test_too_few_members_give_fewer_copies() -> None:
    given = assign(empty(1), {"0_0": 5, "0_1": 5}, PAIRS)
    assert load(given, Role.STANDBY) == {"m0": 2}


def test_no_members_get_no_assignment() -> None:
    assert assign([], {"0_0": 5}, STANDBYS) == Assignment({})


def test_a_task_that_the_application_does_not_have_is_an_error_for_that_task() -> None:
    members = [Member("a", "a", copies={"7_7": Copy(5)}), Member("b", "b")]
    given = assign(members, {"0_0": 5}, STANDBYS)
    assert list(given.errors) == ["7_7"]
    assert copies(given, Role.STANDBY) == {"0_0": 1}


@pytest.mark.parametrize(("members", "number"), [(3, 1_000), (20, 1_000), (200, 2_000)])
def test_a_thousand_tasks_are_assigned_and_a_member_added_in_seconds(members: int, number: int) -> None:
    ends, began = tasks(number), time.process_time()
    fleet, given = empty(members), assign(empty(members), ends, STANDBYS)
    fleet = following(fleet, given, ends)
    after = assign([*fleet, Member("new", "h-new")], ends, replace(STANDBYS, max_warmups=10_000))
    assert load(after, Role.WARMUP)["new"] == number // (members + 1)
    assert time.process_time() - began < 10


def test_a_late_decision_assigns_every_task_and_is_repeated_until_balanced() -> None:
    ends = tasks(12)
    fleet = [Member("m0", "h0", copies={task: Copy(END, Role.STANDBY) for task in ends}), *empty(4)[1:]]
    given = assign(fleet, ends, STANDBYS, is_late=lambda: True)
    assert given.probing
    assert copies(given, Role.STANDBY) == dict.fromkeys(ends, 1)
    for _ in range(100):
        moves = iter([False, False])
        given = assign(fleet, ends, STANDBYS, is_late=lambda moves=moves: next(moves, True))  # type: ignore[misc]
        assert copies(given, Role.STANDBY) == dict.fromkeys(ends, 1)
        if not given.probing:
            break
        fleet = following(fleet, given, ends)
    assert not given.probing
    assert set(load(given, Role.STANDBY).values()) == {3}
