"""Stage one on an engine's workers: read ranges of changelogs into runs.

Tasks are idempotent and safe under retries, speculation and kills: an attempt publishes its result in one step, and a
later attempt of the same plan reuses it after a check (layout: ``statecore.jobs.pipeline.staging``).

A task returns its result, or the error that stopped it as a value (:mod:`statecore.jobs.engine.protocol`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statecore.changelog.model import IsolationLevel, OffsetRange, ReadStatistics
from statecore.documents import DocumentType
from statecore.errors import Invalid, NotFound
from statecore.formats.kinds import StoreKind
from statecore.images.model import BaseDatabases, Run, RunFile, Segmentation
from statecore.jobs.engine.protocol import Failure
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.run_sink import ApplicationAddress, Publisher
from statecore.jobs.pipeline.staging_place import ReadingProgress, StagingPlace
from statecore.jobs.pipeline.task_runner import run_task, run_tasks
from statecore.objectstore.base import Blobs
from statecore.repository.manifest import Extent
from statecore.stopwatch import Stopwatch

if TYPE_CHECKING:
    from statecore.changelog.cluster import Cluster
    from statecore.images.runs import RunBuilder
    from statecore.images.versions.build import VersionRunBuilder


@dataclass(frozen=True)
class ClusterSettings:
    """Connection to the brokers. Sent through the engine's own channels, never in arguments or configuration.

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
        place: where its runs are put.
        offset_range: what to read.
        topic_id: id of the topic when the plan was made; a recreated topic is refused.
        below: databases of the store that may have rows before this range; in others deletes are dropped.
        memory_budget: bytes of records to hold at once.
        segmentation: retention and interval of the store's segments, if it has any.
        repository: where its runs are published; ``None`` for nowhere.
        stream_time: greatest row time in ms of the store's base; -1 without one.
    """

    cluster: ClusterSettings
    place: StagingPlace
    task: str
    store: str
    kind: StoreKind
    offset_range: OffsetRange
    topic_id: str
    isolation: IsolationLevel
    below: BaseDatabases
    memory_budget: int
    segmentation: Segmentation | None = None
    repository: ApplicationAddress | None = None
    stream_time: int = -1

    @property
    def where(self) -> str:
        """Where it runs, for messages."""
        return str(self.place)

    @property
    def is_replayed(self) -> bool:
        """Whether its runs contain records from which rows are built later; only the rows are published."""
        return self.kind.is_versioned


@dataclass(frozen=True)
class RangeResult:
    """The runs of one range, and statistics of the read.

    Attributes:
        offset_range: what was read.
        runs: in offset order.
        seconds: wall time of the task.
        phases: that time by stage: ``fetch`` (network, brokers), ``decode`` (CRC, decompression, columns), ``collect``
            (last write per key), ``write`` (sort, SST).
        cpu: CPU seconds of each of them.
        stream_time: greatest time of a row in ms if rows expire, tombstones and dropped rows included; else -1.
        expired: rows that were not written because they had expired by that time.
        extents: where the runs are in a repository, in their order; none if they were not published.
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
    extents: tuple[Extent, ...] = ()


RANGE_RESULT = DocumentType(
    "result of a range", 5, RangeResult, "No action needed: the range is read again.", is_sealed=True
)


_READING = 0.6
"""Share of a range's progress when its records have been read; then its runs are written."""


def read_ranges(tasks: Sequence[RangeTask]) -> list[RangeResult | Failure]:
    """Read ranges into runs over one connection, except those that an earlier attempt of the plan has read."""
    from statecore.changelog.cluster import Cluster

    first = tasks[0]
    of = first.cluster  # all tasks of a job have the same settings and place
    cluster = Cluster(of.bootstrap_servers, of.kafka, timeout=of.timeout)
    progress = ReadingProgress(first.place, first.task, first.store, first.offset_range)
    batch = _Batch(cluster, first, progress)
    try:
        return batch.finished(run_tasks(batch.read, tasks), first)
    finally:
        batch.close()
        progress.close()
        with suppress(Exception):  # the results are complete, also if closing fails
            cluster.close()


class _Batch:
    """Ranges that a worker reads one after the other."""

    def __init__(self, cluster: Cluster, first: RangeTask, progress: ReadingProgress) -> None:
        self._cluster, self._progress = cluster, progress
        self._blobs = first.place.blobs()
        self._publisher = None if first.repository is None else Publisher(first.repository)
        self._scratches = ExitStack()  # of ranges whose runs wait to share a pack
        self._results: dict[str, RangeResult] = {}

    def read(self, task: RangeTask) -> RangeResult:
        """Read a range, unless an earlier attempt has. Where its runs are may be known only when the batch ends."""
        result = self._read(task)
        self._progress.finish(task.offset_range.end - task.offset_range.start)
        return result

    def finished(self, found: list[RangeResult | Failure], first: RangeTask) -> list[RangeResult | Failure]:
        """The results, after all waiting runs are published."""
        publisher = self._publisher
        if publisher is not None and publisher.waits:
            flushed = run_task(lambda _: publisher.flush(), first)
            if isinstance(flushed, Failure):
                return [one for one in found if isinstance(one, Failure)] or [flushed]
        return [
            one if isinstance(one, Failure) else self._results.get(_name_of(one.task, one.store, one.offset_range), one)
            for one in found
        ]

    def close(self) -> None:
        """Delete the files of runs that were not published."""
        self._scratches.close()

    def _read(self, task: RangeTask) -> RangeResult:
        task.place.check_seen()
        name = _name_of(task.task, task.store, task.offset_range)
        found = _finished_range(task, self._blobs, name)
        if found is not None:
            return found
        with ExitStack() as scratch:
            attempt = scratch.enter_context(task.place.scratch())
            result, files = _read_into(attempt, task, self._cluster, self._progress)
            if self._publisher is None or task.is_replayed or task.place.keeps_runs:
                for file in files:
                    staging.keep(self._blobs, file)
            if self._publisher is None or task.is_replayed:
                return self._put(task, name, result)

            def published(extents: tuple[Extent, ...]) -> None:
                self._results[name] = self._put(task, name, replace(result, extents=extents))

            self._scratches.push(scratch.pop_all())
            self._publisher.publish(files, published)
        return self._results.get(name, result)

    def _put(self, task: RangeTask, name: str, result: RangeResult) -> RangeResult:
        """Put the result of a range, or return that of another attempt that was first."""
        while not self._blobs.put_if_absent(name, RANGE_RESULT.encode(result)):
            found = _finished_range(task, self._blobs, name)
            if found is not None:
                return found
        return result


def _name_of(task: str, store: str, span: OffsetRange) -> str:
    return staging.result_name(task, store, span)


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
        base=task.below,
        segmentation=task.segmentation,
        changelog=changelog,
        store=task.store,
        start=start,
        stream_time=task.stream_time,
    )


def _finished_range(task: RangeTask, blobs: Blobs, name: str) -> RangeResult | None:
    """Result of an earlier attempt after hashing every run; an incomplete one is deleted."""
    try:
        result = RANGE_RESULT.decode(blobs.get(name))
    except NotFound:
        return None
    except Invalid:  # torn, or of another release
        blobs.delete(name)
        return None
    if result.offset_range == task.offset_range and _is_kept(task, blobs, result) and _is_published(task, result):
        return result
    forget_range(blobs, result)
    return None


def _is_kept(task: RangeTask, blobs: Blobs, result: RangeResult) -> bool:
    if task.repository is not None and not task.is_replayed and not task.place.keeps_runs:
        return True  # only in the repository
    return all(staging.is_whole(blobs, run) for run in result.runs)


def _is_published(task: RangeTask, result: RangeResult) -> bool:
    if task.repository is None or task.is_replayed:
        return True
    if len(result.extents) != len(result.runs):
        return False
    return task.repository.holds((run.sha256, extent) for run, extent in zip(result.runs, result.extents, strict=True))


def forget_range(blobs: Blobs, result: RangeResult) -> None:
    """Delete the blobs of a range, its result first."""
    blobs.delete(staging.result_name(result.task, result.store, result.offset_range))
    for run in result.runs:
        blobs.delete(staging.run_name(run))
