"""Stages of a restore on an engine: ranges → runs, runs → images; between them large databases are merged.

A stage is given to the engine in batches, largest first; small ranges and small stores share a batch.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from statecore.changelog.model import OffsetRange
from statecore.errors import Invalid, Retryable, StatecoreError
from statecore.images.model import BaseDatabases
from statecore.images.read_amplification import SLICE_BYTES
from statecore.jobs.bases.base import Base, Key
from statecore.jobs.engine import Failure, ResultT, TaskT, Workers
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.image_tasks import ImageResult, ImageTask, build_stores
from statecore.jobs.pipeline.merge_tasks import SliceResult, SliceTask, merge_slices, slice_tasks
from statecore.jobs.pipeline.range_tasks import ClusterSettings, RangeResult, RangeTask, read_ranges
from statecore.jobs.pipeline.run_sink import ApplicationAddress
from statecore.jobs.pipeline.staging_place import StagingPlace
from statecore.jobs.pipeline.store_to_build import AppliedRuns, StoreToBuild
from statecore.jobs.pipeline.version_tasks import VersionResult, VersionTask, publish_versions
from statecore.jobs.planning.plan import RestorePlan
from statecore.progress import Progress

POLL_INTERVAL = 0.5

_BATCHES_EACH = 4
_BATCH_OFFSETS = 200_000
"""Offsets that make a batch worth the cost of starting it in Spark."""


def read_runs(
    workers: Workers,
    plan: RestorePlan,
    cluster: ClusterSettings,
    place: StagingPlace,
    memory_budget: int,
    progress: Progress,
    repository: ApplicationAddress | None = None,
    bases: Mapping[Key, Base] = MappingProxyType({}),
) -> dict[tuple[str, str], tuple[RangeResult, ...]]:
    """Read every range of a plan into runs.

    Returns:
        (task, store) → results in offset order.
    """
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
    with Watch(_Offsets(place), progress) as watch:
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
    plan: RestorePlan,
    runs: dict[tuple[str, str], tuple[RangeResult, ...]],
    place: StagingPlace,
    repository: ApplicationAddress | None,
    memory_budget: int,
    progress: Progress,
) -> dict[tuple[str, str], VersionResult]:
    """Build and publish the rows of versioned stores; the runs of other kinds are rows already.

    Returns:
        (task, store) → result.
    """
    tasks = [
        VersionTask(place, repository, task, store, runs.get((task, store), ()), of, memory_budget)
        for (task, store), parts in plan.stores.items()
        if repository is not None and parts[0].kind.is_versioned and not parts[0].restored_by_kafka_streams
        if (of := parts[0].segmentation) is not None
    ]
    if not tasks:
        return {}
    progress.phase("rows", len(tasks), "stores")
    batches = batched(tasks, [_BATCH_OFFSETS] * len(tasks), workers.parallelism())
    results = run_batches(
        workers, batches, publish_versions, f"rows of versioned stores of {plan.application_id} were made"
    )
    progress.advance(len(results))
    progress.done()
    return {(result.task, result.store): result for result in results}


def stores_to_build(
    plan: RestorePlan,
    runs: Mapping[tuple[str, str], Sequence[RangeResult]],
    bases: Mapping[Key, Base] = MappingProxyType({}),
) -> list[StoreToBuild]:
    """Every store of a plan, with its runs and its base databases in the state directory."""
    return [
        StoreToBuild(
            task,
            store,
            parts[0].kind,
            {part.topic_partition: part.committed_offset for part in parts},
            tuple(
                AppliedRuns(result.runs, result.stream_time, staging.result_name(task, store, result.offset_range))
                for result in runs.get((task, store), ())
            ),
            parts[0].segmentation,
            bases[task, store].bases if (task, store) in bases else (),
            size=sum(part.end - part.start for part in parts),
        )
        for (task, store), parts in plan.stores.items()
    ]


def build_images(
    workers: Workers,
    application_id: str,
    stores: Sequence[StoreToBuild],
    place: StagingPlace,
    directory: Path,
    memory_budget: int,
    progress: Progress,
    *,
    slice_bytes: int = SLICE_BYTES,
) -> dict[tuple[str, str], ImageResult]:
    """Build the image of every store.

    Returns:
        (task, store) → result.
    """
    largest_first = sorted(stores, key=lambda store: (-store.size, store.task, store.store))
    staging.prepare(directory)
    slices = _merge(workers, application_id, stores, place, progress, slice_bytes)
    tasks = [
        ImageTask(place, str(directory), store, memory_budget, tuple(slices.get((store.task, store.store), ())))
        for store in largest_first
    ]
    progress.phase("build", len(tasks), "stores")
    batches = batched(tasks, [store.size for store in largest_first], workers.parallelism())
    with Watch(_Images([(task.task, task.store) for task in tasks], directory), progress) as watch:
        results = run_batches(workers, batches, build_stores, f"the images of {application_id} were built")
    progress.advance(len(results) - watch.seen)
    progress.done()
    places = [staging.image_path(directory, result.task, result.store) for result in results]
    unseen = [place for place in places if not (place / staging.DATABASE).is_dir()]
    if unseen:
        raise Invalid(
            f"Executors built {len(unseen)} images that this host does not see, for example {unseen[0]}.",
            code="staging-not-shared",
            action="Give a staging directory on a file system that all executors share with the driver.",
        )
    return {(result.task, result.store): result for result in results}


def _merge(
    workers: Workers,
    application_id: str,
    stores: Sequence[StoreToBuild],
    place: StagingPlace,
    progress: Progress,
    slice_bytes: int,
) -> dict[tuple[str, str], list[SliceResult]]:
    """Merge the runs of large databases on all workers; small ones are merged by the task that builds the image."""
    tasks: list[SliceTask] = []
    for store in stores:
        if store.kind.is_versioned or not store.is_counted:  # merging would read runs that stay as they are
            continue
        on_base = {base.segment for base in store.bases}
        runs = [run for run in store.runs if run.segment not in on_base]
        tasks += slice_tasks(place, store.task, store.store, runs, store.results, store.first_segment, slice_bytes)
    tasks.sort(key=_slice_bytes, reverse=True)
    batches = batched(tasks, [_BATCH_OFFSETS] * len(tasks), workers.parallelism())
    results_of = {task.name: (task.task, task.store) for task in tasks}
    merged: dict[tuple[str, str], list[SliceResult]] = defaultdict(list)
    if not tasks:
        return merged
    progress.phase("merge", len(tasks), "slices")
    with Watch(_Slices(place, tasks, workers.parallelism()), progress) as watch:
        slices = run_batches(workers, batches, merge_slices, f"runs of {application_id} were merged")
    progress.advance(len(slices) - watch.seen)
    progress.done()
    for found in slices:
        merged[results_of[found.name]].append(found)
    return merged


def _slice_bytes(task: SliceTask) -> int:
    return sum(run.file_bytes for run in task.runs) // task.parts


def batched(tasks: Sequence[TaskT], sizes: Sequence[int], parallelism: int) -> list[list[TaskT]]:
    """Group tasks into batches, in their order: a large task alone, small ones together.

    With Spark a batch costs tens of milliseconds, and a connection to the brokers as much again; reading a hundred
    records takes one. There are several batches per worker, so that no worker is idle at the end. A single worker gets
    all small tasks at once, and their runs share one pack.
    """
    most = -(-len(tasks) // (_BATCHES_EACH * parallelism)) if parallelism > 1 else len(tasks)
    batches: list[list[TaskT]] = []
    room = 0
    for task, size in zip(tasks, sizes, strict=True):
        if not batches or size > room or len(batches[-1]) >= most:
            batches.append([])
            room = _BATCH_OFFSETS
        batches[-1].append(task)
        room -= size
    return batches


def run_batches(
    workers: Workers,
    batches: Sequence[Sequence[TaskT]],
    work: Callable[[Sequence[TaskT]], list[ResultT | Failure]],
    doing: str,
) -> list[ResultT]:
    if not batches:
        return []
    answers = workers.run(work, batches, doing)
    failures = [answer for answer in answers if isinstance(answer, Failure)]
    if failures:
        # A permanent error explains more than one that a retry would cure (exit code 10).
        raise min((failure.to_error() for failure in failures), key=lambda error: error.exit_code == 10)
    return [answer for answer in answers if not isinstance(answer, Failure)]


class Watch:
    """Reports the progress of a stage while it runs, also if nothing has changed.

    Attributes:
        seen: amount reported so far.
    """

    def __init__(self, done: Callable[[], int], progress: Progress) -> None:
        self.seen = 0
        self._done = done
        self._progress = progress
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(POLL_INTERVAL):
            done = self._done()
            self._progress.advance(max(0, done - self.seen))
            self.seen = max(done, self.seen)


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


class _Images:
    """Number of finished images; each is looked for until it is there."""

    def __init__(self, images: Sequence[tuple[str, str]], directory: Path) -> None:
        self._all = len(images)
        self._awaited = [staging.image_path(directory, task, store) for task, store in images]

    def __call__(self) -> int:
        self._awaited = [path for path in self._awaited if not path.is_dir()]
        return self._all - len(self._awaited)


class _Slices:
    """Number of finished slices. They begin in order, so only the first missing ones are looked for."""

    def __init__(self, place: StagingPlace, tasks: Sequence[SliceTask], parallelism: int) -> None:
        self._blobs = place.blobs()
        self._all = len(tasks)
        self._awaited = deque(task.name for task in tasks)
        self._parallelism = parallelism

    def __call__(self) -> int:
        missing: list[str] = []
        while self._awaited and len(missing) < self._parallelism:
            name = self._awaited.popleft()
            try:
                self._blobs.head(name)
            except StatecoreError:  # missing or unknown; the work goes on
                missing.append(name)
        self._awaited.extendleft(reversed(missing))
        return self._all - len(self._awaited)
