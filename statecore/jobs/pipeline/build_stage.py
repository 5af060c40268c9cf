"""Stage two of a job: build images of runs; the runs of large databases are merged on all workers before."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from statecore.errors import Invalid, StatecoreError
from statecore.jobs.bases.base import Base, Key
from statecore.jobs.engine.protocol import Workers
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.batches import StageProgress, batched, batched_alone, run_batches
from statecore.jobs.pipeline.image_tasks import ImageResult, ImageTask, build_stores
from statecore.jobs.pipeline.merge_tasks import SLICE_BYTES, SliceResult, SliceTask, merge_slices, slice_tasks
from statecore.jobs.pipeline.ranges import RangeResult
from statecore.jobs.pipeline.staging_place import StagingPlace
from statecore.jobs.pipeline.store_to_build import AppliedRuns, StoreToBuild
from statecore.jobs.planning.plan import ReadPlan
from statecore.progress import Progress


def stores_to_build(
    plan: ReadPlan,
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
    """Build the image of every store, by task and store."""
    largest_first = sorted(stores, key=lambda store: (-store.size, store.task, store.store))
    staging.prepare(directory)
    slices = _merge(workers, application_id, stores, place, progress, slice_bytes)
    tasks = [
        ImageTask(place, str(directory), store, memory_budget, tuple(slices.get((store.task, store.store), ())))
        for store in largest_first
    ]
    progress.phase("build", len(tasks), "stores")
    batches = batched(tasks, [store.size for store in largest_first], workers.parallelism())
    with StageProgress(_Images([(task.task, task.store) for task in tasks], directory), progress) as watch:
        results = run_batches(workers, batches, build_stores, f"the images of {application_id} were built")
    progress.advance(len(results) - watch.seen)
    progress.done()
    images = [staging.image_path(directory, result.task, result.store) for result in results]
    not_shared = [image for image in images if not (image / staging.DATABASE).is_dir()]
    if not_shared:
        raise Invalid(
            f"Executors built {len(not_shared)} images that this host does not see, for example {not_shared[0]}.",
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
    tasks.sort(key=lambda task: sum(run.file_bytes for run in task.runs) // task.parts, reverse=True)
    batches = batched_alone(tasks, workers.parallelism())
    results_of = {task.name: (task.task, task.store) for task in tasks}
    merged: dict[tuple[str, str], list[SliceResult]] = defaultdict(list)
    if not tasks:
        return merged
    progress.phase("merge", len(tasks), "slices")
    with StageProgress(_Slices(place, tasks, workers.parallelism()), progress) as watch:
        slices = run_batches(workers, batches, merge_slices, f"runs of {application_id} were merged")
    progress.advance(len(slices) - watch.seen)
    progress.done()
    for found in slices:
        merged[results_of[found.name]].append(found)
    return merged


class _Images:
    """Number of finished images; each is polled until it exists."""

    def __init__(self, images: Sequence[tuple[str, str]], directory: Path) -> None:
        self._all = len(images)
        self._awaited = [staging.image_path(directory, task, store) for task, store in images]

    def __call__(self) -> int:
        self._awaited = [path for path in self._awaited if not path.is_dir()]
        return self._all - len(self._awaited)


class _Slices:
    """Number of finished slices. They begin in order, so only the first missing ones are polled."""

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
