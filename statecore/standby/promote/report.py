"""What a hand-over did, or would do, task by task.

The report lies in the directory of the application that took over::

    <application>/.statecore/plans/<request>.hand-over
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from statecore.documents import DocumentType
from statecore.jobs.attempt import Attempt

HAND_OVER_SUFFIX = ".hand-over"
"""Of the report's file."""


class Outcome(StrEnum):
    """What became of a hand-over."""

    PLANNED = "planned"
    DONE = "handed over"
    UNCHANGED = "nothing to do"


class Verdict(StrEnum):
    """What becomes of one task."""

    TAKEN = "taken"
    """The warm copy takes the place of what is there."""

    LEFT = "left"
    """What is there is as far as the warm copy, or further: it stays."""

    REFUSED = "refused"
    """The warm copy of this task cannot be handed over; what is there stays."""


@dataclass(frozen=True)
class PromotedTask:
    """One task.

    Attributes:
        task: the task.
        verdict: what becomes of it.
        why: in words.
        code: the reason: that of the error where the copy is refused.
        ahead: by how many offsets the warm copy is ahead of what is there, over all stores; all it has where nothing
            is there.
        stores: the stores that are put in place.
        bytes: bytes of their files.
        behind: offsets that lie behind the warm copy in the changelogs of the stores it follows, of which Kafka Streams
            restores the records; ``None`` where nobody was asked.
        context: the values of the reason as fields (``store``, ``offset`` ...); empty in reports of older releases.
        notes: what an operator should know of it beside that: which stores Kafka Streams restores from the start.
    """

    task: str
    verdict: Verdict
    why: str
    ahead: int = 0
    stores: tuple[str, ...] = ()
    bytes: int = 0
    behind: int | None = None
    notes: tuple[str, ...] = ()
    code: str = ""
    context: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class PromoteReport(Attempt):
    """The result of one hand-over.

    Attributes beside those of the try:
        finished: when it ended.
        warm_dir: the state directory of the warm copy.
        outcome: what became of it.
        tasks: what becomes of each task.
        exit_code: 0, or that of ``Invalid`` where a task was refused.
        kept: where the task directories lie that were replaced; empty where there are none.
        seconds: wall time.
        phases: wall seconds of each phase, in order.
    """

    finished: str
    warm_dir: str
    outcome: Outcome
    tasks: tuple[PromotedTask, ...]
    exit_code: int = 0
    kept: str = ""
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON document."""
        return HAND_OVER_REPORT.to_json(self)


HAND_OVER_REPORT = DocumentType(
    "report of a hand-over", 1, PromoteReport, "Read it with the release that wrote it.", is_open=True
)
