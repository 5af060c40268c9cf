"""Report of a compaction."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from statecore.documents import DocumentType


class CompactionOutcome(StrEnum):
    """How a compaction ended."""

    PUBLISHED = "published"
    NOT_DUE = "not due"
    NOTHING_LEFT = "nothing was left to publish"
    PLANNED = "planned"


@dataclass(frozen=True)
class CompactedRuns:
    """Runs of a database that were merged into one, or would be.

    Attributes:
        compacted_bytes: of the merged file, 0 if no row was left; ``None`` if it was only planned, or they were left
            out.
    """

    task: str
    store: str
    segment: int | None
    runs: int
    bytes: int
    compacted_bytes: int | None
    is_damaged: bool = False


@dataclass(frozen=True)
class CompactionReport:
    """The result of one compaction of one application.

    Attributes:
        newest: the snapshot that was inspected.
        compacted: the merged runs, each entry into one.
        tasks: number of new task manifests.
        findings: problems for the operator: databases that were left out because their files are damaged.
    """

    repository: str
    application_id: str
    outcome: CompactionOutcome
    newest: str
    snapshot: str | None = None
    created_at: str | None = None
    compacted: tuple[CompactedRuns, ...] = ()
    tasks: int = 0
    downloaded_bytes: int = 0
    written_bytes: int = 0
    findings: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def runs(self) -> int:
        return sum(one.runs for one in self.compacted)

    @property
    def damaged(self) -> frozenset[tuple[str, str]]:
        """Stores, by task and name, with damaged runs."""
        return frozenset((one.task, one.store) for one in self.compacted if one.is_damaged)

    def to_json(self) -> dict[str, Any]:
        return COMPACTION_REPORT.to_json(self)


COMPACTION_REPORT = DocumentType("report of a compaction", 1, CompactionReport, "Compact again.", is_open=True)
