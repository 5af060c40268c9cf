"""The group leader's decision: an assignment or a refusal for each member."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from statecore.errors import Invalid
from statecore.standby.assignment.assignor import assign
from statecore.standby.assignment.model import Assignment, AssignmentSettings, Member, Role
from statecore.standby.assignment.protocol import (
    KEEP,
    VERSION,
    MemberAssignment,
    Subscription,
    decode_subscription,
    encode_assignment,
    version_of,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Decision:
    """What a leader sends."""

    data: Mapping[str, bytes]  # user data by member
    assignment: Assignment | None  # the assignment; None if none could be made


def decide(
    subscriptions: Mapping[str, bytes],
    leader: str,
    ends: Mapping[str, int],
    settings: AssignmentSettings,
    *,
    is_late: Callable[[], bool] = lambda: False,
    assign: Callable[..., Assignment] = assign,
) -> Decision:
    """Compute the leader's answer to each member.

    Members of another kind of consumer, with another protocol version or another spec are refused with the reason; the
    others get tasks. The version and the spec of most members win. A leader with another one refuses itself and lets
    the others keep their tasks: it does not know what they need, the next leader does.
    """
    versions = {member: version_of(data) for member, data in subscriptions.items()}
    most = _most([version for version in versions.values() if version is not None], VERSION)
    if most != VERSION:
        refused = _refusal(
            f"Most members of the group use version {most} of its protocol, this one uses version {VERSION}.",
            "Install the same release of statecore on all members.",
        )
        return Decision({member: refused if member == leader else KEEP for member in subscriptions}, None)
    read: dict[str, Subscription] = {}
    data: dict[str, bytes] = {}
    for member, user_data in subscriptions.items():
        try:
            read[member] = decode_subscription(user_data)
        except Invalid as error:
            data[member] = _refusal(error.what, error.action)
    spec = _most([one.spec for one in read.values()], read[leader].spec)
    if read[leader].spec != spec:
        refused = _other_spec(read[leader].spec, spec)
        return Decision({**dict.fromkeys(subscriptions, KEEP), **data, leader: refused}, None)
    data.update({member: _other_spec(sent.spec, spec) for member, sent in read.items() if sent.spec != spec})
    taking_part = [Member(member, sent.host, sent.copies) for member, sent in read.items() if sent.spec == spec]
    assignment = assign(taking_part, ends, settings, is_late=is_late)
    owned: dict[str, list[int]] = {}
    for one in taking_part:
        for task, role in assignment.members[one.id].items():
            had = one.copy(task)
            # A copy that was not opened yet may turn out to be unusable.
            if role is Role.STANDBY and had.role is not Role.ON_DISK:
                owned.setdefault(task, []).append(had.sum)
    for one in taking_part:
        roles = assignment.members[one.id]
        assumed_sums = {task: one.copy(task).sum for task in roles}
        errors = {task: why for task, why in assignment.errors.items() if task in one.copies}
        best = {task: max(held) for task in one.copies.keys() - roles.keys() if (held := owned.get(task))}
        process = read[one.id].process
        given = MemberAssignment(roles, assumed_sums, assignment.probing, errors, elsewhere=best, process=process)
        data[one.id] = encode_assignment(given)
    return Decision(data, assignment)


def _most(found: Sequence[T], otherwise: T) -> T:
    """The most frequent value; ``otherwise`` on a tie with it."""
    counts = Counter(found)
    return max(counts, key=lambda one: (counts[one], one == otherwise), default=otherwise)


def _other_spec(spec: str, others: str) -> bytes:
    return _refusal(
        f"Its spec differs from that of most members (digest {spec[:12]}, theirs {others[:12]}).",
        "Give all members the same spec, or a group of their own.",
    )


def _refusal(what: str, action: str) -> bytes:
    return encode_assignment(MemberAssignment(refusal=what, action=action))
