"""Estimate of what a plan takes: ranges, bytes, memory and disk; a restore that certainly does not fit is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from statecore.changelog.record_density import PartitionShape
from statecore.changelog.size_estimate import SizeEstimate
from statecore.images.universal_compaction import MOST_UNMERGED
from statecore.jobs.planning.frozen_plan import staging_base
from statecore.jobs.planning.plan import ReadPlan
from statecore.statedir.state_directory import StateDirectory, ensure_free_space, free_space
from statecore.words import WARNING, format_bytes

ROW_BYTES = 24
"""Most bytes a record takes on disk besides key and value: in a run its lengths, the timestamp before its value,
RocksDB's sequence number, filter and index; in a scratch file a header of 16.
"""

_IN_MEMORY = 150
"""Most bytes a record takes in a builder's memory besides key and value."""


@dataclass(frozen=True)
class DiskNeed:
    """Disk space that a restore needs, in bytes.

    Attributes:
        least: the restore is refused without it: the size of the logs at the brokers, 0 if unknown.
        stores: upper bound of the stores, as if no record replaced another.
        besides: upper bound of temporary files beside the stores.
    """

    least: int
    stores: int
    besides: int

    @property
    def most(self) -> int:
        """Upper bound of the space in use at any time."""
        return self.stores + self.besides

    def warning(self, path: Path) -> str | None:
        """Warning if the disk of a path, which need not exist, may have too little room; else ``None``."""
        where, free = free_space(path)
        if not self.least or free >= self.most:
            return None
        return (
            f"{WARNING}{where} has {format_bytes(free)} free, and the restore takes up to "
            f"{format_bytes(self.most)} while it runs, estimated "
            "from the sizes of its changelogs. If the disk fills up, the restore stops (exit 15) and existing stores "
            "stay unchanged; then make room, or restore fewer stores or partitions at a time."
        )


def disk_need(plan: ReadPlan, weights: SizeEstimate, workers: int, memory_budget: int) -> DiskNeed:
    """Disk space that a plan needs.

    All that is read becomes runs, and runs are linked into images. Two kinds of temporary files follow one another. A
    range that exceeds memory has scratch files of at most the bytes read (:mod:`statecore.images.external_key_table`),
    one such range per worker at a time. Then many runs of an image are merged, and merged files and records of
    versioned stores stay until the restore ends. A range of a segmented kind that exceeds memory may become many runs.
    """
    spilled: list[float] = []
    stores = merged = 0.0
    for parts in plan.stores.values():
        of_ranges: list[float] = []
        too_large: list[float] = []
        for shape, count in ((weights.shapes[part.topic_partition], len(part.ranges)) for part in parts if part.ranges):
            size = [_disk_bytes(shape, ROW_BYTES) / count] * count
            of_ranges += size
            too_large += size if _disk_bytes(shape, _IN_MEMORY) / count > memory_budget else []
        spilled += too_large
        stores += sum(of_ranges)
        kind = parts[0].kind
        if len(of_ranges) > MOST_UNMERGED or kind.is_versioned or (kind.is_segmented and too_large):
            merged += sum(of_ranges)
    scratch = sum(sorted(spilled, reverse=True)[:workers])
    return DiskNeed(weights.log_bytes or 0, round(stores), round(max(scratch, merged)))


def _disk_bytes(shape: PartitionShape, besides: int) -> float:
    """Bytes of a partition's records, with so many bytes each besides key and value."""
    return shape.bytes + besides * sum(shape.records)


def estimate_of(plan: ReadPlan, weights: SizeEstimate, disk: DiskNeed | None, memory_budget: int) -> str:
    """The estimate as text for the operator."""
    read = [(weights.shapes[part.topic_partition], len(part.ranges)) for part in plan.partitions if part.ranges]
    records = sum(sum(shape.records) for shape, _ in read)
    size = sum(shape.bytes for shape, _ in read)
    if not read:
        return "Nothing is new." if disk is None and plan.partitions else "Nothing is read."
    of_reading = (
        f"About {records:,.0f} records of {format_bytes(size)} in "
        f"{sum(ranges for _, ranges in read)} ranges are read. Each "
        f"worker holds up to {format_bytes(memory_budget)} of records (--memory-budget)."
    )
    if disk is None:
        return of_reading
    return (
        f"{of_reading} The stores take at most about {format_bytes(disk.stores)} of disk, and temporary files "
        f"{format_bytes(disk.besides)} more while they are built. If records replace others, the stores take less, and "
        "temporary files at most twice as much as the stores."
    )


def disk_warnings(directory: StateDirectory, staging_dir: str | None, disk: DiskNeed) -> list[str]:
    """Warnings for disks that may have too little room."""
    paths = [directory.path, *_elsewhere(directory, staging_dir)]
    return [note for path in paths if (note := disk.warning(path)) is not None]


def ensured_room(directory: StateDirectory, staging_dir: str | None, disk: DiskNeed) -> list[str]:
    """Refuse a disk that is certainly too small (``Capacity``), and return its warnings."""
    directory.ensure_free_space(disk.least)
    for path in _elsewhere(directory, staging_dir):
        ensure_free_space(path, disk.least)
    return disk_warnings(directory, staging_dir, disk)


def _elsewhere(directory: StateDirectory, staging_dir: str | None) -> list[Path]:
    return [staging_base(staging_dir, directory)] if staging_dir else []
