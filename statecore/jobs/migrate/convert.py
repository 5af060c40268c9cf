"""Converts copies of task directories on an engine's workers: the driver's part, then the worker's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from statecore.conversion import TaskConversion
from statecore.faults import fault_points_from_environment
from statecore.jobs.engine.in_process import SMALL_BYTES, InProcessEngine
from statecore.jobs.engine.processes import ProcessEngine
from statecore.jobs.engine.protocol import Engine, Failure, Workers
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.pipeline.batches import StageProgress, run_batches
from statecore.progress import Progress
from statecore.statedir.task_copies import TaskCopies

_FEW_DATABASES = 64
"""Databases below which this process converts them itself, if they are small."""

_PRELOADED = ("statecore.conversion.execute",)


@dataclass(frozen=True)
class ConvertTask:
    """Conversion of the copy of one task directory.

    Attributes:
        done: a file that is created at the end, for the progress.
    """

    plan: TaskConversion
    copy: str
    done: str


@dataclass(frozen=True)
class ConvertedTask:
    """A converted, synced and verified copy."""

    task: str
    seconds: float


def engine_for(engine: Engine, tasks: Sequence[TaskConversion]) -> Engine:
    """The engine; this process alone for little work, because workers take longer to start."""
    if not isinstance(engine, ProcessEngine):
        return engine
    databases, size = sum(task.databases for task in tasks), sum(task.needed_bytes for task in tasks)
    if databases < _FEW_DATABASES and size < SMALL_BYTES:
        return InProcessEngine(_PRELOADED)
    return replace(engine, preloaded=_PRELOADED)


def copy_tasks(swap: TaskCopies, tasks: Sequence[TaskConversion], progress: Progress) -> list[ConvertTask]:
    """Copy the tasks for their conversion, after checking that there is space for it."""
    swap.directory.ensure_free_space(sum(task.needed_bytes for task in tasks))
    progress.phase("copy", len(tasks), "tasks")
    copies = []
    for task in tasks:
        swap.keep(task.task, task.moved)
        done = swap.staging / f"{task.task.replace('/', '+')}.done"
        copies.append(ConvertTask(task, str(swap.copy(task.task)), str(done)))
        progress.advance()
    progress.done()
    return copies


def convert_copies(workers: Workers, copies: Sequence[ConvertTask], progress: Progress, doing: str) -> dict[str, float]:
    """Convert every copy on the workers; returns seconds by task."""
    progress.phase("convert", len(copies), "tasks")
    files = [Path(one.done) for one in copies]
    with StageProgress(lambda: sum(file.exists() for file in files), progress) as watch:
        done = run_batches(workers, [[one] for one in copies], convert_tasks, doing)
    progress.advance(len(done) - watch.seen)
    progress.done()
    if len(done) != len(copies):
        raise AssertionError(f"{len(done)} of {len(copies)} tasks were answered for")
    return {one.task: one.seconds for one in done}


def convert_tasks(tasks: Sequence[ConvertTask]) -> list[ConvertedTask | Failure]:
    """Convert copies, up to the first failure; then none is put in place."""
    done: list[ConvertedTask | Failure] = []
    for one in tasks:
        try:
            done.append(_convert(one))
        except Exception as error:
            doing = f"task {one.plan.task} was converted for Kafka Streams {one.plan.to.name} in {one.copy}"
            done.append(Failure(as_statecore_error(error, doing, task=one.plan.task).to_json()))
            break
    return done


def _convert(one: ConvertTask) -> ConvertedTask:
    from statecore.conversion.execute import convert, verify_conversion

    began = time.monotonic()
    copy = Path(one.copy)
    convert(one.plan, copy, fault_points_from_environment())
    verify_conversion(one.plan, copy)
    Path(one.done).touch()
    return ConvertedTask(one.plan.task, time.monotonic() - began)
