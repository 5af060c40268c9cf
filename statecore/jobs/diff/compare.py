"""Compares stores on an engine's workers, one store of a task at a time: the driver's part, then the worker's."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.segments import Segmentation
from statecore.jobs.diff.report import ExistsIn, StoreDiff, verdict_of
from statecore.jobs.engine.in_process import SMALL_BYTES, InProcessEngine
from statecore.jobs.engine.processes import ProcessEngine
from statecore.jobs.engine.protocol import Engine, Failure, RanOn, WorkerRequirements
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.pipeline.batches import StageProgress, batched, run_batches
from statecore.progress import Progress
from statecore.spec.model import ApplicationSpec
from statecore.stopwatch import Stopwatch

_PROGRESS_SECONDS = 1.0

_ROW_BYTES = 100
"""Estimated bytes of a row; work is measured in rows."""


@dataclass(frozen=True)
class DiffSide:
    """A store on one side.

    Attributes:
        directory: the store's directory, which workers must be able to read; empty if this side lacks the store.
        databases: by start of the segment in ms, or ``None``.
    """

    directory: str
    databases: Mapping[int | None, str]
    offsets: Mapping[str, int]
    position: Mapping[str, int]
    file_bytes: int


@dataclass(frozen=True)
class DiffTask:
    """Comparison of one task's store.

    Attributes:
        number: number of the task, and name of its file in ``progress_directory``.
        examples: maximum number of examples for each kind of difference.
        segmentation: if given, expired segments are skipped.
        progress_directory: directory for progress files; the driver may not see that of a cluster's worker.
    """

    number: int
    task: str
    store: str
    kind: StoreKind
    here: DiffSide
    reference: DiffSide
    examples: int
    segmentation: Segmentation | None
    progress_directory: str

    @property
    def file_bytes(self) -> int:
        return self.here.file_bytes + self.reference.file_bytes


def compare(
    engine: Engine,
    spec: ApplicationSpec,
    tasks: Sequence[DiffTask],
    progress_directory: Path,
    progress: Progress,
    doing: str,
) -> tuple[list[StoreDiff], RanOn]:
    """Compare all stores, the largest first; returns also where."""
    largest_first = sorted(tasks, key=lambda task: -task.file_bytes)
    total = sum(task.file_bytes for task in tasks)
    if isinstance(engine, ProcessEngine) and engine.processes is None and total < SMALL_BYTES:
        engine = InProcessEngine()
    with engine.start("diff", spec) as workers:
        if workers.name:
            progress.phase(f"wait for {workers.name}")
        parallelism = workers.parallelism()
        progress.done()
        ran_on = workers.check(WorkerRequirements(None, (), ()))
        progress.phase("compare", total, "bytes")
        batches = batched(largest_first, [task.file_bytes // _ROW_BYTES for task in largest_first], parallelism)
        with StageProgress(lambda: bytes_read(progress_directory), progress) as watch:
            found = run_batches(workers, batches, compare_batch, doing)
        progress.advance(total - watch.seen)
        progress.done()
    return found, ran_on


def bytes_read(directory: Path) -> int:
    """Bytes that all tasks have read so far."""
    total = 0
    for file in directory.iterdir():
        with suppress(OSError, ValueError):
            total += int(file.read_text())
    return total


def compare_batch(tasks: Sequence[DiffTask]) -> list[StoreDiff | Failure]:
    """Compare stores, up to the first failure."""
    found: list[StoreDiff | Failure] = []
    for task in tasks:
        doing = f"store {task.store!r} of task {task.task} was compared"
        try:
            found.append(_compare(task))
        except Exception as error:
            found.append(Failure(as_statecore_error(error, doing, task=task.task, store=task.store).to_json()))
            break
    return found


def _compare(task: DiffTask) -> StoreDiff:
    from statecore.jobs.diff.store_diff import compare_stores

    for side in (task.here, task.reference):
        if side.directory and not Path(side.directory).is_dir():
            raise Invalid(
                f"{side.directory} does not exist on {socket.gethostname()}.",
                code="directory-not-shared",
                action="Put both directories on a file system that all executors share with the driver, or compare on "
                "this machine (--engine processes).",
                task=task.task,
                store=task.store,
                path=side.directory,
            )
    watch = Stopwatch("compare", cpu_clock=time.thread_time)
    compared = compare_stores(
        task.kind,
        {segment: Path(path) for segment, path in task.here.databases.items()},
        {segment: Path(path) for segment, path in task.reference.databases.items()},
        examples=task.examples,
        segmentation=task.segmentation,
        read=_progress_reporter(task),
    )
    _write_progress(task, task.file_bytes)
    here, reference = task.here, task.reference
    return StoreDiff(
        task=task.task,
        store=task.store,
        kind=str(task.kind),
        verdict=verdict_of(compared.counts, here.offsets, reference.offsets),
        offsets=here.offsets,
        reference_offsets=reference.offsets,
        position=here.position,
        reference_position=reference.position,
        only=_exists_in(here, reference),
        compared=compared,
        seconds=round(watch.wall["compare"], 3),
        cpu=round(watch.cpu["compare"], 3),
    )


def _exists_in(here: DiffSide, reference: DiffSide) -> ExistsIn:
    if here.directory and reference.directory:
        return ExistsIn.BOTH
    return ExistsIn.STATE_DIRECTORY if here.directory else ExistsIn.REFERENCE


def _progress_reporter(task: DiffTask) -> Callable[[int], None]:
    """Report the bytes read once a second, at most the bytes of the files."""
    total, next_at = 0, time.monotonic() + _PROGRESS_SECONDS

    def read(count: int) -> None:
        nonlocal total, next_at
        total += count
        if time.monotonic() >= next_at:
            next_at = time.monotonic() + _PROGRESS_SECONDS
            _write_progress(task, min(total, task.file_bytes))

    return read


def _write_progress(task: DiffTask, count: int) -> None:
    with suppress(OSError):  # only for progress display
        Path(task.progress_directory, str(task.number)).write_text(str(count))
