"""Collects the reasons why stores cannot be published into one error."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from statecore.errors import Invalid, Reason

Refuse = Callable[[Reason], None]
"""Receives each problem, with its task (empty if it concerns several) and its store."""


def refused(problems: Sequence[Reason]) -> Invalid:
    """The error of a refused backup, for one or more problems."""
    listed = problems[0] if len(problems) == 1 else "".join(f"\n  - {problem}" for problem in problems)
    return Invalid(
        f"Nothing was published: {listed}",
        code="snapshot-refused",
        action="A snapshot has all requested stores or none. Solve the listed problems, then run this again.",
        problems=[problem.to_json() for problem in problems],
    )
