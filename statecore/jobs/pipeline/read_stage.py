"""Stage one of a job: read the changelogs of a plan into runs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

from statecore.changelog.model import OffsetRange
from statecore.errors import Retryable
from statecore.images.model import BaseDatabases
from statecore.jobs.bases.base import Base, Key
from statecore.jobs.context import JobContext
from statecore.jobs.engine.protocol import Workers
from statecore.jobs.pipeline.batches import StageProgress, batched, batched_alone, run_batches
from statecore.jobs.pipeline.range_tasks import read_ranges
from statecore.jobs.pipeline.ranges import ClusterSettings, RangeResult, RangeTask
from statecore.jobs.pipeline.run_publisher import ApplicationAddress
from statecore.jobs.pipeline.staging_place import StagingPlace
from statecore.jobs.pipeline.version_tasks import VersionResult, VersionTask, publish_versions
from statecore.jobs.planning.plan import ReadPlan
from statecore.progress import Progress


class ReadResult(NamedTuple):
    """Results of the tasks that read changelogs.

    Attributes:
        runs: (task, store) → results of its ranges, in the order they are applied.
        versions: (task, store) → the rows of versioned stores, if published.
    """

    runs: Mapping[Key, tuple[RangeResult, ...]]
    versions: Mapping[Key, VersionResult]


NOTHING_READ = ReadResult({}, {})


def cluster_settings(context: JobContext[Any]) -> ClusterSettings:
    """How workers connect to the brokers."""
    return ClusterSettings(context.spec.bootstrap_servers, context.spec.kafka, context.timeout)


def read_changelogs(
    context: JobContext[Any],
    workers: Workers,
    plan: ReadPlan,
    bases: Mapping[Key, Base],
    place: StagingPlace,
    *,
    uploads: bool,
) -> ReadResult:
    """Read the ranges of a plan; ``uploads`` if the runs go into the repository."""
    settings, budget, progress = cluster_settings(context), context.request.memory_budget, context.progress
    address = ApplicationAddress.of(context.repository) if uploads else None
    runs = read_runs(workers, plan, settings, place, budget, progress, address, bases)
    return ReadResult(runs, publish_rows(workers, plan, runs, place, address, budget, progress))


def read_runs(
    workers: Workers,
    plan: ReadPlan,
    cluster: ClusterSettings,
    place: StagingPlace,
    memory_budget: int,
    progress: Progress,
    repository: ApplicationAddress | None = None,
    bases: Mapping[Key, Base] = MappingProxyType({}),
) -> dict[tuple[str, str], tuple[RangeResult, ...]]:
    """Read every range of a plan into runs, by task and store, in offset order."""
    firsts = {
        key: next((span for part in parts for span in part.offset_ranges), None) for key, parts in plan.stores.items()
    }

    def below(key: Key, span: OffsetRange) -> BaseDatabases:
        if firsts[key] != span:
            return BaseDatabases.ALL
        return bases[key].below if key in bases else BaseDatabases.NONE

    tasks = [
        RangeTask(
            cluster,
            place,
            part.task,
            part.store,
            part.kind,
            span,
            part.topic_id,
            plan.isolation,
            below=below((part.task, part.store), span),
            memory_budget=memory_budget,
            segmentation=part.segmentation,
            repository=repository,
            stream_time=bases[part.task, part.store].stream_time if (part.task, part.store) in bases else -1,
        )
        for part in plan.largest_first
        for span in part.offset_ranges
    ]
    place.prepare()
    progress.phase("read", plan.offsets, "offsets")
    with StageProgress(_Offsets(place), progress) as watch:
        batches = batched(
            tasks, [task.offset_range.end - task.offset_range.start for task in tasks], workers.parallelism()
        )
        results = run_batches(workers, batches, read_ranges, f"the changelogs of {plan.application_id} were read")
    progress.advance(plan.offsets - watch.seen)
    progress.done()
    grouped: dict[tuple[str, str], list[RangeResult]] = defaultdict(list)
    for result in results:
        grouped[result.task, result.store].append(result)
    return {key: tuple(sorted(found, key=_order)) for key, found in grouped.items()}


def _order(result: RangeResult) -> tuple[int, int]:
    """By partition, as Kafka Streams restores a global store, then by offset."""
    return result.offset_range.partition, result.offset_range.start


def publish_rows(
    workers: Workers,
    plan: ReadPlan,
    runs: dict[tuple[str, str], tuple[RangeResult, ...]],
    place: StagingPlace,
    repository: ApplicationAddress | None,
    memory_budget: int,
    progress: Progress,
) -> dict[tuple[str, str], VersionResult]:
    """Build and publish the rows of versioned stores; the runs of other kinds are rows already."""
    tasks = [
        VersionTask(place, repository, task, store, runs.get((task, store), ()), of, memory_budget)
        for (task, store), parts in plan.stores.items()
        if repository is not None and parts[0].kind.is_versioned and not parts[0].restored_by_kafka_streams
        if (of := parts[0].segmentation) is not None
    ]
    if not tasks:
        return {}
    progress.phase("rows", len(tasks), "stores")
    batches = batched_alone(tasks, workers.parallelism())
    results = run_batches(
        workers, batches, publish_versions, f"rows of versioned stores of {plan.application_id} were made"
    )
    progress.advance(len(results))
    progress.done()
    return {(result.task, result.store): result for result in results}


class _Offsets:
    """Offsets read, as the workers report them, polled no more often than they report."""

    def __init__(self, place: StagingPlace) -> None:
        self._place = place
        self._reported = 0
        self._next = 0.0

    def __call__(self) -> int:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._place.interval
            with suppress(Retryable):  # the work goes on; the next poll may succeed
                self._reported = self._place.offsets_done()
        return self._reported
