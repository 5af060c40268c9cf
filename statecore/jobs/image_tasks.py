"""Stage two, as an engine's workers do it: build the image of a store partition from its runs.

A task is idempotent and safe under retries, speculation and kills, as those of stage one are
(:mod:`statecore.jobs.range_tasks`).
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from statecore.blobs.base import Blobs
from statecore.documents import DocumentType
from statecore.errors import Corrupted, Invalid, NotFound
from statecore.filesystem import tree_bytes
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import Image, Segmentation
from statecore.jobs import staging
from statecore.jobs.answers import answer, answers
from statecore.jobs.engine import Failure
from statecore.jobs.merge_tasks import SliceResult, forget_slice, joined, spent_on
from statecore.jobs.range_tasks import RangeResult, forget_range
from statecore.jobs.staging_place import StagingPlace
from statecore.stopwatch import Stopwatch


@dataclass(frozen=True)
class ImageTask:
    """Build the databases of one store of one task from its runs.

    Attributes:
        place: where its runs are.
        directory: where the image is built: ``<staging>/<plan id>``, which all share who build images or place them.
        task: Kafka Streams' task id, or ``global``.
        store: the store.
        kind: its kind.
        offsets: by changelog partition the offset to commit with the data.
        ranges: what was read, in the order it is applied.
        memory_budget: bytes of records to hold at once.
        segmentation: how the store is divided by time, if it is.
        slices: all slices of the databases whose runs were merged before.
    """

    place: StagingPlace
    directory: str
    task: str
    store: str
    kind: StoreKind
    offsets: Mapping[TopicPartition, int]
    ranges: tuple[RangeResult, ...]
    memory_budget: int
    segmentation: Segmentation | None = None
    slices: tuple[SliceResult, ...] = ()

    @property
    def where(self) -> str:
        """Where its work is done, for messages."""
        return self.directory

    @property
    def stream_time(self) -> int:
        """The greatest time of a row over all ranges, in ms; -1 without one."""
        return max((result.stream_time for result in self.ranges), default=-1)


@dataclass(frozen=True)
class ImageResult:
    """A finished image, and the wall and CPU seconds of the thread that built it and of its slices."""

    task: str
    store: str
    image: Image
    seconds: float
    cpu: float


IMAGE_RESULT = DocumentType(
    "result of an image", 3, ImageResult, "Nothing is to be done: the image is built again.", is_sealed=True
)

_IMAGES_AT_ONCE = 2


def build_stores(tasks: Sequence[ImageTask]) -> list[ImageResult | Failure]:
    """Build images from their runs, except those that an earlier attempt of the plan has built.

    Two at once, where there are several: a small database is mostly waiting for the disk, which RocksDB has dozens of
    small files forced to. Stores with versions hold records in memory, up to the budget, and are built alone.
    """
    together = [task for task in tasks if not task.kind.is_versioned]
    alone = [task for task in tasks if task.kind.is_versioned]
    if len(together) < _IMAGES_AT_ONCE:
        return answers(_build_store, tasks)
    built: list[ImageResult | Failure] = []
    left = deque(together)
    failed = threading.Event()

    def build() -> None:
        while not failed.is_set():
            try:
                task = left.popleft()
            except IndexError:  # the other one may have taken the last
                return
            found = answer(_build_store, task)
            built.append(found)
            if isinstance(found, Failure):
                failed.set()

    with ThreadPoolExecutor(_IMAGES_AT_ONCE, "statecore-image") as pool:
        for building in [pool.submit(build) for _ in range(_IMAGES_AT_ONCE)]:
            building.result()
    return built if failed.is_set() else built + answers(_build_store, alone)


def _build_store(task: ImageTask) -> ImageResult:
    directory = Path(task.directory)
    staging.check_shared(directory)
    final = staging.image_path(directory, task.task, task.store)
    found = _finished_image(task, final)
    if found is not None:
        return found
    watch = Stopwatch("image", cpu_clock=time.thread_time)  # another image may be built beside it
    with staging.attempt_directory(directory) as attempt:
        blobs = task.place.blobs()
        try:
            image = _build_into(attempt, task, blobs)
        except Corrupted:
            # A retry must not find the same runs again.
            for of_range in task.ranges:
                forget_range(blobs, of_range)
            for of_slice in task.slices:
                forget_slice(blobs, of_slice)
            raise
        seconds, cpu = spent_on(task.slices)
        result = ImageResult(task.task, task.store, image, watch.wall["image"] + seconds, watch.cpu["image"] + cpu)
        while not staging.publish(attempt, final, IMAGE_RESULT.encode(result)):
            found = _finished_image(task, final)
            if found is not None:
                return found
    return result


def _build_into(attempt: Path, task: ImageTask, blobs: Blobs) -> Image:
    from statecore.images.image import SegmentedRuns, build_image

    target, scratch = attempt / staging.DATABASE, attempt / "scratch"
    scratch.mkdir()
    files = [[staging.at_hand(blobs, run, scratch) for run in result.runs] for result in task.ranges]
    segmented = None
    if task.kind.is_versioned and task.segmentation is not None:
        from statecore.images.versions.build import build_version_runs

        of = task.segmentation
        ranges = [(result.stream_time, of_range) for result, of_range in zip(task.ranges, files, strict=True)]
        runs = build_version_runs(scratch, ranges, of.retention_ms, of.interval_ms, task.memory_budget)
    else:
        runs = [file for of_range in files for file in of_range]
        if task.segmentation is not None:
            segmented = SegmentedRuns(task.store, task.segmentation, task.stream_time)
    merged = joined(task.slices, runs, lambda run: staging.at_hand(blobs, run, scratch))
    image = build_image(target, task.kind, runs, task.offsets, segmented=segmented, merged=merged)
    shutil.rmtree(scratch)
    return image


def _finished_image(task: ImageTask, final: Path) -> ImageResult | None:
    """What an attempt published; what is not whole, or was placed by a job that was killed, is taken away."""
    document = staging.load(final)
    if document is not None:
        with suppress(Invalid):  # torn, or of another release
            found = IMAGE_RESULT.decode(document)
            if (
                found.image.offsets == {str(partition): offset for partition, offset in task.offsets.items()}
                and (final / staging.DATABASE).is_dir()
                and tree_bytes(final / staging.DATABASE) == found.image.file_bytes
                and not _are_newer(task, (final / staging.RESULT).stat().st_mtime)
            ):
                return found
    staging.discard(Path(task.directory), final)
    return None


def _are_newer(task: ImageTask, moment: float) -> bool:
    """Whether a run was made anew since: the old one was damaged, and its file may be in the image."""
    blobs = task.place.blobs()
    runs = [run for one in task.ranges for run in one.runs] + [run for one in task.slices for run in one.made]
    try:
        return any(blobs.head(staging.run_name(run)).modified > moment for run in runs)
    except NotFound:
        return True
