"""Fleets of members for tests of the assignment: made by hypothesis, and played from round to round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from statecore.standby.assignment.assignor import assign
from statecore.standby.assignment.model import Assignment, AssignmentSettings, Copy, Member, Role

END = 1_000_000


def tasks(count: int, end: int = END) -> dict[str, int]:
    return {f"{number % 2}_{number // 2}": end for number in range(count)}


def following(members: Sequence[Member], given: Assignment, ends: Mapping[str, int], step: int = END) -> list[Member]:
    """The members after they were given tasks, and have read so many records of each they follow."""
    return [
        replace(
            member,
            copies={
                **{task: replace(copy, role=Role.ON_DISK) for task, copy in member.copies.items()},
                **{
                    task: Copy(max(member.copy(task).sum, min(ends[task], member.copy(task).sum + step)), role)
                    for task, role in given.members[member.id].items()
                },
            },
        )
        for member in members
    ]


def rounds(
    members: Sequence[Member],
    ends: Mapping[str, int],
    settings: AssignmentSettings,
    *,
    step: int = END,
    most: int = 400,
) -> Iterator[tuple[list[Member], Assignment]]:
    """Round after round, until nothing is to be probed; each with the members as they were."""
    members = list(members)
    for _ in range(most):
        given = assign(members, ends, settings)
        yield members, given
        if not given.probing:
            return
        members = following(members, given, ends, step)
    raise AssertionError(f"no end after {most} rounds")


def settled(
    members: Sequence[Member], ends: Mapping[str, int], settings: AssignmentSettings, *, step: int = END
) -> tuple[list[Member], Assignment]:
    """The members after the last round, with all copies read to their ends."""
    *_, (last, given) = rounds(members, ends, settings, step=step)
    return following(last, given, ends), given


def load(given: Assignment, *roles: Role) -> dict[str, int]:
    return {
        member: sum(role in roles for role in given_roles.values()) for member, given_roles in given.members.items()
    }


def copies(given: Assignment, *roles: Role) -> Counter[str]:
    return Counter(task for one in given.members.values() for task, role in one.items() if role in roles)


def where(given: Assignment, *roles: Role) -> set[tuple[str, str]]:
    return {(task, at) for at, one in given.members.items() for task, role in one.items() if role in roles}


@st.composite
def fleets(draw: st.DrawFn, *, shared_hosts: bool = True) -> tuple[list[Member], dict[str, int]]:
    """Members with copies of tasks, complete, partial and none, in any role."""
    ends = {f"0_{number}": draw(st.integers(0, 100_000)) for number in range(draw(st.integers(0, 9)))}
    number = draw(st.integers(1, 5))
    members = []
    for at in range(number):
        has = {}
        for task, end in ends.items():
            if draw(st.booleans()):
                has[task] = Copy(draw(st.just(end) | st.integers(0, end)), draw(st.sampled_from(Role)))
        host = f"h{draw(st.integers(0, 2)) if shared_hosts else at}"
        members.append(Member(f"m{at}", host, has))
    return members, ends


SETTINGS = st.builds(
    AssignmentSettings,
    replicas=st.integers(1, 3),
    recovery_lag=st.sampled_from([0, 100, 10_000]),
    max_warmups=st.integers(1, 3),
)
