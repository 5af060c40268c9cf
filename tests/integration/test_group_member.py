"""Tasks on a real consumer group: members that come, go, are killed, restarted, emptied, and strangers."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from statecore.changelog.cluster import Cluster
from statecore.errors import Fenced, Invalid, Retryable, StatecoreError
from statecore.standby.assignment.model import AssignmentSettings
from statecore.standby.assignment.protocol import VERSION
from statecore.standby.group_member import AssignmentResult, GroupMember, GroupSettings
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.raising import raises

pytestmark = [pytest.mark.integration]

ENDS = {f"0_{number}": 1_000 for number in range(6)}
SESSION_MS = 6_000  # the least that the broker takes


class Process:
    """A member as a process; what it says is read as it comes."""

    def __init__(self, fleet: Fleet, name: str, **changes: Any) -> None:
        asked = {
            "servers": fleet.servers,
            "group": fleet.group,
            "topic": fleet.topic,
            "ends": ENDS,
            "sums": {},
            "replicas": 1,
            "spec": "spec-1",
            "instance": None,
            "host": name,
            "session_ms": SESSION_MS,
            "follows": True,
            "version": VERSION,
            **changes,
        }
        command = [sys.executable, "-m", "tests.integration.group_member_process", json.dumps(asked)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.strip())

    @property
    def given(self) -> dict[str, str]:
        """What it was assigned last."""
        assigned = [line for line in list(self.lines) if line.startswith(("assigned", "lost"))]
        return dict(part.split("=") for part in assigned[-1].split()[2:]) if assigned else {}

    @property
    def generation(self) -> int:
        assigned = [line for line in list(self.lines) if line.startswith("assigned")]
        return int(assigned[-1].split()[1]) if assigned else -1

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("stop\n")
        self._process.stdin.flush()
        self._process.wait(600)
        self._reader.join(600)
        assert self.lines[-1] == "closed"

    def end(self) -> None:
        if self._process.poll() is None:
            self.kill()
        self._reader.join(5)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Fleet:
    """Members of one group, all ended at the end."""

    def __init__(self, servers: str, name: str) -> None:
        self.servers, self.group, self.topic = servers, f"{name}-fleet", f"{name}-changelog"
        topics.create(servers, self.topic, 1)
        self._stack = ExitStack()

    def process(self, name: str, **changes: Any) -> Process:
        made = Process(self, name, **changes)
        self._stack.callback(made.end)
        return made

    def member(
        self,
        name: str,
        sums: dict[str, int] | None = None,
        *,
        assignment: AssignmentSettings | None = None,
        spec: str = "spec-1",
        ends: dict[str, int] | None = None,
        **changes: Any,
    ) -> Member:
        settings = GroupSettings(
            self.group,
            (self.topic,),
            spec,
            host=name,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=300,
            **changes,
        )
        made = Member(
            self.servers, settings, assignment or AssignmentSettings(recovery_lag=10), sums or {}, ends or ENDS
        )
        self._stack.callback(made.end)
        return made

    def close(self) -> None:
        self._stack.close()


class Member:
    """A member as a thread of this process, which follows what it was given at once."""

    def __init__(
        self, servers: str, settings: GroupSettings, assignment: AssignmentSettings, sums: dict[str, int], ends: Any
    ) -> None:
        self.group = GroupMember(Cluster(servers), settings, ends=lambda: ends, assignment=assignment)
        self.sums, self.ends = dict(sums), ends
        self.timeout, self.busy, self.polls = 0.2, 0.0, 0
        self.seen: list[AssignmentResult] = []
        self.error: BaseException | None = None
        self.paused = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.group.start(self.sums)
            while not self._stop.is_set():
                if self.paused.is_set():
                    time.sleep(0.05)
                    continue
                assigned = self.group.poll(self.timeout)
                time.sleep(self.busy)
                self.polls += 1
                if assigned is not None:
                    self.seen.append(assigned)
                    self.sums.update({task: self.ends[task] for task in assigned.roles})
                self.group.publish(self.sums)
        except BaseException as error:
            self.error = error
        finally:
            self.group.close()

    @property
    def given(self) -> dict[str, str]:
        return {task: role.name.lower() for task, role in self.seen[-1].roles.items()} if self.seen else {}

    def end(self) -> None:
        self._stop.set()
        self._thread.join(20)


@pytest.fixture
def fleet(broker: Broker, application_id: str) -> Iterator[Fleet]:
    made = Fleet(broker.bootstrap_servers, application_id)
    yield made
    made.close()


def wait(true: Callable[[], Any], *members: Any, seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, [getattr(member, "lines", None) or vars(member) for member in members]
        time.sleep(0.05)


def failed(member: Member) -> tuple[type[BaseException], str]:
    """The kind and the code of what ended a member."""
    assert isinstance(member.error, StatecoreError), member.error
    return type(member.error), member.error.code


def shared(*members: Any, roles: set[str] | None = None) -> bool:
    """Whether every task is with one of them, as a standby, and as many with each."""
    given = [member.given for member in members]
    tasks = sorted(task for one in given for task in one)
    even = max(map(len, given)) - min(map(len, given)) <= 1
    return tasks == sorted(ENDS) and even and {role for one in given for role in one.values()} <= {"standby"}


def test_tasks_of_a_killed_member_go_to_the_best_copies_and_a_new_member_warms_up_first(fleet: Fleet) -> None:
    """``a`` has what ``b`` was given, less 5 records; ``c`` has nothing of it, and reads none."""
    first, second, third = (dict.fromkeys(list(ENDS)[at : at + 2], 1_000) for at in (0, 2, 4))
    b = fleet.process("b", sums=second, follows=False)
    a = fleet.process("a", sums={**first, **dict.fromkeys(second, 995)}, follows=False)
    c = fleet.process("c", sums=third, follows=False)
    wait(lambda: shared(a, b, c), a, b, c)
    assert (a.given.keys(), b.given.keys(), c.given.keys()) == (first.keys(), second.keys(), third.keys())
    b.kill()
    wait(lambda: len(a.given) == 4, a, c)
    assert a.given == dict.fromkeys([*first, *second], "standby")
    wait(lambda: len(c.given) == 3, a, c)
    assert sorted(c.given.values()) == ["standby", "standby", "warmup"]

    before = {**a.given, **c.given}
    new = fleet.process("new")
    wait(lambda: shared(a, c, new), a, c, new)
    assigned = next(line for line in new.lines if line.startswith("assigned"))
    assert assigned.count("=warmup") == 2
    assert "=standby" not in assigned
    assert len(new.given) == 2
    assert a.given.keys() | c.given.keys() <= before.keys()
    assert third.keys() == c.given.keys()


@pytest.mark.full
def test_restarts_with_static_ids_move_nothing_until_one_comes_back_with_an_empty_disk(fleet: Fleet) -> None:
    """Also what the broker does: it hands a static member its old tasks and tells the others nothing."""

    def start(name: str, sums: dict[str, int]) -> Process:
        return fleet.process(name, sums=sums, instance=name, session_ms=120_000, replicas=2)

    members = {name: start(name, {}) for name in "abc"}

    def settled() -> bool:
        given = [one.given for one in members.values()]
        return (
            [len(one) for one in given] == [4, 4, 4]
            and {role for one in given for role in one.values()} == {"standby"}
            and len({one.generation for one in members.values()}) == 1
        )

    wait(settled, *members.values())
    before = {name: dict(one.given) for name, one in members.items()}
    generations = {one.generation for one in members.values()}
    assert len(generations) == 1
    for name in "abc":
        members[name].stop()
        members[name] = start(name, dict.fromkeys(before[name], 1_000))
        wait(lambda: members[name].given, *members.values())  # noqa: B023
        assert members[name].given == before[name]
    assert {one.generation for one in members.values()} == generations

    members["b"].stop()
    members["b"] = emptied = start("b", {})
    wait(lambda: all(one.generation > max(generations) for one in members.values()), *members.values())
    assert not [line for line in emptied.lines if line.startswith(f"assigned {max(generations)} ")]
    assert all(set(members[name].given) >= set(before[name]) for name in "ac")  # the copies that are whole stay


def test_a_disk_that_was_emptied_in_one_of_many_is_filled_where_no_other_copy_is(fleet: Fleet) -> None:
    """With one copy of each task wanted: another member has a complete one on its disk, and is given the task."""
    a = fleet.member("a", dict.fromkeys(ENDS, 1_000), instance_id="a")
    b = fleet.member("b", dict.fromkeys(ENDS, 1_000), instance_id="b")
    wait(lambda: shared(a, b), a, b)
    lost, before = set(b.given), len(a.seen)
    b.end()
    emptied = fleet.member("b", {}, instance_id="b")
    wait(lambda: emptied.seen and any(lost <= set(one.roles) for one in a.seen[before:]), a, emptied)
    assert emptied.seen[0].generation > max(one.generation for one in b.seen)
    assert "standby" not in {role.name.lower() for role in emptied.seen[0].roles.values()}
    wait(lambda: shared(a, emptied), a, emptied)  # warmed up, it has its share again


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_a_group_of_another_kind_of_consumer_is_refused_and_undisturbed(fleet: Fleet, first: str) -> None:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import InconsistentGroupProtocolError

    stranger = KafkaConsumer(
        fleet.topic,
        bootstrap_servers=fleet.servers,
        group_id=fleet.group,
        partition_assignment_strategy=[RangePartitionAssignor],
        auto_offset_reset="earliest",
    )
    try:
        if first == "ours":
            ours = fleet.member("a")
            wait(lambda: ours.given, ours)
            with pytest.raises(InconsistentGroupProtocolError):
                stranger.poll(60_000)
            assert ours.error is None
        else:
            topics.produce(fleet.servers, fleet.topic, [topics.Record(b"k", b"v")])
            stranger.poll(60_000, max_records=1)  # it ends with the record; a join that outlasts a poll may be lost
            assert stranger.assignment()
            ours = fleet.member("a")
            wait(lambda: ours.error, ours)
            assert failed(ours) == (Invalid, "group-of-another-application")
    finally:
        stranger.close()


def test_a_member_with_another_spec_is_refused_and_the_others_go_on(fleet: Fleet) -> None:
    a, b = fleet.member("a"), fleet.member("b")
    wait(lambda: shared(a, b), a, b)
    other = fleet.member("c", spec="spec-2")
    wait(lambda: other.error, other)
    assert isinstance(other.error, Invalid)
    assert {"spec-1", "spec-2"} <= set(re.findall(r"spec-\d", other.error.what))
    wait(lambda: shared(a, b), a, b)
    assert (a.error, b.error) == (None, None)


@pytest.mark.full
def test_group_metadata_above_the_limit_of_the_broker_is_reported(fleet: Fleet) -> None:
    numbers = random.Random(16)
    ends = {f"0_{n}": numbers.randrange(2**60, 2**62) for n in range(70_000)}
    cluster = Cluster(fleet.servers)
    settings = GroupSettings(f"{fleet.group}-large", (fleet.topic,), "spec", session_timeout_ms=30_000)
    with GroupMember(cluster, settings, ends=lambda: ends) as group:
        group.start(ends)
        with raises(Retryable, "group-metadata-too-large") as refused:
            group.poll(30.0)
    assert refused.value.context["size"] > 100_000


def test_an_id_that_another_process_takes_fences_the_first(fleet: Fleet) -> None:
    first = fleet.member("a", instance_id="same")
    wait(lambda: first.given, first)
    second = fleet.member("b", dict.fromkeys(ENDS, 1_000), instance_id="same")
    wait(lambda: first.error and second.given, first, second)
    assert failed(first) == (Fenced, "instance-fenced")
    assert second.error is None


@pytest.mark.full
def test_a_member_that_polls_too_late_loses_its_tasks(fleet: Fleet) -> None:
    late = fleet.member("late", max_poll_interval_ms=2_000)
    other = fleet.member("other")
    wait(lambda: shared(late, other), late, other)
    late.paused.set()
    wait(lambda: set(other.given) == set(ENDS), other)
    count = len(late.seen)
    late.paused.clear()
    wait(lambda: len(late.seen) > count, late)
    assert late.seen[count].lost
    assert not late.seen[count].roles
    wait(lambda: shared(late, other), late, other)


@pytest.mark.full
def test_answers_between_two_polls_are_handled_and_no_member_joins_twice(fleet: Fleet) -> None:
    """Members that are busy nearly all the time: each answer to a join comes while no member waits for it."""
    members = [fleet.member(name) for name in "abc"]
    for one in members:
        one.timeout, one.busy = 0.0, 0.4
    wait(lambda: shared(*members), *members)
    wait(lambda: len({one.seen[-1].generation for one in members}) == 1, *members)
    generation = members[0].seen[-1].generation
    assert generation <= 6
    rounds, polls = [len(one.seen) for one in members], [one.polls for one in members]
    session = int(SESSION_MS / 400) + 2  # so many polls are more than a session long
    wait(lambda: all(one.polls >= was + session for one, was in zip(members, polls, strict=True)), *members)
    assert [len(one.seen) for one in members] == rounds
    late = fleet.member("d")
    late.timeout, late.busy = 0.0, 0.4
    wait(lambda: shared(*members, late), *members, late)
    assert not [one for one in (*members, late) if any(seen.lost for seen in one.seen)]


def test_a_new_task_is_assigned(fleet: Fleet) -> None:
    """As when the changelogs were given more partitions."""
    ends = dict(ENDS)
    a, b = (fleet.member(name, ends=ends, ends_age_ms=200) for name in "ab")
    wait(lambda: shared(a, b), a, b)
    ends["0_6"] = 1_000
    wait(lambda: "0_6" in {**a.given, **b.given}, a, b)


@pytest.mark.full
def test_a_release_with_another_protocol_version_resumes_after_all_old_members_stopped(
    fleet: Fleet,
) -> None:
    def start(name: str, sums: dict[str, int], version: int) -> Process:
        return fleet.process(name, sums=sums, instance=name, session_ms=120_000, version=version)

    old = {name: start(name, {}, VERSION - 1) for name in "abc"}
    wait(lambda: shared(*old.values()), *old.values())
    given = {name: one.given for name, one in old.items()}
    for one in old.values():
        one.stop()
    new = {name: start(name, dict.fromkeys(given[name], 1_000), VERSION) for name in "abc"}
    wait(lambda: shared(*new.values()), *new.values())
    assert {name: one.given for name, one in new.items()} == given
    assert not [line for one in new.values() for line in one.lines if line.startswith("error")]
