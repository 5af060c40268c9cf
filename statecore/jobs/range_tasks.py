"""Stage one, as an engine's workers do it: read ranges of changelogs into runs.

A task is idempotent and safe under retries, speculation and kills: an attempt publishes its result in one step, and a
later attempt of the same plan takes it after a look (``statecore.jobs.staging`` draws the directories).

A task answers with its result or with the error that stopped it, as a value (:mod:`statecore.jobs.engine`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statecore.blobs.base import Blobs
from statecore.changelog.model import IsolationLevel, OffsetRange, ReadStatistics
from statecore.documents import DocumentType
from statecore.errors import Invalid, NotFound
from statecore.formats.kinds import StoreKind
from statecore.images.model import Below, Run, RunFile, Segmentation
from statecore.jobs import staging
from statecore.jobs.answers import answers
from statecore.jobs.engine import Failure
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
    forget_range(blobs, result)
    return None


def forget_range(blobs: Blobs, result: RangeResult) -> None:
    """Take away what was read of a range, the word of it first."""
    blobs.delete(staging.result_name(result.task, result.store, result.offset_range))
    for run in result.runs:
        blobs.delete(staging.run_name(run))
