"""No member deletes a copy that another one counts on, whatever members do between what they hear and what they delete.

Simulated: processes with disks, the real group, leader and protocol, and a coordinator that is played.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given as forall
from hypothesis import settings as how
from hypothesis import strategies as st

from statecore.standby.assignment.leader import assign
from statecore.standby.assignment.model import Assignment, Member, Role
from statecore.standby.assignment.protocol import decode_subscription
from statecore.standby.group_member import AssignmentResult, GroupMember
from tests.unit.standby.group_member_world import Coordinator

ENDS = {f"0_{number}": 100 for number in range(4)}
NAMES = ("a", "b", "c")


class Process:
    """A member, its disk, and what it was told last."""

    def __init__(self, coordinator: Coordinator, name: str, disk: dict[str, int]) -> None:
        self.name, self.disk = name, disk
        self.group: GroupMember = coordinator.start(name, disk)
        self.assigned: AssignmentResult | None = None

    def poll(self) -> AssignmentResult | None:
        found = self.group.poll(0)
        if found is not None:
            self.assigned = found
            if not found.lost:
                self.disk.update({task: self.disk.get(task, 0) for task in found.roles})
                self.publish()
        return found

    def publish(self) -> None:
        self.group.publish(self.disk)

    def read(self) -> None:
        """Bring what it was given to the end."""
        if self.assigned is not None:
            self.disk.update({task: ENDS[task] for task in self.assigned.roles})
            self.publish()

    def clean(self) -> list[str]:
        """Delete what it was not given and what others have all of, as a fleet does."""
        gone = []
        if self.assigned is not None:
            for task in sorted(self.disk.keys() - self.assigned.roles.keys()):
                elsewhere = self.assigned.elsewhere.get(task, -1)
                if elsewhere >= self.disk[task] and elsewhere >= ENDS[task] and self.group.withdraw(task):
                    del self.disk[task]
                    gone.append(task)
        self.publish()
        return gone


class World:
    def __init__(
        self, disks: dict[str, dict[str, int]], replicas: int = 1, assign: Callable[..., Assignment] = assign
    ) -> None:
        self.coordinator = Coordinator(ENDS, replicas, assign)
        self.processes = {name: Process(self.coordinator, name, dict(disk)) for name, disk in disks.items()}

    def settle(self) -> None:
        """Until nothing is asked for any more."""
        for _ in range(12):
            for one in self.processes.values():
                one.poll()
                one.read()

    def do(self, what: str, one: Process) -> None:
        """One step of a process, or of its broker."""
        ways: dict[str, Callable[[], object]] = {
            "poll": one.poll,
            "join": lambda: self.coordinator.join(one.name),
            "read": one.read,
            "clean": one.clean,
            "settle": self.settle,
            "ask": lambda: (one.group.probe(), one.poll()),  # type: ignore[func-returns-value]
            "fill": lambda: (one.disk.update(ENDS), one.publish()),  # type: ignore[func-returns-value]
            "expel": lambda: one.name in self.coordinator.members and self.coordinator.expel(one.name),  # type: ignore[func-returns-value]
            "restart": lambda: self.processes.update({one.name: Process(self.coordinator, one.name, one.disk)}),
            "start": lambda: None,
        }
        ways[what]()

    def whole(self, task: str) -> set[str]:
        return {name for name, one in self.processes.items() if one.disk.get(task) == ENDS[task]}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["poll", "poll", "join", "read", "clean", "clean", "ask", "restart", "expel", "start", "settle", "fill"]
        ),
        st.sampled_from(NAMES),
    ),
    max_size=80,
)
BEGIN = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)
FEW = st.lists(
    st.tuples(st.sampled_from(["poll", "join", "ask", "clean", "fill"]), st.sampled_from(NAMES[:2])),
    min_size=60,
    max_size=120,
)
"""What two processes do that race each other."""
DISKS = st.fixed_dictionaries({name: st.sampled_from([{}, ENDS, dict.fromkeys(list(ENDS)[:2], 100)]) for name in NAMES})


def play(
    disks: dict[str, dict[str, int]],
    begin: list[str],
    steps: list[tuple[str, str]],
    assign: Callable[..., Assignment] = assign,
) -> None:
    """Let processes do one thing after the other; whatever was whole somewhere has to be so after each."""
    world = World({name: disks[name] for name in begin}, assign=assign)
    world.settle()
    for what, name in steps:
        process = world.processes.get(name)
        if process is None:
            if what == "start":
                world.processes[name] = Process(world.coordinator, name, dict(disks[name]))
            continue
        before = {task: world.whole(task) for task in ENDS}
        world.do(what, process)
        assert all(world.whole(task) for task, had in before.items() if had)


@how(deadline=None, max_examples=200)
@forall(DISKS, BEGIN, STEPS)
def test_of_every_task_ever_complete_one_member_has_all(
    disks: dict[str, dict[str, int]], begin: list[str], steps: list[tuple[str, str]]
) -> None:
    play(disks, begin, steps)


@pytest.mark.full
@how(deadline=None, max_examples=400)
@forall(DISKS, st.one_of(st.tuples(BEGIN, STEPS), st.tuples(st.just(list(NAMES[:2])), FEW)), st.randoms())
def test_so_it_is_also_where_tasks_go_from_one_whole_copy_to_another_for_no_reason(
    disks: dict[str, dict[str, int]], course: tuple[list[str], list[tuple[str, str]]], chance: random.Random
) -> None:
    def from_copy_to_copy(members: Sequence[Member], ends: Mapping[str, int], *_: object, **__: object) -> Assignment:
        roles: dict[str, dict[str, Role]] = {member.id: {} for member in members}
        for task, end in ends.items():
            whole = [member for member in members if member.copy(task).sum >= end]
            roles[chance.choice(whole or list(members)).id][task] = Role.STANDBY
        return Assignment(roles)

    play(disks, *course, from_copy_to_copy)


def two_with_one_task_each_way() -> World:
    """Both have all tasks on their disks, and each keeps half of them."""
    world = World({name: dict(ENDS) for name in "ab"})
    world.settle()
    return world


def test_tasks_of_others_are_deleted_after_a_requested_assignment() -> None:
    world = two_with_one_task_each_way()
    a, b = world.processes.values()
    assert a.assigned is not None
    assert not a.assigned.is_new  # the first one may be what the broker has handed to its predecessor
    assert a.clean() == []
    a.group.probe()
    a.poll()
    b.poll()
    a.poll()
    assert a.assigned.is_new
    assert len(a.clean()) == 2
    assert all(world.whole(task) for task in ENDS)


def test_nothing_is_deleted_after_the_member_has_rejoined() -> None:
    """In the next generation others may count on what it had when it joined."""
    world = two_with_one_task_each_way()
    a, b = world.processes.values()
    a.group.probe()
    world.settle()
    b.group.probe()
    world.coordinator.join("b", asks=True)
    world.processes["c"] = Process(world.coordinator, "c", {})  # the generation waits for it
    world.coordinator.join("a")
    assert a.clean() == []
    world.settle()
    a.group.probe()
    world.settle()
    assert a.clean()


def test_tasks_to_delete_are_not_in_the_subscription() -> None:
    world = two_with_one_task_each_way()
    a = world.processes["a"]
    a.group.probe()
    world.settle()
    assert a.assigned is not None
    first, second = sorted(ENDS.keys() - a.assigned.roles.keys())
    assert a.group.withdraw(first)
    a.group.probe()  # also when something else is said meanwhile
    world.coordinator.join("a", asks=True)
    assert decode_subscription(world.coordinator.joined["a"]).copies.keys() == ENDS.keys() - {first}
    assert not a.group.withdraw(second)


def test_a_member_that_was_not_asked_for_long_deletes_nothing() -> None:
    world = two_with_one_task_each_way()
    a = world.processes["a"]
    a.group.probe()
    world.settle()
    world.coordinator.now += 150
    assert a.clean() == []


def test_a_member_that_rejoins_deletes_nothing_before_new_reports() -> None:
    world = two_with_one_task_each_way()
    a = world.processes["a"]
    a.group.probe()
    world.settle()
    world.coordinator.expel("a")
    assert a.clean() == []
    a.poll()
    assert a.clean() == []
    world.settle()
    assert a.assigned is not None
    assert not a.assigned.is_new


def test_a_member_that_was_restarted_is_handed_what_it_had_and_deletes_nothing_by_it() -> None:
    world = two_with_one_task_each_way()
    a = world.processes["a"]
    a.group.probe()
    world.settle()
    again = Process(world.coordinator, "a", a.disk)
    again.poll()
    assert again.assigned is not None
    assert again.assigned.elsewhere
    assert again.clean() == []


def test_a_copy_that_warms_up_is_no_reason_to_delete_another() -> None:
    world = World({"a": dict(ENDS), "b": {}})
    for _ in range(3):
        for one in world.processes.values():
            one.poll()
    b = world.processes["b"]
    assert b.assigned is not None
    assert Role.WARMUP in b.assigned.roles.values()
    assert not world.processes["a"].assigned.elsewhere  # type: ignore[union-attr]


def test_a_member_whose_copy_became_less_asks_once_for_another_assignment() -> None:
    """A standby that was rebuilt, or could not be opened: other members no longer count on it."""
    world = two_with_one_task_each_way()
    a, b = world.processes.values()
    assert b.assigned is not None
    lost = min(b.assigned.roles)
    generation = world.coordinator.generation
    b.disk[lost] = 0
    b.publish()
    for _ in range(4):
        b.poll()
        a.poll()
        b.publish()
    assert world.coordinator.generation == generation + 1
    assert a.assigned is not None
    assert a.assigned.roles[lost] is Role.STANDBY
