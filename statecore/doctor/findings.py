"""A finding: what a look at a state directory found, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from statecore.doctor.finding_catalog import CATALOGUE, FindingKind, Repair, Severity
from statecore.formats.topic_partition import TopicPartition


@dataclass(frozen=True)
class Finding:
    """One finding, of one store, database or file.

    Attributes:
        code: which of :data:`statecore.doctor.finding_catalog.CATALOGUE` it is.
        what: what was found, in a sentence that names offsets, files and segments.
        severity: how bad it is here, under the application's guarantee; at most that of its kind.
        task: the task's directory (``0_1``, ``global``), empty where it is of the whole application.
        store: the store, empty where it is of a task.
        segment: the directory of the segment, empty where it is of all, or the store has none.
        partition: the changelog partition, where it is of one.
        evidence: what the sentence says, for machines: offsets, names, sizes.
        repair: what would mend it; ``None`` where a person has to.
    """

    code: str
    what: str
    severity: Severity
    task: str = ""
    store: str = ""
    segment: str = ""
    partition: TopicPartition | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    repair: Repair | None = None

    @property
    def kind(self) -> FindingKind:
        """What findings of this code have in common."""
        return CATALOGUE[self.code]

    def to_json(self) -> dict[str, Any]:
        """The finding as one JSON object, with what it means and what to do."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "task": self.task or None,
            "store": self.store or None,
            "segment": self.segment or None,
            "partition": None if self.partition is None else str(self.partition),
            "what": self.what,
            "means": self.kind.means,
            "remedy": self.kind.remedy,
            "repair": None if self.repair is None else self.repair.value,
            "evidence": dict(self.evidence),
        }
