"""A step of a conversion, as a value that can be described for one task or for many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from statecore.formats.topic_partition import TopicPartition


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        text: the same for every task; rows are named before it, the offset after it.
        rows: number of rows; 0 if it is not about rows.
        offsets: resulting offsets; empty if it is not about offsets.
    """

    text: str
    rows: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


def affected_databases(count: int, total: int, *, segmented: bool) -> str:
    """The affected databases of a store, in words that are the same for most of its tasks."""
    if not segmented:
        return "its database"
    if count == total:
        return "its segments" if total > 1 else "its segment"
    return f"{count} of its segments"
