"""Report of a diff."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from statecore.documents import DocumentType
from statecore.jobs.diff.row_diff import RowCounts
from statecore.jobs.diff.store_diff import Compared
from statecore.jobs.engine.protocol import RanOn


class DiffVerdict(StrEnum):
    """Result for a store, or for all of them."""

    EQUAL = "equal"
    DIFFERENT = "different"
    """Rows differ although both sides have the same offsets, or the offsets are unknown."""
    AT_OTHER_OFFSETS = "at other offsets"
    """Rows and offsets differ: both sides may be correct, each at its own offsets."""
    NOTHING = "nothing was compared"
    """There is no store, or none could be compared."""

    @property
    def exit_code(self) -> int:
        return {
            DiffVerdict.EQUAL: 0,
            DiffVerdict.DIFFERENT: 30,
            DiffVerdict.AT_OTHER_OFFSETS: 31,
            DiffVerdict.NOTHING: 32,
        }[self]


class ExistsIn(StrEnum):
    """The sides that have a store."""

    BOTH = ""
    STATE_DIRECTORY = "state directory"
    REFERENCE = "reference"


@dataclass(frozen=True)
class StoreDiff:
    """Comparison of one task's store with the reference.

    Attributes:
        kind: its kind; ``?`` if unknown, and raw rows were compared.
        offsets: offsets that the application would use, by ``<topic>-<partition>``.
        position: greatest offsets of input partitions (for bounded queries); not part of the verdict.
        only: the side that has the store, if the other one lacks it.
    """

    task: str
    store: str
    kind: str
    verdict: DiffVerdict
    offsets: Mapping[str, int]
    reference_offsets: Mapping[str, int]
    position: Mapping[str, int] = field(default_factory=dict)
    reference_position: Mapping[str, int] = field(default_factory=dict)
    only: ExistsIn = ExistsIn.BOTH
    compared: Compared = field(default_factory=Compared)
    seconds: float = 0.0
    cpu: float = 0.0

    @property
    def counts(self) -> RowCounts:
        return self.compared.counts


@dataclass(frozen=True)
class DiffReport:
    """The result of one diff.

    Attributes:
        verdict: the worst of all stores.
        running: whether the application was running: then its flushed rows were compared.
        left_out: stores that were not compared, by ``<task>/<store>``, and why.
    """

    application_id: str
    state_dir: str
    reference: str
    verdict: DiffVerdict
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
        return sum((store.counts for store in self.stores), RowCounts())

    def to_json(self) -> dict[str, Any]:
        return DIFF_REPORT.to_json(self)


DIFF_REPORT = DocumentType("report of a diff", 1, DiffReport, "Read it with the release that wrote it.", is_open=True)


def verdict_of(counts: RowCounts, offsets: Mapping[str, int], reference: Mapping[str, int]) -> DiffVerdict:
    """The verdict for a store, from its rows and the offsets of both sides."""
    if counts.are_equal:
        return DiffVerdict.EQUAL
    shared = offsets.keys() & reference.keys()
    return (
        DiffVerdict.AT_OTHER_OFFSETS if any(offsets[one] != reference[one] for one in shared) else DiffVerdict.DIFFERENT
    )


def worst(verdicts: list[DiffVerdict]) -> DiffVerdict:
    """The verdict for all stores: ``DIFFERENT`` before ``AT_OTHER_OFFSETS``; ``NOTHING`` without a store."""
    for verdict in (DiffVerdict.DIFFERENT, DiffVerdict.AT_OTHER_OFFSETS):
        if verdict in verdicts:
            return verdict
    return DiffVerdict.EQUAL if verdicts else DiffVerdict.NOTHING
