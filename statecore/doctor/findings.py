"""A finding about a state directory, and where it applies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from statecore.doctor.finding_catalog import CATALOG, FindingKind, Repair, Severity
from statecore.errors import NOT_READABLE_HERE
from statecore.formats.topic_partition import TopicPartition


class Undecided(str):
    """A sentence about a question that the brokers could not decide.

    Attributes:
        stores: task and name of the stores that it is about; empty if it is about something else.
    """

    stores: frozenset[tuple[str, str]]

    def __new__(cls, text: str, stores: Iterable[tuple[str, str]] = ()) -> Undecided:
        made = super().__new__(cls, text)
        made.stores = frozenset(stores)
        return made


@dataclass(frozen=True)
class Finding:
    """A finding about one store, database or file.

    Attributes:
        code: key of :data:`statecore.doctor.finding_catalog.CATALOG`.
        what: a sentence with offsets, files and segments.
        severity: its severity here, under the application's guarantee; at most that of its kind.
        task: the task's directory (``0_1``, ``global``); empty for the whole application.
        store: empty for a whole task.
        segment: the segment's directory; empty for all segments, or without segments.
        partition: the changelog partition, if it is about one.
        evidence: the facts of the sentence for machines: offsets, names, sizes.
        repair: ``None`` if a person has to act.
        own_remedy: what to do, where it is not what its kind says.
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
    own_remedy: str = ""

    @property
    def remedy(self) -> str:
        return self.own_remedy or self.kind.remedy

    @property
    def kind(self) -> FindingKind:
        return CATALOG[self.code]

    @property
    def is_harmful(self) -> bool:
        """Whether the application may not start with it, or answers wrongly."""
        return self.severity.rank >= Severity.ERROR.rank or self.code == NOT_READABLE_HERE

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "severity": self.severity.value,
            "task": self.task or None,
            "store": self.store or None,
            "segment": self.segment or None,
            "partition": None if self.partition is None else str(self.partition),
            "what": self.what,
            "means": self.kind.means,
            "remedy": self.remedy,
            "repair": None if self.repair is None else self.repair.value,
            "evidence": dict(self.evidence),
        }
