"""What a plan will take, said before anything is done: ranges, bytes, memory and disk."""

from __future__ import annotations

from collections.abc import Mapping

from statecore.changelog.shapes import PartitionShape
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.plan import RestorePlan

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def estimate_of(plan: RestorePlan, shapes: Mapping[TopicPartition, PartitionShape], memory_budget: int) -> str:
    """The estimate as a sentence for the operator.

    The disk is a bound for stores in which no record replaces another: all that is read is then a run, and is merged
    once at most, and what is not merged is linked. What replaces or deletes makes it less.

    Args:
        plan: the plan.
        shapes: what is known of its partitions.
        memory_budget: bytes of records that a task may hold.
    """
    read = [(shapes[part.topic_partition], len(part.ranges)) for part in plan.partitions if part.ranges]
    records = sum(sum(shape.records) for shape, _ in read)
    size = sum(shape.bytes for shape, _ in read)
    return (
        f"About {records:,.0f} records of {said(size)} in {sum(ranges for _, ranges in read)} ranges are read. Each "
        f"worker holds up to {said(memory_budget)} of records (--memory-budget). The stores take at most about "
        f"{said(size)} of disk, and while they are built at most as much again, or twice as much as they take where "
        "many ranges have the same keys."
    )


def said(count: float) -> str:
    """Bytes as people say them."""
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.0f} {_UNITS[-1]}"
