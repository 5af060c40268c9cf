"""What an engine's workers do: read a range into runs, build the image of a store partition.

Both are idempotent and safe under retries, speculation and kills: an attempt publishes its result in one step, and a
later attempt of the same plan takes it after a look (``statecore.jobs.staging`` draws the directories).

A task answers with its result or with the error that stopped it, as a value (:mod:`statecore.jobs.engine`).
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statecore.blobs.base import Blobs
from statecore.changelog.model import IsolationLevel, OffsetRange, ReadStatistics
from statecore.documents import DocumentType
from statecore.errors import Corrupted, Invalid, NotFound
from statecore.filesystem import tree_bytes
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import Below, Image, Run, RunFile, Segmentation
from statecore.jobs import staging
from statecore.jobs.answers import answer, answers
from statecore.jobs.engine import Failure
from statecore.jobs.merge_tasks import SliceResult, forget_slice, joined, spent_on
from statecore.jobs.staging_place import ReadingProgress, StagingPlace
from statecore.stopwatch import Stopwatch

if TYPE_CHECKING:
    from statecore.changelog.cluster import Cluster
    from statecore.images.runs import RunBuilder
    from statecore.images.versions.build import VersionRunBuilder


@dataclass(frozen=True)
class ClusterSettings:
    """How a worker reaches the brokers. Travels inside the engine's own channels, never in arguments or configuration.

    Attributes:
        bootstrap_servers: ``host:port[,...]``.
        kafka: client settings with kafka-python's names, secrets resolved.
        timeout: seconds without progress after which a broker counts as unreachable.
    """

    bootstrap_servers: str
    kafka: Mapping[str, Any] = field(repr=False)
    timeout: float


@dataclass(frozen=True)
class RangeTask:
    """Read one offset range of one store into runs.

    Attributes:
        cluster: where the changelog is.
        place: where its runs are put.
        task: Kafka Streams' task id.
        store: the store.
        kind: its kind.
        offset_range: what to read.
        topic_id: id of the topic when the plan was made; one created anew since is refused.
        isolation: how.
        below: which databases of the store may have rows before this range; elsewhere deletes have nothing to delete.
        memory_budget: bytes of records to hold at once.
        segmentation: how the store is divided by time, if it is.
    """

    cluster: ClusterSettings
    place: StagingPlace
    task: str
    store: str
    kind: StoreKind
    offset_range: OffsetRange
    topic_id: str
    isolation: IsolationLevel
    below: Below
    memory_budget: int
    segmentation: Segmentation | None = None

    @property
    def where(self) -> str:
        """Where its work is done, for messages."""
        return str(self.place)


@dataclass(frozen=True)
class RangeResult:
    """The runs of one range, and what the read saw.

    Attributes:
        task: Kafka Streams' task id.
        store: the store.
        offset_range: what was read.
        runs: in offset order.
        statistics: of the read.
        seconds: wall time of the task.
        phases: where that time went: ``fetch`` (network, brokers), ``decode`` (CRC, decompression, columns),
            ``collect`` (last write per key), ``write`` (sort, SST).
        cpu: CPU seconds of each of them.
        stream_time: greatest time of a row in ms where rows expire, tombstones and dropped rows included; else -1.
        expired: rows that were not written because they had expired by that time.
    """

    task: str
    store: str
    offset_range: OffsetRange
    runs: tuple[Run, ...]
    statistics: ReadStatistics
    seconds: float
    phases: Mapping[str, float]
    cpu: Mapping[str, float]
    stream_time: int = -1
    expired: int = 0


RANGE_RESULT = DocumentType(
    "result of a range", 3, RangeResult, "Nothing is to be done: the range is read again.", is_sealed=True
)


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

_READING = 0.6
"""The share of a range's work that is done when its records have been read; then its runs are written."""


def read_ranges(tasks: Sequence[RangeTask]) -> list[RangeResult | Failure]:
    """Read ranges into runs over one connection, except those that an earlier attempt of the plan has read."""
    from statecore.changelog.cluster import Cluster

    first = tasks[0]
    of = first.cluster  # all of a job have the same, and the same place
    cluster = Cluster(of.bootstrap_servers, of.kafka, timeout=of.timeout)
    progress = ReadingProgress(first.place, first.task, first.store, first.offset_range)
    try:
        return answers(partial(_read_range, cluster, first.place.blobs(), progress), tasks)
    finally:
        progress.close()
        with suppress(Exception):  # what was read is there, whatever a broker says to the farewell
            cluster.close()


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


def _read_range(cluster: Cluster, blobs: Blobs, progress: ReadingProgress, task: RangeTask) -> RangeResult:
    result = _of_range(cluster, blobs, progress, task)
    progress.finish(task.offset_range.end - task.offset_range.start)
    return result


def _of_range(cluster: Cluster, blobs: Blobs, progress: ReadingProgress, task: RangeTask) -> RangeResult:
    task.place.check_seen()
    name = staging.result_name(task.task, task.store, task.offset_range)
    found = _finished_range(task, blobs, name)
    if found is not None:
        return found
    with task.place.scratch() as attempt:
        result, files = _read_into(attempt, task, cluster, progress)
        for file in files:
            staging.keep(blobs, file)
        while not blobs.put_if_absent(name, RANGE_RESULT.encode(result)):
            found = _finished_range(task, blobs, name)
            if found is not None:
                return found
    return result


def _read_into(
    attempt: Path, task: RangeTask, cluster: Cluster, progress: ReadingProgress
) -> tuple[RangeResult, list[RunFile]]:
    from statecore.changelog.reader import ChangelogReader, ReaderOptions
    from statecore.formats.registry import row_format

    span = task.offset_range
    watch = Stopwatch("decode")
    builder = _builder(attempt, task)
    reader = ChangelogReader(cluster, ReaderOptions(stall_timeout=task.cluster.timeout), watch)
    headers = row_format(task.kind).needs_headers
    for batch in reader.read(span, task.isolation, headers=headers, topic_id=task.topic_id):
        with watch.on("collect"):
            builder.add(batch)
        progress.report(int(_READING * (reader.statistics.position - span.start)))
    statistics = reader.statistics

    def written(share: float) -> None:
        progress.report(int((_READING + (1 - _READING) * share) * (span.end - span.start)))

    with watch.on("write"):
        files = builder.finish(span.end, written)
    phases, seen = watch.wall, builder.statistics
    result = RangeResult(
        task.task,
        task.store,
        span,
        tuple(file.run for file in files),
        statistics,
        sum(phases.values()),
        phases,
        watch.cpu,
        seen.stream_time,
        seen.expired,
    )
    return result, files


def _builder(attempt: Path, task: RangeTask) -> RunBuilder | VersionRunBuilder:
    from statecore.images.runs import RunBuilder

    changelog, start = task.offset_range.topic_partition, task.offset_range.start
    if task.kind.is_versioned:
        from statecore.images.versions.build import VersionRunBuilder

        return VersionRunBuilder(
            attempt, memory_budget=task.memory_budget, changelog=changelog, store=task.store, start=start
        )
    return RunBuilder(
        task.kind,
        attempt,
        memory_budget=task.memory_budget,
        below=task.below,
        segmentation=task.segmentation,
        changelog=changelog,
        store=task.store,
        start=start,
    )


def _finished_range(task: RangeTask, blobs: Blobs, name: str) -> RangeResult | None:
    """What an attempt has read, every run looked at byte by byte; what is not whole is taken away."""
    try:
        result = RANGE_RESULT.decode(blobs.get(name))
    except NotFound:
        return None
    except Invalid:  # torn, or of another release
        blobs.delete(name)
        return None
    if result.offset_range == task.offset_range and all(staging.is_whole(blobs, run) for run in result.runs):
        return result
    _forget(blobs, result)
    return None


def _forget(blobs: Blobs, result: RangeResult) -> None:
    """Take away what was read of a range, the word of it first."""
    blobs.delete(staging.result_name(result.task, result.store, result.offset_range))
    for run in result.runs:
        blobs.delete(staging.run_name(run))


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
                _forget(blobs, of_range)
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
