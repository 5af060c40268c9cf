"""One thing that a conversion does to a store, as a value, so that it can be said of one task and of many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from statecore.formats.topic_partition import TopicPartition


@dataclass(frozen=True)
class Step:
    """One thing that is done.

    Attributes:
        text: what, the same for every task; in words rows stand before it, and that it is the offset behind it.
        rows: how many rows it is done to; 0 where it is not about rows.
        offsets: the offsets that it ends with; empty where it is not about offsets.
    """

    text: str
    rows: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


def which(count: int, total: int, *, segmented: bool) -> str:
    """Which databases of a store something is done to, in words that are the same for most of its tasks.

    Args:
        count: to how many.
        total: how many it has.
        segmented: whether they are segments.
    """
    if not segmented:
        return "its database"
    if count == total:
        return "its segments" if total > 1 else "its segment"
    return f"{count} of its segments"
