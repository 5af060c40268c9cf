"""What a comparison found: for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from statecore.documents import DocumentType
from statecore.jobs.diff.row_diff import RowCounts
from statecore.jobs.diff.store_diff import Compared
from statecore.jobs.restore.report import RanOn


class Verdict(StrEnum):
    """How a store compares, or all of them.

    Attributes:
        exit_code: of the command.
    """

    EQUAL = "equal"
    DIFFERENT = "different"
    """Rows differ though both sides are at the same offsets, or nobody knows the offsets."""
    AT_OTHER_OFFSETS = "at other offsets"
    """Rows differ, and so do the offsets: the sides may well be right, each at its own."""
    NOTHING = "nothing was compared"
    """No store could be compared, or there is none: nobody knows whether rows are equal."""

    @property
    def exit_code(self) -> int:
        """0, 30, 31 or 32."""
        return {Verdict.EQUAL: 0, Verdict.DIFFERENT: 30, Verdict.AT_OTHER_OFFSETS: 31, Verdict.NOTHING: 32}[self]


class Only(StrEnum):
    """Where a store lies that only one side has."""

    BOTH = ""
    HERE = "state directory"
    REFERENCE = "reference"


@dataclass(frozen=True)
class StoreDiff:
    """How a store of one task compares with the reference.

    Attributes:
        task: Kafka Streams' task id, or ``global``.
        store: its name.
        kind: its kind; ``?`` where nobody knows it, and rows were compared as they lie.
        verdict: what came of it.
        offsets: what the application would go by, by ``<topic>-<partition>``.
        reference_offsets: likewise, of the reference.
        position: greatest offsets seen of input partitions, which queries with a bound go by; no part of the verdict.
        reference_position: likewise.
        only: which side alone has the store.
        compared: the rows.
        seconds: wall time of who compared it.
        cpu: CPU time of it.
    """

    task: str
    store: str
    kind: str
    verdict: Verdict
    offsets: Mapping[str, int]
    reference_offsets: Mapping[str, int]
    position: Mapping[str, int] = field(default_factory=dict)
    reference_position: Mapping[str, int] = field(default_factory=dict)
    only: Only = Only.BOTH
    compared: Compared = field(default_factory=Compared)
    seconds: float = 0.0
    cpu: float = 0.0

    @property
    def counts(self) -> RowCounts:
        """How its rows compare."""
        return self.compared.counts


@dataclass(frozen=True)
class DiffReport:
    """The result of one comparison.

    Attributes:
        application_id: Kafka Streams' ``application.id``.
        state_dir: the state directory that was looked at.
        reference: what it was held against, in words.
        verdict: the worst of all stores; that nothing was compared where there is none.
        running: whether the application was at work in the directory: then what it had flushed was compared.
        reference_running: likewise, in the other directory.
        stores: every store that was compared, by task and store.
        left_out: stores that were not compared, by ``<task>/<store>``, and why.
        notes: what an operator should know.
        host: the machine that ran it.
        release: the version of statecore.
        finished: when it ended (ISO 8601, UTC).
        seconds: wall time.
        phases: wall seconds of each phase, in order.
        ran_on: where rows were compared.
    """

    application_id: str
    state_dir: str
    reference: str
    verdict: Verdict
    running: bool
    reference_running: bool
    stores: tuple[StoreDiff, ...]
    left_out: Mapping[str, str]
    notes: tuple[str, ...]
    host: str
    release: str
    finished: str
    seconds: float
    phases: Mapping[str, float]
    ran_on: RanOn

    @property
    def counts(self) -> RowCounts:
        """How all rows compare."""
        return sum((store.counts for store in self.stores), RowCounts())

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON document."""
        return DIFF_REPORT.to_json(self)


DIFF_REPORT = DocumentType(
    "report of a comparison", 1, DiffReport, "Read it with the release that wrote it.", is_open=True
)


def verdict_of(counts: RowCounts, offsets: Mapping[str, int], reference: Mapping[str, int]) -> Verdict:
    """What came of a store.

    Args:
        counts: how its rows compare.
        offsets: those of the side that is looked at.
        reference: those of the reference.
    """
    if counts.are_equal:
        return Verdict.EQUAL
    shared = offsets.keys() & reference.keys()
    return Verdict.AT_OTHER_OFFSETS if any(offsets[one] != reference[one] for one in shared) else Verdict.DIFFERENT


def worst(verdicts: list[Verdict]) -> Verdict:
    """The verdict of all stores: one that nothing excuses counts most, and of none there is none."""
    for verdict in (Verdict.DIFFERENT, Verdict.AT_OTHER_OFFSETS):
        if verdict in verdicts:
            return verdict
    return Verdict.EQUAL if verdicts else Verdict.NOTHING
