"""What a plan will take, said before anything is done: ranges, bytes, memory and disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from statecore.changelog.shapes import PartitionShape
from statecore.changelog.weighing import Weights
from statecore.images.read_amplification import MOST_UNMERGED
from statecore.jobs.planning.plan import RestorePlan
from statecore.statedir.state_directory import free_room

ROW_BYTES = 24
"""Bytes that a record takes on disk besides its key and value, at most: in a run its lengths, the timestamp before its
value, RocksDB's sequence number, filter and index; in a scratch file a header of 16."""

_IN_MEMORY = 150
"""Bytes that a record takes in a builder's memory besides its key and value, at most."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(frozen=True)
class DiskNeed:
    """What a restore needs of the disk, in bytes.

    Attributes:
        least: what it is refused without; the logs as the brokers keep them, 0 where they do not say.
        stores: what the stores take at most: no record replaces another.
        besides: what lies beside them at most, while they are built.
    """

    least: int
    stores: int
    besides: int

    @property
    def most(self) -> int:
        """What it takes at most at any time."""
        return self.stores + self.besides

    def doubt(self, path: Path) -> str | None:
        """What the operator should know where a disk may have too little room; ``None`` where it certainly has enough.

        Args:
            path: what is made; it need not exist.
        """
        where, free = free_room(path)
        if not self.least or free >= self.most:
            return None
        return (
            f"{where} has {said(free)} free, and the restore takes up to {said(self.most)} while it works, as far as "
            "the sizes of its changelogs tell. If the disk becomes full, it stops (exit 15), and what runs is not "
            "touched; then make room, or restore fewer stores or partitions at a time."
        )


def disk_need(plan: RestorePlan, weights: Weights, workers: int, memory_budget: int) -> DiskNeed:
    """What a plan needs of the disk.

    All that is read becomes runs, and runs are linked into images. Two things lie beside them, one after the other. A
    range that is more than memory holds has scratch files until it is read, of no more bytes than are read
    (:mod:`statecore.images.external_key_table`), and each worker has one such range at a time. Where an image has many
    runs these are merged, and lie beside what was made of them until the restore ends. So do the records of versioned
    stores. A range of some kinds with segments may become many runs where it is more than memory holds.

    Args:
        plan: the plan.
        weights: what is known of its partitions.
        workers: tasks that run at the same time.
        memory_budget: bytes of records that a task may hold.
    """
    spilled: list[float] = []
    stores = merged = 0.0
    for parts in plan.stores.values():
        of_ranges: list[float] = []
        too_large: list[float] = []
        for shape, count in ((weights.shapes[part.topic_partition], len(part.ranges)) for part in parts if part.ranges):
            size = [_taken(shape, ROW_BYTES) / count] * count
            of_ranges += size
            too_large += size if _taken(shape, _IN_MEMORY) / count > memory_budget else []
        spilled += too_large
        stores += sum(of_ranges)
        kind = parts[0].kind
        if len(of_ranges) > MOST_UNMERGED or kind.is_versioned or (kind.is_segmented and too_large):
            merged += sum(of_ranges)
    scratch = sum(sorted(spilled, reverse=True)[:workers])
    return DiskNeed(weights.log_bytes or 0, round(stores), round(max(scratch, merged)))


def _taken(shape: PartitionShape, besides: int) -> float:
    """Bytes that the records of a partition take where each takes so many besides its key and value."""
    return shape.bytes + besides * sum(shape.records)


def estimate_of(plan: RestorePlan, weights: Weights, disk: DiskNeed | None, memory_budget: int) -> str:
    """The estimate as a sentence for the operator.

    Args:
        plan: the plan.
        weights: what is known of its partitions.
        disk: what it needs of the disk; ``None`` of a job that builds no stores, and reads what is new.
        memory_budget: bytes of records that a task may hold.
    """
    read = [(weights.shapes[part.topic_partition], len(part.ranges)) for part in plan.partitions if part.ranges]
    records = sum(sum(shape.records) for shape, _ in read)
    size = sum(shape.bytes for shape, _ in read)
    if not read:
        return "Nothing is new." if disk is None and plan.partitions else "Nothing is read."
    of_reading = (
        f"About {records:,.0f} records of {said(size)} in {sum(ranges for _, ranges in read)} ranges are read. Each "
        f"worker holds up to {said(memory_budget)} of records (--memory-budget)."
    )
    if disk is None:
        return of_reading
    return (
        f"{of_reading} The stores take at most about {said(disk.stores)} of disk, and {said(disk.besides)} more lies "
        "beside them while they are built. Where records replace others the stores take less, and beside them lies at "
        "most twice what they take."
    )


def said(count: float) -> str:
    """Bytes as people say them."""
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.0f} {_UNITS[-1]}"
