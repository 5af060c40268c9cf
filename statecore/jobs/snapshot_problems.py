"""Why a store cannot be published: all reasons are gathered, and said in one error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from statecore.errors import Invalid


@dataclass(frozen=True)
class Problem:
    """One reason why what was asked for cannot be published.

    Attributes:
        code: what it is, one of :data:`statecore.error_codes.ERROR_CODES`.
        what: what was found, and what to do, in sentences.
        task: of this task; empty where it is of several.
        store: and this store.
    """

    code: str
    what: str
    task: str
    store: str


Refuse = Callable[[Problem], None]
"""Told of each problem."""


def refused(problems: Sequence[Problem]) -> Invalid:
    """The error for a snapshot that cannot be taken.

    Args:
        problems: one or more.
    """
    listed = problems[0].what if len(problems) == 1 else "".join(f"\n  - {problem.what}" for problem in problems)
    return Invalid(
        f"Nothing was published: {listed}",
        code="snapshot-refused",
        action="A snapshot is the whole of what was asked for. Do what is said there, then run this again.",
        problems=[asdict(problem) for problem in problems],
    )
