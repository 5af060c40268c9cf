"""What the leader of a group takes to decide who is given which tasks.

::

    python -m bench.assignment                        prints the table
    python -m bench.assignment --members 50 --tasks 500
    python -m bench.assignment --write                puts it into bench/README.md

Nothing is read or written: members are what they would say of themselves. The same fleets are made each time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from statecore.standby.assignment.assignor import assign
from statecore.standby.assignment.model import Assignment, AssignmentSettings, Copy, Member, Role

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- assignment -->\n", "<!-- /assignment -->"
SIZES = ((20, 200), (200, 2_000))
SETTINGS = AssignmentSettings()


@dataclass(frozen=True)
class Fleet:
    """Members, and what there is to assign.

    Attributes:
        what: what has happened to it, in words.
        members: who takes part.
        ends: the tasks.
        settings: how they are assigned.
    """

    what: str
    members: Sequence[Member]
    ends: Mapping[str, int]
    settings: AssignmentSettings


def fleets(count: int, number: int, settings: AssignmentSettings = SETTINGS) -> Iterator[Fleet]:
    """What may happen to a fleet of so many members and tasks."""
    random = Random(7)
    ends = {f"{at % 4}_{at // 4}": random.randrange(10_000, 50_000_000) for at in range(number)}
    empty = [Member(f"m{at:04}", f"h{at:04}") for at in range(count)]
    new = [Member(f"n{at:04}", f"n{at:04}") for at in range(count)]
    settled = following(empty, assign(empty, ends, settings), ends)

    def fleet(what: str, members: Sequence[Member]) -> Fleet:
        return Fleet(what, members, ends, settings)

    yield fleet("begins with empty disks", empty)
    yield fleet("nothing has changed", settled)
    yield fleet("a member less", settled[1:])
    yield fleet("a member more", [*settled, new[0]])
    yield fleet("twice as many members", [*settled, *new])
    one = replace(empty[0], copies={task: Copy(end, Role.STANDBY) for task, end in ends.items()})
    yield fleet("one member has all", [one, *empty[1:]])
    every = [
        replace(member, copies={task: Copy(random.randrange(end)) for task, end in ends.items()} | dict(member.copies))
        for member in settled
    ]
    yield fleet("each disk has something of every task, a member more", [*every, new[0]])
    yield fleet("the same, half of the members less", every[: -(-count // 2)])


def following(members: Sequence[Member], given: Assignment, ends: Mapping[str, int]) -> list[Member]:
    """The members after they have read all that they were given."""
    return [
        replace(member, copies={task: Copy(ends[task], role) for task, role in given.members[member.id].roles.items()})
        for member in members
    ]


def seconds(fleet: Fleet) -> float:
    """How long one decision takes."""
    began = time.perf_counter()
    assign(fleet.members, fleet.ends, fleet.settings)
    return time.perf_counter() - began


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, help="so many members instead of the sizes of the table")
    parser.add_argument("--tasks", type=int, default=2_000, help="and so many tasks")
    parser.add_argument("--write", action="store_true", help="put the table into bench/README.md")
    asked = parser.parse_args(arguments)
    sizes = SIZES if asked.members is None else ((asked.members, asked.tasks),)
    rows: dict[str, list[str]] = {}
    for count, number in sizes:
        for replicas in (1, 2):
            for fleet in fleets(count, number, replace(SETTINGS, replicas=replicas)):
                took = seconds(fleet)
                print(f"{count} x {number}, {replicas}: {fleet.what}: {took:.3f} s", file=sys.stderr, flush=True)
                rows.setdefault(fleet.what, []).append(f"{took:.2f} s")
    heads = [f"{count} × {number:,}, {copies}" for count, number in sizes for copies in ("1 copy", "2 copies")]
    lines = [f"| members × tasks | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    lines += [f"| {what} | {' | '.join(cells)} |" for what, cells in rows.items()]
    table = "\n".join(lines) + "\n"
    print(table)
    if asked.write:
        text = README.read_text()
        head, _, rest = text.partition(BEGIN)
        README.write_text(head + BEGIN + table + END + rest.partition(END)[2])
    return 0


if __name__ == "__main__":
    sys.exit(main())
