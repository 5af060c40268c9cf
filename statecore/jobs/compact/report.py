"""What a fold has merged, and what became of it: for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from statecore.documents import DocumentType


class CompactionOutcome(StrEnum):
    """What became of a fold."""

    PUBLISHED = "published"
    NOT_DUE = "not due"
    NOTHING_LEFT = "nothing was left to publish"
    PLANNED = "planned"


@dataclass(frozen=True)
class CompactedRuns:
    """Runs of a database that have become one, or would.

    Attributes:
        task: Kafka Streams' task id, or ``global``.
        store: the store.
        segment: the segment that the database is; ``None`` where the store has none.
        runs: how many.
        bytes: of their files.
        folded_bytes: of the file that they have become, 0 where no row was left; ``None`` where that is not known,
            because it was only planned, or they were left out.
        is_damaged: whether they were left out because they are not what was put, or are gone.
    """

    task: str
    store: str
    segment: int | None
    runs: int
    bytes: int
    folded_bytes: int | None
    is_damaged: bool = False


@dataclass(frozen=True)
class CompactionReport:
    """The result of one fold of one application.

    Attributes:
        repository: the repository.
        application_id: Kafka Streams' ``application.id``.
        outcome: what became of it.
        newest: the snapshot whose runs were looked at.
        snapshot: the snapshot that was published; ``None`` where none was.
        made: when that was published (ISO 8601, UTC); ``None`` likewise.
        folded: the runs that were merged, each time into one.
        tasks: tasks whose parts were written anew.
        brought_bytes: bytes that came out of the repository.
        written_bytes: bytes of the files that went in.
        findings: what an operator must look at: databases that were left out because their files are damaged.
        warnings: what the publication had to say.
        seconds: how long it took.
    """

    repository: str
    application_id: str
    outcome: CompactionOutcome
    newest: str
    snapshot: str | None = None
    made: str | None = None
    folded: tuple[CompactedRuns, ...] = ()
    tasks: int = 0
    brought_bytes: int = 0
    written_bytes: int = 0
    findings: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def runs(self) -> int:
        """Runs that have become fewer."""
        return sum(one.runs for one in self.folded)

    @property
    def damaged(self) -> frozenset[tuple[str, str]]:
        """Stores, by task and name, of which runs are damaged."""
        return frozenset((one.task, one.store) for one in self.folded if one.is_damaged)

    def to_json(self) -> dict[str, Any]:
        """The report as a document."""
        return FOLD_REPORT.to_json(self)


FOLD_REPORT = DocumentType("report of a fold", 1, CompactionReport, "Fold again.", is_open=True)
