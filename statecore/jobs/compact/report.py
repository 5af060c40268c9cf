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
        task: Kafka Streams' task id, or ``global``.
        segment: the database's segment; ``None`` without segments.
        runs: number of runs.
        bytes: of their files.
        compacted_bytes: of the merged file, 0 if no row was left; ``None`` if it was only planned, or they were left
            out.
        is_damaged: whether they were left out because they are damaged or missing.
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
        snapshot: the published snapshot; ``None`` if none was.
        created_at: when that was published (ISO 8601, UTC); ``None`` likewise.
        compacted: the merged runs, each entry into one.
        tasks: number of new task manifests.
        brought_bytes: bytes downloaded from the repository.
        written_bytes: bytes uploaded.
        findings: problems for the operator: databases that were left out because their files are damaged.
        warnings: of the publication.
    """

    repository: str
    application_id: str
    outcome: CompactionOutcome
    newest: str
    snapshot: str | None = None
    created_at: str | None = None
    compacted: tuple[CompactedRuns, ...] = ()
    tasks: int = 0
    brought_bytes: int = 0
    written_bytes: int = 0
    findings: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def runs(self) -> int:
        """Number of runs that were merged."""
        return sum(one.runs for one in self.compacted)

    @property
    def damaged(self) -> frozenset[tuple[str, str]]:
        """Stores, by task and name, with damaged runs."""
        return frozenset((one.task, one.store) for one in self.compacted if one.is_damaged)

    def to_json(self) -> dict[str, Any]:
        """The report as a document."""
        return COMPACTION_REPORT.to_json(self)


COMPACTION_REPORT = DocumentType("report of a compaction", 1, CompactionReport, "Compact again.", is_open=True)
