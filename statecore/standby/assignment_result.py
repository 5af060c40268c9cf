"""Assignment of a group member, and the conditions for deleting a copy by it.

**No member deletes a copy that others rely on.** In each generation a task has owners (``STANDBY``, ``ACTIVE``), which
never delete it; another member may delete its copy if an owner has all of it (``AssignmentResult.elsewhere``). What an
owner has published stays true only if no member deletes by an older generation. So a member deletes by an assignment
only if

- the assignment belongs to a generation that began while the member took part (``AssignmentResult.is_new``): the broker
  returns an old assignment to a static member that restarts;
- the member has not joined again since, because others may rely on its copy by that join; and before the copy is
  deleted it stops advertising it (:meth:`TaskGroup.withdraw`);
- the assignment is recent enough that the group cannot have continued without asking the member.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from statecore.standby.assignment.model import Role


@dataclass(frozen=True)
class AssignmentResult:
    """A member's assignment; replaces the previous one.

    Attributes:
        generation: of the group; with ``member_id`` it fences transactions of removed members. -1 when lost.
        member_id: member id at the broker.
        roles: its tasks. An active task that is not active in here must be closed before the next ``publish``, which
            confirms that.
        errors: tasks that it must not touch, with the reason.
        lost: it was removed from the group: others may have its tasks, and its active tasks must not be committed. An
            assignment follows when it has rejoined.
        leader: whether it was the leader.
        probing: whether warm-ups are catching up to take over tasks.
        elsewhere: best offset sum at the owners of local tasks that were not assigned to it.
        is_new: whether all members have published their state since this member took part; false where the broker
            returns the previous assignment of a static member.
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
        return frozenset(task for task, given in self.roles.items() if given is role)


@dataclass(frozen=True)
class ReceivedAssignment:
    """An assignment as received from kafka-python.

    Attributes:
        generation: of the group.
        data: user data.
        partitions: whether it includes partitions.
        joins: how often the member had joined the group by then.
        at: time of arrival, on the group's clock.
    """

    generation: int
    data: bytes
    partitions: bool
    joins: int
    at: float
