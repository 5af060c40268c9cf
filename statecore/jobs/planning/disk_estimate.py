"""Check the disks for room: refuse a restore that certainly does not fit, warn of one that may not."""

from __future__ import annotations

from pathlib import Path

from statecore.jobs.pipeline.staging import staging_base
from statecore.jobs.planning.estimate import DiskNeed
from statecore.statedir.state_directory import StateDirectory, ensure_free_space


def disk_warnings(directory: StateDirectory, staging_dir: str | None, disk: DiskNeed) -> list[str]:
    """Warnings for disks that may have too little room."""
    places = [directory.path, *_elsewhere(directory, staging_dir)]
    return [note for place in places if (note := disk.doubt(place)) is not None]


def ensured_room(directory: StateDirectory, staging_dir: str | None, disk: DiskNeed) -> list[str]:
    """Refuse a disk that is certainly too small (``Capacity``), and return the warnings of :func:`doubts`."""
    directory.ensure_free_space(disk.least)
    for place in _elsewhere(directory, staging_dir):
        ensure_free_space(place, disk.least)
    return disk_warnings(directory, staging_dir, disk)


def _elsewhere(directory: StateDirectory, staging_dir: str | None) -> list[Path]:
    return [staging_base(staging_dir, directory)] if staging_dir else []
