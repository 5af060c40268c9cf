"""What a repair did, or would do: what was found, what mends it, and what is found afterwards.

The plan has an id as that of a migration has one. The report lies in the application's directory, where something was
repaired::

    <application>/.statecore/plans/<request>.repair
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from statecore.doctor.global_store_outcome import NextStart
from statecore.documents import DocumentType
from statecore.jobs.attempt import Attempt

REPAIR_SUFFIX = ".repair"
"""Of the report's file."""


class Outcome(StrEnum):
    """What became of a repair."""

    PLANNED = "planned"
    REPAIRED = "repaired"
    UNCHANGED = "nothing to do"
    NOT_MENDED = "not mended"
    """Of global stores: the next start would fail or answer wrongly, and no repair is known for it."""


@dataclass(frozen=True)
class RepairedTask:
    """One task directory that is changed.

    Attributes:
        task: the task.
        steps: what is done, in words.
        codes: of the findings that it mends.
    """

    task: str
    steps: tuple[str, ...]
    codes: tuple[str, ...]


@dataclass(frozen=True)
class RebuiltStores:
    """Stores that are rebuilt by one restore.

    Attributes:
        stores: their names.
        tasks: of which tasks.
        codes: of the findings that it mends.
        rows: how many rows they have now; ``None`` of a plan.
        parents: the snapshots that they were put upon; empty where they were built from their changelogs alone.
        kept: where the task directories that were replaced lie; empty of a plan, and where there were none.
        seconds: what it took; 0 of a plan.
        sources: what they are rebuilt from, in words: which brokers have to answer.
        logs: the partitions of topics, with the ids of these; empty where nobody was asked.
        doubts: why a person is to look at it before it is done, and to approve the plan by its id.
    """

    stores: tuple[str, ...]
    tasks: tuple[str, ...]
    codes: tuple[str, ...]
    rows: int | None = None
    parents: tuple[str, ...] = ()
    kept: str = ""
    seconds: float = 0.0
    sources: str = ""
    logs: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class RepairReport(Attempt):
    """The result of one repair of one state directory.

    Attributes beside those of the try:
        finished: when it ended.
        outcome: what became of it.
        plan_id: hash of the plan.
        exit_code: of the worst finding that is there at the end; of a plan, of those that it does not mend.
        kept: where the task directories lie that mended ones have replaced; empty where there is nothing.
        seconds: wall time.
        phases: wall seconds of each phase, in order.
        mended: tasks that are changed.
        rebuilt: stores that are rebuilt.
        found: what was found at the beginning, as ``statecore doctor --json`` says it.
        left: what is found at the end, worse than a note; of a plan, what it does not mend.
        notes: what an operator should know.
        next_starts: of a recovery of global stores, what the next start would have done with each of them.
    """

    finished: str
    outcome: Outcome
    plan_id: str
    exit_code: int
    kept: str = ""
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    mended: tuple[RepairedTask, ...] = ()
    rebuilt: tuple[RebuiltStores, ...] = ()
    found: tuple[Mapping[str, Any], ...] = ()
    left: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    next_starts: tuple[NextStart, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON document."""
        return REPAIR_REPORT.to_json(self)


REPAIR_REPORT = DocumentType(
    "report of a repair", 1, RepairReport, "Read it with the release that wrote it.", is_open=True
)
