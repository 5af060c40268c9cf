"""The worker's part of a migration: converts and verifies copies of task directories."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from statecore.conversion import TaskConversion
from statecore.faults import fault_points_from_environment
from statecore.jobs.engine import Failure
from statecore.jobs.failures import as_statecore_error


@dataclass(frozen=True)
class ConvertTask:
    """Conversion of the copy of one task directory.

    Attributes:
        plan: the conversion plan.
        copy: the copy, below the application's directory.
        done: a file that is created at the end, for the progress.
    """

    plan: TaskConversion
    copy: str
    done: str


@dataclass(frozen=True)
class Converted:
    """A converted, synced and verified copy.

    Attributes:
        task: the task.
        seconds: wall time.
    """

    task: str
    seconds: float


def convert_tasks(tasks: Sequence[ConvertTask]) -> list[Converted | Failure]:
    """Convert copies, up to the first failure; then none is put in place."""
    done: list[Converted | Failure] = []
    for one in tasks:
        try:
            done.append(_convert(one))
        except Exception as error:
            doing = f"task {one.plan.task} was converted for Kafka Streams {one.plan.to.name} in {one.copy}"
            done.append(Failure(as_statecore_error(error, doing, task=one.plan.task).to_json()))
            break
    return done


def _convert(one: ConvertTask) -> Converted:
    from statecore.conversion.execute import convert, verify_conversion

    began = time.monotonic()
    copy = Path(one.copy)
    convert(one.plan, copy, fault_points_from_environment())
    verify_conversion(one.plan, copy)
    Path(one.done).touch()
    return Converted(one.plan.task, time.monotonic() - began)
