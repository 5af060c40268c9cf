"""Report of a promotion, task by task, stored in the application's directory::

<application>/.statecore/plans/<request>.promotion
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from statecore.documents import DocumentType
from statecore.jobs.attempt import Attempt

PROMOTE_SUFFIX = ".promotion"  # File suffix of the report


class PromoteOutcome(StrEnum):
    """Outcome of a promotion."""

    PLANNED = "planned"
    DONE = "promoted"
    UNCHANGED = "nothing to do"


class PromoteVerdict(StrEnum):
    """Decision for one task."""

    PROMOTED = "promoted"  # The standby copy replaces the application's task
    KEPT = "kept"  # The application's task is as far as the standby copy, or ahead of it: it stays
    REFUSED = "refused"  # The standby copy of this task cannot be promoted; the application's task stays


@dataclass(frozen=True)
class PromotedTask:
    """One task of a promotion."""

    task: str
    verdict: PromoteVerdict
    why: str
    # offsets by which the standby copy is ahead of the application's task, over all stores; its offset sum if there is
    # none
    ahead: int = 0
    stores: tuple[str, ...] = ()  # the stores that are put in place
    bytes: int = 0  # bytes of their files
    # offsets after the standby copy in the changelogs of its stores, which Kafka Streams restores; None if the brokers
    # were not asked
    behind: int | None = None
    # further notes for an operator, such as stores that Kafka Streams restores from the start
    notes: tuple[str, ...] = ()
    code: str = ""  # code of the reason; that of the error if the copy is refused
    # the values of the reason as fields (store, offset ...); empty in reports of older releases
    context: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class PromoteReport(Attempt):
    """The result of one promotion."""

    finished: str  # end time
    standby_dir: str  # state directory of the standby copy
    outcome: PromoteOutcome
    tasks: tuple[PromotedTask, ...]
    exit_code: int = 0  # 0, or that of Invalid if a task was refused
    kept: str = ""  # where the replaced task directories are kept; empty if none was replaced
    seconds: float = 0.0  # wall time
    phases: Mapping[str, float] = field(default_factory=dict)  # wall seconds of each phase, in order

    def to_json(self) -> dict[str, Any]:
        return PROMOTE_REPORT.to_json(self)


PROMOTE_REPORT = DocumentType(
    "report of a promotion", 1, PromoteReport, "Read it with the release that wrote it.", is_open=True
)
