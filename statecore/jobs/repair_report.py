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

from statecore.documents import DocumentType

REPAIR_SUFFIX = ".repair"
"""Of the report's file."""


class Outcome(StrEnum):
    """What became of a repair."""

    PLANNED = "planned"
    REPAIRED = "repaired"
    UNCHANGED = "nothing to do"


@dataclass(frozen=True)
class MendedTask:
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
        tasks: of which tasks; empty for all.
        codes: of the findings that it mends.
        rows: how many rows they have now; ``None`` of a plan.
        parents: the snapshots that they were put upon; empty where they were built from their changelogs alone.
        seconds: what it took; 0 of a plan.
    """

    stores: tuple[str, ...]
    tasks: tuple[str, ...]
    codes: tuple[str, ...]
    rows: int | None = None
    parents: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class RepairReport:
    """The result of one repair of one state directory.

    Attributes:
        application_id: Kafka Streams' ``application.id``.
        state_dir: Kafka Streams' ``state.dir``, resolved.
        request_id: the request.
        host: the machine that ran it.
        user: the user it ran as.
        process: its process id.
        release: the version of statecore.
        started: when it began (ISO 8601, UTC).
        finished: when it ended.
        outcome: what became of it.
        plan_id: hash of the plan.
        exit_code: of the worst finding that is there at the end; of a plan, of those that it does not mend.
        kept: where what was replaced lies; empty where there is nothing.
        seconds: wall time.
        phases: wall seconds of each phase, in order.
        mended: tasks that are changed.
        rebuilt: stores that are rebuilt.
        found: what was found at the beginning, as ``statecore doctor --json`` says it.
        left: what is found at the end, worse than a note; of a plan, what it does not mend.
        notes: what an operator should know.
    """

    application_id: str
    state_dir: str
    request_id: str
    host: str
    user: str
    process: int
    release: str
    started: str
    finished: str
    outcome: Outcome
    plan_id: str
    exit_code: int
    kept: str = ""
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    mended: tuple[MendedTask, ...] = ()
    rebuilt: tuple[RebuiltStores, ...] = ()
    found: tuple[Mapping[str, Any], ...] = ()
    left: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON document."""
        return REPAIR_REPORT.to_json(self)


REPAIR_REPORT = DocumentType(
    "report of a repair", 1, RepairReport, "Read it with the release that wrote it.", is_open=True
)
