"""Stage two on an engine's workers: build the image of a store partition from its runs.

Tasks are idempotent and safe under retries, speculation and kills, like those of stage one
(:mod:`statecore.jobs.pipeline.range_tasks`).
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from statecore.documents import DocumentType
from statecore.errors import Corrupted, Invalid, NotFound
from statecore.filesystem import tree_bytes
from statecore.images.model import Image, RunFormat
from statecore.jobs.engine.protocol import Failure
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.image_bases import image_bases
from statecore.jobs.pipeline.merge_tasks import SliceResult, forget_slice, joined, spent_on
from statecore.jobs.pipeline.staging_place import StagingPlace
from statecore.jobs.pipeline.store_to_build import StoreToBuild
from statecore.jobs.pipeline.task_runner import run_task, run_tasks
from statecore.objectstore.base import Blobs
from statecore.stopwatch import Stopwatch


@dataclass(frozen=True)
class ImageTask:
    """Build the databases of one store of one task.

    Attributes:
        directory: where the image is built: ``<staging>/<plan id>``, shared by all that build or place images.
        built: the store and its inputs.
        slices: all slices of the databases whose runs were merged before.
    """

    place: StagingPlace
    directory: str
    built: StoreToBuild
    memory_budget: int
    slices: tuple[SliceResult, ...] = ()

    @property
    def task(self) -> str:
        return self.built.task

    @property
    def store(self) -> str:
        return self.built.store

    @property
    def where(self) -> str:
        return self.directory


@dataclass(frozen=True)
class ImageResult:
    """A finished image, and the wall and CPU seconds of the thread that built it and of its slices."""

    task: str
    store: str
    image: Image
    seconds: float
    cpu: float


IMAGE_RESULT = DocumentType(
    "result of an image", 3, ImageResult, "No action needed: the image is built again.", is_sealed=True
)

_IMAGES_AT_ONCE = 2


def build_stores(tasks: Sequence[ImageTask]) -> list[ImageResult | Failure]:
    """Build images from their runs, except those that an earlier attempt of the plan has built.

    Two at once if there are several: a small database mostly waits for the disk, because RocksDB syncs dozens of small
    files. Versioned stores hold records in memory, up to the budget, and are built alone.
    """
    together = [task for task in tasks if not task.built.kind.is_versioned]
    alone = [task for task in tasks if task.built.kind.is_versioned]
    if len(together) < _IMAGES_AT_ONCE:
        return run_tasks(_build_store, tasks)
    built: list[ImageResult | Failure] = []
    left = deque(together)
    failed = threading.Event()

    def build() -> None:
        while not failed.is_set():
            try:
                task = left.popleft()
            except IndexError:  # the other thread may have taken the last
                return
            found = run_task(_build_store, task)
            built.append(found)
            if isinstance(found, Failure):
                failed.set()

    with ThreadPoolExecutor(_IMAGES_AT_ONCE, "statecore-image") as pool:
        for building in [pool.submit(build) for _ in range(_IMAGES_AT_ONCE)]:
            building.result()
    return built if failed.is_set() else built + run_tasks(_build_store, alone)


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
            # A retry must not find the same files again.
            built = task.built  # a directory that is a base stays as it is
            staging.forget(blobs, built.results, [*(run.sha256 for run in built.runs), *built.base_hashes])
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

    built = task.built
    target, scratch = attempt / staging.DATABASE, attempt / "scratch"
    scratch.mkdir()
    files = [
        [
            replace(staging.at_hand(blobs, run, scratch), state_when_hashed=built.hashed.get(run.sha256))
            for run in part.runs
        ]
        for part in built.parts
    ]
    runs = [file for of_part in files for file in of_part]
    segmented = None
    if built.segmentation is not None and not built.kind.is_versioned:
        segmented = SegmentedRuns(built.store, built.segmentation, built.stream_time)
    elif built.segmentation is not None and any(run.format is RunFormat.RECORDS for run in runs):
        from statecore.images.versions.build import build_version_runs

        records = [(part.stream_time, of_part) for part, of_part in zip(built.parts, files, strict=True)]
        runs = build_version_runs(scratch, records, built.segmentation, task.memory_budget)
    merged = joined(task.slices, runs, lambda run: staging.at_hand(blobs, run, scratch))
    bases = image_bases(scratch, built, blobs)
    image = build_image(
        target,
        built.kind,
        runs,
        built.offsets,
        segmented=segmented,
        bases=bases,
        merged=merged,
        content=built.content,
        computes_content=built.is_counted,
        scans_bases=built.scans_bases,
    )
    shutil.rmtree(scratch)
    return image


def _finished_image(task: ImageTask, final: Path) -> ImageResult | None:
    """Image of an earlier attempt; one that is incomplete, or was moved by a killed job, is discarded."""
    exists = final.exists()  # first: what another attempt publishes from now on is not discarded
    document = staging.load(final)
    if document is not None:
        with suppress(Invalid):  # torn, or of another release
            found = IMAGE_RESULT.decode(document)
            if (
                found.image.offsets == {str(partition): offset for partition, offset in task.built.offsets.items()}
                and (final / staging.DATABASE).is_dir()
                and tree_bytes(final / staging.DATABASE) == found.image.file_bytes
                and not _are_newer(task, (final / staging.RESULT).stat().st_mtime)
            ):
                return found
    if exists:
        staging.discard(Path(task.directory), final)
    return None


def _are_newer(task: ImageTask, built_at: float) -> bool:
    """Whether an input file was rebuilt since: the old one was damaged, and may be in the image."""
    blobs = task.place.blobs()
    names = [staging.run_name(run) for run in (*task.built.runs, *(run for one in task.slices for run in one.made))]
    names += [staging.file_name(sha256) for sha256 in task.built.base_hashes]
    try:
        return any(blobs.head(name).modified > built_at for name in names)
    except NotFound:
        return True
