"""Merge tasks between the stages: all workers merge and digest the runs of a large database slice by slice.

One worker builds an image. If a large database has runs that overlap, its keys are divided
(:mod:`statecore.images.key_range_merge`), each slice is a task, and the image links the merged files. A slice is
published like a range: its files are blobs, and its result is put after them, so a retry finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from statecore.documents import DocumentType
from statecore.errors import Corrupted, NotFound, Retryable
from statecore.images.model import MergedDatabase, Run, RunFile, SliceContent
from statecore.images.universal_compaction import sorted_runs
from statecore.jobs.engine.protocol import Failure
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.staging_place import StagingPlace
from statecore.jobs.pipeline.task_runner import run_tasks
from statecore.objectstore.base import Blobs
from statecore.stopwatch import Stopwatch

SLICE_BYTES = 64 << 20  # Bytes of runs that are worth a slice: half a second of work, and a usual size of RocksDB files


@dataclass(frozen=True)
class SliceTask:
    """Merge and digest the runs of one database in one slice of its keys.

    Attributes:
        place: where the runs are and merged files are put.
        runs: all runs of the database, in the order they are applied.
        made_of: the results that name these runs: deleted with them if one is damaged, so that its range is read again.
        part: number of the slice, from 0.
        parts: how many slices the database has.
    """

    place: StagingPlace
    task: str
    store: str
    segment: int | None
    runs: tuple[Run, ...]
    made_of: tuple[str, ...]
    part: int
    parts: int

    @property
    def where(self) -> str:
        return str(self.place)

    @property
    def name(self) -> str:
        inputs = sha256("".join(run.sha256 for run in self.runs).encode()).hexdigest()
        return staging.slice_name(self.task, self.store, f"{inputs[:16]}.{self.part}-{self.parts}")


@dataclass(frozen=True)
class SliceResult:
    """Content of one slice of a database.

    Attributes:
        runs: hashes of all runs of the database, in the order they are applied.
        part: number of the slice, from 0.
        content: digest, and the files that were written.
    """

    name: str
    segment: int | None
    runs: tuple[str, ...]
    part: int
    content: SliceContent
    seconds: float
    cpu: float

    @property
    def made(self) -> list[Run]:
        return [run for run in self.content.made if run is not None]


SLICE_RESULT = DocumentType(
    "result of a slice", 1, SliceResult, "No action needed: the slice is merged again.", is_sealed=True
)


def slices_of(runs: Sequence[Run], slice_bytes: int = SLICE_BYTES) -> int:
    """Number of slices that the keys of a database are divided into; 1 where slices are not worth it."""
    if len(sorted_runs(runs)) < 2:  # nothing to merge or to digest
        return 1
    return max(1, sum(run.file_bytes for run in runs) // slice_bytes)


def slice_tasks(
    place: StagingPlace,
    task: str,
    store: str,
    runs: Sequence[Run],
    made_of: Sequence[str],
    first_segment: int,
    slice_bytes: int = SLICE_BYTES,
) -> list[SliceTask]:
    """The slices of all large databases of a store; none if each task would have to download all runs."""
    blobs = place.blobs()
    databases: dict[int | None, list[Run]] = {}
    for run in runs:
        if run.segment is None or run.segment >= first_segment:
            databases.setdefault(run.segment, []).append(run)
    return [
        SliceTask(place, task, store, segment, tuple(its_runs), tuple(made_of), part, parts)
        for segment, its_runs in databases.items()
        if (parts := slices_of(its_runs, slice_bytes)) > 1 and _is_local(blobs, its_runs[0])
        for part in range(parts)
    ]


def _is_local(blobs: Blobs, run: Run) -> bool:
    try:
        return blobs.local_path(staging.run_name(run)) is not None
    except NotFound:
        return False


def merge_slices(tasks: Sequence[SliceTask]) -> list[SliceResult | Failure]:
    """Merge slices, except those that an earlier attempt of the plan has merged."""
    return run_tasks(_merge_slice, tasks)


def _merge_slice(task: SliceTask) -> SliceResult:
    task.place.check_seen()
    blobs = task.place.blobs()
    found = _finished_slice(task, blobs)
    if found is not None:
        return found
    with task.place.scratch() as attempt:
        try:
            result = _merge_into(attempt, task, blobs)
        except Corrupted:
            # A retry must not find the same runs again.
            staging.forget(blobs, task.made_of, [run.sha256 for run in task.runs])
            raise
        document = SLICE_RESULT.encode(result)
        return staging.put_result(blobs, task.name, document, result, lambda: _finished_slice(task, blobs))


def _merge_into(attempt: Path, task: SliceTask, blobs: Blobs) -> SliceResult:
    from statecore.images.key_range_merge import merge_slice

    watch = Stopwatch("image")
    runs = [staging.at_hand(blobs, run, attempt) for run in task.runs]
    try:
        content, files = merge_slice(attempt, runs, task.part, task.parts)
    except FileNotFoundError as error:
        raise Retryable(
            f"A run of store {task.store!r} of task {task.task} was deleted while it was merged ({error.filename}): "
            "another worker found a run of this store damaged.",
            code="run-removed",
            action="Run the job again: damaged runs are read again.",
            task=task.task,
            store=task.store,
        ) from error
    for file in files:
        staging.keep(blobs, file)
    hashes = tuple(run.sha256 for run in task.runs)
    return SliceResult(task.name, task.segment, hashes, task.part, content, watch.wall["image"], watch.cpu["image"])


def _finished_slice(task: SliceTask, blobs: Blobs) -> SliceResult | None:
    """Result of an earlier attempt after hashing every file; an incomplete one is deleted."""
    result = staging.load_result(blobs, task.name, SLICE_RESULT)
    if result is None:
        return None
    if result.runs == tuple(run.sha256 for run in task.runs) and all(
        staging.is_whole(blobs, run) for run in result.made
    ):
        return result
    forget_slice(blobs, result)
    return None


def joined(
    slices: Sequence[SliceResult], runs: Sequence[RunFile], at_hand: Callable[[Run], RunFile]
) -> dict[int | None, MergedDatabase]:
    """The databases of a store that were merged slice by slice, by segment."""
    merged: dict[int | None, MergedDatabase] = {}
    if not slices:
        return merged
    from statecore.images.key_range_merge import join_slices

    for segment in {of_slice.segment for of_slice in slices}:
        its_slices = sorted((one for one in slices if one.segment == segment), key=lambda one: one.part)
        its_runs = [run for run in runs if run.segment == segment]
        merged[segment] = join_slices(its_runs, [one.content for one in its_slices], at_hand)
    return merged


def spent_on(slices: Sequence[SliceResult]) -> tuple[float, float]:
    """Wall and CPU seconds of the tasks of some slices."""
    return sum(one.seconds for one in slices), sum(one.cpu for one in slices)


def forget_slice(blobs: Blobs, result: SliceResult) -> None:
    """Delete a slice, its result first."""
    staging.forget(blobs, [result.name], [run.sha256 for run in result.made])
