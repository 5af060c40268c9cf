"""What a member of a group is told, and when it may delete by it.

**Nobody deletes what others count on.** In each generation a task has owners (``STANDBY``, ``ACTIVE``), who never
delete it, and others, who may where an owner has all of it (``Assigned.elsewhere``). What an owner has said stays true
only as long as nobody deletes by what an older generation said. So a member deletes by an assignment only where

- it belongs to a generation that began while the member took part (``Assigned.is_new``): a static member that was
  restarted is handed what was decided long ago;
- the member has not joined again since, by which the others may count on its copy; and from then on it says that it has
  none (:meth:`TaskGroup.take_back`), before the copy goes;
- it is not so long ago that the group may have gone on without asking the member.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from statecore.standby.assignment.model import Role


@dataclass(frozen=True)
class AssignmentResult:
    """What this member is to do from now on, in place of all it was told before.

    Attributes:
        generation: of the group; with ``member_id`` it fences transactions of who was left behind. -1 when lost.
        member_id: the member's id at the broker.
        roles: its tasks. A task that it has active and that is not in here as such must be given up before the next
            ``publish``, which says that it was.
        errors: tasks that it must leave alone, with the reason.
        lost: it fell out of the group: others may have its tasks, and what it has active must not be committed. An
            assignment follows when it is back.
        leader: whether it decided for all.
        probing: whether copies are warming up that are to take over from others.
        elsewhere: of tasks that it has and was not given, the best offset sum of those that keep them.
        is_new: whether the others have said what they have since this member took part: not so where the broker hands
            a static member what it had before.
    """

    generation: int
    member_id: str
    roles: Mapping[str, Role] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    lost: bool = False
    leader: bool = False
    probing: bool = False
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    is_new: bool = False

    def tasks(self, role: Role) -> frozenset[str]:
        """The tasks that it has in one role."""
        return frozenset(task for task, given in self.roles.items() if given is role)


@dataclass(frozen=True)
class HandedOver:
    """An assignment as it came from kafka-python.

    Attributes:
        generation: of the group.
        data: the user data.
        partitions: whether partitions are among it.
        joins: how often the member had told the group what it has.
        at: when it came, in seconds of the group's clock.
    """

    generation: int
    data: bytes
    partitions: bool
    joins: int
    at: float
