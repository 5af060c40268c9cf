"""Whether the disks have room for what a restore makes: refused where one certainly has not, said where one may not."""

from __future__ import annotations

from pathlib import Path

from statecore.jobs.pipeline.staging import staging_base
from statecore.jobs.planning.estimate import DiskNeed
from statecore.statedir.state_directory import StateDirectory, ensure_room


def doubts(directory: StateDirectory, staging_dir: str | None, disk: DiskNeed) -> list[str]:
    """Which disk may have too little room, in words.

    Args:
        directory: where the stores are placed.
        staging_dir: where they are built, if that is elsewhere.
        disk: what they take.
    """
    places = [directory.path, *_elsewhere(directory, staging_dir)]
    return [note for place in places if (note := disk.doubt(place)) is not None]


def ensured_room(directory: StateDirectory, staging_dir: str | None, disk: DiskNeed) -> list[str]:
    """Refuse when a disk certainly cannot hold what is made, and say where one may not; arguments as of :func:`doubts`.

    Raises:
        Capacity: one cannot.
    """
    directory.ensure_room(disk.least)
    for place in _elsewhere(directory, staging_dir):
        ensure_room(place, disk.least)
    return doubts(directory, staging_dir, disk)


def _elsewhere(directory: StateDirectory, staging_dir: str | None) -> list[Path]:
    return [staging_base(staging_dir, directory)] if staging_dir else []
