"""Report of a repair: findings, repairs, and remaining findings.

The plan has an id like that of a migration. The report is stored in the application's directory if something was
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
"""File suffix of the report."""


class RepairOutcome(StrEnum):
    """Outcome of a repair."""

    PLANNED = "planned"
    REPAIRED = "repaired"
    PARTLY_REPAIRED = "repaired in part"
    """A finding is left with which the application does not start, or answers wrongly."""
    UNCHANGED = "nothing to do"
    NOT_REPAIRED = "not repaired"
    """Global stores only: the next start would fail or answer wrongly, and there is no repair for it."""

    @property
    def is_applied(self) -> bool:
        """Whether the directory was changed."""
        return self in (RepairOutcome.REPAIRED, RepairOutcome.PARTLY_REPAIRED)


@dataclass(frozen=True)
class RepairedTask:
    """One repaired task directory.

    Attributes:
        codes: codes of the repaired findings.
    """

    task: str
    steps: tuple[str, ...]
    codes: tuple[str, ...]


@dataclass(frozen=True)
class RebuiltStores:
    """Stores rebuilt by one restore.

    Attributes:
        codes: codes of the repaired findings.
        rows: number of rows after the rebuild; ``None`` in a plan.
        bases: their base snapshots; empty if they were built from changelogs only.
        kept: where the replaced task directories are kept; empty in a plan, and if there were none.
        sources: description of what they are rebuilt from: the brokers that have to answer.
        logs: topic partitions with topic ids; empty if the brokers were not asked.
        doubts: why a person has to check the plan and approve it by its id.
    """

    stores: tuple[str, ...]
    tasks: tuple[str, ...]
    codes: tuple[str, ...]
    rows: int | None = None
    bases: tuple[str, ...] = ()
    kept: str = ""
    seconds: float = 0.0
    sources: str = ""
    logs: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class RepairReport(Attempt):
    """The result of one repair of one state directory.

    Attributes besides those of the attempt:
        exit_code: exit code of the worst remaining finding; in a plan, of those that it does not repair.
        kept: where the replaced task directories are kept; empty if there are none.
        found: findings at the start, as in ``statecore doctor --json``.
        remaining: findings worse than a note; in a plan, those that it does not repair.
        next_starts: for a recovery of global stores, what the next start would have done with each of them.
    """

    finished: str
    outcome: RepairOutcome
    plan_id: str
    exit_code: int
    kept: str = ""
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    repaired: tuple[RepairedTask, ...] = ()
    rebuilt: tuple[RebuiltStores, ...] = ()
    found: tuple[Mapping[str, Any], ...] = ()
    remaining: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    next_starts: tuple[NextStart, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return REPAIR_REPORT.to_json(self)


REPAIR_REPORT = DocumentType(
    "report of a repair", 1, RepairReport, "Read it with the release that wrote it.", is_open=True
)
