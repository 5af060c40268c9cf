"""Members of a group without a broker: the real members, leader and protocol, and the coordinator of a test.

A member joins when it is polled, or behind its back (:meth:`Coordinator.join`), as kafka-python's I/O loop does it.
The decision of the leader is sent to all as soon as all have joined, whatever each of them is doing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from statecore.changelog.cluster import Cluster
from statecore.standby.assignment.leader import assign, decide
from statecore.standby.assignment.model import Assignment, AssignmentSettings
from statecore.standby.group_member import GroupMember, GroupSettings
from statecore.standby.kafka_group import NOT_IN_THE_GROUP


class Coordinator:
    """The broker's part of one group, and the clock of all."""

    def __init__(self, ends: Mapping[str, int], replicas: int = 1, assign: Callable[..., Assignment] = assign) -> None:
        self._decide = partial(decide, assign=assign)
        self.ends, self.replicas, self.now, self.generation = ends, replicas, 0.0, 0
        self.members: dict[str, Consumer] = {}
        self.joined: dict[str, bytes] = {}
        self.is_joining = False
        self.given: dict[str, bytes] = {}

    def start(self, name: str, sums: Mapping[str, int]) -> GroupMember:
        """A new process, which joins when it is polled first."""
        made = GroupMember(
            Cluster("127.0.0.1:1"),
            GroupSettings("g", ("t",), "spec", instance_id=name, host=name),
            ends=lambda: self.ends,
            assignment=AssignmentSettings(replicas=self.replicas, recovery_lag=0, max_warmups=2),
            clock=lambda: self.now,
            decide=self._decide,
            consumer=self._consumer,  # type: ignore[arg-type]
        )
        made.start(sums)
        return made

    def _consumer(self, _cluster: Any, settings: GroupSettings, group: GroupMember) -> Consumer:
        name = settings.instance_id or ""
        made = Consumer(self, name, group)
        if name in self.members and not self.is_joining:
            self.members[name] = made  # a static member that was restarted: it is handed what it had
            group.user_data()
            made.has_joined(self.generation)
            group.receive_assignment(self.generation, self.given[name], partitions=False)
        else:
            self.members[name] = made
            self.is_joining = True
            self.joined.pop(name, None)
        return made

    def join(self, name: str, *, asks: bool = False) -> None:
        """A member joins, if the group is being joined, or it asks for that."""
        if asks and not self.is_joining:
            self.is_joining, self.joined = True, {}
        if self.is_joining and name in self.members and name not in self.joined:
            self.joined[name] = self.members[name].group.user_data()
            self.decide()

    def decide(self) -> None:
        """The generation begins, if all have joined."""
        if not self.is_joining or self.joined.keys() != self.members.keys() or not self.members:
            return
        self.generation += 1
        leader = min(self.members)
        self.given = dict(self.members[leader].group.lead(self.generation, leader, self.joined))
        self.is_joining, self.joined = False, {}
        for name, member in self.members.items():
            member.has_joined(self.generation)
            member.group.receive_assignment(self.generation, self.given[name], partitions=False)

    def expel(self, name: str) -> None:
        """The session of a member has ended."""
        self.members.pop(name).group.left_group()
        self.joined.pop(name, None)
        if not self.is_joining:
            self.is_joining, self.joined = True, {}
        self.decide()


class Consumer:
    """In place of `GroupConsumer`."""

    left_group = False

    def __init__(self, coordinator: Coordinator, name: str, group: GroupMember) -> None:
        self._coordinator, self.name, self.group = coordinator, name, group
        self.generation = NOT_IN_THE_GROUP

    def has_joined(self, generation: int) -> None:
        self.generation = generation

    def poll(self, milliseconds: int, *, rejoin: bool) -> None:
        coordinator = self._coordinator
        coordinator.now += milliseconds / 1000
        if coordinator.members.get(self.name) is not self:  # expelled: it comes back
            coordinator.members[self.name] = self
            coordinator.is_joining = True
        coordinator.join(self.name, asks=rejoin)

    def close(self) -> None:
        pass
