"""Why a store cannot be published: all reasons are gathered, and said in one error."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from statecore.errors import Invalid, Reason

Refuse = Callable[[Reason], None]
"""Told of each problem, with its task (empty where it is of several) and its store."""


def refused(problems: Sequence[Reason]) -> Invalid:
    """The error for a snapshot that cannot be taken.

    Args:
        problems: one or more.
    """
    listed = problems[0] if len(problems) == 1 else "".join(f"\n  - {problem}" for problem in problems)
    return Invalid(
        f"Nothing was published: {listed}",
        code="snapshot-refused",
        action="A snapshot is the whole of what was asked for. Do what is said there, then run this again.",
        problems=[problem.to_json() for problem in problems],
    )
