"""Stage one on an engine's workers: read ranges of changelogs into runs.

Tasks are idempotent and safe under retries, speculation and kills: an attempt publishes its result in one step, and a
later attempt of the same plan reuses it after a check (layout: ``statecore.jobs.pipeline.staging``).

A task returns its result, or the error that stopped it as a value (:mod:`statecore.jobs.engine.protocol`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from statecore.images.model import RunFile
from statecore.jobs.engine.protocol import Failure
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.ranges import RANGE_RESULT, RangeResult, RangeTask, finished_range
from statecore.jobs.pipeline.run_publisher import Publisher
from statecore.jobs.pipeline.staging_place import ReadingProgress
from statecore.jobs.pipeline.task_runner import run_task, run_tasks
from statecore.repository.manifest import Extent
from statecore.stopwatch import Stopwatch

if TYPE_CHECKING:
    from statecore.changelog.cluster import Cluster
    from statecore.images.runs import RunBuilder
    from statecore.images.versions.build import VersionRunBuilder


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
        return [one if isinstance(one, Failure) else self._results.get(one.name, one) for one in found]

    def close(self) -> None:
        """Delete the files of runs that were not published."""
        self._scratches.close()

    def _read(self, task: RangeTask) -> RangeResult:
        task.place.check_seen()
        found = finished_range(task, self._blobs)
        if found is not None:
            return found
        with ExitStack() as scratch:
            attempt = scratch.enter_context(task.place.scratch())
            result, files = _read_into(attempt, task, self._cluster, self._progress)
            if self._publisher is None or task.is_replayed or task.place.keeps_runs:
                for file in files:
                    staging.keep(self._blobs, file)
            if self._publisher is None or task.is_replayed:
                return self._put(task, result)

            def published(extents: tuple[Extent, ...]) -> None:
                self._results[task.name] = self._put(task, replace(result, extents=extents))

            self._scratches.push(scratch.pop_all())
            self._publisher.publish(files, published)
        return self._results.get(task.name, result)

    def _put(self, task: RangeTask, result: RangeResult) -> RangeResult:
        """Put the result of a range, or return that of another attempt that was first."""
        document = RANGE_RESULT.encode(result)
        return staging.put_result(self._blobs, task.name, document, result, lambda: finished_range(task, self._blobs))


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
    phases, built = watch.wall, builder.statistics
    result = RangeResult(
        task.task,
        task.store,
        span,
        tuple(file.run for file in files),
        statistics,
        sum(phases.values()),
        phases,
        watch.cpu,
        built.stream_time,
        built.expired,
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
