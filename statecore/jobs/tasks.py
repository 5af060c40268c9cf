"""What an engine's workers do: read a range into runs, build the image of a store partition.

Both are idempotent and safe under retries, speculation and kills: an attempt publishes a whole directory by one rename,
and a later attempt of the same plan takes it after a look (``statecore.jobs.staging`` draws the directories).

A task answers with its result or with the error that stopped it, as a value (:mod:`statecore.jobs.engine`).
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from statecore.changelog.model import IsolationLevel, OffsetRange, ReadStatistics
from statecore.errors import Corrupted, Retryable
from statecore.filesystem import file_sha256, tree_bytes
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import Image, Run, Segmentation
from statecore.jobs import staging
from statecore.jobs.engine import Failure
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.frozen_plan import RUNS

if TYPE_CHECKING:
    from statecore.changelog.cluster import Cluster
    from statecore.images.runs import RunBuilder
    from statecore.images.versions.build import VersionRunBuilder

PROGRESS_INTERVAL = 0.5

DATABASE = "database"
"""Name of the database within the directory of a finished image."""


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
        directory: ``<staging>/<plan id>``.
        task: Kafka Streams' task id.
        store: the store.
        kind: its kind.
        offset_range: what to read.
        topic_id: id of the topic when the plan was made; one created anew since is refused.
        isolation: how.
        first: whether nothing is applied before this range; then deletes have nothing to delete and are dropped.
        memory_budget: bytes of records to hold at once.
        segmentation: how the store is divided by time, if it is.
    """

    cluster: ClusterSettings
    directory: str
    task: str
    store: str
    kind: StoreKind
    offset_range: OffsetRange
    topic_id: str
    isolation: IsolationLevel
    first: bool
    memory_budget: int
    segmentation: Segmentation | None = None


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
        phases: where that time went: ``read`` (network, decoding), ``collect`` (last write per key), ``write`` (sort,
            SST).
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
    stream_time: int = -1
    expired: int = 0

    def to_json(self) -> dict[str, Any]:
        """The result for ``result.json``; runs by name, as the directory may be moved."""
        document = asdict(self)
        for run in document["runs"]:
            run["path"] = Path(run["path"]).name
        return document

    @staticmethod
    def from_json(document: Mapping[str, Any], directory: Path) -> RangeResult:
        """Read a result back from the ``result.json`` in ``directory``.

        Raises:
            KeyError, TypeError, ValueError: the document is not one.
        """
        return RangeResult(
            **{
                **document,
                "offset_range": OffsetRange(**document["offset_range"]),
                "runs": tuple(Run(**{**run, "path": str(directory / run["path"])}) for run in document["runs"]),
                "statistics": ReadStatistics(**document["statistics"]),
            }
        )


@dataclass(frozen=True)
class ImageTask:
    """Build the databases of one store of one task from its runs.

    Attributes:
        directory: ``<staging>/<plan id>``.
        task: Kafka Streams' task id, or ``global``.
        store: the store.
        kind: its kind.
        offsets: by changelog partition the offset to commit with the data.
        ranges: what was read, in the order it is applied.
        memory_budget: bytes of records to hold at once.
        segmentation: how the store is divided by time, if it is.
    """

    directory: str
    task: str
    store: str
    kind: StoreKind
    offsets: Mapping[TopicPartition, int]
    ranges: tuple[RangeResult, ...]
    memory_budget: int
    segmentation: Segmentation | None = None

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs, in the order they are applied."""
        return tuple(run for result in self.ranges for run in result.runs)

    @property
    def stream_time(self) -> int:
        """The greatest time of a row over all ranges, in ms; -1 without one."""
        return max((result.stream_time for result in self.ranges), default=-1)


@dataclass(frozen=True)
class ImageResult:
    """A finished image, and the seconds it took."""

    task: str
    store: str
    image: Image
    seconds: float


TaskT = TypeVar("TaskT", RangeTask, ImageTask)
ResultT = TypeVar("ResultT", RangeResult, ImageResult)


def _answers(work: Callable[[TaskT], ResultT], tasks: Iterable[TaskT]) -> list[ResultT | Failure]:
    """One after the other, up to the first that fails: the job fails with it, and the others would be for nothing."""
    answers: list[ResultT | Failure] = []
    for task in tasks:
        answers.append(_answer(work, task))
        if isinstance(answers[-1], Failure):
            break
    return answers


def _answer(work: Callable[[TaskT], ResultT], task: TaskT) -> ResultT | Failure:
    doing = f"store {task.store!r} of task {task.task} was built in {task.directory}"
    try:
        staging.check_shared(Path(task.directory))
        staging.check_failure(Path(task.directory))
        return work(task)
    except Exception as error:
        failure = as_statecore_error(error, doing, task=task.task, store=task.store)
        if not isinstance(failure, Retryable):
            staging.announce_failure(Path(task.directory))
        return Failure(failure.to_json())


def read_ranges(tasks: Sequence[RangeTask]) -> list[RangeResult | Failure]:
    """Read ranges into runs over one connection, except those that an earlier attempt of the plan has read."""
    from statecore.changelog.cluster import Cluster

    of = tasks[0].cluster  # all of a job have the same
    cluster = Cluster(of.bootstrap_servers, of.kafka, timeout=of.timeout)
    try:
        return _answers(partial(_read_range, cluster), tasks)
    finally:
        with suppress(Exception):  # what was read is there, whatever a broker says to the farewell
            cluster.close()


def build_stores(tasks: Sequence[ImageTask]) -> list[ImageResult | Failure]:
    """Build images from their runs, except those that an earlier attempt of the plan has built."""
    return _answers(_build_store, tasks)


def _read_range(cluster: Cluster, task: RangeTask) -> RangeResult:
    directory, span = Path(task.directory), task.offset_range
    final = directory / RUNS / task.task / task.store / f"{span.partition}.{span.start}-{span.end}"
    found = _finished_range(task, final)
    if found is not None:
        return found
    with staging.attempt_directory(directory) as attempt:
        result = _read_into(attempt, task, cluster)
        while not staging.publish(attempt, final, result.to_json()):
            found = _finished_range(task, final)
            if found is not None:
                return found
    return RangeResult.from_json(result.to_json(), final)


def _read_into(attempt: Path, task: RangeTask, cluster: Cluster) -> RangeResult:
    from statecore.changelog.reader import ChangelogReader, ReaderOptions
    from statecore.formats.registry import row_format

    span = task.offset_range
    began = time.monotonic()
    builder = _builder(attempt, task)
    name = f"{task.task.replace('/', '.')}.{task.store}.{span.partition}.{span.start}"
    progress = _ProgressFile(Path(task.directory, "progress", name))
    collecting = 0.0
    reader = ChangelogReader(cluster, ReaderOptions(stall_timeout=task.cluster.timeout))
    headers = row_format(task.kind).needs_headers
    for batch in reader.read(span, task.isolation, headers=headers, topic_id=task.topic_id):
        before = time.monotonic()
        builder.add(batch)
        collecting += time.monotonic() - before
        progress.report(reader.statistics.position - span.start)
    statistics = reader.statistics
    progress.report(span.end - span.start, now=True)
    read_until = time.monotonic()
    runs = tuple(builder.finish())
    done = time.monotonic()
    phases = {"read": read_until - began - collecting, "collect": collecting, "write": done - read_until}
    seen = builder.statistics
    return RangeResult(
        task.task, task.store, span, runs, statistics, done - began, phases, seen.stream_time, seen.expired
    )


def _builder(attempt: Path, task: RangeTask) -> RunBuilder | VersionRunBuilder:
    from statecore.images.runs import RunBuilder

    changelog = task.offset_range.topic_partition
    if task.kind.is_versioned:
        from statecore.images.versions.build import VersionRunBuilder

        return VersionRunBuilder(attempt, memory_budget=task.memory_budget, changelog=changelog)
    return RunBuilder(
        task.kind,
        attempt,
        memory_budget=task.memory_budget,
        keep_tombstones=not task.first,
        segmentation=task.segmentation,
        changelog=changelog,
    )


def _finished_range(task: RangeTask, final: Path) -> RangeResult | None:
    """What an attempt published, every run looked at byte by byte; what is not whole is taken away."""
    document = staging.load(final)
    if document is not None:
        try:
            result = RangeResult.from_json(document, final)
        except (KeyError, TypeError, ValueError):
            result = None
        if result is not None and result.offset_range == task.offset_range and all(map(_is_whole, result.runs)):
            return result
    staging.discard(Path(task.directory), final)
    return None


def _is_whole(run: Run) -> bool:
    path = Path(run.path)
    return path.is_file() and path.stat().st_size == run.file_bytes and file_sha256(path) == run.sha256


def _build_store(task: ImageTask) -> ImageResult:
    directory = Path(task.directory)
    final = staging.image_path(directory, task.task, task.store)
    found = _finished_image(task, final)
    if found is not None:
        return found
    began = time.monotonic()
    with staging.attempt_directory(directory) as attempt:
        try:
            image = _build_into(attempt, task)
        except Corrupted:
            # A retry must not find the same runs again.
            for place in {Path(run.path).parent for run in task.runs}:
                staging.discard(directory, place)
            raise
        image, seconds = replace(image, path=str(final / DATABASE)), time.monotonic() - began
        while not staging.publish(attempt, final, {"image": asdict(image), "seconds": seconds}):
            found = _finished_image(task, final)
            if found is not None:
                return found
    return ImageResult(task.task, task.store, image, seconds)


def _build_into(attempt: Path, task: ImageTask) -> Image:
    from statecore.images.image import SegmentedRuns, build_image

    target = attempt / DATABASE
    if task.kind.is_versioned and task.segmentation is not None:
        from statecore.images.versions.build import build_version_runs

        scratch = attempt / "versions"
        scratch.mkdir()
        of = task.segmentation
        ranges = [(result.stream_time, result.runs) for result in task.ranges]
        runs = build_version_runs(scratch, ranges, of.retention_ms, of.interval_ms, task.memory_budget)
        image = build_image(target, task.kind, runs, task.offsets)
        shutil.rmtree(scratch)
        return image
    segmented = None
    if task.segmentation is not None:
        segmented = SegmentedRuns(task.store, task.segmentation, task.stream_time)
    return build_image(target, task.kind, task.runs, task.offsets, segmented=segmented)


def _finished_image(task: ImageTask, final: Path) -> ImageResult | None:
    """What an attempt published; what is not whole, or was placed by a job that was killed, is taken away."""
    document = staging.load(final)
    if document is not None:
        try:
            image = Image(**{**document["image"], "path": str(final / DATABASE)})
            seconds = float(document["seconds"])
        except (KeyError, TypeError, ValueError):
            image = None
        if (
            image is not None
            and image.offsets == {str(partition): offset for partition, offset in task.offsets.items()}
            and (final / DATABASE).is_dir()
            and tree_bytes(final / DATABASE) == image.file_bytes
        ):
            return ImageResult(task.task, task.store, image, seconds)
    staging.discard(Path(task.directory), final)
    return None


class _ProgressFile:
    """Tells the driver how far a range has come, through a small file it adds up with the others.

    Stops the range (``Retryable``) when another task of the job has failed meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        self._next = 0.0
        path.parent.mkdir(parents=True, exist_ok=True)

    def report(self, offsets: int, *, now: bool = False) -> None:
        moment = time.monotonic()
        if moment < self._next and not now:
            return
        self._next = moment + PROGRESS_INTERVAL
        self._partial.write_text(str(offsets))
        self._partial.replace(self._path)
        staging.check_failure(self._path.parents[1])
