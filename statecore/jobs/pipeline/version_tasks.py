"""Build the rows of versioned stores from the records that stage one has read, and publish them.

The rows of a versioned store depend on all its records, so stage one keeps records. An image task builds the rows
itself; a snapshot names runs of rows, so a separate task builds these.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from statecore.errors import Corrupted
from statecore.formats.segments import Segmentation
from statecore.images.model import Run
from statecore.jobs.engine.protocol import Failure
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.ranges import RangeResult, forget_range
from statecore.jobs.pipeline.run_publisher import ApplicationAddress, Publisher
from statecore.jobs.pipeline.staging_place import StagingPlace
from statecore.jobs.pipeline.task_runner import run_tasks
from statecore.repository.manifest import Extent
from statecore.stopwatch import Stopwatch


@dataclass(frozen=True)
class VersionTask:
    """Build and publish the rows of a versioned store of one task.

    Attributes:
        ranges: results of its ranges, in the order they are applied.
        segmentation: history retention and interval of its segments.
    """

    place: StagingPlace
    repository: ApplicationAddress
    task: str
    store: str
    ranges: tuple[RangeResult, ...]
    segmentation: Segmentation
    memory_budget: int

    @property
    def where(self) -> str:
        return str(self.place)


@dataclass(frozen=True)
class VersionResult:
    """The published rows of a versioned store.

    Attributes:
        runs: files of rows that share no key, in the order they are applied.
        extents: where each is in the repository.
    """

    task: str
    store: str
    runs: tuple[Run, ...]
    extents: tuple[Extent, ...]
    seconds: float
    cpu: float


def publish_versions(tasks: Sequence[VersionTask]) -> list[VersionResult | Failure]:
    """Build and publish the rows of versioned stores."""
    return run_tasks(_publish, tasks)


def _publish(task: VersionTask) -> VersionResult:
    from statecore.images.versions.build import build_version_runs

    task.place.check_seen()
    watch = Stopwatch("image", cpu_clock=time.thread_time)
    blobs, found = task.place.blobs(), list[Extent]()
    with task.place.scratch() as scratch:
        try:
            ranges = [
                (result.stream_time, [staging.at_hand(blobs, run, scratch) for run in result.runs])
                for result in task.ranges
            ]
            files = build_version_runs(scratch, ranges, task.segmentation, task.memory_budget)
        except Corrupted:
            for result in task.ranges:  # a retry must not find the same records again
                forget_range(blobs, result)
            raise
        publisher = Publisher(task.repository)
        publisher.publish(files, found.extend)
        publisher.flush()
    runs = tuple(file.run for file in files)
    return VersionResult(task.task, task.store, runs, tuple(found), watch.wall["image"], watch.cpu["image"])
